#!/usr/bin/env python3
"""`holdfast import` of an RDB file into a new folder, beside redis-server's own loading of that file, in turns.

    python3 bench/import_file.py                     # 3 M keys, and what redis-server needs memory for: about 1 GB
    python3 bench/import_file.py --keys 300000 --runs 5
    python3 bench/import_file.py --file dump.rdb     # made before, or a file of one's own

Of the keys 80 % are strings of 100 B, and 5 % each hashes, lists, sets and sorted sets of 10 elements; there are four collections of
100,000 elements besides. redis-server's time is that of its log ("DB loaded from disk"); Holdfast's is that of the whole process, from
its start until the new folder is complete and durable.
"""

import argparse
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

import servers

REDIS = "redis-check-rdb"  # It is redis-server, if it is called so.


def start_redis(folder, *options):
    port = servers.free_port()
    log = os.path.join(folder, "redis.log")
    argv = ["redis-server", "--port", str(port), "--dir", folder, "--save", "", "--logfile", log, *options]
    process = subprocess.Popen(argv, executable=shutil.which(REDIS), stdout=subprocess.DEVNULL)
    while not os.path.exists(log) or "eady to accept connections" not in open(log).read():
        if process.poll() is not None:
            raise RuntimeError(open(log).read())
        time.sleep(0.05)
    return process, port, open(log).read()


def command(*args):
    args = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


def commands(keys):
    elements = range(10)
    values = random.Random(1)
    for n in range(keys):
        name = b"key:%012d" % n
        match n % 20:
            case 0:
                yield command("HSET", name, *(x for e in elements for x in (b"field:%d" % e, b"value:%d:%d" % (n, e))))
            case 1:
                yield command("RPUSH", name, *(b"element:%d:%d" % (n, e) for e in elements))
            case 2:
                yield command("SADD", name, *(b"member:%d:%d" % (n, e) for e in elements))
            case 3:
                yield command("ZADD", name, *(x for e in elements for x in (n + e, b"member:%d" % e)))
            case _:
                yield command("SET", name, values.randbytes(50).hex())
    for first in range(0, 100_000, 1000):
        elements = range(first, first + 1000)
        yield command("HSET", "large:hash", *(x for e in elements for x in (b"field:%d" % e, b"value:%d" % e)))
        yield command("RPUSH", "large:list", *(b"element:%d" % e for e in elements))
        yield command("SADD", "large:set", *(b"member:%d" % e for e in elements))
        yield command("ZADD", "large:zset", *(x for e in elements for x in (e, b"member:%d" % e)))


def make(path, keys):
    """Has redis-server save such a file."""
    folder = tempfile.mkdtemp(prefix="import-bench-")
    process, port, _ = start_redis(folder)
    pipe = subprocess.Popen(
        ["redis-cli", "-p", str(port), "--pipe"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    for one in commands(keys):
        pipe.stdin.write(one)
    pipe.stdin.close()
    pipe.wait()
    subprocess.run(["redis-cli", "-p", str(port), "SAVE"], check=True, stdout=subprocess.DEVNULL)
    process.terminate()
    process.wait()
    shutil.move(os.path.join(folder, "dump.rdb"), path)
    shutil.rmtree(folder)


def redis_loads(file):
    folder = tempfile.mkdtemp(prefix="import-bench-")
    os.symlink(file, os.path.join(folder, "dump.rdb"))
    process, _, log = start_redis(folder)
    process.kill()
    process.wait()
    shutil.rmtree(folder)
    return float(re.search(r"DB loaded from disk: ([0-9.]+) seconds", log).group(1))


def holdfast_imports(binary, file, within):
    folder = tempfile.mkdtemp(prefix="import-bench-", dir=within)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    argv = [binary, "import", file, "--dir", os.path.join(folder, "data")]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    took = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder)
    return took, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=3_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--file", help="an RDB file; made, if it is not there")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    parser.add_argument("--binary", default=servers.HOLDFAST)
    options = parser.parse_args()
    own = tempfile.mkdtemp(prefix="import-bench-")
    file = os.path.abspath(options.file or os.path.join(own, "dump.rdb"))
    if not os.path.exists(file):
        make(file, options.keys)
    print(f"{os.path.getsize(file) / 1e6:.0f} MB")
    loads, imports = [], []
    for _ in range(options.runs):
        loads.append(redis_loads(file))
        imports.append(holdfast_imports(options.binary, file, options.dir))
        took, user, system = imports[-1]
        print(f"redis-server {loads[-1]:.2f} s; holdfast {took:.2f} s, CPU {user:.2f} + {system:.2f} s", flush=True)
    load, took = statistics.median(loads), statistics.median(took for took, _, _ in imports)
    print(f"medians: redis-server {load:.2f} s, holdfast {took:.2f} s; {load / took:.2f} times its rate")
    shutil.rmtree(own)


if __name__ == "__main__":
    main()
