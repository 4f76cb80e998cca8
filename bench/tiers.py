#!/usr/bin/env python3
"""What memory before flash is worth: ten times more data than `maxmemory`, and loads that find more or less of it in memory.

* Corner cases: GET, SET and 70 % GET with 30 % SET, of keys that are all in memory and of keys drawn evenly from all.
* Gaussian: keys around the middle of all, ever wider.
* Beside: the latency of GETs that memory answers, alone and while another client has cold GETs at half the device's rate.

Two workers and the load generator on two cores. Redis on Flash has 56 % (GET), 31 % (SET) and 43 % of the rate in memory when nothing
is there, and is flat from 60 % to 90 % of hits.

    python3 bench/tiers.py                  # 4 M keys; some minutes
    python3 bench/tiers.py --only corners --rounds 5
"""

import argparse
import json
import statistics
import subprocess

import servers
from cold_reads import device_rate

LOAD = servers.ROOT / "target" / "release" / "load"
# name: the commands, with their weights
MIXES = {"GET": ["GET {key}"], "SET": ["SET {key} {value}"], "70/30": ["70 GET {key}", "30 SET {key} {value}"]}
DEVIATIONS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]


def arguments(port, commands, **options):
    argv = [LOAD, "--port", port]
    for option, value in options.items():
        argv += ["--" + option.replace("_", "-"), value]
    return [str(argument) for argument in argv + commands]


def run(port, commands, **options):
    return json.loads(subprocess.run(arguments(port, commands, **options), capture_output=True, text=True, check=True).stdout)


def info(server, *fields):
    text = server.command("INFO", "everything").decode(errors="replace")
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return [float(values[field]) for field in fields]


def hits_of(server, load):
    """Runs a load; its result, and the share of look-ups that memory answered."""
    before = info(server, "cache_hits", "cache_misses")
    result = load()
    hits, misses = (after - was for after, was in zip(info(server, "cache_hits", "cache_misses"), before))
    return result, hits / max(1, hits + misses)


def median(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def corners(server, options):
    hot = options.keys // 40
    warm = lambda: run(server.port, ["GET {key}"], keys=hot, requests=6 * hot, pipeline=16)
    for name, mix in MIXES.items():
        rates, cpu = {"highest": [], "lowest": []}, {"highest": [], "lowest": []}
        for _ in range(options.rounds):
            for corner, keys in [("highest", hot), ("lowest", options.keys)]:
                if corner == "highest":
                    warm()
                began = server.cpu_seconds()
                result = run(server.port, mix, keys=keys, seconds=options.seconds, value=512)
                assert result["errors"] == 0, result
                cpu[corner].append((server.cpu_seconds() - began) / result["requests"] * 1e6)
                rates[corner].append(result["rate"])
                took = result["us_p50"], result["us_p99"]
                print(f"  {name}, {corner}: {result['rate']:,.0f}/s, {cpu[corner][-1]:.1f} us of CPU, p50 {took[0]} us, p99 {took[1]} us", flush=True)
        share = statistics.median(low / high for low, high in zip(rates["lowest"], rates["highest"]))
        print(f"{name}: {median(rates['highest'])} a second with all in memory, {median(rates['lowest'])} with a tenth: {share:.2f}", flush=True)


def gaussian(server, options):
    for deviation in DEVIATIONS:
        load = lambda seconds: run(server.port, ["GET {key}"], keys=options.keys, pattern=f"gauss:{deviation}", seconds=seconds)
        load(2 * options.seconds)
        result, hits = hits_of(server, lambda: load(options.seconds))
        print(f"gauss:{deviation}: {hits:.2f} of hits, {result['rate']:,.0f}/s, p50 {result['us_p50']} us, p99 {result['us_p99']} us", flush=True)


def beside(server, options):
    hot = options.keys // 40
    rate = device_rate(server.folder, 50) / 2
    alone, both = [], []
    for _ in range(options.rounds):
        run(server.port, ["GET {key}"], keys=hot, requests=6 * hot, pipeline=16)
        measure = lambda: run(server.port, ["GET {key}"], keys=hot, seconds=options.seconds, clients=4)["us_p99"]
        alone.append(measure())
        cold = arguments(server.port, ["GET {key}"], keys=options.keys, seconds=options.seconds + 1, rate=rate)
        with subprocess.Popen(cold, stdout=subprocess.PIPE, text=True) as process:
            both.append(measure())
            got = json.loads(process.communicate()[0])["rate"]
        print(f"  p99 of hot GETs {alone[-1]} us alone, {both[-1]} us beside {got:,.0f} cold GETs a second", flush=True)
    print(f"hot beside cold: p99 {median(alone)} us alone, {median(both)} us beside", flush=True)


def main():
    parts = {"corners": corners, "gaussian": gaussian, "beside": beside}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=4_000_000)
    parser.add_argument("--maxmemory", default="250mb")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(parts), default=list(parts))
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    server = servers.holdfast(folder=options.dir, cpus="0,1", workers=2, maxmemory=options.maxmemory)
    try:
        server.wait()
        result = run(server.port, ["SET {key} {value}"], keys=options.keys, requests=options.keys, pattern="sequential", pipeline=50, value=512)
        assert result["errors"] == 0, result
        print(f"filled at {result['rate']:,.0f}/s, p99 {result['us_p99']} us", flush=True)
        for part in options.only:
            parts[part](server, options)
            print(f"resident: {server.memory_bytes() / 1e6:.0f} MB", flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
