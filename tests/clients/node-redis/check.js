// node-redis over RESP2, RESP3 and TLS.

import { readFileSync } from 'node:fs'
import { deepEqual as same, ok, rejects } from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { createClient, defineScript, WatchError } from 'redis'

const { SERVER_PORT, SERVER_TLS_PORT, TLS_CA, TLS_CERT, TLS_KEY } = process.env
const twice = defineScript({
  SCRIPT: 'return redis.call("incrby", KEYS[1], ARGV[1] * 2)',
  NUMBER_OF_KEYS: 1,
  parseCommand(parser, key, number) {
    parser.pushKey(key)
    parser.push(String(number))
  },
  transformReply: reply => reply
})

// RESP3's maps have no prototype.
const plain = value => JSON.parse(JSON.stringify(value))

async function types(db) {
  await db.flushAll()
  same(await db.set('s', 'one', { expiration: { type: 'EX', value: 100 } }), 'OK')
  same(await db.set('s', 'two', { condition: 'NX' }), null)
  same(await db.append('s', '!'), 4)
  same(await db.incrBy('n', 42), 42)
  same(await db.mGet(['s', 'none', 'n']), ['one!', null, '42'])
  await rejects(db.incr('s'), /ERR value is not an integer or out of range/)
  same(await db.hSet('h', { a: 1, b: 2 }), 2)
  same(plain(await db.hGetAll('h')), { a: '1', b: '2' })
  same(await db.rPush('l', ['1', '2', '3']), 3)
  same(await db.lRange('l', 0, -1), ['1', '2', '3'])
  same(await db.sAdd('a', ['1', '2', '3']), 3)
  same(await db.sAdd('b', ['2', '3']), 2)
  same([...await db.sDiff(['a', 'b'])], ['1'])
  same(await db.zAdd('z', [{ score: 1, value: 'x' }, { score: 2.5, value: 'y' }]), 2)
  same(await db.zRangeWithScores('z', 0, -1), [{ value: 'x', score: 1 }, { value: 'y', score: 2.5 }])
  same(await db.zIncrBy('z', Infinity, 'x'), Infinity)
  same(await db.setBit('bits', 7, 1), 0)
  same(await db.bitCount('bits'), 1)
  same(await db.bitField('bits', [{ operation: 'GET', encoding: 'u8', offset: 0 }]), [1])
  same(Number(await db.pfAdd('p', ['a', 'b'])), 1)
  same(await db.pfCount('p'), 2)
  same(await db.geoAdd('g', { longitude: 13.361389, latitude: 38.115556, member: 'Palermo' }), 1)
  same(await db.geoSearch('g', { longitude: 15, latitude: 37 }, { radius: 200, unit: 'km' }), ['Palermo'])
  const keys = []
  for await (const some of db.scanIterator({ COUNT: 3 })) keys.push(...some)
  same(keys.length, await db.dbSize())
}

async function streams(db) {
  same(await db.xAdd('st', '1-1', { a: '1' }), '1-1')
  same(await db.xAdd('st', '1-*', { b: '2' }), '1-2')
  same(plain(await db.xRange('st', '-', '+'))[0], { id: '1-1', message: { a: '1' } })
  same(await db.xGroupCreate('st', 'group', '0'), 'OK')
  const read = plain(await db.xReadGroup('group', 'me', { key: 'st', id: '>' }, { COUNT: 2 }))
  same(read[0].messages.length, 2)
  same(await db.xAck('st', 'group', '1-1'), 1)
  same((await db.xPending('st', 'group')).pending, 1)
  same((await db.xAutoClaim('st', 'group', 'you', 0, '0')).messages.length, 1)
  same((await db.xInfoStream('st')).length, 2)
  same(await db.xTrim('st', 'MAXLEN', 1), 1)
}

async function transactions(db) {
  // Commands of one turn are sent in one piece.
  same(await Promise.all(Array.from({ length: 1000 }, () => db.incr('piped'))), Array.from({ length: 1000 }, (_, i) => i + 1))
  same(await db.multi().set('t', 1).incr('t').get('t').exec(), ['OK', 2, '2'])
  await db.watch('t')
  const other = db.duplicate()
  await other.connect()
  await other.set('t', 10)
  await rejects(db.multi().set('t', 3).exec(), WatchError)
  same(await db.get('t'), '10')
  other.destroy()
}

async function scripts(db) {
  same(await db.eval('return {KEYS[1], ARGV[1], 7}', { keys: ['k'], arguments: ['v'] }), ['k', 'v', 7])
  same(await db.twice('sc', 5), 10)
  same(await db.twice('sc', 1), 12)
  same(await db.multi().twice('sc', 1).exec(), [14])
  await rejects(db.eval("return redis.error_reply('WRONG thing')"), /WRONG thing/)
  same(await db.functionLoad("#!lua name=nodelib\nredis.register_function('hi', function(keys, args) return 'hi ' .. args[1] end)", { REPLACE: true }), 'nodelib')
  same(await db.fCall('hi', { keys: [], arguments: ['you'] }), 'hi you')
  same(await db.functionDelete('nodelib'), 'OK')
}

async function messages(db) {
  const listener = db.duplicate()
  await listener.connect()
  const got = []
  await listener.subscribe('news', (text, channel) => got.push([text, channel]))
  await listener.pSubscribe('n*', (text, channel) => got.push([text, channel, 'by pattern']))
  await listener.sSubscribe('shard', text => got.push([text]))
  same(await db.publish('news', 'hello'), 2)
  same(await db.sPublish('shard', 'x'), 1)
  for (let i = 0; got.length < 3 && i < 500; i++) await sleep(10)
  same(got, [['hello', 'news'], ['hello', 'news', 'by pattern'], ['x']])
  listener.destroy()
}

async function blocking(db) {
  const waiter = db.duplicate()
  await waiter.connect()
  const popped = waiter.blPop(['none', 'queue'], 5)
  await sleep(50)
  await db.rPush('queue', 'job')
  same(plain(await popped), { key: 'queue', element: 'job' })
  const read = waiter.xRead({ key: 'stq', id: '$' }, { BLOCK: 5000 })
  await sleep(50)
  await db.xAdd('stq', '5-5', { f: 'v' })
  same(plain(await read)[0].messages[0].id, '5-5')
  same(await waiter.blPop('none', 0.1), null)
  waiter.destroy()
}

async function caching() {
  const db = createClient({ url: `redis://localhost:${SERVER_PORT}`, RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100 } })
  const other = createClient({ url: `redis://localhost:${SERVER_PORT}` })
  await Promise.all([db.connect(), other.connect()])
  for (let i = 0; i < 100; i++) {
    await other.set('cached', String(i))
    const end = Date.now() + 5000
    while (await db.get('cached') !== String(i)) {
      ok(Date.now() < end, 'the old value stays')
      await sleep(1)
    }
    same(await db.get('cached'), String(i))
  }
  db.destroy()
  other.destroy()
}

const tls = {
  tls: true, ca: readFileSync(TLS_CA), cert: readFileSync(TLS_CERT), key: readFileSync(TLS_KEY)
}
for (const options of [
  { url: `redis://localhost:${SERVER_PORT}`, RESP: 2 },
  { url: `redis://localhost:${SERVER_PORT}`, RESP: 3 },
  { url: `rediss://localhost:${SERVER_TLS_PORT}`, socket: tls }
]) {
  const db = createClient({ ...options, scripts: { twice } })
  await db.connect()
  for (const part of [types, streams, transactions, scripts, messages, blocking]) await part(db)
  db.destroy()
}
await caching()
