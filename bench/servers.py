"""Starts the servers that a benchmark compares, each in a fresh folder on a free port, pinned to given cores."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOLDFAST = ROOT / "target" / "release" / "holdfast"
LOAD = ROOT / "target" / "release" / "load"


def free_port():
    """A port that nobody listens on, and that no connection gets as its own meanwhile: those are greater."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def wait_for_port(port, seconds=60):
    """Waits until somebody listens."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.01)
    raise RuntimeError(f"nobody listens at port {port}")


def cpu_seconds(process):
    """CPU time of a process, given by its number."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(server, *commands, keys, value, clients=50, **flags):
    """One run of `load` on the second core: what it prints."""
    argv = ["taskset", "-c", "1", LOAD, "--port", server.port, "--clients", clients, "--keys", keys, "--value", value]
    for flag, argument in flags.items():
        argv += ["--" + flag.replace("_", "-"), argument]
    done = subprocess.run([str(arg) for arg in [*argv, *commands]], check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    if result["errors"]:
        raise RuntimeError(f"{server.name} has refused {result['errors']} commands")
    return result


class Server:
    """A running server: its port, and what the system knows of its process."""

    def __init__(self, name, argv, cpus, folder, port):
        self.name, self.port, self.folder, self.argv, self.cpus = name, port, folder, argv, cpus
        self.start()

    def start(self):
        log = open(os.path.join(self.folder, "server.log"), "ab")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            ["taskset", "-c", self.cpus, *map(str, self.argv)], stdout=log, stderr=log, cwd=self.folder
        )

    def command(self, *args, timeout=60):
        """Sends one command by a plain socket and returns the raw reply's first bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            parts = [f"*{len(args)}\r\n".encode()]
            for arg in args:
                arg = arg if isinstance(arg, bytes) else str(arg).encode()
                parts.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
            s.sendall(b"".join(parts))
            return s.recv(1 << 16)

    def wait(self, command=("PING",), want=b"+PONG", seconds=60):
        """Waits until a command is answered as wanted; returns the seconds since the process was started."""
        while time.monotonic() - self.started < seconds:
            with contextlib.suppress(OSError):
                if self.command(*command).startswith(want):
                    return time.monotonic() - self.started
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended: see {self.folder}/server.log")
            time.sleep(0.001)
        raise RuntimeError(f"{self.name} does not answer")

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def memory_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def holdfast(name="holdfast", cpus="0", workers=1, folder=None, **options):
    """Holdfast; keyword arguments are its options with `_` for `-`."""
    folder = tempfile.mkdtemp(prefix="holdfast-bench-", dir=folder)
    port = free_port()
    argv = [HOLDFAST, "serve", "--port", port, "--dir", folder, "--workers", workers]
    for option, value in options.items():
        argv += ["--" + option.replace("_", "-"), value]
    return Server(name, argv, cpus, folder, port)


def redis(name="redis", cpus="0", binary="redis-server", folder=None, **options):
    """redis-server (or valkey-server); without options it keeps nothing on disk."""
    folder = tempfile.mkdtemp(prefix="redis-bench-", dir=folder)
    port = free_port()
    argv = [binary, "--port", port, "--dir", folder]
    options = {"save": "", "appendonly": "no", **options}
    for option, value in options.items():
        argv += ["--" + option.replace("_", "-"), value]
    return Server(name, argv, cpus, folder, port)
