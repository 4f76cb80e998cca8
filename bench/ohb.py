"""Sets and gets in the manner of OSU's benchmark of non-blocking calls (OHB), blocking against a window of 32, in RAM and with data ten
times as large.

Values of 4 KiB under keys of 16 bytes; one thread. OHB's latency is the time of all requests by their number; beside it, the median and the
99th percentile of the time from the call to its result. The variants take turns; medians over the runs.

    cargo build --release -p holdfast -p holdfast-client-c && python3 bench/ohb.py
"""

import argparse
import os
import statistics
import subprocess
import tempfile

import servers

WINDOW = 32


def build(folder):
    program = os.path.join(folder, "ohb")
    library = servers.ROOT / "target" / "release" / "libholdfast.a"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", servers.ROOT / "bench" / "ohb.c", "-o", program,
                    "-I", servers.ROOT / "clients" / "c" / "include", library, "-lpthread", "-ldl", "-lm"], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000, help="bytes of the values, which is ten times the smaller RAM")
    parser.add_argument("--requests", type=int, default=8000)
    parser.add_argument("--cpus", default="0,1", help="those of the server")
    args = parser.parse_args()
    keys = args.megabytes * 1_000_000 // 4096
    print("| RAM | operation | keys | call | OHB latency, µs | requests a second | p50, µs | p99, µs |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="holdfast-ohb-") as folder:
        program = build(folder)
        for ram, megabytes in ("all", args.megabytes * 3), ("a tenth", args.megabytes // 10):
            server = servers.holdfast(cpus=args.cpus, maxmemory=f"{megabytes}mb")
            try:
                server.wait()

                def measure(operation, pattern, window, requests=args.requests):
                    out = subprocess.run([program, f"127.0.0.1:{server.port}", operation, pattern, str(keys), str(requests),
                                          str(window)], check=True, stdout=subprocess.PIPE, text=True).stdout
                    return [float(word) for word in out.split()]

                measure("load", "random", WINDOW)
                for operation in "set", "get":
                    for pattern in "random", "zipf":
                        runs = {1: [], WINDOW: []}
                        for _ in range(args.runs):
                            for window, found in runs.items():
                                found.append(measure(operation, pattern, window))
                        medians = {}
                        for window, found in runs.items():
                            latency, p50, p99 = medians[window] = [statistics.median(column) for column in zip(*found)]
                            call = "blocking" if window == 1 else "non-blocking"
                            print(f"| {ram} | {operation} | {pattern} | {call} | {latency:.1f} | {1e6 / latency:,.0f} "
                                  f"| {p50:.1f} | {p99:.1f} |", flush=True)
                        print(f"| | | | ratio | {medians[1][0] / medians[WINDOW][0]:.1f} | | | |", flush=True)
            finally:
                server.close()


main()
