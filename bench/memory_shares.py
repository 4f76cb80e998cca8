#!/usr/bin/env python3
"""Who gets memory: strings and one huge hash, both of which are several times larger than `maxmemory`, and loads that use a part of each.

For each load: commands a second, how many of them had to read from the medium, and what the heap's pages and the copies of
strings had of memory in the end. A server on both cores, the load generator beside it.

    python3 bench/memory_shares.py                     # maxmemory 200mb; some minutes
    python3 bench/memory_shares.py --megabytes 1000 --seconds 60
"""

import argparse
import json
import re
import subprocess
import time

import servers
from cold_collections import figures

# Bytes of memory that a string of 500 B, and a field of 100 B, take about.
STRING, FIELD = 560, 150
# What is used: shares of memory that strings and fields take which are asked for, and how often; None: all there are.
LOADS = [
    ("strings of half of memory", (0.5, None), None),
    ("fields of half of memory", None, (0.5, None)),
    ("strings of a quarter, all fields", (0.25, 20_000), (None, 10_000)),
    ("all strings, fields of a half", (None, 10_000), (0.5, 20_000)),
    ("strings of a half, all fields", (0.5, 20_000), (None, 10_000)),
    ("strings of a third, fields of a third", (0.33, 20_000), (0.33, 20_000)),
]


def start(server, command, keys, **flags):
    """Begins a run of the load generator."""
    argv = [servers.LOAD, "--port", server.port, "--clients", 25, "--pipeline", 16, "--keys", keys]
    for flag, argument in flags.items():
        argv += ["--" + flag, argument]
    return subprocess.Popen([*map(str, argv), command], stdout=subprocess.PIPE, text=True)


def finish(run):
    result = json.loads(run.communicate()[0])
    if result["errors"]:
        raise RuntimeError(f"{result['errors']} commands were refused")
    return result


def counts(server):
    """The figures of INFO, and how often each command was called."""
    text = server.command("INFO", "commandstats").decode()
    calls = {name: int(count) for name, count in re.findall(r"^cmdstat_(\w+):calls=(\d+),", text, re.MULTILINE)}
    return figures(server, "all") | calls


def measure(server, options, name, strings, fields):
    runs = []
    for part, command, size, count in [(strings, "GET {key}", STRING, options.strings), (fields, "HGET hash {n}", FIELD, options.fields)]:
        if part:
            share, rate = part
            keys = count if share is None else int(share * options.megabytes * 1e6 / size)
            runs.append(start(server, command, keys, seconds=options.seconds, **({"rate": rate} if rate else {})))
    time.sleep(options.seconds * 0.7)
    before = counts(server)
    time.sleep(options.seconds * 0.25)
    after = counts(server)
    for run in runs:
        finish(run)
    change = lambda field: after.get(field, 0) - before.get(field, 0)
    pages = change("heap_pages_fetched") + change("heap_page_faults")
    text = [f"{name}:"]
    for command, reads in [("get", change("cache_misses")), ("hget", pages)]:
        if calls := change(command):
            text.append(f"{command.upper()} {calls / options.seconds / 0.25:,.0f}/s, {reads / calls:.3f} reads each;")
    text.append(f"pages {after['mem_heap'] / 1e6:.0f} MB, copies {after['mem_cache'] / 1e6:.0f} MB, resident {after['used_memory_rss'] / 1e6:.0f} MB")
    print(*text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="maxmemory")
    parser.add_argument("--seconds", type=float, default=16, help="for each load, of which the last quarter is measured")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "holdfast-bench", "--bin", "load"], cwd=servers.ROOT, check=True)
    # Each three times memory.
    options.strings, options.fields = (int(3e6 * options.megabytes / size) for size in (STRING, FIELD))
    server = servers.holdfast(folder=options.dir, cpus="0,1", workers=2, maxmemory=f"{options.megabytes}mb")
    try:
        server.wait()
        finish(start(server, "SET {key} {value}", options.strings, pattern="sequential", requests=options.strings, value=500))
        finish(start(server, "HSET hash {n} {value}", options.fields, pattern="sequential", requests=options.fields, value=100))
        for load in LOADS:
            measure(server, options, *load)
    finally:
        server.close()


if __name__ == "__main__":
    main()
