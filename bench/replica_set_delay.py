#!/usr/bin/env python3
"""What a write to a replica set takes when its three servers are far from each other.

    cargo build --release
    bench/replica_set_delay.py [--delays 0,1,5] [--writes 500] [--rounds 3] [--binary target/release/holdfast]

What the servers send to each other goes by proxies that hold it back, by so many milliseconds each way; the client is beside the leader. A
round trip is measured by a byte that a server behind such a proxy sends back. A line for each delay: the median of a write of 100 B from one client,
what that is more than without delay, and the ratio of that to the round trip. Medians of the rounds, with the least and the greatest.
"""

import argparse
import collections
import os
import pathlib
import shutil
import socket
import statistics
import tempfile
import threading
import time

from replica_set_faults import Set
from servers import ROOT


class Proxy:
    """Takes connections and holds back what is sent, both ways."""

    def __init__(self, port, delay):
        self.to, self.delay = port, delay
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            for stream in (near, far):
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.carry(near, far)
            self.carry(far, near)

    def carry(self, source, target):
        waiting, is_there = collections.deque(), threading.Semaphore(0)

        def read():
            while True:
                try:
                    data = source.recv(1 << 16)
                except OSError:
                    data = b""
                waiting.append((time.monotonic() + self.delay, data))
                is_there.release()
                if not data:
                    return

        def write():
            while True:
                is_there.acquire()
                due, data = waiting.popleft()
                time.sleep(max(0, due - time.monotonic()))
                try:
                    if not data:
                        target.shutdown(socket.SHUT_WR)
                        return
                    target.sendall(data)
                except OSError:
                    return

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()


class FarSet(Set):
    """A set whose servers know each other by proxies."""

    def __init__(self, binary, folder, delay):
        self.delay, self.proxies = delay, {}
        super().__init__(binary, folder)

    def address(self, at):
        host, port, bus, _ = self.places[at]
        if at not in self.proxies:
            self.proxies[at] = Proxy(bus, self.delay)
        return f"{host}:{port}@{self.proxies[at].port}"


def times(stream, request, reply, count):
    """Milliseconds of each of so many requests."""
    taken = []
    for _ in range(count):
        began = time.monotonic()
        stream.sendall(request)
        got = b""
        while len(got) < len(reply):
            got += stream.recv(len(reply) - len(got)) or b"?" * len(reply)
        if got != reply:
            raise RuntimeError(f"an answer that is not wanted: {got}")
        taken.append((time.monotonic() - began) * 1000)
    return taken


def round_trip(delay, count):
    listener = socket.create_server(("127.0.0.1", 0))

    def echo():
        stream, _ = listener.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := stream.recv(100):
            stream.sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    proxy = Proxy(listener.getsockname()[1], delay)
    with socket.create_connection(("127.0.0.1", proxy.port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return statistics.median(times(stream, b"x", b"x", count))


def write(binary, delay, count):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    servers = FarSet(binary, folder, delay)
    leader = servers.wait_for_leader()
    with socket.create_connection(servers.places[leader][:2]) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\n" + b"x" * 100 + b"\r\n"
        times(stream, request, b"+OK\r\n", count // 5)
        taken = statistics.median(times(stream, request, b"+OK\r\n", count))
    servers.end()
    shutil.rmtree(folder)
    return taken


def show(values):
    return f"{statistics.median(values):.2f} [{min(values):.2f}..{max(values):.2f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", default="0,1,5", help="milliseconds; the first one is what the others are compared with")
    parser.add_argument("--writes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default=str(ROOT / "target/release/holdfast"))
    args = parser.parse_args()
    binary = os.path.abspath(args.binary)
    delays = [float(delay) / 1000 for delay in args.delays.split(",")]
    measured = {delay: ([], []) for delay in delays}
    for _ in range(args.rounds):
        for delay, (trips, writes) in measured.items():
            trips.append(round_trip(delay, args.writes))
            writes.append(write(binary, delay, args.writes))
    near = statistics.median(measured[delays[0]][1])
    for delay, (trips, writes) in measured.items():
        more = statistics.median(writes) - near
        trip = statistics.median(trips)
        print(
            f"{delay * 1000:g} ms each way: round trip {show(trips)} ms, write {show(writes)} ms,"
            f" {more:+.2f} ms, {more / trip:.2f} round trips",
            flush=True,
        )


if __name__ == "__main__":
    main()
