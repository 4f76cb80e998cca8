#!/usr/bin/env python3
"""What a server reads from its medium and writes to it over time, sampled each second under a mix of commands.

    python3 bench/flash_throughput.py                                           # 70 % GET, 30 % SET, drawn evenly; a minute
    python3 bench/flash_throughput.py --pattern zipf:0.99 --csv run.csv '1 SET {key} {value}'

Keys are set once before, so that with `--maxmemory` most values are on the medium only. For each second: commands; values and pages
that the server read; bytes that its process had read and written, as the system counts them; bytes that the server says it has
written, and of these what commands brought, what the cleaner moved and what checkpoints took; reads and writes of the device.
"""

import argparse
import csv
import os
import pathlib
import re
import subprocess
import sys
import time

import servers

LOAD = servers.ROOT / "target" / "release" / "load"
SECTOR = 512
COLUMNS = (
    "second",
    "commands",
    "value_reads",
    "page_reads",
    "process_mb_read",
    "process_mb_written",
    "server_mb_written",
    "of_commands_mb",
    "moved_mb",
    "checkpoints_mb",
    "device_reads",
    "device_mb_read",
    "device_writes",
    "device_mb_written",
)


def info(server):
    """The figures of INFO that are whole numbers."""
    text = server.command("INFO").decode()
    return {name: int(value) for name, value in re.findall(r"^(\w+):(\d+)\r$", text, re.MULTILINE)}


def process_bytes(server):
    """Bytes that the process had read from media and written to them."""
    text = pathlib.Path(f"/proc/{server.process.pid}/io").read_text()
    return [int(re.search(rf"^{name}: (\d+)", text, re.MULTILINE)[1]) for name in ("read_bytes", "write_bytes")]


def device(folder):
    """Reads, bytes read, writes and bytes written of the device of a folder; zeroes where the system has none for it."""
    number = os.stat(folder).st_dev
    path = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")
    if not path.exists():
        return [0] * 4
    fields = [int(field) for field in path.read_text().split()]
    return [fields[0], fields[2] * SECTOR, fields[4], fields[6] * SECTOR]


def sample(server):
    """All counters, in the order of the columns behind the first."""
    of, (read, written), (reads, bytes_read, writes, bytes_written) = info(server), process_bytes(server), device(server.folder)
    mb = 1e-6
    return [
        of["total_commands_processed"],
        of["cache_misses"],
        of["heap_pages_fetched"] + of["heap_page_faults"],
        read * mb,
        written * mb,
        of["endurance_bytes_written"] * mb,
        of["endurance_bytes_of_commands"] * mb,
        of["endurance_bytes_moved_items"] * mb,
        (of["endurance_bytes_heap_pages"] + of["endurance_bytes_heap_tables"] + of["endurance_bytes_superblock"]) * mb,
        reads,
        bytes_read * mb,
        writes,
        bytes_written * mb,
    ]


def load(server, options, *more):
    argv = [LOAD, "--port", server.port, "--clients", options.clients, "--keys", options.keys, "--value", options.value, *more]
    return subprocess.Popen([*map(str, argv)], stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mix", nargs="*", default=["70 GET {key}", "30 SET {key} {value}"], help="commands as for the program load")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=512)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--pattern", default="uniform", help="as for the program load")
    parser.add_argument("--maxmemory", default="100mb")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of the server")
    parser.add_argument("--csv", help="a file for the samples, too")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "holdfast-bench", "--bin", "load"], cwd=servers.ROOT, check=True)
    settings = {name.replace("-", "_"): value for name, value in (pair.split("=") for pair in options.set)}
    server = servers.holdfast(folder=options.dir, cpus="0,1", workers=2, maxmemory=options.maxmemory, **settings)
    running = None
    try:
        server.wait()
        filling = load(server, options, "--pipeline", 100, "--pattern", "sequential", "--requests", options.keys, "SET {key} {value}")
        if filling.wait() != 0:
            sys.exit("the keys could not be set")
        rows = []
        print("".join(f"{name.replace('_', ' '):>19}" for name in COLUMNS), flush=True)
        running = load(server, options, "--pipeline", options.pipeline, "--pattern", options.pattern, "--seconds", options.seconds, *options.mix)
        began, before, taken = time.monotonic(), sample(server), time.monotonic()
        while len(rows) < options.seconds and running.poll() is None:
            time.sleep(max(0.0, began + len(rows) + 1 - time.monotonic()))
            after, now = sample(server), time.monotonic()
            rows.append([round(now - began, 1), *((new - old) / (now - taken) for old, new in zip(before, after))])
            before, taken = after, now
            print(f"{rows[-1][0]:>19.1f}" + "".join(f"{value:>19,.1f}" for value in rows[-1][1:]), flush=True)
        if running.wait() != 0:
            sys.exit("the load failed")
        if options.csv:
            with open(options.csv, "w", newline="") as f:
                csv.writer(f).writerows([COLUMNS, *rows])
    finally:
        if running and running.poll() is None:
            running.terminate()
        server.close()


if __name__ == "__main__":
    main()
