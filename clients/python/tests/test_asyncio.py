"""Requests awaited by tasks, while other tasks go on."""

import asyncio
import gc
import threading
import time
import weakref

import holdfast
import numpy
import pytest
from conftest import PATIENCE, stopped


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


@pytest.mark.parametrize("thread", [False, True])
def test_requests_are_awaited(client, address, thread):
    async def program():
        with holdfast.Client(address, thread=thread) as own:
            assert await own.bset("k", "v") == "OK"
            request = own.bget("k")
            assert await request == b"v" and await request == b"v" and request.result() == b"v"
            grid, copy = numpy.arange(100_000.0), numpy.zeros(100_000)
            assert await asyncio.gather(own.iset("grid", grid), own.iget("grid", copy)) == ["OK", grid.nbytes]
            assert (grid == copy).all()
            with pytest.raises(holdfast.ReplyError, match="WRONGTYPE"):
                await own.submit("LPUSH", "k", "x")
            first, second = await asyncio.gather(own.bset("k", 1), own.submit("INCR", "k"))
            assert (first, second) == ("OK", 2)
            one = own.submit("INCR", "k")
            assert await asyncio.gather(one, one) == [3, 3]

    run(program())


def test_thousands_of_tasks(client):
    async def task(number):
        await client.bset(f"key{number}", number)
        return await client.bget(f"key{number}")

    async def program():
        return await asyncio.gather(*(task(number) for number in range(5_000)))

    assert run(program()) == [b"%d" % number for number in range(5_000)]
    assert client.in_flight == 0


def test_others_go_on_meanwhile(client, address):
    async def program():
        with holdfast.Client(address) as other:
            blocked = asyncio.ensure_future(client.submit("BLPOP", "list", 0, untimed=True))
            turns = 0
            while turns < 20:
                await asyncio.sleep(0.001)
                turns += 1
            assert not blocked.done()
            await other.submit("RPUSH", "list", "x")
            assert await blocked == [b"list", b"x"]

    before = time.process_time()
    run(program())
    assert time.process_time() - before < 1


def test_a_cancelled_task_cancels_its_request(client, address):
    async def blocked(other, count):
        while f"blocked_clients:{count}\r".encode() not in other.command("INFO", "clients", key=None):
            await asyncio.sleep(0.001)

    async def program():
        room = bytearray(10)
        with holdfast.Client(address) as other:
            await asyncio.wait_for(blocked(other, 0), PATIENCE)
            request = client.submit("BLMOVE", "list", "other", "LEFT", "LEFT", 0, untimed=True, out=room)
            task = asyncio.ensure_future(request)
            await asyncio.wait_for(blocked(other, 1), PATIENCE)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.01)
            room.append(0)
            with pytest.raises(holdfast.CancelledUnknownError):
                await request
            # The connection is the client's still, and nothing is moved for nobody.
            await asyncio.wait_for(blocked(other, 0), PATIENCE)
            assert other.command("RPUSH", "list", "x") == 1
        assert await client.bset("k", "v") == "OK"

    run(program())


def test_loops_and_threads_share_a_client(client, address):
    async def program(name):
        for number in range(300):
            await asyncio.gather(client.bset(f"{name}{number}", number), client.submit("INCR", "n"))

    stop = threading.Event()

    def blocking():
        while not stop.is_set():
            client.command("INCR", "blocking")

    beside = threading.Thread(target=blocking)
    threads = [threading.Thread(target=run, args=(program(name),)) for name in ("a", "b", "c")]
    for thread in [beside, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    beside.join()
    assert client.get("n") == b"900" and int(client.get("blocking")) > 0


def test_completions_are_found_beside_tasks(client):
    async def program():
        listed = {client.submit("INCR", "n", listed=True) for _ in range(100)}
        await asyncio.gather(*(client.bset(f"key{number}", number) for number in range(100)))
        found = set()
        while len(found) < 100:
            client.progress()
            while request := client.next_completion():
                found.add(request)
        assert found == listed

    run(program())


@pytest.mark.parametrize("who", ["task", "thread"])
def test_a_client_that_is_closed_ends_what_is_awaited(own_server, who):
    async def program():
        client = holdfast.Client(own_server.path("socket"))
        await client.bget("k")
        with stopped(own_server):
            tasks = [asyncio.ensure_future(client.bget("k")) for _ in range(3)]
            await asyncio.sleep(0.01)
            close = asyncio.to_thread(client.close) if who == "thread" else asyncio.sleep(0, client.close())
            await close
            for task in tasks:
                with pytest.raises(holdfast.ClosedError):
                    await task
        with pytest.raises(holdfast.ClosedError):
            await client.bget("k")

    run(program())


@pytest.mark.parametrize("how", ["taken", "released"])
def test_a_task_goes_on_if_another_takes_or_releases_what_it_awaits(own_server, how):
    async def program():
        with holdfast.Client(own_server.path("socket")) as client:
            client.set("k", "v")
            with stopped(own_server):
                request = client.bget("k")
                task = asyncio.ensure_future(request)
                await asyncio.sleep(0.01)
            if how == "taken":
                assert request.result() == b"v" and await task == b"v"
            else:
                request.release()
                with pytest.raises(holdfast.ReleasedError):
                    await task

    run(program())


def test_what_was_taken_just_before_it_is_awaited(client):
    async def program():
        request, future = client.bget("k"), asyncio.get_running_loop().create_future()
        assert request.result() is None
        client._notify(request, future)
        await future

    run(program())


def test_nothing_is_left_of_a_loop(client, address):
    loops = []

    async def program():
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await client.bset("k", "v")
        # The loop ends in the middle of this, and cancels it.
        other = holdfast.Client(address)
        blocked = asyncio.ensure_future(other.submit("BLPOP", "list", 0, untimed=True))
        await asyncio.sleep(0.01)
        assert not blocked.done()

    for _ in range(3):
        run(program())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3
