#!/usr/bin/env python3
"""Kills, stops and empties the servers of a replica set while clients write and read, and checks what they were told.

    bench/replica_set_faults.py [--seconds 60] [--seed N] [--binary target/release/holdfast] [--only-leaders | --network | --disks] [--members] [--clocks]

With --network each server is in a network namespace of its own, and is isolated, or two of them are parted, for a while. With --disks each
has a disk of its own, an image of a file system, which is full for a while. Both need root. With --members a server is lost for ever now and then:
another one is added in its place, while servers are killed, and the lost one is removed. With --clocks the wall clock of a server jumps by up to two hours now and
then, in either direction, with libfaketime (package faketime).

Each key is a register with one writer, which writes 1, 2, 3 …, and several readers on connections of their own, most of them at the leader. What these were told is
linearizable if, and only if, a read shows no less than any write that was acknowledged before the read began and than any read that ended before it
began, and no more than the last write that had begun when it ended. (A write without a reply may have been done, so the next one
is another number.) Others read at servers that follow, too: there no read shows less than an earlier one at that server, nor anything that a leader does not
show from then on. In the end all is read once more, and the folders of all servers are compared by their logs' ends.

Prints how long no write was acknowledged after each fault of a leader: median, and the longest.
"""

import argparse
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from servers import free_port

KEYS = 8
READERS = 2
READERS_ANYWHERE = 1


class Connection:
    """Plain RESP; the end of the connection is an OSError."""

    def __init__(self, host, port, timeout=5):
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the connection has ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return Exception(rest.decode()) if kind == b"-" else rest

    def close(self):
        self.file.close()
        self.socket.close()


def root(*words):
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)


class Network:
    """A namespace for each server, all on one bridge."""

    NOWHERE = "02:00:00:00:00:01"

    def __init__(self, count):
        self.name, self.count = f"hf{os.getpid() % 10000}", count
        root("ip", "link", "add", self.name, "type", "bridge")
        root("ip", "address", "add", "10.77.0.1/24", "dev", self.name)
        root("ip", "link", "set", self.name, "up")
        for at in range(count):
            space, near = self.space(at), self.near(at)
            root("ip", "netns", "add", space)
            root("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", space)
            root("ip", "link", "set", near, "master", self.name, "up")
            self.inside(at, "address", "add", f"{self.host(at)}/24", "dev", "eth0")
            self.inside(at, "link", "set", "eth0", "up")
            self.inside(at, "link", "set", "lo", "up")

    def space(self, at):
        return f"{self.name}-{at}"

    def near(self, at):
        return f"{self.name}v{at}"

    def host(self, at):
        return f"10.77.0.{10 + at}"

    def inside(self, at, *words):
        root("ip", "-n", self.space(at), *words)

    def isolate(self, at):
        root("ip", "link", "set", self.near(at), "down")

    def part(self, at, other):
        for a, b in ((at, other), (other, at)):
            self.inside(a, "neigh", "replace", self.host(b), "lladdr", self.NOWHERE, "dev", "eth0", "nud", "permanent")

    def heal(self):
        for at in range(self.count):
            root("ip", "link", "set", self.near(at), "up")
            self.inside(at, "neigh", "flush", "all", "nud", "permanent")

    def end(self):
        for at in range(self.count):
            root("ip", "netns", "delete", self.space(at))
        root("ip", "link", "delete", self.name)


class Disks:
    """A file system in a file for each server."""

    BYTES = 700 << 20

    def __init__(self, folder, count):
        self.folder, self.count = folder, count
        for at in range(count):
            image = folder / f"disk-{at}"
            with open(image, "wb") as file:
                file.truncate(self.BYTES)
            root("mkfs.ext4", "-q", image)
            self.place(at).mkdir()
            root("mount", "-o", "loop", image, self.place(at))

    def place(self, at):
        return self.folder / f"mount-{at}"

    def fill(self, at):
        place = os.statvfs(self.place(at))
        with open(self.place(at) / "filler", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, place.f_bavail * place.f_frsize)

    def heal(self, at):
        (self.place(at) / "filler").unlink(missing_ok=True)

    def end(self):
        for at in range(self.count):
            root("umount", self.place(at))


class Clocks:
    """A wall clock for each server, which differs from the machine's by what a file says."""

    LIBRARY = "faketime/libfaketimeMT.so.1"

    def __init__(self, folder, count):
        self.folder = folder
        found = list(pathlib.Path("/usr/lib").rglob(self.LIBRARY))
        if not found:
            raise SystemExit("--clocks needs libfaketime: the package faketime")
        self.library = str(found[0])
        for at in range(count):
            self.set(at, 0)

    def file(self, at):
        return self.folder / f"clock-{at}"

    def set(self, at, seconds):
        new = self.folder / "clock-new"
        new.write_text(f"{seconds:+d}\n")
        new.rename(self.file(at))

    def environment(self, at):
        # It reads the file once a second. The clock that only goes on is the machine's.
        more = {"LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": str(self.file(at))}
        return os.environ | more | {"FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Set:
    def __init__(self, binary, folder, network=None, disks=None, clocks=None, count=3):
        self.binary, self.folder, self.count = binary, folder, count
        self.network, self.disks, self.clocks = network, disks, clocks
        host = network.host if network else lambda _: "127.0.0.1"
        self.places = [(host(at), free_port(), free_port()) for at in range(count)]
        self.numbers = list(range(1, count + 1))
        self.processes = [None] * count
        for at in range(count):
            self.start(at)

    def data(self, at):
        return (self.disks.place(at) if self.disks else self.folder) / f"data-{at}"

    def connect(self, at, **more):
        host, port, _ = self.places[at]
        return Connection(host, port, **more)

    def start(self, at):
        host, port, bus = self.places[at]
        named = sorted((number, self.address(at)) for at, number in enumerate(self.numbers))
        servers = " ".join(f"{number}={address}" for number, address in named)
        command = ["ip", "netns", "exec", self.network.space(at)] if self.network else []
        command += [self.binary, "serve", "--port", str(port), "--bind", host, "--dir", self.data(at)]
        command += ["--replica-set-port", str(bus), "--replica-set", servers, "--protected-mode", "no"]
        with open(self.folder / f"log-{at}", "ab") as log:
            environment = self.clocks.environment(at) if self.clocks else None
            self.processes[at] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def address(self, at):
        host, port, bus = self.places[at]
        return f"{host}:{port}@{bus}"

    def replace(self, at, rng):
        """A server is lost, and another one takes its place, in the same namespace and on the same disk, if any."""
        lost, host = self.numbers[at], self.places[at][0]
        self.kill(at)
        shutil.rmtree(self.data(at))
        self.places[at] = (host, free_port(), free_port())
        self.numbers[at] = self.change(b"ADD", self.address(at))
        self.start(at)
        if rng.random() < 0.5:
            other = (at + rng.choice([1, 2])) % self.count
            self.kill(other)
            self.start(other)
        while self.role(self.numbers[at]) not in (b"leader", b"follower"):
            time.sleep(0.05)
        self.change(b"REMOVE", str(lost))

    def change(self, *words):
        """The number of the server that is added or removed."""
        words = [word if isinstance(word, bytes) else word.encode() for word in words]
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                leader = self.leader()
                if leader is not None:
                    reply = self.connect(leader, timeout=10).call(b"REPLICASET", *words)
                    if not isinstance(reply, Exception):
                        return int(reply)
                    # It was done, and the reply is lost.
                    if words[0] == b"ADD" and "in the set already" in str(reply):
                        return next(number for number, address, _ in self.status() if address == words[1])
                    if words[0] == b"REMOVE" and "no such server" in str(reply):
                        return int(words[1])
            except OSError:
                pass
            time.sleep(0.05)
        raise SystemExit(f"REPLICASET {words} is refused: {reply}; the folders are left in {self.folder}")

    def status(self):
        """Number, address and role of each server, as the leader knows them."""
        while True:
            try:
                told = self.connect(self.leader(), timeout=10).call(b"REPLICASET", b"STATUS")
                fields = [dict(zip(server[::2], server[1::2])) for server in told]
                return [(int(it[b"number"]), it[b"address"], it[b"role"]) for it in fields]
            except (OSError, TypeError):
                time.sleep(0.05)

    def role(self, number):
        return next((role for known, _, role in self.status() if known == number), None)

    def kill(self, at):
        self.processes[at].kill()
        self.processes[at].wait()

    def leader(self):
        for at in range(self.count):
            try:
                connection = self.connect(at, timeout=1)
                role = connection.call(b"ROLE")
                connection.close()
                if isinstance(role, list) and role[0] == b"master":
                    return at
            except OSError:
                pass
        return None

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


class Key:
    """What is known of a register, under a lock."""

    def __init__(self, number):
        self.name = b"register:%d" % number
        self.lock = threading.Lock()
        self.begun = self.acknowledged = self.shown = 0
        # What each server has shown as one that follows, by its number.
        self.followed = {}


class Load:
    def __init__(self, servers):
        self.servers, self.is_over, self.wrong = servers, threading.Event(), []
        self.keys = [Key(number) for number in range(KEYS)]
        self.writes = self.reads = self.followers_reads = 0
        self.acknowledged_at = time.monotonic()
        self.gaps = []

    def run(self, work):
        connection, at = None, random.randrange(self.servers.count)
        while not self.is_over.is_set():
            try:
                if connection is None:
                    at = (at + 1) % self.servers.count
                    connection = self.servers.connect(at)
                    # A connection ends when its server comes to follow. One that comes to lead is still known as one that followed: it shows no less.
                    role = connection.call(b"ROLE")
                    if not isinstance(role, list):
                        raise OSError(role)
                    follower = None if role[0] == b"master" else self.servers.numbers[at]
                if not work(connection, follower):
                    connection.close()
                    connection = None
                    time.sleep(0.01)
            except OSError:
                connection = None
                time.sleep(0.01)

    def writer(self, key):
        def write(connection, _):
            with key.lock:
                key.begun += 1
                value = key.begun
            reply = connection.call(b"SET", key.name, b"%d" % value)
            if reply != b"OK":
                return False
            with key.lock:
                key.acknowledged = max(key.acknowledged, value)
            self.writes += 1
            now = time.monotonic()
            self.gaps.append((self.acknowledged_at, now - self.acknowledged_at))
            self.acknowledged_at = now
            return True

        self.run(write)

    def reader(self, anywhere):
        def read(connection, follower):
            if follower and not anywhere:
                return False
            key = random.choice(self.keys)
            with key.lock:
                # Of a follower: reads there may be old, but never go back.
                least = key.followed.get(follower, 0) if follower else max(key.acknowledged, key.shown)
            reply = connection.call(b"GET", key.name)
            if isinstance(reply, Exception):
                return False
            value = int(reply or 0)
            with key.lock:
                if not least <= value <= key.begun:
                    self.wrong.append(f"{key.name}: {value} was read, when it was {least} at least and {key.begun} at most")
                # Whoever shows something, it is agreed on, and no leader may show less from then on.
                key.shown = max(key.shown, value)
                if follower:
                    key.followed[follower] = max(key.followed.get(follower, 0), value)
            self.reads += 1
            self.followers_reads += follower is not None
            return True

        self.run(read)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--binary", default="target/release/holdfast")
    parser.add_argument("--only-leaders", action="store_true", help="kill -9 the leader, again and again")
    parser.add_argument("--network", action="store_true", help="isolate and part servers, too; needs root")
    parser.add_argument("--disks", action="store_true", help="fill their disks, too; needs root")
    parser.add_argument("--members", action="store_true", help="replace servers, too")
    parser.add_argument("--clocks", action="store_true", help="set their wall clocks, too; needs libfaketime")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
    network = Network(3) if args.network else None
    disks = Disks(folder, 3) if args.disks else None
    clocks = Clocks(folder, 3) if args.clocks else None
    servers = Set(os.path.abspath(args.binary), folder, network, disks, clocks)
    try:
        run(args, rng, servers)
    finally:
        servers.end()
        if network:
            network.end()
        if disks:
            disks.end()
    shutil.rmtree(folder)
    print("ok")


def run(args, rng, servers):
    folder, network, disks = servers.folder, servers.network, servers.disks
    load = Load(servers)
    while servers.leader() is None:
        time.sleep(0.1)
    threads = [threading.Thread(target=load.writer, args=(key,)) for key in load.keys]
    anywhere = [False] * READERS + [True] * READERS_ANYWHERE
    threads += [threading.Thread(target=load.reader, args=(it,)) for it in anywhere]
    for thread in threads:
        thread.start()
    faults, until = {}, time.monotonic() + args.seconds
    leaders_failed = []
    while time.monotonic() < until and not load.wrong:
        time.sleep(rng.uniform(0.5, 2.0))
        leader = servers.leader()
        at = leader if leader is not None and (args.only_leaders or rng.random() < 0.6) else rng.randrange(3)
        kinds = ["kill", "kill", "stop", "end", "empty"]
        kinds += ["isolate", "part"] * 3 if network else []
        kinds += ["fill"] * 5 if disks else []
        kinds += ["replace"] * 4 if args.members else []
        kinds += ["jump"] * 5 if args.clocks else []
        fault = "kill" if args.only_leaders else rng.choice(kinds)
        faults[fault] = faults.get(fault, 0) + 1
        if at == leader and fault not in ("empty", "part", "fill", "jump"):
            leaders_failed.append(time.monotonic())
        process = servers.processes[at]
        if fault == "replace":
            servers.replace(at, rng)
            settle(servers, until)
            continue
        if fault == "stop":
            process.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0.1, 4))
            process.send_signal(signal.SIGCONT)
            continue
        if fault == "jump":
            servers.clocks.set(at, rng.randrange(-7200, 7200))
            continue
        if fault in ("isolate", "part"):
            if fault == "isolate":
                network.isolate(at)
            else:
                network.part(at, (at + rng.choice([1, 2])) % 3)
            time.sleep(rng.uniform(0.5, 6))
            network.heal()
            settle(servers, until)
            continue
        if fault == "fill":
            disks.fill(at)
            time.sleep(rng.uniform(0.5, 6))
            disks.heal(at)
            settle(servers, until)
            continue
        if fault == "end":
            process.terminate()
            process.wait()
        else:
            servers.kill(at)
        if fault == "empty":
            shutil.rmtree(servers.data(at))
        else:
            time.sleep(rng.uniform(0, 2))
        servers.start(at)
        settle(servers, until)
    before = load.writes
    time.sleep(5)
    is_alive = load.writes > before
    load.is_over.set()
    for thread in threads:
        thread.join()
    gaps = [max((gap for at, gap in load.gaps if at <= failed + 1 and at + gap >= failed), default=0) for failed in leaders_failed]
    last = servers.connect(servers.leader())
    for key in load.keys:
        value = int(last.call(b"GET", key.name) or 0)
        if not key.acknowledged <= value <= key.begun:
            load.wrong.append(f"{key.name} is {value} in the end, and {key.acknowledged} was acknowledged")
    print(f"{load.writes} writes, {load.reads} reads, {load.followers_reads} of them at followers; faults: {faults}")
    if gaps:
        print(f"without an acknowledged write after a fault of the leader: median {statistics.median(gaps):.2f} s, at most {max(gaps):.2f} s ({len(gaps)} times)")
    if load.wrong or not is_alive:
        print("\n".join(load.wrong[:10] or ["nothing is written any more"]))
        raise SystemExit(f"FAILED; the folders are left in {folder}")


def settle(servers, until):
    """Waits until each server is known to have all: the others are a majority only then."""
    while time.monotonic() < until + 60:
        leader = servers.leader()
        if leader is not None:
            try:
                connection = servers.connect(leader, timeout=10)
                if connection.call(b"WAIT", b"2", b"5000") == b"2":
                    return
            except OSError:
                pass
        time.sleep(0.05)


if __name__ == "__main__":
    main()
