#!/usr/bin/env python3
"""Bytes written to the device per byte of item (key and value), in steady overwriting at a given share of disk use.

    python3 bench/write_amplification.py                # 1 GiB of log at 60 %, values of 512 B
"""

import argparse
import random
import re
import socket

import servers

def device_bytes(server):
    """What the process has had written, as the system counts it."""
    with open(f"/proc/{server.process.pid}/io") as f:
        return int(re.search(r"\nwrite_bytes: (\d+)", f.read())[1])


def overwrite(server, names, value):
    batch = 200
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        for first in range(0, len(names), batch):
            part = names[first : first + batch]
            s.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (n, len(value), value) for n in part))
            missing = 5 * len(part)
            while missing:
                reply = s.recv(min(missing, 1 << 16))
                if b"-" in reply:
                    raise RuntimeError(reply)
                missing -= len(reply)


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
        before = device_bytes(server)
        count = int(keys * options.rounds)
        overwrite(server, [draw.randrange(keys) for _ in range(count)], value)
        written = device_bytes(server) - before
        print(f"{keys} keys, {count} overwrites: {written / (count * item):.2f} bytes written per byte of item")
    finally:
        server.close()


if __name__ == "__main__":
    main()
