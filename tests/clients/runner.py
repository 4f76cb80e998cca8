"""What runs real clients and programs: installs each by its own package manager, and tests it on a server of its own."""

import argparse
import os
import shutil
import subprocess
import sys
import time

from server import Cluster, Server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
PATIENCE = 600  # Seconds that a command may take.


class NotInstalled(Exception):
    pass


class Failed(Exception):
    pass


def execute(command, cache, environment=None, problem=Failed):
    """Runs a command in the folder `cache`; what it printed."""
    try:
        done = subprocess.run(command, cwd=cache, env=environment, text=True, errors="replace", timeout=PATIENCE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise problem(f"{command[0]}: {error}")
    if done.returncode != 0:
        raise problem(f"{done.stdout}\n{command[0]} ended with {done.returncode}")
    return done.stdout


def install(cache, *command):
    execute(command, cache, problem=NotInstalled)


def install_python(source, cache):
    """Installs what a program in Python needs; the folder of its interpreter."""
    install(cache, "python3", "-m", "venv", "venv")
    install(cache, "venv/bin/pip", "install", "-q", "--disable-pip-version-check", "-r", f"{source}/requirements.txt")
    return f"{cache}/venv/bin"


def install_node(source, cache):
    """Installs a program for Node with what it needs, less what is compiled for single platforms."""
    for name in os.listdir(source):
        if name.endswith((".js", ".json")):
            shutil.copy(os.path.join(source, name), cache)
    install(cache, "npm", "install", "--no-save", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund")


def install_java(source, cache, program="Check"):
    """Compiles programs in Java; the command that runs one."""
    install(cache, "mvn", "-q", "-B", "-ntp", "-f", f"{source}/pom.xml", f"-Dcache={cache}", "package")
    return ["java", "-cp", f"{cache}/classes:{cache}/lib/*", program]


def java(server, source, cache):
    execute(install_java(source, cache), cache, server.environment())


def java_cluster(server, source, cache):
    execute(install_java(source, cache, "CheckCluster"), cache, server.environment())


def main(description, here, programs, on_clusters={}):
    """Runs those of `programs` that are asked for: functions of server, source and cache, by name. Those `on_clusters` get three nodes, and
    lie beside the program whose name they have without `-cluster`."""
    all_programs = programs | on_clusters
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--server", help="the program to test, which may be a redis-server; without it Holdfast is built")
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(all_programs))
    args = parser.parse_args()
    for name in args.names:
        if name not in all_programs:
            parser.error(f"there is no {name}")
    if not args.server:
        subprocess.run(["cargo", "build", "-q", "--locked", "--manifest-path", f"{ROOT}/Cargo.toml"], check=True)
    binary = args.server or os.path.join(TARGET, "debug", "holdfast")
    status = 0
    for name in args.names or all_programs:
        source = name.removesuffix("-cluster")
        cache = os.path.join(TARGET, "clients", source)
        os.makedirs(cache, exist_ok=True)
        start = time.monotonic()
        server = Cluster(binary) if name in on_clusters else Server(binary)
        try:
            all_programs[name](server, os.path.join(here, source), cache)
            if server.has_ended():
                raise Failed(f"the server has ended: {server.log()}")
            word = "passed"
        except NotInstalled as problem:
            print(problem, file=sys.stderr)
            word, status = "not installed", status or 3
        except Failed as problem:
            print(problem, file=sys.stderr)
            word, status = "failed", 1
        finally:
            server.close()
        print(f"{name} {word} ({time.monotonic() - start:.1f} s)", flush=True)
    sys.exit(status)
