#!/usr/bin/env python3
"""How long clients wait while another process takes over from a server under load (SIGUSR2), again and again.

    python3 bench/upgrade.py                          # a million keys, 50 take-overs
    python3 bench/upgrade.py --keys 3000000 --times 10

Clients send pipelines of GET and SET all the time, and each reply must be the right one. The pause is the longest time in which no client
gets a reply, from the signal until a second after the other process serves; with it, the longest wait of a single pipeline.
"""

import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

import servers

VALUE = b"x" * 100
PIPELINE = 10


def name(n):
    return b"key:%012d" % n


def command(*args):
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(arg), arg) for arg in args)


class Load(threading.Thread):
    def __init__(self, port, keys, seed):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.keys, self.random = keys, random.Random(seed)
        self.replies, self.worst, self.stopped, self.failure = [], 0.0, False, None

    def run(self):
        try:
            while not self.stopped:
                self.turn()
        except OSError as error:
            self.failure = error

    def turn(self):
        request, expected = b"", b""
        for _ in range(PIPELINE):
            key = name(self.random.randrange(self.keys))
            if self.random.random() < 0.5:
                request, expected = request + command(b"GET", key), expected + b"$100\r\n" + VALUE + b"\r\n"
            else:
                request, expected = request + command(b"SET", key, VALUE), expected + b"+OK\r\n"
        begun, reply = time.monotonic(), b""
        self.socket.sendall(request)
        while len(reply) < len(expected):
            part = self.socket.recv(1 << 16)
            if not part:
                raise ConnectionError("the connection was closed")
            reply += part
        if reply != expected:
            raise ConnectionError(f"a wrong reply: {reply[:100]}")
        now = time.monotonic()
        self.replies.append(now)
        self.worst = max(self.worst, now - begun)


def fill(port, keys):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for start in range(0, keys, 1000):
            count = min(1000, keys - start)
            connection.sendall(b"".join(command(b"SET", name(n), VALUE) for n in range(start, start + count)))
            got = 0
            while got < 5 * count:
                got += len(connection.recv(1 << 16))


def process_of(path):
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--program", default=servers.HOLDFAST)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        port, pid_file = servers.free_port(), os.path.join(folder, "pid")
        argv = [options.program, "serve", "--port", str(port), "--bind", "127.0.0.1", "--dir", os.path.join(folder, "data")]
        with open(os.path.join(folder, "log"), "w") as log:
            first = subprocess.Popen([*argv, "--pidfile", pid_file], stderr=log)
        while not process_of(pid_file):
            time.sleep(0.01)
        try:
            measure(options, port, pid_file, folder)
        finally:
            os.kill(process_of(pid_file), signal.SIGTERM)
            first.wait()


def measure(options, port, pid_file, folder):
    fill(port, options.keys)
    clients = [Load(port, options.keys, seed) for seed in range(options.clients)]
    for client in clients:
        client.start()
    time.sleep(1)
    pauses, worst = [], []
    for number in range(options.times):
        before = process_of(pid_file)
        for client in clients:
            client.replies, client.worst = [], 0.0
        os.kill(before, signal.SIGUSR2)
        deadline = time.monotonic() + 30
        while process_of(pid_file) in (0, before):
            if time.monotonic() > deadline:
                raise RuntimeError(open(os.path.join(folder, "log")).read()[-2000:])
            time.sleep(0.005)
        time.sleep(1)
        replies = sorted(at for client in clients for at in client.replies)
        pauses.append(max(later - earlier for earlier, later in zip(replies, replies[1:])))
        worst.append(max(client.worst for client in clients))
        print(f"{number + 1}: pause {1000 * pauses[-1]:.1f} ms, slowest pipeline {1000 * worst[-1]:.1f} ms", flush=True)
    for client in clients:
        client.stopped = True
    for client in clients:
        client.join()
        if client.failure:
            raise client.failure
    for what, times in (("pause", pauses), ("slowest pipeline", worst)):
        print(f"{what}: median {1000 * statistics.median(times):.1f} ms, longest {1000 * max(times):.1f} ms")
    print(f"below 100 ms: {sum(pause < 0.1 for pause in pauses)} of {len(pauses)}; no command failed")


if __name__ == "__main__":
    main()
