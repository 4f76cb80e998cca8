"""Requests that are on their way while their caller goes on, and the buffers that they have meanwhile."""

import array
import gc
import mmap
import select
import sys
import threading
import time

import holdfast
import numpy
import pytest
from conftest import PATIENCE, stopped

LARGE = 100_000  # Bytes that are handed over, and not copied.


def is_pinned(buffer):
    """Whether somebody has the memory of a bytearray, so that it cannot be resized."""
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


def test_arrays_go_and_come_without_a_copy(client):
    grid = numpy.arange(50_000, dtype=numpy.float64).reshape(100, 500)
    assert client.iset("grid", grid).result(PATIENCE) == "OK"
    copy = numpy.empty_like(grid)
    where, count = copy.ctypes.data, sys.getrefcount(copy)
    request = client.iget("grid", out=copy)
    # It has the array itself, not a copy of it.
    assert sys.getrefcount(copy) == count + 1
    assert request.result(PATIENCE) == grid.nbytes
    assert sys.getrefcount(copy) == count and copy.ctypes.data == where
    assert (copy == grid).all()

    copy[:] = 0
    rows = copy[10:20]
    assert client.command("GETRANGE", "grid", 0, rows.nbytes - 1, out=rows) == rows.nbytes
    assert (copy[10:20] == grid[:10]).all() and not copy[:10].any() and not copy[20:].any()
    scalar = numpy.empty(())
    assert client.command("GETRANGE", "grid", 8, 15, out=scalar) == 8 and scalar == 1.0


def test_memory_does_not_grow_by_what_is_handed_over(client):
    value = numpy.ones(40 << 20, dtype=numpy.uint8)
    before = resident()
    for _ in range(3):
        client.set("large", value)
        assert client.iset("large", value).result() == "OK"
        assert client.get_into("large", value) == value.nbytes
        assert client.iget("large", value).result() == value.nbytes
    assert resident() - before < 10 << 20


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


@pytest.mark.parametrize("make", [
    lambda size: bytearray(size), lambda size: numpy.zeros(size // 8), lambda size: array.array("d", bytes(size)),
    lambda size: memoryview(bytearray(size)), lambda size: mmap.mmap(-1, size),
])
def test_buffers_of_all_kinds(client, make):
    value, room = make(LARGE), make(LARGE)
    memoryview(value).cast("B")[:] = bytes(at % 251 for at in range(LARGE))
    client.iset("k", value).result()
    assert client.iget("k", room).result() == LARGE
    assert memoryview(room).cast("B") == memoryview(value).cast("B")


def test_a_buffer_is_pinned_until_it_is_free(own_server):
    with holdfast.Client(own_server.path("socket")) as client:
        client.get("k")
        with stopped(own_server):
            # More than the system takes while nobody reads.
            value, room = bytearray(30_000_000), bytearray(LARGE)
            count = sys.getrefcount(value)
            request = client.iset("k", value)
            assert sys.getrefcount(value) == count + 1
            get = client.iget("k", room)
            assert not request.test_buffer() and not request.wait_buffer(0.05) and not request.test()
            assert is_pinned(value) and is_pinned(room)
        assert request.wait_buffer(PATIENCE)
        assert not is_pinned(value) and is_pinned(room)
        assert request.result(PATIENCE) == "OK"
        with pytest.raises(holdfast.TooSmallError):
            get.result(PATIENCE)
        assert not is_pinned(room)


@pytest.mark.parametrize("end", ["cancel", "release", "drop", "close", "time out"])
def test_buffers_are_free_after_each_end(own_server, end):
    client = holdfast.Client(own_server.path("socket"), request_timeout=0.2 if end == "time out" else None)
    client.get("k")
    with stopped(own_server):
        value, room = bytearray(30_000_000), bytearray(LARGE)
        requests = [client.iset("k", value), client.iget("k", room)]
        assert is_pinned(value) and is_pinned(room)
        if end in ("cancel", "time out"):
            kind = holdfast.CancelledError if end == "cancel" else holdfast.TimedOutError
            for request in requests:
                if end == "cancel":
                    request.cancel()
                    request.cancel()
                with pytest.raises(kind) as error:
                    request.result()
                # A part of the first one was sent, and nothing of the second.
                assert isinstance(error.value, holdfast.UnknownOutcomeError) == (request is requests[0])
        elif end == "release":
            for request in requests:
                request.release()
        elif end == "drop":
            with pytest.warns(ResourceWarning, match="not done"):
                del requests
                gc.collect()
        if end == "close":
            client.close()
        assert not is_pinned(value) and not is_pinned(room)


def test_what_is_copied_may_be_changed_at_once(own_server):
    with holdfast.Client(own_server.path("socket")) as client:
        client.get("k")
        with stopped(own_server):
            value = bytearray(b"x" * LARGE)
            requests = [client.bset("a", value), client.submit("SET", "b", value)]
            assert not is_pinned(value)
            value[:] = b"y" * LARGE
        assert [request.result(PATIENCE) for request in requests] == ["OK", "OK"]
        assert client.get("a") == client.get("b") == b"x" * LARGE
        request = client.submit("SET", "c", value, lend=True)
        assert request.result(PATIENCE) == "OK" and client.get("c") == value


def test_waiting_for_one_for_some_and_for_all(client, address):
    with holdfast.Client(address) as other:
        blocked = [client.submit("BLPOP", "list", 0, untimed=True) for _ in range(2)]
        quick = client.bset("k", "v")
        # Each that may wait for good has a connection of its own, and holds up no other.
        assert holdfast.wait_any([*blocked, quick], PATIENCE) is quick
        assert holdfast.wait_some({*blocked, quick}, 0) == [quick] and not holdfast.wait_all([*blocked, quick], 0)
        with pytest.raises(TimeoutError):
            blocked[0].result(0.01)
        assert not blocked[0].done() and client.in_flight == 2
        other.command("RPUSH", "list", "x")
        first = holdfast.wait_any(blocked, PATIENCE)
        second = blocked[1] if first is blocked[0] else blocked[0]
        assert first.result() == [b"list", b"x"] and first.result() is first.result()
        # One whose result was taken is done, too.
        assert holdfast.wait_some([second, first]) == [first]
        other.command("RPUSH", "list", "y")
        assert holdfast.wait_all(iter([quick, *blocked]), PATIENCE)
        assert holdfast.wait_some((quick, *blocked)) == [quick, *blocked]
        assert quick.done() and client.in_flight == 0 and "done" in repr(quick)
        assert holdfast.wait_all([]) is True
        foreign = other.bget("k")
        for wait in (holdfast.wait_any, holdfast.wait_some):
            with pytest.raises(ValueError):
                wait([])
        for wait in (holdfast.wait_any, holdfast.wait_some, holdfast.wait_all):
            with pytest.raises(TypeError):
                wait([quick, 5])
            with pytest.raises(ValueError, match="several clients"):
                wait([quick, foreign])
        assert foreign.result() == b"v"


@pytest.mark.parametrize("thread", [False, True])
def test_thousands_in_flight(address, client, thread):
    with holdfast.Client(address, thread=thread) as many:
        numbers = numpy.arange(20_000, dtype=numpy.int64).reshape(-1, 1)
        sets = [many.bset(f"key{number}", numbers[number]) for number in range(len(numbers))]
        assert holdfast.wait_all(sets, PATIENCE) and {request.result() for request in sets} == {"OK"}
        copies = numpy.zeros_like(numbers)
        gets = [many.iget(f"key{number}", copies[number]) for number in range(len(numbers))]
        left = set(gets)
        while left:
            done = holdfast.wait_some(left, PATIENCE)
            assert done
            left.difference_update(done)
        assert {request.result() for request in gets} == {8} and (copies == numbers).all()


def test_no_more_than_the_limits_are_in_flight(own_server):
    with holdfast.Client(own_server.path("socket"), requests_max=10, bytes_max=1_000_000) as client:
        with stopped(own_server):
            requests = [client.bset("k", "v") for _ in range(10)]
            with pytest.raises(holdfast.FullError) as error:
                client.bset("k", "v")
            assert error.value.executed is holdfast.Executed.NO
        assert [request.result(PATIENCE) for request in requests] == ["OK"] * 10
        # A result that was taken makes room; one that was not does not.
        requests = [client.bset("k", bytes(200_000)) for _ in range(4)]
        with pytest.raises(holdfast.FullError):
            client.bset("k", bytes(400_000))
        assert holdfast.wait_all(requests, PATIENCE)


@pytest.mark.parametrize("thread", [False, True])
def test_completions_are_listed_and_the_descriptor_tells(client, address, thread):
    with holdfast.Client(address, thread=thread) as lists:
        assert lists.next_completion() is None and not select.select([lists], [], [], 0)[0]
        kept = [lists.submit("SET", f"key{number}", number, listed=True) for number in range(50)]
        for number in range(50):
            # Nobody else keeps it.
            lists.submit("INCR", f"counter{number}", listed=True)
        taken = lists.submit("SET", "k", "v", listed=True)
        assert taken.result(PATIENCE) == "OK"
        silent = lists.bset("not listed", "v")
        lists.flush()
        found = []
        while len(found) < 100:
            assert select.select([lists], [], [], PATIENCE)[0]
            lists.progress()
            while request := lists.next_completion():
                found.append(request)
        assert set(kept) < set(found) and [request.result() for request in kept] == ["OK"] * 50
        assert sum(request.result() == 1 for request in found) == 50
        assert silent.result(PATIENCE) == "OK" and lists.next_completion() is None
        blocked = lists.submit("BLPOP", "list", 0, untimed=True)
        started = time.monotonic()
        assert lists.progress(0.05) is False and time.monotonic() - started >= 0.05
        client.command("RPUSH", "list", "x")
        # A thread may have found it done before anybody waits.
        assert thread or lists.progress(None) is True
        assert blocked.wait(PATIENCE)


def test_threads_share_clients_and_requests(client, address):
    blocked = client.submit("BLPOP", "list", 0, untimed=True)
    results = []
    threads = [threading.Thread(target=lambda: results.append(blocked.result(PATIENCE))) for _ in range(4)]
    for thread in threads:
        thread.start()
    # The interpreter is free while they wait.
    time.sleep(0.05)
    with holdfast.Client(address) as other:
        other.command("RPUSH", "list", "x")
    for thread in threads:
        thread.join()
    assert results == [[b"list", b"x"]] * 4 and all(result is results[0] for result in results)

    def count(number):
        for _ in range(200):
            assert client.bset(f"{number}", number).result(PATIENCE) == "OK"
            client.command("INCR", "n")

    threads = [threading.Thread(target=count, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == b"1600"
