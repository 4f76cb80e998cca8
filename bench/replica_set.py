#!/usr/bin/env python3
"""Writes to a replica set of three servers, beside a server alone and beside three of etcd, all on the same cores and the same disk, in turns.

    cargo build --release --workspace
    bench/replica_set.py [--rounds 3] [--seconds 4] [--binary target/release/holdfast]

redis-benchmark writes values of 100 B from 50 clients, with 16 commands under way and with one, and from one client; the last at the leader of
the set. CPU is that of the leader's process for a write, or of the server alone. "stubs" is a set whose followers do nothing: what the leader does by itself. etcd (package etcd-server) and its clients (bench/etcd_load, in Go)
take part if they are there: values of 100 B from 50 clients and from 1000. Medians, with the least and the greatest in brackets, and ratios of
medians.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from replica_set_faults import Set
from servers import ROOT, cpu_seconds, free_port

LOADS = {"SET P=16": ["-c", "50", "-P", "16"], "SET P=1": ["-c", "50"], "SET one client": ["-c", "1"]}
ETCD_LOADS = {"PUT 50 clients": 50, "PUT 1000 clients": 1000}


def redis_benchmark(port, pid, load, seconds):
    """Writes a second, and microseconds of CPU a write."""

    def run(requests):
        before = cpu_seconds(pid)
        command = ["redis-benchmark", "-p", str(port), "-t", "set", "-d", "100", "-r", "100000", "-q", "-n", str(requests), *load]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rate = float(re.findall(r"([\d.]+) requests per second", printed)[-1])
        return rate, (cpu_seconds(pid) - before) / requests * 1e6

    # The first run says how many are so many seconds.
    rate, _ = run(2000)
    rate, _ = run(max(2000, int(rate / 2)))
    return run(max(2000, int(rate * seconds)))


def alone(binary, args):
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    port = free_port()
    command = [binary, "serve", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    measured = {name: redis_benchmark(port, process.pid, load, args.seconds) for name, load in LOADS.items()}
    process.kill()
    process.wait()
    shutil.rmtree(folder)
    return measured


def replica_set(binary, args, with_stubs=False):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    servers = Set(binary, folder)
    measured = {}
    stubs = replace_followers(servers) if with_stubs else None
    for name, load in LOADS.items():
        leader = servers.wait_for_leader()
        measured[name] = redis_benchmark(servers.places[leader][1], servers.processes[leader].pid, load, args.seconds)
    servers.end()
    if stubs:
        stubs.kill()
        stubs.wait()
    shutil.rmtree(folder)
    return measured


def replace_followers(servers):
    """Has one process that does nothing take the place of those that follow."""
    leader = servers.wait_for_leader()
    followers = [at for at in range(len(servers.places)) if at != leader]
    for at in followers:
        servers.kill(at)
    bus = lambda at: str(servers.places[at][2])
    return subprocess.Popen([ROOT / "target" / "release" / "stub_followers", bus(leader), *map(bus, followers)])


def etcd(load, args):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="etcd-bench-"))
    places = [(free_port(), free_port()) for _ in range(3)]
    cluster = ",".join(f"e{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(places))
    processes = []
    for at, (client, peer) in enumerate(places):
        urls = [f"http://127.0.0.1:{peer}", f"http://127.0.0.1:{client}"]
        command = ["etcd", "--name", f"e{at}", "--data-dir", folder / f"data-{at}", "--initial-cluster", cluster, "--initial-cluster-state", "new"]
        command += ["--listen-peer-urls", urls[0], "--initial-advertise-peer-urls", urls[0]]
        command += ["--listen-client-urls", urls[1], "--advertise-client-urls", urls[1], "--quota-backend-bytes", str(8 << 30)]
        processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    time.sleep(4)
    measured = {}
    for name, clients in ETCD_LOADS.items():
        run = lambda seconds: subprocess.run(
            [load, "-endpoint", f"127.0.0.1:{places[leader_of(places)][0]}", "-clients", str(clients), "-seconds", str(seconds)],
            capture_output=True, text=True, check=True,
        ).stdout
        run(1)
        rate, failures = re.match(r"([\d.]+) writes per second, (\d+) failures", run(args.seconds)).groups()
        if int(failures):
            raise RuntimeError(f"{failures} writes to etcd have failed")
        measured[name] = (float(rate), None)
    for process in processes:
        process.kill()
        process.wait()
    shutil.rmtree(folder)
    return measured


def leader_of(places):
    """Which of them leads: by the metrics that each serves."""
    for at, (client, _) in enumerate(places):
        page = subprocess.run(["curl", "-s", f"http://127.0.0.1:{client}/metrics"], capture_output=True, text=True).stdout
        if "etcd_server_is_leader 1" in page:
            return at
    raise RuntimeError("none of them leads")


def show(values, digits=0):
    return f"{statistics.median(values):,.{digits}f} [{min(values):,.{digits}f}..{max(values):,.{digits}f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--binary", default="target/release/holdfast")
    args = parser.parse_args()
    binary = os.path.abspath(args.binary)
    load = None
    if shutil.which("etcd") and shutil.which("go"):
        load = ROOT / "target" / "etcd-load"
        subprocess.run(["go", "build", "-o", load, "."], cwd=ROOT / "bench" / "etcd_load", check=True)
    rows = {}
    for _ in range(args.rounds):
        kinds = {"alone": alone(binary, args), "set": replica_set(binary, args), "stubs": replica_set(binary, args, with_stubs=True)}
        kinds["etcd"] = etcd(load, args) if load else {}
        for kind, measured in kinds.items():
            for name, (rate, cpu) in measured.items():
                rows.setdefault((kind, name), []).append((rate, cpu))
    median = lambda kind, name: statistics.median(rate for rate, _ in rows[kind, name])
    for (kind, name), measured in rows.items():
        line = f"{kind:6} {name:17} {show([rate for rate, _ in measured])}/s"
        if measured[0][1] is not None:
            line += f", {show([cpu for _, cpu in measured], 2)} us of CPU"
        if kind in ("set", "stubs"):
            cpu = lambda kind: statistics.median(cpu for _, cpu in rows[kind, name])
            line += f"; {median(kind, name) / median('alone', name):.2f} of the rate alone, {cpu(kind) / cpu('alone'):.2f} of its CPU"
        print(line)
    if load:
        best = max(median("etcd", name) for name in ETCD_LOADS)
        print(f"the set's SET P=1 is {median('set', 'SET P=1') / median('etcd', 'PUT 50 clients'):.1f} times etcd's PUT from as many clients")
        print(f"the set's SET P=16 is {median('set', 'SET P=16') / best:.1f} times etcd's best")


if __name__ == "__main__":
    main()
