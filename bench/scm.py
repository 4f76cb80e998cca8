#!/usr/bin/env python3
"""SETs on storage-class memory, emulated, beside the same server without durability and on other media.

Each server has one worker on one core; the clients are on the other one. For each setting, with as many connections and commands at once
as said: commands a second, in turns, medians with the least and the greatest; the share of the rate without durability; the median
time of a command; the server's CPU time; and fences for a command.

    none     no durability (`appendfsync no`), the log in a folder of `--memory`
    own      emulated memory there, as fast as the machine's
    cow, lat, latb
             the same, with the heap changed in place by this `scm-method`
    through  the same by the method none: stores in place, without atomicity
    own Nx   the same as `own`, or another, where each line of 64 bytes takes N times `--line-ns`
    tmpfs    a folder there used as a drive: a write and a flush for each commit
    block    a folder of `--dir`, as a drive

    python3 bench/scm.py                              # five minutes
    python3 bench/scm.py --runs 3 --seconds 1 --media none own 'own 8x'
    python3 bench/scm.py --media none {own,cow,lat,latb,through}' 8x'
"""

import argparse
import re
import statistics

import servers

SETTINGS = [(1, 1), (50, 1), (1, 16), (50, 16)]
FACTORS = [1, 2, 4, 8]
METHODS = {"through": "none"}
COLUMNS = "{:>8} {:>28} {:>6} {:>8} {:>8} {:>8}"


def fences(server):
    """Fences since they were last counted from nothing; `None`: the server's medium is a drive."""
    reply = server.command("SCM", "STATS").decode()
    found = re.search(r"fences\r\n:(\d+)", reply)
    return int(found[1]) if found else None


def run(options, server, clients, pipeline):
    """One run of SETs: what `load` prints, CPU seconds, and fences."""
    server.command("SCM", "START")
    before = server.cpu_seconds()
    sizes = {"keys": options.keys, "value": options.value, "clients": clients, "pipeline": pipeline}
    result = servers.load(server, "1 SET {key} {value}", **sizes, seconds=options.seconds)
    return result, server.cpu_seconds() - before, fences(server)


def start(options, medium):
    if medium == "block":
        return servers.holdfast(name=medium, folder=options.dir)
    settings = {"none": {"appendfsync": "no"}, "tmpfs": {}}.get(medium)
    if settings is None:
        method, _, factor = medium.partition(" ")
        line_ns = int(factor.rstrip("x") or 0) * options.line_ns
        settings = {"medium": "emulated", "scm-line-ns": line_ns, "scm-method": METHODS.get(method, method)}
        settings |= {"scm-allow-unsafe": "yes"}
    return servers.holdfast(name=medium, folder=options.memory, **settings)


def main():
    media = ["none", "own", *(f"own {factor}x" for factor in FACTORS), "tmpfs", "block"]
    in_place = [f"{method}{factor}" for method in ("cow", "lat", "latb", "through") for factor in ("", *(f" {n}x" for n in FACTORS))]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each run")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--value", type=int, default=100, help="bytes of a value")
    parser.add_argument("--line-ns", type=int, default=60, help="nanoseconds that a line takes at 1x")
    parser.add_argument("--media", nargs="*", choices=media + in_place, default=media)
    parser.add_argument("--memory", default="/dev/shm", help="a folder in memory")
    parser.add_argument("--dir", help="a folder on a drive")
    options = parser.parse_args()
    running = [start(options, medium) for medium in options.media]
    try:
        for server in running:
            server.wait()
        for clients, pipeline in SETTINGS:
            print(f"{clients} connections, {pipeline} at once")
            print(COLUMNS.format("medium", "SET/s", "share", "us", "us CPU", "fences"))
            runs = {server.name: [] for server in running}
            for _ in range(options.runs):
                for server in running:
                    runs[server.name].append(run(options, server, clients, pipeline))
            rates = {name: [result["rate"] for result, _, _ in of] for name, of in runs.items()}
            base = statistics.median(rates[options.media[0]])
            for name, of in runs.items():
                rate = statistics.median(rates[name])
                cpu = statistics.median(seconds / result["requests"] * 1e6 for result, seconds, _ in of)
                us = statistics.median(result["us_p50"] for result, _, _ in of)
                spread = f"{rate:,.0f} [{min(rates[name]):,.0f}..{max(rates[name]):,.0f}]"
                each = of[-1][2] / of[-1][0]["requests"] if of[-1][2] is not None else None
                figures = [f"{rate / base:.2f}", us, f"{cpu:.2f}", "-" if each is None else f"{each:.3f}"]
                print(COLUMNS.format(name, spread, *figures), flush=True)
    finally:
        for server in running:
            server.close()


if __name__ == "__main__":
    main()
