"""Neither memory nor references nor descriptors are left behind."""

import asyncio
import contextlib
import gc
import os
import sys
import time
import tracemalloc

import holdfast
import numpy
import pytest
from conftest import PATIENCE

REQUESTS = 100_000


def resident():
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def work(client, count, value, room):
    """So many requests of all kinds."""
    for _ in range(count // 500):
        requests = []
        for number in range(50):
            requests += [client.iset("large", value), client.bset(f"k{number}", number), client.iget("large", room),
                         client.bget(f"k{number}"), client.submit("HSET", "h", f"f{number}", number),
                         client.submit("HGETALL", "h"), client.submit("LPUSH", "h", "x"),
                         client.submit("GET", "k1", listed=True), client.iget("large", room[:1]),
                         client.submit("INCR", "n", listed=True)]
        holdfast.wait_all(requests, PATIENCE)
        for at, request in enumerate(requests):
            if at % 10 in (6, 8):
                try:
                    request.result()
                    assert False
                except (holdfast.ReplyError, holdfast.TooSmallError):
                    pass
            elif at % 10 not in (1, 7, 9):
                request.result()
        while request := client.next_completion():
            request.result()


def test_memory_is_constant_over_many_requests(client):
    value, room = numpy.zeros(1000), numpy.zeros(1000)
    work(client, 10_000, value, room)
    gc.collect()
    counts, before = [sys.getrefcount(one) for one in (value, room)], resident()
    tracemalloc.start()
    work(client, 2_000, value, room)
    gc.collect()
    traced, _ = tracemalloc.get_traced_memory()
    work(client, 10_000, value, room)
    gc.collect()
    # A single reference for each request would be 80,000 bytes. Python keeps small objects for the next ones: some hundred tuples.
    assert tracemalloc.get_traced_memory()[0] - traced < 40_000
    tracemalloc.stop()
    work(client, REQUESTS, value, room)
    gc.collect()
    # As much as 40 bytes for each would be 4 MB.
    assert resident() - before < 4_000_000
    assert counts == [sys.getrefcount(one) for one in (value, room)]


def test_nobody_keeps_what_was_asked_for(client):
    request = client.submit("GET", "k", listed=True)
    assert sys.getrefcount(request) == 3
    request.result()
    assert sys.getrefcount(request) == 2
    released = client.submit("GET", "k", listed=True)
    released.release()
    assert sys.getrefcount(released) == 2 and client.next_completion() is None

    async def program():
        futures = lambda: sum(isinstance(one, asyncio.Future) for one in gc.get_objects())
        before = futures()
        for _ in range(50):
            task = asyncio.ensure_future(client.bget("k"))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        del task
        gc.collect()
        # The last ones may be in use still.
        assert futures() < before + 10

    asyncio.run(program())


def test_memory_is_constant_over_many_tasks(client):
    async def program(count):
        for _ in range(count // 100):
            await asyncio.gather(*(client.bset("k", number) for number in range(100)))

    asyncio.run(program(2_000))
    gc.collect()
    before = resident()
    asyncio.run(program(10_000))
    gc.collect()
    assert resident() - before < 1_000_000


def test_clients_leave_nothing(address):
    descriptors = lambda: len(os.listdir("/proc/self/fd"))
    threads = lambda: len(os.listdir("/proc/self/task"))
    # One of an earlier test may be on its way out, as those of these clients may be at the end.
    before, threads_before = descriptors(), threads()
    for thread in (False, True):
        for end in ("closed", "dropped"):
            for _ in range(10):
                client = holdfast.Client(address, thread=thread)
                client.get("k")
                if end == "closed":
                    client.close()
            del client
    gc.collect()
    assert descriptors() == before
    end = time.monotonic() + PATIENCE
    while threads() > threads_before and time.monotonic() < end:
        time.sleep(0.01)
    assert threads() <= threads_before


@pytest.mark.parametrize("circle", ["listed", "ready"])
def test_a_forgotten_client_with_listed_requests_is_collected(address, circle):
    client = holdfast.Client(address)
    requests = [client.submit("GET", "k", listed=True) for _ in range(2)]
    # The library warns of a request that is forgotten before it is done.
    holdfast.wait_all(requests)
    if circle == "ready":
        assert client.next_completion()
    before = len(os.listdir("/proc/self/fd"))
    del client, requests
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) < before
