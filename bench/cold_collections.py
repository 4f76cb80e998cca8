#!/usr/bin/env python3
"""Single elements of one huge collection, drawn evenly, against what the device gives in the same run (fio).

One collection of a type at a time, several times larger than `maxmemory`, a server on both cores, the load generator beside it.
For each type and load: commands a second, their share of the device's rate at the same depth, the device's reads and the
server's CPU time for each command, the greatest latency of 99 % of them, pages that were found missing under a lock,
and resident memory against `maxmemory`, at the end and at the most.

    python3 bench/cold_collections.py                       # 10 M elements of each type; half an hour
    python3 bench/cold_collections.py --elements 2000000 --maxmemory 60mb --types hash zset
"""

import argparse
import json
import re
import subprocess

import servers
from cold_reads import device_rate, device_reads

LOAD = servers.ROOT / "target" / "release" / "load"
# type: (how an element is added, what reads one)
TYPES = {
    "hash": (
        "HSET c {key} {value}",
        {
            "HGET": "HGET c {key}",
            "HSET": "HSET c {key} {value}",
            "HGET in a script": "EVAL return(redis.call('HGET',KEYS[1],ARGV[1])) 1 c {key}",
        },
    ),
    "set": ("SADD c {key}:{value}", {"SISMEMBER": "SISMEMBER c {key}:{value}"}),
    "zset": ("ZADD c {n} {key}", {"ZSCORE": "ZSCORE c {key}", "ZRANGEBYSCORE": "ZRANGEBYSCORE c {n} {n}", "ZRANGE": "ZRANGE c {n} {n}"}),
    "list": ("RPUSH c {key}:{value}", {"LINDEX": "LINDEX c {n}"}),
    "stream": ("XADD c {n}-1 f {value}", {"XRANGE": "XRANGE c {n} {n}"}),
}
# name: (clients, commands that each sends at once)
LOADS = {"50 clients": (50, 1), "1 client, P=16": (1, 16), "50 clients, P=16": (50, 16)}


def run(server, options, command, pattern="uniform", clients=1, pipeline=500, **limits):
    """Runs the load generator; returns its figures."""
    argv = [LOAD, "--port", server.port, "--clients", clients, "--pipeline", pipeline, "--keys", options.elements, "--pattern", pattern, "--value", options.value]
    for name, limit in limits.items():
        argv += ["--" + name, limit]
    return json.loads(subprocess.run([*map(str, argv), command], capture_output=True, text=True, check=True).stdout)


def figures(server, section):
    text = server.command("INFO", section).decode()
    return {name: int(value) for name, value in re.findall(r"^(\w+):(\d+)\r$", text, re.MULTILINE)}


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([kmg]?)b?", text).groups()
    return int(number) << {"": 0, "k": 10, "m": 20, "g": 30}[unit]


def peak_bytes(server):
    with open(f"/proc/{server.process.pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read())[1]) * 1024


def measure(server, options, name, command, load, rates):
    clients, pipeline = LOADS[load]
    before, reads, cpu = figures(server, "all"), device_reads(server.folder), server.cpu_seconds()
    result = run(server, options, command, clients=clients, pipeline=pipeline, seconds=options.seconds)
    after, count = figures(server, "all"), max(result["requests"], 1)
    reads, cpu = (device_reads(server.folder) - reads) / count, (server.cpu_seconds() - cpu) / count * 1e6
    faults, fetched = (after[f] - before[f] for f in ("heap_page_faults", "heap_pages_fetched"))
    share = result["rate"] / rates[clients * pipeline]
    limit = bytes_of(options.maxmemory)
    print(
        f"  {name}, {load}: {result['rate']:,.0f}/s, {share:.2f} of the device, {reads:.2f} reads, {cpu:.1f} us of CPU, "
        f"p99 {result['us_p99'] / 1000:.1f} ms, {faults} of {fetched} pages under a lock, resident {server.memory_bytes() / limit:.2f}, at most {peak_bytes(server) / limit:.2f}"
        + (f", {result['errors']} errors" if result["errors"] else ""),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=10_000_000)
    parser.add_argument("--value", type=int, default=100, help="bytes of a value, or behind a member's name")
    parser.add_argument("--maxmemory", default="250mb")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--types", nargs="*", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--loads", nargs="*", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "holdfast-bench", "--bin", "load"], cwd=servers.ROOT, check=True)
    for kind in options.types:
        server = servers.holdfast(folder=options.dir, cpus="0,1", workers=2, maxmemory=options.maxmemory)
        try:
            server.wait()
            add, reads = TYPES[kind]
            loaded = run(server, options, add, pattern="sequential", requests=options.elements)
            rates = {depth: device_rate(server.folder, depth) for depth in {LOADS[load][0] * LOADS[load][1] for load in options.loads}}
            print(f"{kind}: added {loaded['rate']:,.0f}/s, {loaded['errors']} errors; device: " + ", ".join(f"{rate:,.0f}/s at depth {depth}" for depth, rate in sorted(rates.items())), flush=True)
            for state in ["loaded", "right after a restart"]:
                if state != "loaded":
                    server.kill()
                    server.start()
                    took = server.wait(("EXISTS", "c"), b":1")
                    print(f" {state}, {took:.2f} s from exec to the first reply:", flush=True)
                for name, command in reads.items():
                    for load in options.loads:
                        measure(server, options, name, command, load, rates)
        finally:
            server.close()


if __name__ == "__main__":
    main()
