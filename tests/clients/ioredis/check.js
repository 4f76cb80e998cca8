// ioredis over RESP2, RESP3 and TLS.

import { readFileSync } from 'node:fs'
import { deepEqual as same, rejects } from 'node:assert/strict'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'

const { SERVER_PORT, SERVER_TLS_PORT, TLS_CA, TLS_CERT, TLS_KEY } = process.env

async function types(db) {
  await db.flushall()
  same(await db.set('s', 'one', 'EX', 100, 'NX'), 'OK')
  same(await db.set('s', 'two', 'NX'), null)
  same(await db.mset({ n: 41, t: 'x' }), 'OK')
  same(await db.incr('n'), 42)
  same(await db.mget('s', 'none', 'n'), ['one', null, '42'])
  await rejects(db.incr('s'), /ERR value is not an integer or out of range/)
  const bytes = Buffer.from([0, 255, 13, 10])
  await db.set('bytes', bytes)
  same(await db.getBuffer('bytes'), bytes)
  same(await db.hset('h', { a: 1, b: 2 }), 2)
  same({ ...await db.hgetall('h') }, { a: '1', b: '2' })
  same(await db.rpush('l', 1, 2, 3), 3)
  same(await db.lrange('l', 0, -1), ['1', '2', '3'])
  same(await db.sadd('a', 1, 2, 3), 3)
  same(await db.smismember('a', 1, 9), [1, 0])
  same(await db.zadd('z', 1, 'x', 2.5, 'y'), 2)
  same(await db.zrange('z', 0, -1, 'WITHSCORES'), ['x', '1', 'y', '2.5'])
  same(await db.setbit('bits', 7, 1), 0)
  same(await db.bitcount('bits'), 1)
  same(await db.pfadd('p', 'a', 'b'), 1)
  same(await db.pfcount('p'), 2)
  same(await db.geoadd('g', 13.361389, 38.115556, 'Palermo'), 1)
  same(await db.geohash('g', 'Palermo'), ['sqc8b49rny0'])
  const keys = []
  for await (const some of db.scanStream({ count: 3 })) keys.push(...some)
  same(keys.length, await db.dbsize())
}

async function streams(db) {
  same(await db.xadd('st', '1-1', 'a', 1), '1-1')
  same(await db.xrange('st', '-', '+'), [['1-1', ['a', '1']]])
  same(await db.xgroup('CREATE', 'st', 'group', '0'), 'OK')
  same(await db.xreadgroup('GROUP', 'group', 'me', 'COUNT', 1, 'STREAMS', 'st', '>'), [['st', [['1-1', ['a', '1']]]]])
  same(await db.xpending('st', 'group'), [1, '1-1', '1-1', [['me', '1']]])
  same(await db.xack('st', 'group', '1-1'), 1)
}

async function transactions(db) {
  const pipeline = db.pipeline()
  for (let i = 0; i < 1000; i++) pipeline.incr('piped')
  const replies = await pipeline.exec()
  same([replies.length, replies[999]], [1000, [null, 1000]])
  same(await db.multi().set('t', 1).incr('t').exec(), [[null, 'OK'], [null, 2]])
  await db.watch('t')
  const other = db.duplicate()
  await other.set('t', 10)
  same(await db.multi().set('t', 3).exec(), null)
  other.disconnect()
}

async function scripts(db) {
  db.defineCommand('twice', { numberOfKeys: 1, lua: 'return redis.call("incrby", KEYS[1], ARGV[1] * 2)' })
  same(await db.twice('sc', 5), 10)
  same(await db.twice('sc', 1), 12)
  same(await db.pipeline().twice('sc', 1).get('sc').exec(), [[null, 14], [null, '14']])
  same(await db.eval('return {1, false, "x", {2}}', 0), [1, null, 'x', [2]])
  same(await db.function('LOAD', 'REPLACE', "#!lua name=iolib\nredis.register_function('hi', function() return 'hi' end)"), 'iolib')
  same(await db.fcall('hi', 0), 'hi')
  same(await db.function('DELETE', 'iolib'), 'OK')
}

async function messages(db) {
  const listener = db.duplicate()
  same(await listener.subscribe('news'), 1)
  same(await listener.psubscribe('n*'), 2)
  const both = Promise.all([once(listener, 'message'), once(listener, 'pmessage')])
  same(await db.publish('news', 'hello'), 2)
  same(await both, [['news', 'hello'], ['n*', 'news', 'hello']])
  listener.disconnect()
  const monitor = await db.monitor()
  const seen = once(monitor, 'monitor')
  await db.echo('watched')
  same((await seen)[1], ['echo', 'watched'])
  monitor.disconnect()
}

async function blocking(db) {
  const waiter = db.duplicate()
  const popped = waiter.blpop('none', 'queue', 5)
  await sleep(50)
  await db.rpush('queue', 'job')
  same(await popped, ['queue', 'job'])
  const read = waiter.xread('BLOCK', 5000, 'STREAMS', 'stq', '$')
  await sleep(50)
  await db.xadd('stq', '5-5', 'f', 'v')
  same(await read, [['stq', [['5-5', ['f', 'v']]]]])
  waiter.disconnect()
}

const tls = { ca: readFileSync(TLS_CA), cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY) }
for (const options of [{ port: SERVER_PORT, protocol: 2 }, { port: SERVER_PORT, protocol: 3 }, { port: SERVER_TLS_PORT, tls }]) {
  const db = new Redis({ host: 'localhost', ...options })
  for (const part of [types, streams, transactions, scripts, messages, blocking]) await part(db)
  db.disconnect()
}
