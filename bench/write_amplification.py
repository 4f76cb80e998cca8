#!/usr/bin/env python3
"""Bytes written to the device per byte of item (key and value), in steady overwriting at a given share of disk use.

    python3 bench/write_amplification.py                # 1 GiB of log at 60 %, values of 512 B

Says, too, what the bytes were, how fast it went, and how long the slowest batches of 200 SETs took.
"""

import argparse
import random
import re
import socket
import time

import servers

BATCH = 200
# Why bytes are written, as INFO names it.
CAUSES = (
    "items",
    "redo",
    "frozen_items",
    "moved_items",
    "batch_headers",
    "padding",
    "rewritten_blocks",
    "segment_headers",
    "segment_zeroes",
    "heap_pages",
    "heap_tables",
    "superblock",
)


def device_bytes(server):
    """What the process has had written, as the system counts it."""
    with open(f"/proc/{server.process.pid}/io") as f:
        return int(re.search(r"\nwrite_bytes: (\d+)", f.read())[1])


def figures(server):
    """The figures of INFO that are numbers."""
    text = server.command("INFO").decode()
    return {name: int(value) for name, value in re.findall(r"^(\w+):(\d+)\r$", text, re.MULTILINE)}


def overwrite(server, names, value):
    """Sets keys; returns the seconds that each batch took."""
    seconds = []
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        for first in range(0, len(names), BATCH):
            part = names[first : first + BATCH]
            requests = b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (n, len(value), value) for n in part)
            began = time.monotonic()
            s.sendall(requests)
            missing = 5 * len(part)
            while missing:
                reply = s.recv(min(missing, 1 << 16))
                if b"-" in reply:
                    raise RuntimeError(reply)
                missing -= len(reply)
            seconds.append(time.monotonic() - began)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="of log at most")
    parser.add_argument("--use", type=float, default=0.6, help="share of it that items take")
    parser.add_argument("--value", type=int, default=512)
    parser.add_argument("--rounds", type=float, default=3, help="overwrites of all data that are counted")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    item = 16 + options.value
    keys = int(options.bytes * options.use / item)
    server = servers.holdfast(folder=options.dir, cpus="0,1", log_max_size=options.bytes)
    try:
        server.wait()
        value = b"v" * options.value
        overwrite(server, range(keys), value)
        draw = random.Random(1)
        # Once over, so that the counted part begins in the steady state.
        overwrite(server, [draw.randrange(keys) for _ in range(keys)], value)
        names = [draw.randrange(keys) for _ in range(int(keys * options.rounds))]
        bytes_before, before, began = device_bytes(server), figures(server), time.monotonic()
        batches = sorted(overwrite(server, names, value))
        seconds, written, after = time.monotonic() - began, device_bytes(server) - bytes_before, figures(server)
        each = {name: (after[name] - before[name]) / (len(names) * item) for name in before if name in after}
        print(f"{keys} keys, {len(names)} overwrites, {len(names) / seconds:.0f} a second")
        print(f"batches of {BATCH}: median {batches[len(batches) // 2] * 1e3:.1f} ms, longest {batches[-1] * 1e3:.1f} ms")
        print(f"{written / (len(names) * item):.2f} bytes written per byte of item, of these")
        for cause in CAUSES:
            print(f"  {each[f'endurance_bytes_{cause}']:.3f} {cause.replace('_', ' ')}")
        print(f"{each['endurance_bytes_written']:.2f} as the server counts them")
    finally:
        server.close()


if __name__ == "__main__":
    main()
