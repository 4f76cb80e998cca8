#!/usr/bin/env python3
"""What compressing values costs and saves: SETs, and GETs of values that are not in memory, by codec and kind of value.

Values of 200 B, 1 KiB and 16 KiB, of JSON-like text and of random bytes. A server with one worker on one core, the clients on the
other; data of several times `maxmemory`. All keys are set twice, so that a dictionary, where there is one, is used for all; what is
told is of the second time. For each: how many times less of the log lives than keys and values have bytes, SETs a second through one
connection with 100 at once, GETs a second of 50 clients that draw evenly, the server's CPU time for each, and the device's reads for
each GET.

    python3 bench/compression.py                               # some minutes
    python3 bench/compression.py --codecs no zstd --kinds json --sizes 1024
    python3 bench/compression.py --set compression-level=9
"""

import argparse
import json
import random
import re
import socket
import time

import servers
from cold_reads import measure

BATCH = 100
# Values that differ, at most, and bytes of them: keys take them in turn. Far more than a dictionary could hold.
POOL, POOL_BYTES = 50_000, 32 << 20
WORDS = "alpha beta gamma delta order customer street active pending shipped berlin london madrid blue green large".split()
COLUMNS = "{:>6} {:>6} {:>6} {:>9} {:>8} {:>12} {:>12} {:>12} {:>12} {:>10}"


def json_like(draw, size):
    """A cut from records as web services keep them."""
    text = ""
    while len(text) < size:
        record = {"id": draw.randrange(10**9), "user": f"{draw.choice(WORDS)}{draw.randrange(10**5)}", "state": draw.choice(WORDS)}
        record |= {"amount": round(draw.random() * 1000, 2), "created_at": draw.randrange(1_500_000_000, 1_800_000_000)}
        record |= {"tags": draw.sample(WORDS, 3), "verified": draw.random() < 0.5}
        text += json.dumps(record) + ","
    return text[:size].encode()


KINDS = {"json": json_like, "random": lambda draw, size: draw.randbytes(size)}


def number(server, field):
    """A figure of INFO."""
    return int(re.search(rb"^%s:(\d+)\r$" % field.encode(), server.command("INFO"), re.MULTILINE)[1])


def fill(server, keys, values):
    """Sets keys in order; returns the seconds that the server took, without those in which requests were made."""
    seconds = 0
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        for first in range(0, keys, BATCH):
            numbers = range(first, min(first + BATCH, keys))
            pairs = [(n, values[n % len(values)]) for n in numbers]
            requests = b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$%d\r\n%s\r\n" % (n, len(value), value) for n, value in pairs)
            began, expected, replies = time.monotonic(), b"+OK\r\n" * len(numbers), b""
            s.sendall(requests)
            while len(replies) < len(expected):
                part = s.recv(1 << 16)
                replies += part
                if not part or not expected.startswith(replies):
                    raise RuntimeError(f"SET was answered by {replies[-200:]}")
            seconds += time.monotonic() - began
    return seconds


def verify(server, keys, values):
    """Some keys have the values that they were given."""
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        replies = s.makefile("rb")
        for n in range(0, keys, max(keys // 200, 1)):
            value = values[n % len(values)]
            s.sendall(b"*2\r\n$3\r\nGET\r\n$16\r\nkey:%012d\r\n" % n)
            if replies.readline() != b"$%d\r\n" % len(value) or replies.read(len(value) + 2) != value + b"\r\n":
                raise RuntimeError(f"key {n} has another value than it was given")


def run(options, settings, codec, kind, size):
    draw = random.Random(size)
    values = [KINDS[kind](draw, size) for _ in range(min(POOL, POOL_BYTES // size))]
    keys = max(options.bytes // (16 + size), BATCH)
    server = servers.holdfast(folder=options.dir, cpus="0", maxmemory=options.maxmemory, compression=codec, **settings)
    try:
        server.wait()
        fill(server, keys, values)
        cpu = server.cpu_seconds()
        sets = keys / fill(server, keys, values)
        set_us = (server.cpu_seconds() - cpu) / keys * 1e6
        ratio = keys * (16 + size) / number(server, "log_live_bytes")
        verify(server, keys, values)
        gets, get_us, reads, _ = measure(server, keys, 50, 1, options.requests)
        figures = [f"{ratio:.2f}", f"{sets:,.0f}", f"{set_us:.1f}", f"{gets:,.0f}", f"{get_us:.1f}", f"{reads:.2f}"]
        print(COLUMNS.format(size, kind, codec, keys, *figures), flush=True)
    finally:
        server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=256 << 20, help="of keys and values")
    parser.add_argument("--maxmemory", default="64mb")
    parser.add_argument("--requests", type=int, default=100_000, help="GETs")
    parser.add_argument("--codecs", nargs="*", choices=["no", "lz4", "zstd"], default=["no", "lz4", "zstd"])
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--sizes", nargs="*", type=int, default=[200, 1024, 16384], help="bytes of a value")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of the server")
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    settings = {name.replace("-", "_"): value for name, value in (pair.split("=", 1) for pair in options.set)}
    print(COLUMNS.format("bytes", "kind", "codec", "keys", "ratio", "SET/s", "us of CPU", "cold GET/s", "us of CPU", "reads"))
    for size in options.sizes:
        for kind in options.kinds:
            for codec in options.codecs:
                run(options, settings, codec, kind, size)


if __name__ == "__main__":
    main()
