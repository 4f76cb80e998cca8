"""redis-py, with its own parsers and with hiredis's, over RESP2, RESP3 and TLS."""

import asyncio
import os
import threading
import time

import redis
import redis._parsers as parsers
import redis.asyncio

PORT = int(os.environ["SERVER_PORT"])


def same(got, want):
    if got != want:
        raise AssertionError(f"expected {want!r}, got {got!r}")


def fails(kind, text, call, *args):
    try:
        call(*args)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no error: {text}")


def strings(db):
    assert db.set("s", "one", ex=100)
    same(db.set("s", "two", nx=True), None)
    same(db.set("s", "two", get=True), "one")
    same(db.append("s", "!"), 4)
    same(db.getrange("s", 1, 2), "wo")
    same(db.mset({"n": 5, "x": "1.5"}), True)
    same(db.incrby("n", 37), 42)
    same(db.incrbyfloat("x", 0.25), 1.75)
    same(db.mget("s", "n", "none"), ["two!", "42", None])
    same(db.getex("n", px=5000), "42")
    assert 0 < db.pttl("n") <= 5000
    same(db.getdel("n"), "42")
    same(db.exists("n", "s"), 1)
    fails(redis.ResponseError, "value is not an integer", db.incr, "s")
    fails(redis.ResponseError, "WRONGTYPE", db.lpush, "s", 1)
    same(db.lcs("s", "x"), "")
    same(db.copy("s", "t"), True)
    same(db.rename("t", "u"), True)
    same(sorted(db.scan_iter("[su]")), ["s", "u"])


def collections(db):
    same(db.hset("h", mapping={"a": 1, "b": 2}), 2)
    same(db.hgetall("h"), {"a": "1", "b": "2"})
    same(db.hincrby("h", "a", 9), 10)
    same(db.hmget("h", ["a", "c"]), ["10", None])
    same(dict(db.hscan_iter("h")), {"a": "10", "b": "2"})
    assert db.hrandfield("h") in ("a", "b")

    same(db.rpush("l", *range(5)), 5)
    same(db.lrange("l", 1, -2), ["1", "2", "3"])
    same(db.linsert("l", "before", 3, "x"), 6)
    same(db.lpos("l", "x"), 3)
    same(db.lmove("l", "m"), "0")
    same(db.lmpop(2, "none", "l", direction="LEFT", count=2), ["l", ["1", "2"]])

    same(db.sadd("a", 1, 2, 3), 3)
    same(db.sadd("b", 2, 3, 4), 3)
    same(db.sinter("a", "b"), {"2", "3"})
    same(db.sintercard(2, ["a", "b"]), 2)
    same(db.sdiffstore("d", "a", "b"), 1)
    same(db.smismember("a", [1, 9]), [1, 0])
    same(sorted(db.sscan_iter("b")), ["2", "3", "4"])

    same(db.zadd("z", {"x": 1, "y": 2.5, "w": float("inf")}), 3)
    same([tuple(pair) for pair in db.zrange("z", 0, -1, withscores=True)], [("x", 1.0), ("y", 2.5), ("w", float("inf"))])
    same(db.zincrby("z", 4, "x"), 5.0)
    same(db.zrank("z", "x"), 1)
    same(db.zscore("z", "none"), None)
    same(db.zmscore("z", ["y", "none"]), [2.5, None])
    same(db.zrangebyscore("z", "(2.5", "inf"), ["x", "w"])
    same(db.zpopmin("z")[0][0], "y")
    same(db.zunionstore("zu", {"z": 2, "a": 1}), 5)
    same(db.zrangestore("zr", "zu", 0, 1), 2)
    same(dict(db.zscan_iter("z")), {"x": 5.0, "w": float("inf")})


def others(db):
    same(db.setbit("bits", 7, 1), 0)
    same(db.bitcount("bits"), 1)
    same(db.bitpos("bits", 1), 7)
    same(db.bitop("NOT", "tib", "bits"), 1)
    same(db.bitfield("f").incrby("u8", 0, 255).overflow("SAT").incrby("u8", 0, 255).get("i4", 4).execute(), [255, 255, -1])

    same(db.pfadd("p", *range(100)), 1)
    assert 95 < db.pfcount("p") < 105
    same(db.pfmerge("q", "p"), True)

    same(db.geoadd("g", [13.361389, 38.115556, "Palermo", 15.087269, 37.502669, "Catania"]), 2)
    assert abs(db.geodist("g", "Palermo", "Catania", "km") - 166.2742) < 0.001
    same(db.geosearch("g", longitude=15, latitude=37, radius=100, unit="km"), ["Catania"])
    same(db.geohash("g", "Palermo"), ["sqc8b49rny0"])

    same(db.rpush("nums", 3, 1, 2), 3)
    same(db.sort("nums", desc=True), ["3", "2", "1"])
    assert db.object("encoding", "nums") in ("listpack", "ziplist", "quicklist")
    assert db.memory_usage("nums") > 0
    same(db.type("nums"), "list")
    binary = redis.Redis(port=PORT)
    same(binary.restore("copy", 0, binary.dump("nums")), b"OK")
    same(db.lrange("copy", 0, -1), ["3", "1", "2"])
    assert db.info()["redis_version"].startswith("7.")
    assert db.command_count() > 200
    assert "maxmemory" in db.config_get("maxmemory*")
    same(db.client_setname("tester"), True)
    same(db.client_getname(), "tester")
    assert any(client["name"] == "tester" for client in db.client_list())


def streams(db):
    same(db.xadd("st", {"a": 1}, id="1-1"), "1-1")
    same(db.xadd("st", {"b": 2}, id="1-*"), "1-2")
    same(db.xlen("st"), 2)
    same(db.xrange("st"), [("1-1", {"a": "1"}), ("1-2", {"b": "2"})])
    same(db.xgroup_create("st", "group", id="0"), True)
    reply = db.xreadgroup("group", "me", {"st": ">"}, count=1)
    entries = reply["st"][0] if isinstance(reply, dict) else reply[0][1]
    same(entries, [("1-1", {"a": "1"})])
    same(db.xpending("st", "group")["pending"], 1)
    same(db.xack("st", "group", "1-1"), 1)
    same(db.xreadgroup("group", "me", {"st": ">"}) != [], True)
    same(db.xautoclaim("st", "group", "you", 0)[1], [("1-2", {"b": "2"})])
    same(db.xinfo_stream("st")["length"], 2)
    same(db.xinfo_groups("st")[0]["name"], "group")
    same(db.xinfo_consumers("st", "group")[0]["name"], "me")
    same(db.xtrim("st", maxlen=1, approximate=False), 1)
    same(db.xdel("st", "1-2"), 1)
    same(db.xread({"st": "0"}) in ([], {}), True)


def pipelines(db):
    with db.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.set(f"k:{i}", i)
        pipe.incr("s").get("k:999")
        replies = pipe.execute(raise_on_error=False)
    same(replies[:1000], [True] * 1000)
    assert isinstance(replies[1000], redis.ResponseError)
    same(replies[1001], "999")


def transactions(db):
    with db.pipeline() as pipe:
        same(pipe.set("t", 1).incr("t").get("t").execute(), [True, 2, "2"])
        pipe.watch("t")
        same(pipe.get("t"), "2")
        db.set("t", 10)
        pipe.multi()
        pipe.set("t", 3)
        fails(redis.WatchError, "", pipe.execute)
    same(db.get("t"), "10")
    same(db.transaction(lambda pipe: pipe.multi() or pipe.incr("t"), "t"), [11])
    with db.lock("lock", timeout=5):
        same(db.lock("lock", timeout=5, blocking=False).acquire(), False)


def scripts(db):
    same(db.eval("return {KEYS[1], ARGV[1], 7, redis.call('set', KEYS[1], ARGV[1])}", 1, "sc", "v"), ["sc", "v", 7, "OK"])
    add = db.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    same(add(keys=["counter"], args=[5]), 5)
    same(add(keys=["counter"], args=[6]), 11)
    with db.pipeline() as pipe:
        add(keys=["counter"], args=[1], client=pipe)
        same(pipe.execute(), [12])
    same(db.script_exists(add.sha, "0" * 40), [True, False])
    fails(redis.exceptions.NoScriptError, "", db.evalsha, "0" * 40, 0)
    fails(redis.ResponseError, "wrong", db.eval, "return redis.error_reply('wrong')", 0)
    code = "#!lua name=mylib\nredis.register_function('twice', function(keys, args) return args[1] * 2 end)"
    same(db.function_load(code, replace=True), "mylib")
    same(db.fcall("twice", 0, 21), 42)
    assert db.function_list()
    same(db.function_delete("mylib"), True)


def messages(db):
    pubsub = db.pubsub()
    pubsub.subscribe("news")
    pubsub.psubscribe("n*")
    same([pubsub.get_message(timeout=5)["type"] for _ in range(2)], ["subscribe", "psubscribe"])
    same(db.pubsub_numsub("news"), [("news", 1)])
    same(db.publish("news", "hello"), 2)
    got = [pubsub.get_message(timeout=5) for _ in range(2)]
    same([(one["type"], one["channel"], one["data"]) for one in got], [("message", "news", "hello"), ("pmessage", "news", "hello")])
    pubsub.unsubscribe()
    pubsub.punsubscribe()
    same([pubsub.get_message(timeout=5)["type"] for _ in range(2)], ["unsubscribe", "punsubscribe"])
    db.config_set("notify-keyspace-events", "KEA")
    pubsub.psubscribe("__keyevent@*__:set")
    pubsub.get_message(timeout=5)
    db.set("event", 1)
    same(pubsub.get_message(timeout=5)["data"], "event")
    db.config_set("notify-keyspace-events", "")
    pubsub.close()


def blocking(db):
    def later(call, *args):
        thread = threading.Timer(0.1, call, args)
        thread.start()
        return thread

    thread = later(db.rpush, "queue", "job")
    same(list(db.blpop(["none", "queue"], timeout=5)), ["queue", "job"])
    thread.join()
    thread = later(db.zadd, "zq", {"m": 1})
    same(list(db.bzpopmin("zq", timeout=5)), ["zq", "m", 1.0])
    thread.join()
    thread = later(db.xadd, "stq", {"f": "v"}, "5-5")
    assert db.xread({"stq": "$"}, block=5000)
    thread.join()
    start = time.monotonic()
    same(db.blmove("none", "other", timeout=0.1), None)
    assert 0.09 < time.monotonic() - start < 5
    same(db.wait(0, 10), 0)


def invalidations():
    """Its own cache it has for servers of Redis 7.4 and later only; what that is built on works."""
    db = redis.Redis(port=PORT, protocol=3, single_connection_client=True, decode_responses=True)
    told = []
    db.connection._parser.set_invalidation_push_handler(told.append)
    same(db.execute_command("CLIENT", "TRACKING", "ON"), "OK")
    db.set("cached", 1)
    same(db.get("cached"), "1")
    connect().set("cached", 2)
    end = time.monotonic() + 5
    while not told:
        same(db.ping(), True)
        assert time.monotonic() < end, "no invalidation"
    same(told, [["invalidate", ["cached"]]])
    db.close()


async def asynchronous():
    async with redis.asyncio.Redis(port=PORT, decode_responses=True) as db:
        same(sorted(await asyncio.gather(*(db.incr("async") for _ in range(100)))), list(range(1, 101)))
        async with db.pubsub() as pubsub:
            await pubsub.subscribe("news")
            # It is only sent by then, and another connection may be faster.
            same((await anext(pubsub.listen()))["type"], "subscribe")
            await db.publish("news", "x")
            same((await anext(pubsub.listen()))["data"], "x")


def all_of_it(db):
    db.flushall()
    for part in (strings, collections, others, streams, pipelines, transactions, scripts, messages, blocking):
        try:
            part(db)
        except Exception as error:
            error.add_note(f"in {part.__name__}, {db.connection_pool.connection_kwargs}")
            raise


def connect(**options):
    return redis.Redis(port=PORT, decode_responses=True, **options)


def with_parser(parser, protocol):
    pool = redis.ConnectionPool(port=PORT, decode_responses=True, protocol=protocol, parser_class=parser)
    return redis.Redis(connection_pool=pool)


all_of_it(connect(protocol=2))
all_of_it(connect(protocol=3))
all_of_it(connect())
all_of_it(with_parser(parsers._RESP2Parser, 2))
all_of_it(with_parser(parsers._RESP3Parser, 3))
TLS = dict(ssl=True, ssl_ca_certs=os.environ["TLS_CA"], ssl_certfile=os.environ["TLS_CERT"], ssl_keyfile=os.environ["TLS_KEY"])
all_of_it(redis.Redis(host="localhost", port=int(os.environ["SERVER_TLS_PORT"]), decode_responses=True, **TLS))
invalidations()
asyncio.run(asyncio.wait_for(asynchronous(), 60))
