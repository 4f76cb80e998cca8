#!/usr/bin/env python3
"""What a backup costs the clients of a server that goes on, and what a later one writes.

    cargo build --release --workspace
    python3 bench/backup.py                             # a million keys of 1 KB, 20,000 commands a second, 5 rounds
    python3 bench/backup.py --rate 50mb --rounds 9      # the backup copies at most so much a second

Clients send GET and SET at a rate, half of each, of keys at random. *Without* and *with* a backup, in turns, their p99 is taken; each of those backups
goes to a folder of its own. Then a hundredth of the keys is changed, and one more backup is made into the folder of the last one: what that writes
is to be a fiftieth of all and a segment of the log.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

import servers

LOAD = servers.ROOT / "target" / "release" / "load"


def load(options, server, seconds):
    argv = [LOAD, "--port", server.port, "--clients", options.clients, "--keys", options.keys, "--value", options.value]
    argv += ["--rate", options.commands, "--seconds", seconds, "GET {key}", "SET {key} {value}"]
    return subprocess.Popen([str(arg) for arg in argv], stdout=subprocess.PIPE, text=True)


def result(process):
    return json.loads(process.communicate()[0])


def back_up(options, server, to):
    """Seconds that it took, the bytes of the backup, and those that were written for it."""
    argv = [options.binary, "backup", "--from", f"127.0.0.1:{server.port}", to]
    argv += ["--rate", options.rate] if options.rate else []
    began = time.monotonic()
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    all_bytes, written = (int(re.search(before + r"(\d+)", told)[1]) for before in ("bytes: ", "of which "))
    return time.monotonic() - began, all_bytes, written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value", type=int, default=1000)
    parser.add_argument("--commands", type=int, default=20_000, help="a second")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", help="of the backup, as its option says it")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    parser.add_argument("--binary", default=servers.HOLDFAST)
    options = parser.parse_args()
    servers.HOLDFAST = options.binary
    server = servers.holdfast(cpus="0,1", workers=2, folder=options.dir)
    server.wait()
    backups = tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.dir)
    try:
        measure(options, server, backups)
    finally:
        server.close()
        shutil.rmtree(backups)


def run(*argv):
    subprocess.run([str(arg) for arg in argv], check=True, stdout=subprocess.DEVNULL)


def settle():
    """Waits until the medium has freed what was removed."""
    os.sync()
    time.sleep(2)


def measure(options, server, backups):
    writes = [LOAD, "--port", server.port, "--keys", options.keys, "--value", options.value]
    run(*writes, "--pipeline", 16, "--pattern", "sequential", "--requests", options.keys, "SET {key} {value}")
    # For as long as a backup takes beside them.
    clients, to = load(options, server, 600), os.path.join(backups, "0")
    took = back_up(options, server, to)[0]
    clients.terminate()
    clients.communicate()
    alone, beside = [], []
    for number in range(1, options.rounds + 1):
        shutil.rmtree(to)
        settle()
        alone.append(result(load(options, server, took)))
        clients, to = load(options, server, took), os.path.join(backups, str(number))
        seconds, all_bytes, _ = back_up(options, server, to)
        beside.append(result(clients))
        shown = ["{:,.0f}/s, p50 {} us, p99 {} us".format(*(one[-1][it] for it in ("rate", "us_p50", "us_p99"))) for one in (alone, beside)]
        print(f"without: {shown[0]}; beside a backup of {all_bytes / 1e6:.0f} MB in {seconds:.1f} s: {shown[1]}", flush=True)
    without, beside = (statistics.median(one["us_p99"] for one in some) for some in (alone, beside))
    print(f"p99, medians: {without:.0f} us without, {beside:.0f} us with a backup: {beside / without:.2f} times")
    back_up(options, server, to)
    run(*writes, "--seed", 7, "--requests", options.keys // 100, "SET {key} {value}")
    _, all_bytes, written = back_up(options, server, to)
    print(f"after a hundredth of the keys has changed, a backup of {all_bytes / 1e6:.0f} MB writes {written / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
