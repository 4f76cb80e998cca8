"""Small requests in batches: the client library for C against hiredis, by the processor's time that a client takes for a request.

    cargo build --release -p holdfast -p holdfast-client-c && python3 bench/client_speed.py

It needs hiredis (Debian's libhiredis-dev). The two take turns on one server; medians over the runs, with the least.
"""

import argparse
import os
import statistics
import subprocess
import tempfile

import servers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=16)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-speed-") as folder:
        program, path = os.path.join(folder, "client_speed"), os.path.join(folder, "socket")
        library = servers.ROOT / "target" / "release" / "libholdfast.a"
        subprocess.run(["cc", "-O2", servers.ROOT / "bench" / "client_speed.c", "-o", program,
                        "-I", servers.ROOT / "clients" / "c" / "include", library,
                        "-lhiredis", "-lpthread", "-ldl", "-lm"], check=True)
        # What is measured is the client, not how fast the medium is.
        server = servers.holdfast(unixsocket=path, appendfsync="no")
        server.wait()
        print("| operation, batch | hiredis, ns | library, ns | requests a core |\n|---|---|---|---|")
        try:
            for operation in "set", "get":
                for batch in 16, 32, 128:
                    found = {"hiredis": [], "holdfast": []}
                    for _ in range(args.runs):
                        for client, times in found.items():
                            out = subprocess.run(["taskset", "-c", "1", program, client, path, operation, str(batch),
                                                  str(args.requests), str(args.bytes)], check=True, stdout=subprocess.PIPE).stdout
                            times.append(float(out.split()[1]) / args.requests * 1e9)
                    medians = [statistics.median(times) for times in found.values()]
                    least = [min(times) for times in found.values()]
                    print(f"| {operation}, {batch} | {medians[0]:.0f} [{least[0]:.0f}] | {medians[1]:.0f} [{least[1]:.0f}] "
                          f"| {medians[0] / medians[1]:.2f} [{least[0] / least[1]:.2f}] |", flush=True)
        finally:
            server.close()


main()
