#!/usr/bin/env python3
"""Data larger than storage-class memory: a part of it with flash below, beside all of it in memory, and a drive alone.

All have the same keys, and RAM for a tenth of them. Each server has one worker on one core; the clients are on the other one. First every
key is set, in order; then keys are drawn evenly, in turns. Commands a second, medians with the least and the greatest, the median time
of a command and that of 99 of 100, the server's CPU time for each, and bytes written to flash for each byte of keys and values that was set.

    memory   emulated memory that holds everything, in a folder of `--memory`
    both     emulated memory for `--share` of it, and a folder of `--dir` below
    flash    a folder of `--dir`, as a drive

    python3 bench/scm_flash.py                              # five minutes
    python3 bench/scm_flash.py --value 4000 --keys 200000
"""

import argparse
import shutil
import statistics
import tempfile

import servers

# name: (clients, commands that each sends at once, command)
LOADS = {
    "SET, 1 client": (1, 1, "1 SET {key} {value}"),
    "SET, 50 clients": (50, 1, "1 SET {key} {value}"),
    "SET, 50 clients, P=16": (50, 16, "1 SET {key} {value}"),
    "GET, 1 client": (1, 1, "1 GET {key}"),
    "GET, 50 clients": (50, 1, "1 GET {key}"),
}
COLUMNS = "{:>8} {:>28} {:>6} {:>8} {:>8} {:>8} {:>8}"


def info(server, name):
    reply = server.command("INFO", "everything").decode()
    line = next(line for line in reply.splitlines() if line.startswith(name + ":"))
    return float(line.partition(":")[2])


def table(base, runs):
    print(COLUMNS.format("media", "a second", "share", "us", "us p99", "us CPU", "flash"), flush=True)
    base = statistics.median(result["rate"] for result, _, _ in runs[base])
    for name, of in runs.items():
        rates = [result["rate"] for result, _, _ in of]
        rate = statistics.median(rates)
        median = lambda figure: statistics.median(figure(*each) for each in of)
        figures = [
            f"{rate:,.0f} [{min(rates):,.0f}..{max(rates):,.0f}]",
            f"{rate / base:.2f}",
            median(lambda result, _, __: result["us_p50"]),
            median(lambda result, _, __: result["us_p99"]),
            f"{median(lambda result, cpu, _: cpu / result['requests'] * 1e6):.2f}",
            f"{median(lambda result, _, bytes: bytes):.2f}",
        ]
        print(COLUMNS.format(name, *figures), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each run")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=500, help="bytes of a value")
    parser.add_argument("--share", type=float, default=0.2, help="of the data that the memory may hold, for `both`")
    parser.add_argument("--line-ns", type=int, default=0, help="nanoseconds that a line takes")
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--dir", help="a folder on a drive")
    options = parser.parse_args()
    data = options.keys * (options.value + 40)
    ram = {"maxmemory": data // 10 + options.keys * 60}
    emulated = {"medium": "emulated", "scm-line-ns": options.line_ns, **ram}
    below = tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.dir)
    both = {"flash-dir": below, "scm-max-size": int(data * options.share), **emulated}
    running = [
        servers.holdfast(name="memory", folder=options.memory, **emulated),
        servers.holdfast(name="both", folder=options.memory, **both),
        servers.holdfast(name="flash", folder=options.dir, **ram),
    ]

    def measured(server, clients, pipeline, command, **more):
        """What `load` prints, CPU seconds, and bytes written to flash for each that was set."""
        cause = "moved_segments" if server.name == "both" else "items"
        before = [info(server, f"endurance_bytes_{name}") for name in (cause, "of_commands")]
        cpu = server.cpu_seconds()
        sizes = {"keys": options.keys, "value": options.value, "clients": clients, "pipeline": pipeline}
        result = servers.load(server, command, **sizes, **more)
        cpu = server.cpu_seconds() - cpu
        after = [info(server, f"endurance_bytes_{name}") for name in (cause, "of_commands")]
        written, came = (late - early for late, early in zip(after, before))
        return result, cpu, written / came if came and server.name != "memory" else 0.0

    try:
        for server in running:
            server.wait()
        print(f"{options.keys:,} keys of {options.value} bytes; in order, 50 clients, P=16")
        in_order = {"pattern": "sequential", "requests": options.keys}
        filled = {server.name: [measured(server, 50, 16, "1 SET {key} {value}", **in_order)] for server in running}
        table("memory", filled)
        for name, load in LOADS.items():
            print(name)
            runs = {server.name: [] for server in running}
            for _ in range(options.runs):
                for server in running:
                    runs[server.name].append(measured(server, *load, seconds=options.seconds))
            table("memory", runs)
    finally:
        for server in running:
            server.close()
        shutil.rmtree(below, ignore_errors=True)


if __name__ == "__main__":
    main()
