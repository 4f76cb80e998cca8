"""redis-benchmark with every test that it has, with and without pipelines, over TLS, and over several threads."""

import os
import re
import subprocess

PORT, TLS_PORT = os.environ["SERVER_PORT"], os.environ["SERVER_TLS_PORT"]
TESTS = ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "LPUSH", "RPUSH", "LPOP", "RPOP", "SADD", "HSET", "SPOP",
         "ZADD", "ZPOPMIN", "LRANGE_100", "LRANGE_300", "LRANGE_500", "LRANGE_600", "MSET"]


def benchmark(*args):
    """The rate of each test, by its name."""
    done = subprocess.run(["redis-benchmark", "--csv", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if done.returncode != 0 or "error" in done.stdout.lower():
        raise SystemExit(f"{args}: {done.returncode}\n{done.stdout}")
    return {name.split()[0]: float(rate) for name, rate in re.findall(r'^"([^"]+)","([0-9.]+)"', done.stdout, re.M)}


def all_of(rates, tests):
    for test in tests:
        if not rates.get(test, 0) > 0:
            raise SystemExit(f"no rate of {test} in {rates}")


small = ["-p", PORT, "-n", "2000"]
all_of(benchmark(*small), TESTS)
all_of(benchmark(*small, "-P", "16", "-r", "1000", "--threads", "2"), TESTS)
all_of(benchmark(*small, "-3", "-t", "set,get,zadd"), ["SET", "GET", "ZADD"])
all_of(benchmark(*small, "-k", "0", "-c", "5", "-t", "set"), ["SET"])
all_of(benchmark(*small, "-r", "100", "eval", "return redis.call('incr', KEYS[1])", "1", "count:__rand_int__"), ["eval"])
tls = ["--tls", "--cacert", os.environ["TLS_CA"], "--cert", os.environ["TLS_CERT"], "--key", os.environ["TLS_KEY"]]
all_of(benchmark("-h", "localhost", "-p", TLS_PORT, "-n", "2000", *tls, "-t", "set,get"), ["SET", "GET"])
