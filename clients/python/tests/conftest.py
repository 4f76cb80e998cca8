"""What the tests share: servers, and clients of them."""

import contextlib
import os
import signal
import sys

import pytest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "clients"))
from server import Server

import holdfast

PATIENCE = 30  # Seconds that anything may take.


def serve():
    one = Server(os.environ["HOLDFAST_SERVER"])
    yield one
    assert one.process.poll() is None, one.log()
    one.close()


@contextlib.contextmanager
def stopped(server):
    """Has a server stop for a while, so that what it is sent stays where it is."""
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def server():
    """A server for all tests that leave it alone."""
    yield from serve()


@pytest.fixture(scope="session")
def own_server():
    """A server for tests that stop or kill it, one after another."""
    yield from serve()


@pytest.fixture
def address(server):
    return f"127.0.0.1:{server.port}"


@pytest.fixture
def client(address):
    """A client of a server without data."""
    with holdfast.Client(address) as client:
        client.command("FLUSHALL", key=None)
        yield client
