#!/usr/bin/env python3
"""Large values over loopback: SET, EXISTS, GET and DEL as a store of a language model's cache uses them (AUTH first), beside the rate at
which a program that does nothing else sends the same bytes from memory to the same reader. CPU time tells them apart where the machine does
much else.

    python3 bench/large_values.py                       # 1, 4 and 16 MiB, over TCP and a Unix socket
    python3 bench/large_values.py --megabytes 16 --bytes 40000000000
"""

import argparse
import multiprocessing
import os
import resource
import socket
import tempfile
import time

import servers

PASSWORD = "secret"


def receive(connection, memory, size):
    """Reads so many bytes into memory, or to its end."""
    got = 0
    while got < size:
        n = connection.recv_into(memory[got:size])
        if n == 0:
            raise RuntimeError("the connection has ended")
        got += n


class Client:
    """A connection that reads values into memory of its own, and nothing else, so that the server is what is measured."""

    def __init__(self, connection, memory):
        self.connection, self.memory = connection, memory
        self.call(b"+OK\r\n", b"AUTH", PASSWORD.encode())

    def send(self, *args):
        parts = [b"*%d\r\n" % len(args)]
        for arg in args:
            parts += [b"$%d\r\n" % len(arg), arg, b"\r\n"]
        if sum(map(len, parts)) < 1 << 16:
            self.connection.sendall(b"".join(parts))
        else:
            for part in parts:
                self.connection.sendall(part)

    def call(self, reply, *args):
        self.send(*args)
        receive(self.connection, self.memory, len(reply))
        if self.memory[: len(reply)] != reply:
            raise RuntimeError(f"{args[0]}: {bytes(self.memory[:100])}")

    def get(self, key, size):
        self.send(b"GET", key)
        header = len(b"$%d\r\n" % size)
        receive(self.connection, self.memory, header + size + 2)
        if self.memory[:header] != b"$%d\r\n" % size:
            raise RuntimeError(f"GET: {bytes(self.memory[:100])}")
        return header


def connect(server, unix):
    if not unix:
        return socket.create_connection(("127.0.0.1", server.port))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.join(server.folder, "socket"))
    return connection


def seconds(times, one):
    """How long a call takes."""
    started = time.perf_counter()
    for n in range(times):
        one(n)
    return (time.perf_counter() - started) / times


def send_value(listener, size):
    connection, value = listener.accept()[0], bytes(size)
    while connection.recv(100):
        connection.sendall(value)


def bound(unix, size, times, memory):
    """How long it takes to ask another process for so many bytes, which it has in memory and sends without a copy of its own, and how
    long that process runs for it."""
    with tempfile.TemporaryDirectory() as folder:
        listener = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        listener.bind(os.path.join(folder, "socket") if unix else ("127.0.0.1", 0))
        listener.listen()
        sender = multiprocessing.Process(target=send_value, args=(listener, size), daemon=True)
        sender.start()
        connection = socket.socket(listener.family)
        connection.connect(listener.getsockname())

        def one(_):
            connection.sendall(b"GET")
            receive(connection, memory, size)

        one(0)
        took = seconds(times, one)
        connection.close()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        sender.join()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return took, ran / times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--bytes", type=int, default=8_000_000_000, help="to read for each figure")
    parser.add_argument("--keys", type=int, default=16)
    parser.add_argument("--binary", default=servers.HOLDFAST)
    args = parser.parse_args()
    memory = memoryview(bytearray((max(args.megabytes) << 20) + 100))
    print("| MiB | socket | GET, GB/s | CPU, s/GB | sent from memory, GB/s | CPU, s/GB | SET, GB/s | EXISTS, us | DEL, us |")
    print("|---|---|---|---|---|---|---|---|---|")
    for megabytes in args.megabytes:
        for unix in (False, True):
            measure(args, megabytes << 20, unix, memory)


def measure(args, size, unix, memory):
    with tempfile.TemporaryDirectory() as folder:
        port = servers.free_port()
        argv = [args.binary, "serve", "--port", port, "--dir", "data", "--unixsocket", "socket", "--requirepass", PASSWORD,
                "--appendfsync", "no"]
        server = servers.Server("holdfast", argv, "0-1", folder, port)
        try:
            server.wait(("PING",), b"-NOAUTH")
            client = Client(connect(server, unix), memory)
            values = [os.urandom(1 << 20) * (size >> 20) for _ in range(args.keys)]
            keys = [b"chunk:%d" % n for n in range(args.keys)]
            key = lambda n: keys[n % args.keys]
            sets = seconds(2 * args.keys, lambda n: client.call(b"+OK\r\n", b"SET", key(n), values[n % args.keys]))
            for number, value in enumerate(values):
                start = client.get(key(number), size)
                if memory[start : start + size] != value:
                    raise RuntimeError("another value")
            times = max(args.bytes // size, 1)
            ran = server.cpu_seconds()
            gets = seconds(times, lambda n: client.get(key(n), size))
            ran = (server.cpu_seconds() - ran) / times
            exists = seconds(10_000, lambda n: client.call(b":1\r\n", b"EXISTS", key(n)))
            dels = seconds(args.keys, lambda n: client.call(b":1\r\n", b"DEL", key(n)))
            least, ran_least = bound(unix, size, times, memory)
        finally:
            server.kill()
        gb = size / 1e9
        print(f"| {size >> 20} | {'Unix' if unix else 'TCP'} | {gb / gets:.2f} | {ran / gb:.2f} | {gb / least:.2f} | {ran_least / gb:.2f} | "
              f"{gb / sets:.2f} | {exists * 1e6:.0f} | {dels * 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
