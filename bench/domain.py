#!/usr/bin/env python3
"""What graphs and vectors take: the neighbours of one vertex, all at once and in steps, while they are added and removed, and how long others
wait for that; an element of a vector, by the vector's length; and the memory of vectors.

    python3 bench/domain.py                             # 1,000,000 edges; vectors of 10 to 10,000,000 numbers
    python3 bench/domain.py --edges 100000 --binary target/debug/holdfast
"""

import argparse
import pathlib
import random
import re
import socket
import statistics
import threading
import time

import servers

EDGES_A_CALL = 10_000
LENGTHS = [10, 1_000, 100_000, 10_000_000]
ALONE = 5_000  # Requests to each vector whose replies are awaited one by one.


def encode(*args):
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


class Connection:
    """Commands one after the other, and no more of a reply parsed than a figure needs: the client is to be no part of it."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self, ends):
        """All that comes until `ends` says that it is whole."""
        parts = []
        while not parts or not ends(parts):
            part = self.socket.recv(1 << 20)
            assert part, "the server has closed the connection"
            parts.append(part)
        return b"".join(parts)

    def integer(self, *args):
        self.socket.sendall(encode(*args))
        reply = self.receive(lambda parts: parts[-1].endswith(b"\r\n"))
        assert reply.startswith(b":"), reply[:200]
        return int(reply[1:])

    def strings(self, count, *args):
        """The bytes of a reply that is an array of so many strings."""
        lines = 0

        def ends(parts):
            nonlocal lines
            lines += parts[-1].count(b"\n")
            return lines == 1 + 2 * count

        self.socket.sendall(encode(*args))
        reply = self.receive(ends)
        assert reply.startswith(b"*%d\r\n" % count), reply[:200]
        return reply

    def step(self, *args):
        """The cursor that a step of a scan comes to, and the number of its names."""
        self.socket.sendall(encode(*args))
        lines, count = 0, None

        def ends(parts):
            nonlocal lines, count
            lines += parts[-1].count(b"\n")
            if count is None and lines >= 4:
                count = int(b"".join(parts).split(b"\r\n", 4)[3][1:])
            return count is not None and lines == 4 + 2 * count

        reply = self.receive(ends)
        assert reply.startswith(b"*2\r\n"), reply[:200]
        return reply.split(b"\r\n", 3)[2], count


class Other(threading.Thread):
    """Another client, and the longest that it has waited for a reply, in seconds."""

    def __init__(self, port):
        super().__init__()
        self.connection, self.longest, self.is_over = Connection(port), 0, False

    def run(self):
        while not self.is_over:
            started = time.perf_counter()
            self.connection.integer(b"EXISTS", b"hub")
            self.longest = max(self.longest, time.perf_counter() - started)
            time.sleep(0.001)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join()


def show(what, count, seconds):
    print(f"{what}: {count:,} in {seconds:.2f} s, {count / seconds:,.0f}/s", flush=True)


def graph(port, edges, runs):
    connection = Connection(port)
    names = [b"vertex:%d" % number for number in range(edges)]
    started = time.perf_counter()
    for first in range(0, edges, EDGES_A_CALL):
        call = [b"GRAPH.ADDEDGE"]
        for name in names[first:first + EDGES_A_CALL]:
            call += [b"hub", name]
        assert connection.integer(*call) == min(EDGES_A_CALL, edges - first)
    show("edges added, 10,000 a call", edges, time.perf_counter() - started)

    def all_at_once():
        connection.strings(edges, b"GRAPH.NEIGHBORS", b"hub")

    def in_steps(count):
        cursor, found = b"0", 0
        while True:
            cursor, names = connection.step(b"GRAPH.SCAN", b"hub", b"OUT", cursor, b"COUNT", b"%d" % count)
            found += names
            if cursor == b"0":
                assert found >= edges
                return

    looks = [("neighbours in one reply", all_at_once)]
    looks += [(f"neighbours by a cursor, {count:,} a step", lambda count=count: in_steps(count)) for count in (1000, 10_000)]
    for what, look in looks:
        look()
        times = []
        for _ in range(runs):
            started = time.perf_counter()
            look()
            times.append(time.perf_counter() - started)
        show(what, edges, statistics.median(times))
    with Other(port) as other:
        started = time.perf_counter()
        assert connection.integer(b"GRAPH.REMOVEVERTEX", b"hub") == edges
        show("edges removed with their vertex, by one call", edges, time.perf_counter() - started)
    print(f"the longest that another client of the same worker waited meanwhile: {other.longest * 1000:.1f} ms", flush=True)


def cpu_seconds(process):
    """CPU time of a process, as exactly as the system tells: see clock_getcpuclockid(3)."""
    return time.clock_gettime(~process << 3 | 2)


def used_memory(server):
    return int(re.search(rb"used_memory:(\d+)", server.command("INFO", "memory"))[1])


def vectors(server, requests, runs):
    connection, rng = Connection(server.port), random.Random(1)
    used = []
    # In turns, so that what the machine does besides hits all alike. CPU seconds of the server a request, and seconds until its reply.
    times = {(length, write): ([], []) for write in (False, True) for length in LENGTHS}
    for length in LENGTHS:
        connection.socket.sendall(encode(b"VEC.CREATE", b"v:%d" % length, b"DOUBLE", b"LEN", b"%d" % length))
        connection.receive(lambda parts: parts[-1].endswith(b"+OK\r\n"))
        # All its pages have something in them, and are in use.
        blob = rng.randbytes(8 * 100_000)
        for first in range(0, length, 100_000):
            part = blob[:8 * min(100_000, length - first)]
            connection.socket.sendall(encode(b"VEC.SETRANGE", b"v:%d" % length, b"%d" % first, b"BLOB", part))
            connection.receive(lambda parts: parts[-1].endswith(b"+OK\r\n"))
        used.append(used_memory(server))
        share = connection.integer(b"MEMORY", b"USAGE", b"v:%d" % length) / (8 * length)
        print(f"a vector of {length:,} numbers takes {share:.3f} of their bytes, by MEMORY USAGE", flush=True)
    # Those before are small, and so is all else that grows: buffers.
    print(f"used_memory grew by {(used[-1] - used[-2]) / (8 * LENGTHS[-1]):.3f} of the bytes of the last", flush=True)
    for _ in range(runs):
        for (length, write), (cpu_times, _) in times.items():
            name, calls = b"v:%d" % length, []
            for _ in range(requests):
                index = b"%d" % rng.randrange(length)
                calls.append(encode(b"VEC.SET", name, index, b"0.5") if write else encode(b"VEC.GET", name, index))
            started = cpu_seconds(server.process.pid)
            for first in range(0, requests, 100):
                window = calls[first:first + 100]
                connection.socket.sendall(b"".join(window))
                # A reply is +OK, or an array of one string.
                lines = len(window) * (1 if write else 3)
                connection.receive(lambda parts: sum(part.count(b"\n") for part in parts) == lines)
            cpu_times.append((cpu_seconds(server.process.pid) - started) / requests)
    for write in (False, True):
        for _ in range(ALONE):
            for length in LENGTHS:
                index = b"%d" % rng.randrange(length)
                call = encode(b"VEC.SET" if write else b"VEC.GET", b"v:%d" % length, index, *([b"0.5"] if write else []))
                started = time.perf_counter()
                connection.socket.sendall(call)
                connection.receive(lambda parts: sum(part.count(b"\n") for part in parts) == (1 if write else 3))
                times[length, write][1].append(time.perf_counter() - started)
    for write in (False, True):
        for at, what in enumerate(["of CPU, 100 requests at a time", "until the reply, one at a time"]):
            first = statistics.median(times[LENGTHS[0], write][at])
            for length in LENGTHS:
                all_times = times[length, write][at]
                middle = statistics.median(all_times)
                print(f"{'VEC.SET' if write else 'VEC.GET'} of an element of {length:,}: {middle * 1e6:.2f} µs {what} "
                      f"[{min(all_times) * 1e6:.2f}..{max(all_times) * 1e6:.2f}], {middle / first:.2f} of the shortest", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=20_000, help="to a vector, in each run")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--binary", help="instead of target/release/holdfast")
    options = parser.parse_args()
    if options.binary:
        servers.HOLDFAST = pathlib.Path(options.binary).resolve()
    server = servers.holdfast(cpus="0", workers=1)
    try:
        server.wait()
        graph(server.port, options.edges, options.runs)
        vectors(server, options.requests, options.runs)
    finally:
        server.close()


if __name__ == "__main__":
    main()
