#!/usr/bin/env python3
"""Throughput and CPU per operation against redis-server, by redis-benchmark, in interleaved runs.

Each server runs on one core, the load generator on another. For each test the servers take turns, so that a drift
of the machine's speed meets all of them; the figures are medians, with the least and the greatest in brackets.

    python3 bench/redis_benchmark.py                      # everything; some minutes
    python3 bench/redis_benchmark.py --tests SET GET --runs 5
"""

import argparse
import pathlib
import re
import statistics
import subprocess

import servers

SERVERS = {
    "holdfast-always": lambda d: servers.holdfast("holdfast-always", folder=d, appendfsync="always"),
    "holdfast-no": lambda d: servers.holdfast("holdfast-no", folder=d, appendfsync="no"),
    "redis-memory": lambda d: servers.redis("redis-memory", folder=d),
    "redis-always": lambda d: servers.redis("redis-always", folder=d, appendonly="yes", appendfsync="always"),
}

# name: (arguments of redis-benchmark, servers that take part)
ALL = list(SERVERS)
DURABLE = ["holdfast-always", "redis-memory"]
TESTS = {
    "SET P=16": (["-t", "set", "-P", "16"], ALL),
    "GET P=16": (["-t", "get", "-P", "16"], DURABLE),
    "SET P=1": (["-t", "set", "-P", "1"], [*DURABLE, "redis-always"]),
    "GET P=1": (["-t", "get", "-P", "1"], DURABLE),
    **{
        f"{name.upper()} P=16": (["-t", name, "-P", "16"], DURABLE)
        for name in ["incr", "lpush", "rpop", "sadd", "hset", "zadd", "lrange_100", "mset"]
    },
}


def measure(server, arguments, requests, keys):
    before = server.cpu_seconds()
    output = subprocess.run(
        ["taskset", "-c", "1", "redis-benchmark", "-p", str(server.port), "-c", "50", "-d", "100", "-q"]
        + ["-n", str(requests), "-r", str(keys), *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rates = re.findall(r"([A-Z_]+)[^:\r\n]*: ([\d.]+) requests per second", output)
    if not rates:
        raise RuntimeError(f"redis-benchmark printed no rate: {output[-300:]!r}")
    return float(rates[-1][1]), (server.cpu_seconds() - before) / requests * 1e6


def spread(values, digits):
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}..{max(values):.{digits}f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", nargs="*", default=[], help="run tests whose name begins so")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--dir", help="a folder on the medium to measure")
    parser.add_argument("--peer", metavar="BINARY", help="one more server like redis-server, without persistence")
    options = parser.parse_args()
    taking_part = {test: names for test, (_, names) in TESTS.items()}
    if options.peer:
        peer = pathlib.Path(options.peer).name
        SERVERS[peer] = lambda d: servers.redis(peer, binary=options.peer, folder=d)
        taking_part = {test: [*names, peer] for test, names in taking_part.items()}
    wanted = [t for t in TESTS if not options.tests or any(t.startswith(w.upper()) for w in options.tests)]
    running = {}
    try:
        for name in {s for t in wanted for s in taking_part[t]}:
            running[name] = SERVERS[name](options.dir)
            running[name].wait()
            if any(t.startswith("GET") for t in wanted):
                measure(running[name], ["-t", "set", "-P", "16"], options.requests * 3, options.keys)
        for test in wanted:
            arguments, names = TESTS[test][0], taking_part[test]
            requests = options.requests // (5 if test.endswith(" P=1") else 1)
            rates, cpu = {n: [] for n in names}, {n: [] for n in names}
            for _ in range(options.runs):
                for name in names:
                    rate, cost = measure(running[name], arguments, requests, options.keys)
                    rates[name].append(rate)
                    cpu[name].append(cost)
            print(f"\n{test}")
            for name in names:
                ratios = [statistics.median(rates["holdfast-always"]) / statistics.median(rates[name])]
                costs = statistics.median(cpu["holdfast-always"]) / statistics.median(cpu[name])
                print(
                    f"  {name:16} {spread(rates[name], 0):>36} op/s   {spread(cpu[name], 2):>22} us CPU/op"
                    f"   always/this: rate {ratios[0]:.2f}, CPU {costs:.2f}",
                    flush=True,
                )
    finally:
        for server in running.values():
            server.close()


if __name__ == "__main__":
    main()
