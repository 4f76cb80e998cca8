#!/usr/bin/env python3
"""Moves all slots of a node to another one while their keys are written, and looks that nothing is lost.

    cargo build --release --workspace
    bench/slot_move.py [--keys 5000000] [--value 1000] [--rate 50000] [--clients 50] [--rounds 1] [--binary target/release/holdfast]

Both nodes and the writers share all cores and one disk. Each round has new folders, and prints a line: how long the transfer took; what
writes took before and meanwhile (99 of 100, and the longest), and the ratio; redirections; writes that failed, keys that are not as they were
acknowledged, and keys that should not be there, which are 0 each.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

from servers import ROOT, Server, free_port


def round_of(args):
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        nodes = []
        for name in ("source", "target"):
            at = pathlib.Path(folder) / name
            at.mkdir()
            port, bus = free_port(), free_port()
            argv = [args.binary, "serve", "--port", port, "--bind", "127.0.0.1", "--dir", at / "data"]
            argv += ["--cluster-enabled", "yes", "--cluster-port", bus, *args.option]
            node = Server(name, argv, f"0-{args.cpus - 1}", str(at), port)
            node.wait()
            node.bus = bus
            nodes.append(node)
        try:
            source, target = nodes
            source.wait(("CLUSTER", "ADDSLOTSRANGE", "0", "16383"), b"+OK")
            source.command("CLUSTER", "MEET", "127.0.0.1", target.port, target.bus)
            until = time.monotonic() + 30
            for node in nodes:
                while not all(line in node.command("CLUSTER", "INFO") for line in (b"cluster_known_nodes:2", b"cluster_state:ok")):
                    if time.monotonic() > until:
                        raise RuntimeError("the nodes do not find each other")
                    time.sleep(0.1)
            command = [ROOT / "target/release/slot_move", "--source", source.port, "--target", target.port, "--keys", args.keys]
            command += ["--value", args.value, "--rate", args.rate, "--clients", args.clients, "--seconds", args.seconds]
            printed = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout
            return json.loads(printed)
        finally:
            for node in nodes:
                node.process.kill()
                node.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "target/release/holdfast"))
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--value", type=int, default=1000, help="bytes")
    parser.add_argument("--rate", type=int, default=50_000, help="writes a second")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10, help="of writes before the transfer")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="of both servers")
    parser.add_argument("--cpus", type=int, default=os.cpu_count())
    args = parser.parse_args()
    for _ in range(args.rounds):
        got = round_of(args)
        print(
            f"{got['seconds']} s at {got['rate_before']} -> {got['rate']} writes/s; p99 {got['us_p99_before']} -> {got['us_p99']} us"
            f" ({got['us_p99'] / max(got['us_p99_before'], 1):.1f}x), p99.9 {got['us_p999']}, longest {got['us_max'] / 1000:.0f} ms;"
            f" moved {got['moved']}, failed {got['failed']}, lost {got['lost']}, beyond {got['keys_beyond']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
