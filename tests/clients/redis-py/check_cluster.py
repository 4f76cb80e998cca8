"""redis-py's client for clusters, on three nodes that were put together: it goes where it is sent, also while slots move."""

import os
import threading
import time

import redis
from redis.cluster import ClusterNode, RedisCluster

PORTS = [int(port) for port in os.environ["NODE_PORTS"].split()]


def same(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def connect(**options):
    return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", PORTS[0])], decode_responses=True, **options)


def commands(db):
    same(len(db.get_primaries()), 3)
    for number in range(300):
        same(db.set(f"key:{number}", number), True)
    same([db.get(f"key:{number}") for number in range(300)], [str(number) for number in range(300)])
    same(db.mget_nonatomic([f"key:{number}" for number in range(300)]), [str(number) for number in range(300)])
    same(db.dbsize(target_nodes=RedisCluster.PRIMARIES), 300)
    same(len(set(db.scan_iter("key:*"))), 300)
    with db.pipeline() as pipeline:
        for number in range(300):
            pipeline.incr(f"key:{number}")
        same(pipeline.execute(), list(range(1, 301)))
    same(db.eval("return redis.call('incrby', KEYS[1], ARGV[1])", 1, "{tag}a", 5), 5)
    db.mset({"{tag}b": 1, "{tag}c": 2})
    same(db.mget("{tag}a", "{tag}b", "{tag}c"), ["5", "1", "2"])
    try:
        db.execute_command("MGET", "a", "b")
        raise AssertionError("keys of two slots are one command")
    except (redis.exceptions.RedisClusterException, redis.exceptions.ClusterCrossSlotError):
        pass
    sharded = db.pubsub()
    sharded.ssubscribe("shard")
    time.sleep(0.2)
    db.spublish("shard", "x")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        message = sharded.get_sharded_message(timeout=0.1)
        if message and message["type"] == "smessage":
            same(message["data"], "x")
            break
    else:
        raise AssertionError("no message of the shard")
    sharded.close()


def moving(db):
    """Counts while slots go around as a whole: each is counted once."""
    counts, is_over, failures = {}, threading.Event(), []

    def count():
        number = 0
        while not is_over.is_set():
            key = f"count:{number % 200}"
            try:
                db.incr(key)
            except Exception as error:
                failures.append(error)
                return
            counts[key] = counts.get(key, 0) + 1
            number += 1

    thread = threading.Thread(target=count)
    thread.start()
    nodes = [redis.Redis(port=port, decode_responses=True) for port in PORTS]
    names = [node.execute_command("CLUSTER MYID") for node in nodes]
    for at in range(3):
        to = (at + 1) % 3
        own = [line for line in nodes[at].execute_command("CLUSTER SLOTS") if line[2][1] == PORTS[at]]
        first, last = own[0][:2]
        nodes[at].execute_command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, (first + last) // 2, "NODE", names[to])
        while True:
            moved = nodes[at].execute_command("CLUSTER", "GETSLOTMIGRATIONS")
            exported = [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2])) for one in moved]
            exported = [one for one in exported if one["operation"] == "EXPORT"]
            if exported and exported[-1]["state"] in ("success", "failed", "cancelled"):
                same(exported[-1]["state"], "success")
                break
            time.sleep(0.05)
    is_over.set()
    thread.join()
    same(failures, [])
    for key, expected in counts.items():
        same(int(db.get(key)), expected)


for protocol in (2, 3):
    with connect(protocol=protocol) as db:
        db.flushall(target_nodes=RedisCluster.PRIMARIES)
        commands(db)
        moving(db)
