#!/usr/bin/env python3
"""RAM per key, and the time from `exec` after `kill -9` to the first right GET, beside redis-server loading its RDB.

    python3 bench/memory_and_restart.py                 # 6 M keys of 16 B with values of 100 B
    python3 bench/memory_and_restart.py --keys 1000000 --only holdfast
"""

import argparse
import socket

import servers


def key(n):
    return b"key:%012d" % n


def load(server, keys, value):
    """Sets all keys through one connection, in pipelines."""
    batch = 1000
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        for first in range(0, keys, batch):
            names = [key(n) for n in range(first, min(first + batch, keys))]
            s.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\n%s\r\n$%d\r\n%s\r\n" % (k, len(value), value) for k in names))
            missing = 5 * len(names)
            while missing:
                missing -= len(s.recv(min(missing, 1 << 16)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=6_000_000)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--only", choices=["holdfast", "redis"])
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    value = b"v" * 100
    make = {
        "holdfast": lambda: servers.holdfast(folder=options.dir, cpus="0,1"),
        "redis": lambda: servers.redis(folder=options.dir, cpus="0,1", save="3600 1"),
    }
    for name in [options.only] if options.only else make:
        server = make[name]()
        try:
            server.wait()
            empty = server.memory_bytes()
            load(server, options.keys, value)
            full = server.memory_bytes()
            print(
                f"{name}: {full / options.keys:.1f} B of RAM a key in all, {(full - empty) / options.keys:.1f} B"
                f" beyond the empty server's {empty / 1e6:.1f} MB",
                flush=True,
            )
            if name == "redis":
                server.command("SAVE", timeout=300)
            for _ in range(options.restarts):
                server.kill()
                server.start()
                want = b"$100\r\n" + value
                took = server.wait(("GET", key(options.keys - 1)), want, seconds=120)
                print(f"{name}: {took:.3f} s from exec to the first right GET", flush=True)
        finally:
            server.close()


if __name__ == "__main__":
    main()
