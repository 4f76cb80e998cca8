#!/usr/bin/env python3
"""Kills, stops and empties the servers of a replica set while clients write and read, and checks what they were told.

    bench/replica_set_faults.py [--seconds 60] [--seed N] [--binary target/release/holdfast] [--only-leaders | --network | --disks] [--members] [--clocks] [--slots]

With --network each server is in a network namespace of its own, and is isolated, or two of them are parted, for a while. With --disks each
has a disk of its own, an image of a file system, which is full for a while. Both need root. With --members a server is lost for ever now and then:
another one is added in its place, while servers are killed, and the lost one is removed. With --clocks the wall clock of a server jumps by up to two hours now and
then, in either direction, with libfaketime (package faketime). With --slots there are two sets, which are a cluster: slots move to and fro between them all the
time, with what is in them, while both have faults, and clients go where they are sent.

Each key is a register with one writer, which writes 1, 2, 3 …, and several readers on connections of their own, most of them at the leader. What these were told is
linearizable if, and only if, a read shows no less than any write that was acknowledged before the read began and than any read that ended before it
began, and no more than the last write that had begun when it ended. (A write without a reply may have been done, so the next one
is another number.) Others read at servers that follow, too: there no read shows less than an earlier one at that server, nor anything that a leader does not
show from then on. Clients that keep what they read (CLIENT TRACKING), at any server, are told when it changes. In the end all is read once more, and with --slots so are other keys, which nobody has written since the beginning; there is no key beside.

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
KEEPERS = 2
SERVERS = 3  # of a set
OTHER_KEYS = 20_000
SLOTS = 16_384


class Moved(Exception):
    """The keys are at another server, which has this port."""

    def __init__(self, port):
        self.port = port


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
        if kind == b"%":
            return [self.reply() for _ in range(2 * int(rest))]
        if kind == b">":
            self.pushed([self.reply() for _ in range(int(rest))])
            return self.reply()
        if kind == b"_":
            return None
        return Exception(rest.decode()) if kind == b"-" else rest

    def pushed(self, message):
        """Takes what comes without being asked for."""

    def close(self):
        self.file.close()
        self.socket.close()


class Keeping(Connection):
    """A connection that keeps what it reads (CLIENT TRACKING) until it is told that that has changed."""

    def __init__(self, host, port, is_in_cluster):
        super().__init__(host, port)
        self.copies = {}
        # Copies that were not what their server had any more, by the number of looks since.
        self.doubted = {}
        for words in [(b"HELLO", b"3"), (b"CLIENT", b"TRACKING", b"ON")] + [(b"READONLY",)] * is_in_cluster:
            reply = self.call(*words)
            if isinstance(reply, Exception):
                raise OSError(reply)

    def pushed(self, message):
        if message[0] == b"invalidate":
            for name in list(self.copies) if message[1] is None else message[1]:
                self.copies.pop(name, None)
                self.doubted.pop(name, None)


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

    @staticmethod
    def forget(process):
        """Removes what the library leaves of a process that was killed."""
        for name in (f"faketime_shm_{process.pid}", f"sem.faketime_sem_{process.pid}"):
            (pathlib.Path("/dev/shm") / name).unlink(missing_ok=True)

    def environment(self, at):
        # It reads the file once a second. The clock that only goes on is the machine's.
        more = {"LD_PRELOAD": self.library, "FAKETIME_TIMESTAMP_FILE": str(self.file(at))}
        return os.environ | more | {"FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Set:
    """A replica set; `first`: the place of its first server among those of all sets."""

    def __init__(self, binary, folder, network=None, disks=None, clocks=None, first=0, in_cluster=False):
        self.binary, self.folder, self.first, self.in_cluster = binary, folder, first, in_cluster
        self.network, self.disks, self.clocks = network, disks, clocks
        self.places = [self.new_place(at) for at in range(SERVERS)]
        self.numbers = list(range(1, SERVERS + 1))
        self.processes = [None] * SERVERS
        for at in range(SERVERS):
            self.start(at)

    def new_place(self, at):
        """Its host, and its ports for clients, for the set, and for the cluster."""
        host = self.network.host(self.first + at) if self.network else "127.0.0.1"
        return (host, free_port(), free_port(), free_port())

    def data(self, at):
        return (self.disks.place(self.first + at) if self.disks else self.folder) / f"data-{self.first + at}"

    def connect(self, at, **more):
        return Connection(*self.places[at][:2], **more)

    def start(self, at):
        self.forget(at)
        host, port, bus, cluster = self.places[at]
        named = sorted((number, self.address(at)) for at, number in enumerate(self.numbers))
        servers = " ".join(f"{number}={address}" for number, address in named)
        command = ["ip", "netns", "exec", self.network.space(self.first + at)] if self.network else []
        command += [self.binary, "serve", "--port", str(port), "--bind", host, "--dir", self.data(at)]
        command += ["--replica-set-port", str(bus), "--replica-set", servers, "--protected-mode", "no"]
        if self.in_cluster:
            command += ["--cluster-enabled", "yes", "--cluster-port", str(cluster), "--cluster-node-timeout", "5000"]
        with open(self.folder / f"log-{self.first + at}", "ab") as log:
            environment = self.clocks.environment(self.first + at) if self.clocks else None
            self.processes[at] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)

    def address(self, at):
        host, port, bus, _ = self.places[at]
        return f"{host}:{port}@{bus}"

    def replace(self, at, rng):
        """A server is lost, and another one takes its place, in the same namespace and on the same disk, if any."""
        lost = self.numbers[at]
        self.kill(at)
        shutil.rmtree(self.data(at))
        self.places[at] = self.new_place(at)
        self.numbers[at] = self.change(b"ADD", self.address(at))
        self.start(at)
        if rng.random() < 0.5:
            other = (at + rng.choice([1, 2])) % SERVERS
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
                    # It was done, and the reply is lost; or another leader has undone it, before it was decided.
                    if words[0] == b"ADD" and "in the set already" in str(reply):
                        for number, address, _ in self.status():
                            if address == words[1]:
                                return number
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

    def forget(self, at):
        if self.clocks and self.processes[at]:
            self.clocks.forget(self.processes[at])

    def leader(self):
        for at in range(SERVERS):
            try:
                connection = self.connect(at, timeout=1)
                role = connection.call(b"ROLE")
                connection.close()
                if isinstance(role, list) and role[0] == b"master":
                    return at
            except OSError:
                pass
        return None

    def wait_for_leader(self):
        while (at := self.leader()) is None:
            time.sleep(0.1)
        return at

    def end(self):
        for at, process in enumerate(self.processes):
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            self.forget(at)


class Key:
    """What is known of a register, under a lock."""

    def __init__(self, number):
        self.name = b"register:%d" % number
        self.lock = threading.Lock()
        self.begun = self.acknowledged = self.shown = 0
        # What each server has shown as one that follows, by its number.
        self.followed = {}


class Client:
    """Connections to all servers of all sets, and what a thread knows of where keys are."""

    def __init__(self, sets):
        self.sets = sets
        self.connections = {}
        # By the name of a key: the set and the place of the server that is asked next.
        self.guesses = {}

    def anywhere(self):
        return random.randrange(len(self.sets)), random.randrange(SERVERS)

    def connect(self, server, reads_of_followers):
        """A connection, and as whom the server is known if it follows."""
        if server not in self.connections:
            servers, at = self.sets[server[0]], server[1]
            connection = servers.connect(at)
            # A connection ends when its server comes to follow. One that comes to lead is still known as one that followed: it shows no less.
            role = connection.call(b"ROLE")
            if not isinstance(role, list):
                raise OSError(role)
            follower = None if role[0] == b"master" else (server[0], servers.numbers[at])
            if reads_of_followers and servers.in_cluster:
                connection.call(b"READONLY")
            self.connections[server] = (connection, follower)
        return self.connections[server]

    def forget(self, server):
        connection, _ = self.connections.pop(server, (None, None))
        if connection:
            connection.close()

    def server_of(self, port):
        for number, servers in enumerate(self.sets):
            for at, place in enumerate(servers.places):
                if place[1] == port:
                    return number, at
        return self.anywhere()

    def attempt(self, name, work, reads_of_followers=False):
        """Has `work(connection, follower)` be done for a key, at the server where that is thought to be. If it returns false, or fails, another one is next."""
        server = self.guesses.get(name) or self.anywhere()
        try:
            if work(*self.connect(server, reads_of_followers)):
                self.guesses[name] = server
                return True
        except Moved as moved:
            self.guesses[name] = self.server_of(moved.port)
            return False
        except OSError:
            pass
        self.guesses[name] = self.anywhere()
        self.forget(server)
        time.sleep(0.01)
        return False

    def value(self, name):
        """What the leader that has a key has there, however long it takes until one says so."""
        told = []

        def read(connection, follower):
            told.append(connection.call(b"GET", name))
            return done(told[-1]) and not follower

        while not self.attempt(name, read):
            pass
        return told[-1]


def done(reply):
    """Whether a command was."""
    if isinstance(reply, Exception) and str(reply).startswith("MOVED "):
        raise Moved(int(str(reply).rsplit(":", 1)[1]))
    return not isinstance(reply, Exception)


class Load:
    def __init__(self, sets):
        self.sets, self.is_over, self.wrong = sets, threading.Event(), []
        self.keys = [Key(number) for number in range(KEYS)]
        self.writes = self.reads = self.followers_reads = 0
        self.acknowledged_at = time.monotonic()
        self.gaps = []

    def writer(self, key):
        client = Client(self.sets)

        def write(connection, _):
            with key.lock:
                key.begun += 1
                value = key.begun
            if not done(connection.call(b"SET", key.name, b"%d" % value)):
                return False
            with key.lock:
                key.acknowledged = max(key.acknowledged, value)
            self.writes += 1
            now = time.monotonic()
            self.gaps.append((self.acknowledged_at, now - self.acknowledged_at))
            self.acknowledged_at = now
            return True

        while not self.is_over.is_set():
            client.attempt(key.name, write)

    def reader(self, anywhere):
        client = Client(self.sets)

        def read(key, connection, follower):
            if follower and not anywhere:
                return False
            with key.lock:
                # Of a follower: reads there may be old, but never go back.
                least = key.followed.get(follower, 0) if follower else max(key.acknowledged, key.shown)
            reply = connection.call(b"GET", key.name)
            if not done(reply):
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

        while not self.is_over.is_set():
            key = random.choice(self.keys)
            if anywhere:
                client.guesses[key.name] = client.anywhere()
            client.attempt(key.name, lambda *it: read(key, *it), anywhere)


class Keeper:
    """Clients that keep what they read, at one server after the other."""

    LOOKS = 50

    def __init__(self, sets, load):
        self.sets, self.load = sets, load
        # Some that change all the time, and some that never do.
        self.names = [key.name for key in load.keys] + [other_key(number) for number in range(KEYS) if sets[0].in_cluster]
        self.hits = self.looks = 0

    def run(self):
        while not self.load.is_over.is_set():
            servers = random.choice(self.sets)
            try:
                connection = Keeping(*servers.places[random.randrange(SERVERS)][:2], servers.in_cluster)
                until = time.monotonic() + random.uniform(5, 60)
                while time.monotonic() < until and not self.load.is_over.is_set():
                    self.look(connection)
                connection.close()
            except OSError:
                time.sleep(0.1)

    def look(self, connection):
        time.sleep(0.1)
        for name in self.names:
            kept = connection.copies.get(name)
            value = connection.call(b"GET", name)
            if isinstance(value, Exception):
                # Its slot is elsewhere, or nobody leads.
                connection.copies.pop(name, None)
                connection.doubted.pop(name, None)
            elif name not in connection.copies:
                connection.copies[name] = value
            elif value == connection.copies[name]:
                self.hits += kept is not None
            else:
                # It was not told before the reply: it is to be told soon.
                doubts = connection.doubted[name] = connection.doubted.get(name, 0) + 1
                if doubts > self.LOOKS:
                    self.load.wrong.append(f"{name}: {kept} is kept, when it is {value}")
        self.looks += 1


class Cluster:
    """Two sets, between which slots move. The first one has them all, with other keys, before it knows the second one."""

    def __init__(self, sets):
        self.sets, self.begun = sets, 0
        leaders = [self.leader(servers) for servers in sets]
        while not done(leaders[0].call(b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"%d" % (SLOTS - 1))):
            time.sleep(0.1)
        # It serves them once the others know so.
        while not done(leaders[0].call(b"SET", other_key(0), other_key(0))):
            time.sleep(0.1)
        for number in range(OTHER_KEYS):
            reply = leaders[0].call(b"SET", other_key(number), other_key(number))
            if not done(reply):
                raise SystemExit(f"a key is not set: {reply}")
        host, port, _, bus = sets[1].places[sets[1].leader()]
        leaders[0].call(b"CLUSTER", b"MEET", host.encode(), b"%d" % port, b"%d" % bus)
        while not all(self.knows_all(leader) for leader in leaders):
            time.sleep(0.1)

    @staticmethod
    def leader(servers):
        return servers.connect(servers.wait_for_leader(), timeout=10)

    def knows_all(self, leader):
        info = leader.call(b"CLUSTER", b"INFO")
        return all(line in info for line in (b"cluster_known_nodes:%d" % (2 * SERVERS), b"cluster_state:ok"))

    def owned(self, leader, own_id):
        """The ranges of slots that a node has, as it knows it."""
        nodes = leader.call(b"CLUSTER", b"NODES").decode().splitlines()
        own = next(line.split() for line in nodes if line.startswith(own_id.decode()))
        ends = [[int(end) for end in word.split("-")] for word in own[8:] if not word.startswith("[")]
        return [(range_[0], range_[-1]) for range_ in ends]

    def move(self, rng):
        """Asks for some slots of a set to move to the other one."""
        number = rng.randrange(2)
        at = self.sets[number].leader()
        if at is None:
            return
        leader = self.sets[number].connect(at, timeout=2)
        other = self.leader(self.sets[1 - number])
        try:
            # A server that has lost its data is another node.
            own_id, other_id = (it.call(b"CLUSTER", b"MYID") for it in (leader, other))
            ranges = self.owned(leader, own_id)
            if not ranges:
                return
            first, last = rng.choice(ranges)
            first = rng.randint(first, last)
            last = rng.randint(first, min(last, first + SLOTS // 4))
            words = [b"SLOTSRANGE", b"%d" % first, b"%d" % last, b"NODE", other_id]
            self.begun += done(leader.call(b"CLUSTER", b"MIGRATESLOTS", *words))
        finally:
            leader.close()
            other.close()

    def run(self, is_over, seed):
        rng = random.Random(seed)
        while not is_over.is_set():
            try:
                self.move(rng)
            except (OSError, Moved, StopIteration, AttributeError):
                pass
            time.sleep(rng.uniform(0.1, 1))

    def check(self, load):
        """Each key that nobody wrote is there, and no key is there twice."""
        client = Client(self.sets)
        for number in range(OTHER_KEYS):
            name = other_key(number)
            value = client.value(name)
            if value != name:
                load.wrong.append(f"{name} is {value} in the end")
        until, sizes = time.monotonic() + 30, []
        # A node removes what it has given away in the background.
        while sum(sizes) != OTHER_KEYS + KEYS and time.monotonic() < until:
            time.sleep(0.1)
            sizes = [int(self.leader(servers).call(b"DBSIZE")) for servers in self.sets]
        if sum(sizes) != OTHER_KEYS + KEYS:
            load.wrong.append(f"the sets have {sizes} keys, of {OTHER_KEYS + KEYS} that there are")
        logs = b"".join(path.read_bytes() for path in self.sets[0].folder.glob("log-*"))
        arrived = sum(b" of slots " in line and b": success" in line for line in logs.splitlines())
        print(f"{self.begun} transfers of slots were begun, and {arrived} arrived; keys in the end: {sizes}")


def other_key(number):
    return b"other:%d" % number


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
    parser.add_argument("--slots", action="store_true", help="two sets, which are a cluster, and slots that move between them")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    rng = random.Random(args.seed)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-faults-"))
    firsts = [0, SERVERS] if args.slots else [0]
    count = SERVERS * len(firsts)
    network = Network(count) if args.network else None
    disks = Disks(folder, count) if args.disks else None
    clocks = Clocks(folder, count) if args.clocks else None
    sets = [Set(os.path.abspath(args.binary), folder, network, disks, clocks, first, args.slots) for first in firsts]
    try:
        run(args, rng, sets)
    finally:
        for servers in sets:
            servers.end()
        if network:
            network.end()
        if disks:
            disks.end()
    shutil.rmtree(folder)
    print("ok")


def run(args, rng, sets):
    folder, network, disks = sets[0].folder, sets[0].network, sets[0].disks
    load = Load(sets)
    for servers in sets:
        servers.wait_for_leader()
    cluster = Cluster(sets) if args.slots else None
    threads = [threading.Thread(target=load.writer, args=(key,)) for key in load.keys]
    anywhere = [False] * READERS + [True] * READERS_ANYWHERE
    threads += [threading.Thread(target=load.reader, args=(it,)) for it in anywhere]
    threads += [threading.Thread(target=cluster.run, args=(load.is_over, args.seed))] if cluster else []
    keeper = Keeper(sets, load)
    threads += [threading.Thread(target=keeper.run) for _ in range(KEEPERS)]
    for thread in threads:
        thread.start()
    faults, until = {}, time.monotonic() + args.seconds
    leaders_failed = []
    while time.monotonic() < until and not load.wrong:
        time.sleep(rng.uniform(0.5, 2.0))
        servers = rng.choice(sets)
        leader = servers.leader()
        at = leader if leader is not None and (args.only_leaders or rng.random() < 0.6) else rng.randrange(SERVERS)
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
            servers.clocks.set(servers.first + at, rng.randrange(-7200, 7200))
            continue
        if fault in ("isolate", "part"):
            if fault == "isolate":
                network.isolate(servers.first + at)
            else:
                network.part(servers.first + at, servers.first + (at + rng.choice([1, 2])) % SERVERS)
            time.sleep(rng.uniform(0.5, 6))
            network.heal()
            settle(servers, until)
            continue
        if fault == "fill":
            disks.fill(servers.first + at)
            time.sleep(rng.uniform(0.5, 6))
            disks.heal(servers.first + at)
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
    client = Client(sets)
    for key in load.keys:
        value = int(client.value(key.name) or 0)
        if not key.acknowledged <= value <= key.begun:
            load.wrong.append(f"{key.name} is {value} in the end, and {key.acknowledged} was acknowledged")
    if cluster:
        cluster.check(load)
    print(f"{load.writes} writes, {load.reads} reads, {load.followers_reads} of them at followers; faults: {faults}")
    print(f"clients that keep what they read have looked {keeper.looks} times; {keeper.hits} copies were right")
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
