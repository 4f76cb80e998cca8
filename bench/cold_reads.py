#!/usr/bin/env python3
"""GETs of values that are not in memory, drawn evenly, against what the device gives in the same run (fio).

Ten times more data than `maxmemory`, a server on both cores, redis-benchmark beside it. Right after a restart, and once all of
the index is loaded. For each load: GETs a second, their share of the device's rate at the same depth, the server's CPU time
and the device's reads for each GET, and the greatest latency of 99 % of them.

    python3 bench/cold_reads.py                       # 4 M keys; some minutes
    python3 bench/cold_reads.py --set io-uring=no
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import time

import servers
from memory_and_restart import load

# name: (clients, commands that each sends at once)
LOADS = {"50 clients": (50, 1), "200 clients": (200, 1), "1 client": (1, 1), "1 client, P=16": (1, 16), "50 clients, P=16": (50, 16)}


def device_rate(folder, depth, seconds=4):
    """Random reads of 4 KiB a second at a depth."""
    name = os.path.join(folder, "fio.data")
    job = ["fio", "--name=cold", f"--filename={name}", "--size=2g", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring"]
    job += [f"--iodepth={depth}", "--time_based", f"--runtime={seconds}", "--output-format=json", "--allow_file_create=1"]
    out = subprocess.run(job, capture_output=True, text=True, check=True).stdout
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"]


def device_reads(folder):
    """Reads that the device of a folder has done."""
    device = os.stat(folder).st_dev
    path = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(path.read_text().split()[0])


def measure(server, keys, clients, pipeline, requests):
    argv = ["redis-benchmark", "-p", server.port, "-c", clients, "-P", pipeline, "-n", requests, "-r", keys, "GET", "key:__rand_int__"]
    reads, cpu, began = device_reads(server.folder), server.cpu_seconds(), time.monotonic()
    out = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=True).stdout
    took = time.monotonic() - began
    cpu, reads = server.cpu_seconds() - cpu, device_reads(server.folder) - reads
    p99 = re.findall(r"^\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s+[\d.]+$", out.replace("\r", "\n"), re.MULTILINE)
    return requests / took, cpu / requests * 1e6, reads / requests, float(p99[-1]) if p99 else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=4_000_000)
    parser.add_argument("--maxmemory", default="250mb")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--loads", nargs="*", choices=list(LOADS), default=list(LOADS))
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of the server")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    settings = dict(pair.split("=") for pair in options.set)
    server = servers.holdfast(folder=options.dir, cpus="0,1", workers=2, maxmemory=options.maxmemory, **{k.replace("-", "_"): v for k, v in settings.items()})
    try:
        server.wait()
        load(server, options.keys, os.urandom(256).hex().encode())
        rates = {depth: device_rate(server.folder, depth) for depth in {LOADS[name][0] * LOADS[name][1] for name in options.loads}}
        print("device: " + ", ".join(f"{rate:,.0f}/s at depth {depth}" for depth, rate in sorted(rates.items())), flush=True)
        for state in ["right after a restart", "loaded"]:
            if state == "loaded":
                while b"loading:0" not in server.command("INFO", "persistence"):
                    time.sleep(0.5)
            for name in options.loads:
                clients, pipeline = LOADS[name]
                if state != "loaded":
                    server.kill()
                    server.start()
                    server.wait()
                requests = options.requests // (10 if clients * pipeline == 1 else 1)
                rate, cpu, reads, p99 = measure(server, options.keys, clients, pipeline, requests)
                share = rate / rates[clients * pipeline]
                print(f"{state}, {name}: {rate:,.0f}/s, {share:.2f} of the device, {cpu:.1f} us of CPU, {reads:.2f} reads, p99 {p99:.1f} ms, {server.memory_bytes() / 1e6:.0f} MB resident", flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
