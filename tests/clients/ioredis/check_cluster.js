// ioredis's client for clusters, on three nodes that were put together: it goes where it is sent, also while slots move.
import Redis from 'ioredis'
import { isDeepStrictEqual } from 'node:util'

const ports = process.env.NODE_PORTS.split(' ').map(Number)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

function same(found, expected) {
  if (!isDeepStrictEqual(found, expected)) throw new Error(`${JSON.stringify(found)} is not ${JSON.stringify(expected)}`)
}

async function commands(db) {
  const keys = Array.from({ length: 300 }, (_, number) => `key:${number}`)
  await Promise.all(keys.map((key, number) => db.set(key, number)))
  same(await Promise.all(keys.map((key) => db.get(key))), keys.map((_, number) => String(number)))
  same(db.nodes('master').length, 3)
  const sizes = await Promise.all(db.nodes('master').map((node) => node.dbsize()))
  same(sizes.reduce((sum, size) => sum + size, 0), 300)
  same(await db.eval("return redis.call('incrby', KEYS[1], ARGV[1])", 1, '{tag}a', 5), 5)
  same(await db.multi().set('{tag}b', 1).incr('{tag}a').exec(), [[null, 'OK'], [null, 6]])
  same(await db.mget('{tag}a', '{tag}b'), ['6', '1'])
}

// Counts while slots go to another node as a whole: each is counted once.
async function moving(db) {
  let isOver = false
  const counts = new Map()
  const count = async () => {
    for (let number = 0; !isOver; number++) {
      const key = `count:${number % 200}`
      await db.incr(key)
      counts.set(key, (counts.get(key) ?? 0) + 1)
    }
  }
  const counting = count()
  const [from, to] = [new Redis(ports[0]), new Redis(ports[1])]
  const own = (await from.cluster('SLOTS')).find((range) => range[2][1] === ports[0])
  const node = await to.cluster('MYID')
  await from.call('CLUSTER', 'MIGRATESLOTS', 'SLOTSRANGE', own[0], own[1], 'NODE', node)
  for (;;) {
    const migrations = await from.call('CLUSTER', 'GETSLOTMIGRATIONS')
    const state = migrations.at(-1)[migrations.at(-1).indexOf('state') + 1]
    if (state === 'success') break
    if (state === 'failed') throw new Error(JSON.stringify(migrations))
    await sleep(50)
  }
  isOver = true
  await counting
  for (const [key, expected] of counts) same(await db.get(key), String(expected))
  from.disconnect()
  to.disconnect()
}

const db = new Redis.Cluster([{ host: '127.0.0.1', port: ports[0] }])
await new Promise((ready) => db.once('ready', ready))
await Promise.all(db.nodes('master').map((node) => node.flushall()))
await commands(db)
await moving(db)
db.disconnect()
