#!/usr/bin/env python3
"""Holdfast as a replica of a Redis or Valkey, beside one of the same as its replica: how long it takes to copy the data, and whether it keeps up
with what is written.

A primary gets `--keys` strings. Then a replica is started, empty; *copy* is the time until it follows. Then SETs are written at `--rate` a second, and every
50 ms it is asked how many bytes the replica lags behind: *lag* is that as a time at this rate, its median and its greatest. *catch up* is how long the replica takes
for the rest once the writes end. CPU is that of the replica, for each key copied and each SET. Primary, replica and clients share the cores.

    python3 bench/replica.py --primary valkey-server                  # about five minutes
    python3 bench/replica.py --primary valkey-server --rate 50000 200000 --value 1000
"""

import argparse
import re
import statistics
import subprocess
import time

import servers

LOAD = servers.ROOT / "target" / "release" / "load"
COLUMNS = "{:>10} {:>9} {:>8} {:>10} {:>10} {:>10} {:>11} {:>10} {:>10}"


def info(server, field):
    found = re.search(field + r":(\S+)", server.command("INFO", "replication").decode())
    return found and found[1]


def load(options, server, *more):
    argv = [LOAD, "--port", server.port, "--clients", 50, "--pipeline", 16, "--keys", options.keys]
    argv += ["--value", options.value, *more, "1 SET {key} {value}"]
    return subprocess.Popen([str(arg) for arg in argv], stdout=subprocess.PIPE, text=True)


def lag(primary, replica):
    """Bytes that the replica has not executed."""
    return int(info(primary, "master_repl_offset")) - int(info(replica, "slave_repl_offset"))


def wait_until(holds, seconds=600):
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > seconds:
            raise RuntimeError("waited in vain")
        time.sleep(0.01)
    return time.monotonic() - began


def start(options, kind, **more):
    if kind == "holdfast":
        return servers.holdfast(name=kind, cpus="0,1", workers=2, folder=options.dir)
    return servers.redis(name=kind, cpus="0,1", binary=options.primary, folder=options.dir, **more)


def run(options, kind, rate):
    """One run: seconds of the copy, CPU us a key, lags in ms, seconds to catch up, CPU us a SET, SETs a second."""
    primary = start(options, "primary", **{"repl-diskless-sync-delay": 0})
    primary.wait()
    replica = start(options, kind)
    replica.wait()
    try:
        load(options, primary, "--pattern", "sequential", "--requests", options.keys).wait()
        cpu = replica.cpu_seconds()
        replica.command("REPLICAOF", "127.0.0.1", primary.port)
        copy = wait_until(lambda: info(replica, "master_link_status") == "up")
        wait_until(lambda: lag(primary, replica) <= 0)
        copy_cpu = (replica.cpu_seconds() - cpu) * 1e6 / options.keys
        cpu, before = replica.cpu_seconds(), int(info(primary, "master_repl_offset"))
        writing, began, lags = load(options, primary, "--rate", rate, "--seconds", options.seconds), time.monotonic(), []
        while writing.poll() is None:
            lags.append(lag(primary, replica))
            time.sleep(0.05)
        took = time.monotonic() - began
        catch_up = wait_until(lambda: lag(primary, replica) <= 0)
        written = int(info(primary, "master_repl_offset")) - before
        sets = int(re.search(r'"requests":\s*(\d+)', writing.stdout.read())[1])
        set_cpu = (replica.cpu_seconds() - cpu) * 1e6 / sets
        lags_ms = [max(bytes, 0) / (written / took) * 1000 for bytes in lags]
        return copy, copy_cpu, statistics.median(lags_ms), max(lags_ms), catch_up, set_cpu, sets / took
    finally:
        primary.close()
        replica.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--primary", default="redis-server", help="a redis-server or valkey-server")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=100)
    parser.add_argument("--rate", type=int, nargs="+", default=[100_000])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", help="where data folders are made")
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--workspace", "--quiet"], check=True, cwd=servers.ROOT)
    print(COLUMNS.format("replica", "rate", "copy s", "us a key", "written/s", "lag ms", "most ms", "catch up s", "us a SET"))
    for rate in options.rate:
        runs = {"holdfast": [], "peer": []}
        for _ in range(options.runs):
            for kind, results in runs.items():
                results.append(run(options, kind, rate))
        for kind, results in runs.items():
            copy, key, median, most, catch_up, us, written = (statistics.median(column) for column in zip(*results))
            numbers = f"{copy:.2f}", f"{key:.2f}", f"{written:,.0f}", f"{median:.1f}", f"{most:.0f}", f"{catch_up:.2f}", f"{us:.2f}"
            print(COLUMNS.format(kind, f"{rate:,}", *numbers), flush=True)


if __name__ == "__main__":
    main()
