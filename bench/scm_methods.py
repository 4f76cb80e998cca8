#!/usr/bin/env python3
"""The experiments of Giles, Doshi, Varman: Persisting In-Memory Databases Using SCM (2016), on emulated storage-class memory.

Each method is a server with that `scm-method`: own, cow, lat, latb, and through (the method none: stores in place, without atomicity). Servers have one
worker on one core; clients are on the other. What the document tells in numbers stands beside; its figures are curves.

    inserts   Fig. 4: transactions that insert into a B-tree of 200,000 elements, at rising rates of arrival (in the process, no clients)
    counts    Fig. 5 and Table I: what a SET takes, for sets of 10 to 1,000,000 keys
    delay     Fig. 6: SETs against the time of a write, in multiples of `--line-ns` a line
    commands  Fig. 7: the commands of redis-benchmark, beside a log per write, and each second, on `--dir`, and a log in memory
    ycsb      Figs. 8 to 11: workloads A and B: rate, latency of reads and of updates, also against the time of a write
    recovery  how long a start takes after `kill -9` (the document has no figure of it)

    python3 bench/scm_methods.py counts inserts        # all, if none is named: fifteen minutes
"""

import argparse
import json
import re
import statistics
import subprocess

import servers

RELEASE = servers.ROOT / "target" / "release"
METHODS = ["own", "cow", "latb", "lat", "through"]
FACTORS = [0, 1, 2, 4, 8]
# Table I: elements, and persistent commits a SET of CoW, LATB and LAT.
TABLE_I = [(10, 40.5, 10.9, 5.3), (100, 29.5, 8.87, 5.03), (1000, 23.3, 7.61, 5.0), (10_000, 26.28, 8.41, 5.0)]
TABLE_I += [(100_000, 24.25, 7.9, 5.0), (1_000_000, 21.64, 7.3, 5.0)]
# As `redis-benchmark` has them: what is done, and what must be there before.
COMMANDS = {
    "SET": ["SET {key} {value}"],
    "GET": ["GET {key}", "SET {key} {value}"],
    "INCR": ["INCR counter:{n}"],
    "LPUSH": ["LPUSH list {value}"],
    "LPOP": ["LPOP list", "LPUSH list {value}"],
    "SADD": ["SADD set element:{n}"],
    "SPOP": ["SPOP set", "SADD set element:{n}"],
    "HSET": ["HSET hash field:{n} {value}"],
    "ZADD": ["ZADD zset {n} element:{n}"],
}
FIELDS = [f"field{n}" for n in range(10)]
READ = "HGETALL {key}"
UPDATE = "HMSET {key} field3 {value}"


def start(options, method, factor=0):
    if method == "log":
        return servers.holdfast(name=method, folder=options.dir)
    if method == "log 1s":
        return servers.holdfast(name=method, folder=options.dir, appendfsync="everysec")
    if method == "log in memory":
        return servers.holdfast(name=method, folder=options.memory)
    settings = {"medium": "emulated", "scm_line_ns": factor * options.line_ns, "scm_allow_unsafe": "yes"}
    settings["scm_method"] = "none" if method == "through" else method
    return servers.holdfast(name=method, folder=options.memory, **settings)


def load(options, server, *commands, **flags):
    """One run of `load`: what it prints."""
    return servers.load(server, *commands, value=options.value, **flags)


def figures(server):
    """What SCM STATS tells."""
    reply = server.command("SCM", "STATS").decode()
    return {name: int(value) for name, value in re.findall(r"\$\d+\r\n(\w+)\r\n:(\d+)", reply)}


def with_all(options, names, work, factor=0):
    """Runs `work` for each of the servers, in turns, and returns the medians by name."""
    running = [start(options, name, factor) for name in names]
    results = {name: [] for name in names}
    try:
        for server in running:
            server.wait()
        for _ in range(options.runs):
            for server in running:
                results[server.name].append(work(server))
    finally:
        for server in running:
            server.close()
    medians = {}
    for name, of in results.items():
        medians[name] = [statistics.median(column) for column in zip(*of)] if of[0] is not None else None
    return medians


def row(first, cells, width=10):
    print(f"{first:>14}" + "".join(f"{cell:>{width}}" for cell in cells), flush=True)


def inserts(options):
    print("Inserts into a B-tree of 200,000 elements: microseconds of a transaction, on average; the document's order: through, lat and latb, cow")
    for factor in [0, 8]:
        rates = "20000,50000,100000"
        print(f"a line takes {factor * options.line_ns} ns more than DRAM" if factor else "as fast as DRAM")
        names = None
        for method in ["volatile", "tmpfs", *METHODS] if factor == 0 else METHODS:
            argv = ["taskset", "-c", "1", RELEASE / "scm_inserts", "--dir", options.memory, "--rates", rates]
            argv += ["--method", "none" if method == "through" else method, "--line-ns", factor * options.line_ns]
            runs = []
            for _ in range(options.runs):
                done = subprocess.run([str(arg) for arg in argv], check=True, capture_output=True, text=True)
                runs.append([json.loads(line) for line in done.stdout.splitlines()])
            if names is None:
                names = [f"{of['rate']:,}/s" if of["rate"] else of["what"] for of in runs[0]]
                row("", [*names, "SET p50"], 18)
            columns = list(zip(*runs))
            means = [statistics.median(of["mean_ns"] for of in column) / 1000 for column in columns]
            middle = statistics.median(of["p50_ns"] for of in columns[-1]) / 1000
            row(method, [f"{value:.2f}" for value in [*means, middle]], 18)


def counts(options):
    print("What a SET takes, of N new keys, one client: fences (persistent commits), stores in place, writes to the log, lines")
    row("N", [*METHODS, "", "CoW", "LATB", "LAT"])
    for count, *document in TABLE_I[: options.table_rows]:
        cells, others = [], []
        for method in METHODS:
            server = start(options, method)
            try:
                server.wait()
                server.command("SCM", "START")
                flags = {"pattern": "sequential", "requests": count, "keys": count}
                load(options, server, "SET {key} {value}", clients=1 if count <= 10_000 else 50, **flags)
                server.command("SCM", "STOP")
                found = figures(server)
            finally:
                server.close()
            cells.append(f"{found['fences'] / count:.2f}")
            others.append("/".join(f"{found[name] / count:.1f}" for name in ("stores", "streams", "lines")))
        row(f"{count:,}", [*cells, "", *document])
        row("", others, 16)


def delay(options):
    for pipeline in (1, 16):
        print(f"SETs a second, 50 clients, {pipeline} at once, by the time of a write (multiples of the line's)")
        row("", METHODS)
        for factor in FACTORS:
            flags = {"keys": 100_000, "seconds": options.seconds, "pipeline": pipeline}
            work = lambda server: [load(options, server, "SET {key} {value}", **flags)["rate"]]
            rates = with_all(options, METHODS, work, factor)
            row(f"{factor}x", [f"{rates[name][0]:,.0f}" for name in METHODS])
            print(f"{'':>14}latb against cow: {rates['latb'][0] / rates['cow'][0]:.2f} (the document, at 8x: 1.6)")


def commands(options):
    names = [*METHODS, "log in memory", "log", "log 1s"]
    print("Commands a second, 50 clients, as fast as DRAM")
    row("", names, 15)
    for name, (command, *before) in COMMANDS.items():

        def work(server):
            for prepare in before:
                load(options, server, prepare, keys=200_000, pattern="sequential", requests=200_000, pipeline=16)
            limit = {"requests": 100_000} if name in ("LPOP", "SPOP") else {"seconds": options.seconds}
            return [load(options, server, command, keys=200_000, **limit)["rate"]]

        rates = with_all(options, names, work)
        row(name, [f"{rates[of][0]:,.0f}" for of in names], 15)


def ycsb(options):
    names = [*METHODS, "log in memory", "log", "log 1s"]
    fill = "HMSET {key} " + " ".join(f"{field} {{value}}" for field in FIELDS)
    for workload, share in (("A", 50), ("B", 95)):
        print(f"Workload {workload}, 32 clients: operations a second; microseconds in the middle of a read, and of an update")
        row("", names, 15)
        mix = [f"{share} {READ}", f"{100 - share} {UPDATE}"]

        def work(server):
            load(options, server, fill, keys=20_000, pattern="sequential", requests=20_000)
            flags = {"keys": 20_000, "pattern": "zipf:0.99", "seconds": options.seconds}
            rate = load(options, server, *mix, clients=32, **flags)["rate"]
            single = [load(options, server, command, clients=1, **flags)["us_p50"] for command in (READ, UPDATE)]
            return [rate, *single]

        found = with_all(options, names, work)
        for line, what in enumerate(("rate", "read", "update")):
            row(what, [f"{found[name][line]:,.0f}" for name in names], 15)
        for factor in FACTORS[1:]:
            found = with_all(options, METHODS, work, factor)
            for line, what in enumerate(("rate", "read", "update")):
                row(f"{factor}x, {what}", [f"{found[name][line]:,.0f}" for name in METHODS], 15)


def recovery(options):
    print("Milliseconds from the start of a process to its first reply after a kill, with so many strings, and a tenth of that in a hash and a sorted set")
    row("", METHODS)
    for count in (10_000, 100_000, 1_000_000):

        def work(server):
            flags = {"keys": count, "pattern": "sequential", "pipeline": 16}
            load(options, server, "SET {key} {value}", requests=count, **flags)
            for command in ("HSET hash field:{n} {value}", "ZADD zset {n} element:{n}"):
                load(options, server, command, requests=count // 10, **flags)
            server.kill()
            server.start()
            return [1000 * server.wait()]

        took = with_all(options, METHODS, work)
        row(f"{count:,}", [f"{took[name][0]:.1f}" for name in METHODS])


EXPERIMENTS = {"inserts": inserts, "counts": counts, "delay": delay, "commands": commands, "ycsb": ycsb, "recovery": recovery}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", choices=[*EXPERIMENTS, []], help="all, if none is named")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="of each run")
    parser.add_argument("--value", type=int, default=100, help="bytes of a value")
    parser.add_argument("--line-ns", type=int, default=60, help="nanoseconds that a line takes at 1x")
    parser.add_argument("--table-rows", type=int, default=len(TABLE_I), help="rows of Table I")
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--dir", help="a folder on a drive")
    options = parser.parse_args()
    for name in options.experiments or EXPERIMENTS:
        EXPERIMENTS[name](options)
        print()


if __name__ == "__main__":
    main()
