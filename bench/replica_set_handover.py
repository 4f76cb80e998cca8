#!/usr/bin/env python3
"""For how long nobody can write when another server of a replica set comes to lead: as it is told to (FAILOVER), and when the leader is killed.

    cargo build --release
    bench/replica_set_handover.py [--keys 1000000] [--rounds 20] [--kills 5] [--binary target/release/holdfast]

Three servers on the same cores and the same disk, with keys of 100 B. One client writes one key after another, and each time that a server does not take it asks the
next one, by a connection that it has there already, if that is still open. The gap is the longest time between two writes that were acknowledged. Medians, with the least and the greatest in brackets.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

from replica_set_faults import SERVERS, Set


class Writer(threading.Thread):
    """Writes without end, and notes when writes were acknowledged last, and the longest gap since that was asked."""

    def __init__(self, servers):
        super().__init__(daemon=True)
        self.servers, self.connections = servers, [None] * SERVERS
        self.at, self.gap, self.last, self.ends = 0, 0.0, time.monotonic(), False

    def run(self):
        written = 0
        while not self.ends:
            if self.write(written):
                now = time.monotonic()
                self.gap, self.last = max(self.gap, now - self.last), now
                written += 1
            else:
                self.at = (self.at + 1) % SERVERS
                time.sleep(0.001)

    def write(self, number):
        try:
            connection = self.connections[self.at]
            if connection is None:
                connection = self.connections[self.at] = self.servers.connect(self.at, timeout=1)
            return connection.call(b"SET", b"written", b"%d" % number) == b"OK"
        except OSError:
            self.connections[self.at] = None
            return False

    def take_gap(self):
        gap, self.gap = self.gap, 0.0
        return gap


def wait_for(what, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = what()
        if found is not None and found is not False:
            return found
        time.sleep(0.02)
    raise SystemExit("waited in vain")


def has_all(servers):
    """Whether both others have what the leader has, nearly."""
    leader = servers.leader()
    if leader is None:
        return False
    role = servers.connect(leader).call(b"ROLE")
    return len(role[2]) == 2 and all(int(offset) > int(role[1]) - (1 << 20) for _, _, offset in role[2])


def another_leads(servers, old):
    leader = servers.leader()
    return leader if leader != old else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--binary", default="target/release/holdfast")
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    servers = Set(os.path.abspath(args.binary), folder)
    leader = wait_for(servers.leader)
    command = ["redis-benchmark", "-p", str(servers.places[leader][1]), "-q", "-t", "set", "-d", "100", "-c", "50", "-P", "16"]
    subprocess.run([*command, "-r", str(args.keys), "-n", str(3 * args.keys)], check=True, stdout=subprocess.DEVNULL)
    writer = Writer(servers)
    writer.start()
    for what, rounds in (("told to", args.rounds), ("leader killed", args.kills)):
        gaps = []
        for _ in range(rounds):
            wait_for(lambda: has_all(servers))
            time.sleep(1)
            leader = wait_for(servers.leader)
            writer.take_gap()
            if what == "told to":
                servers.connect(leader).call(b"FAILOVER")
            else:
                servers.kill(leader)
            wait_for(lambda: another_leads(servers, leader))
            time.sleep(0.5)
            gaps.append(writer.take_gap())
            if what == "leader killed":
                servers.start(leader)
        gaps = [1000 * gap for gap in gaps]
        print(f"{what:14} {statistics.median(gaps):7.1f} ms [{min(gaps):.1f}..{max(gaps):.1f}]", flush=True)
    writer.ends = True
    writer.join()
    servers.end()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
