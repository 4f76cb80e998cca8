#!/usr/bin/env python3
"""GETs of values that are not in memory, beside memcached with extstore and RocksDB with direct reads, on the same medium.

Ten times more data than memory. Servers are asked through the network, by the same program; libraries by many threads of one process, each of
which waits for one value at a time. The peers run in a cgroup whose limit includes the page cache, with as much memory as Holdfast's
`maxmemory`. Rounds are interleaved; medians, with the least and the most. What memcached has dropped it answers faster: the share of GETs
that found nothing is told.

    apt-get install memcached rocksdb-tools
    python3 bench/cold_peers.py                      # as root, for the cgroup; 2 M keys of 512 B, some minutes
    python3 bench/cold_peers.py --keys 4000000 --rounds 5
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile

import servers
from cold_reads import device_rate

LOAD = servers.ROOT / "target" / "release" / "load"
COLD = servers.ROOT / "target" / "release" / "cold"
KEY_BYTES = 16
# Sets a second: at more, memcached drops values before it has written them.
FILL_RATE = 50_000
# name: (clients, commands that each sends at once)
LOADS = {"50 clients": (50, 1), "1 client, P=16": (1, 16)}


class Cgroup:
    """A bound on the memory of the processes in it, page cache included."""

    def __init__(self, name, limit):
        unified = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        root, bound = ("/sys/fs/cgroup", "memory.max") if unified else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        self.path = os.path.join(root, f"holdfast-bench-{name}-{os.getpid()}")
        os.mkdir(self.path)
        self.write(bound, limit)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def enter(self):
        """In a child, before it becomes another program."""
        self.write("cgroup.procs", os.getpid())

    def close(self):
        os.rmdir(self.path)


def load(port, commands, *flags, **options):
    argv = [LOAD, "--port", port, *flags]
    for option, value in options.items():
        argv += ["--" + option.replace("_", "-"), value]
    return json.loads(subprocess.run([*map(str, argv), *commands], capture_output=True, text=True, check=True).stdout)


class Holdfast:
    def __init__(self, options):
        self.options = options
        self.server = servers.holdfast(folder=options.dir, cpus="0,1", workers=2, maxmemory=options.memory)
        self.server.wait()
        load(self.server.port, ["SET {key} {value}"], keys=options.keys, requests=options.keys, pattern="sequential", pipeline=50, value=options.value)

    def get(self, clients, pipeline):
        options = self.options
        result = load(self.server.port, ["GET {key}"], keys=options.keys, seconds=options.seconds, clients=clients, pipeline=pipeline)
        return result["rate"], result["errors"] / result["requests"]

    def close(self):
        self.server.close()


class Extstore:
    def __init__(self, options):
        self.options, self.port, self.cgroup = options, servers.free_port(), Cgroup("extstore", options.memory)
        self.folder = tempfile.mkdtemp(prefix="extstore-bench-", dir=options.dir)
        # Memory for items; the rest of the limit is the table, buffers of pages, and the page cache.
        item_mb, table_power = options.memory * 6 // 10 >> 20, max(16, options.keys.bit_length() - 1)
        size_gb = options.keys * (options.value + 128) * 3 // 2 // 2**30 + 2
        argv = ["memcached", "-u", "root", "-p", self.port, "-l", "127.0.0.1", "-t", 2, "-m", item_mb, "-U", 0]
        argv += ["-o", f"ext_path={self.folder}/store:{size_gb}G,ext_threads=16,ext_item_size={options.value // 2},ext_item_age=0,ext_wbuf_size=4,hashpower={table_power}"]
        self.process = subprocess.Popen([*map(str, argv)], preexec_fn=self.cgroup.enter)
        servers.wait_for_port(self.port)
        load(self.port, ["set {key} {value}"], "--memcached", keys=options.keys, requests=options.keys, pattern="sequential", pipeline=50, value=options.value, rate=FILL_RATE)

    def get(self, clients, pipeline):
        options = self.options
        result = load(self.port, ["get {key}"], "--memcached", keys=options.keys, seconds=options.seconds, clients=clients, pipeline=pipeline)
        return result["rate"], result["errors"] / result["requests"]

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)
        self.cgroup.close()


class Embedded:
    """Holdfast's library."""

    def __init__(self, options):
        self.options, self.folder = options, tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.dir)
        self.get(1, 1)

    def get(self, clients, pipeline):
        options = self.options
        argv = [COLD, self.folder, options.keys, options.memory, options.value, clients * pipeline, options.seconds]
        return float(subprocess.run([*map(str, argv)], capture_output=True, text=True, check=True).stdout), 0.0

    def close(self):
        shutil.rmtree(self.folder)


class RocksDb:
    def __init__(self, options):
        self.options, self.cgroup = options, Cgroup("rocksdb", options.memory)
        self.folder = tempfile.mkdtemp(prefix="rocksdb-bench-", dir=options.dir)
        self.run("fillseq,compact,waitforcompaction", "--disable_wal=1")

    def run(self, benchmarks, *flags):
        options = self.options
        argv = ["db_bench", f"--benchmarks={benchmarks}", f"--db={self.folder}", f"--num={options.keys}", f"--key_size={KEY_BYTES}"]
        argv += [f"--value_size={options.value}", "--compression_type=none", "--bloom_bits=10", "--use_direct_reads=1"]
        argv += ["--use_direct_io_for_flush_and_compaction=1", f"--cache_size={options.memory * 6 // 10}", "--cache_index_and_filter_blocks=1"]
        argv += ["--pin_l0_filter_and_index_blocks_in_cache=1", "--write_buffer_size=16777216", "--open_files=-1", *flags]
        return subprocess.run(argv, capture_output=True, text=True, check=True, preexec_fn=self.cgroup.enter).stdout

    def get(self, clients, pipeline):
        out = self.run("readrandom", "--use_existing_db=1", f"--threads={clients * pipeline}", f"--duration={self.options.seconds}")
        rate = re.search(r"readrandom\s*:.*?(\d+) ops/sec", out)
        found = re.search(r"\((\d+) of (\d+) found\)", out)
        return float(rate[1]), 1 - int(found[1]) / int(found[2])

    def close(self):
        shutil.rmtree(self.folder)
        self.cgroup.close()


SYSTEMS = {"holdfast": Holdfast, "extstore": Extstore, "holdfast, embedded": Embedded, "rocksdb": RocksDb}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--value", type=int, default=512, help="bytes of a value")
    parser.add_argument("--memory", type=int, default=0, help="bytes of memory; default: a tenth of keys and values")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--dir", help="a folder on the medium to measure")
    options = parser.parse_args()
    options.memory = options.memory or options.keys * (KEY_BYTES + options.value) // 10
    running = {}
    try:
        for name in options.only:
            running[name] = SYSTEMS[name](options)
        folder = next(iter(running.values())).options.dir or tempfile.gettempdir()
        print(f"device: {device_rate(folder, 50):,.0f} reads/s at depth 50, {device_rate(folder, 16):,.0f} at depth 16", flush=True)
        for what, (clients, pipeline) in LOADS.items():
            results = {name: [] for name in running}
            for _ in range(options.rounds):
                for name, system in running.items():
                    results[name].append(system.get(clients, pipeline))
            for name, pairs in results.items():
                rates, missed = [rate for rate, _ in pairs], max(missed for _, missed in pairs)
                print(f"{what}: {name}: {statistics.median(rates):,.0f}/s ({min(rates):,.0f} to {max(rates):,.0f}), {missed:.2f} found nothing", flush=True)
    finally:
        for system in running.values():
            system.close()


if __name__ == "__main__":
    main()
