"""What goes wrong: servers that are killed, and callers that do what cannot be right. All are exceptions."""

import collections
import os
import random
import signal
import subprocess
import sys
import threading
import time

import holdfast
import numpy
import pytest
from conftest import PATIENCE, stopped


def test_kill_9_loses_nothing_that_was_acknowledged(own_server):
    """Keys are counted up while the server is killed again and again. Each increment was made, was not, or may have been,
    as its request says."""
    made, maybe, not_made = collections.Counter(), collections.Counter(), 0
    client = holdfast.Client(own_server.path("socket"), resends_max=100)
    client.command("FLUSHALL", key=None)
    choose, lives = random.Random(7), 4

    def kill():
        for _ in range(lives):
            time.sleep(0.2)
            own_server.kill()
            own_server.start()

    killer = threading.Thread(target=kill)
    killer.start()
    window = collections.deque()
    while killer.is_alive() or window:
        if killer.is_alive() and len(window) < 64:
            key = f"n{choose.randrange(20)}"
            window.append((key, client.submit("INCR", key)))
            continue
        key, request = window.popleft()
        try:
            value = request.result(PATIENCE)
            made[key] += 1
            assert made[key] <= value <= made[key] + maybe[key]
        except holdfast.UnknownOutcomeError as error:
            assert isinstance(error, holdfast.LostError)
            maybe[key] += 1
        except holdfast.LostError:
            not_made += 1
    killer.join()
    for key in made | maybe:
        assert made[key] <= int(client.get(key) or 0) <= made[key] + maybe[key], key
    assert made.total() > 500 and maybe.total() <= 64 * lives and not_made == 0
    client.close()


def test_buffers_survive_a_kill(own_server):
    client = holdfast.Client(own_server.path("socket"))
    value, room = numpy.arange(4_000_000.0), numpy.zeros(4_000_000)
    client.set("k", value)
    for _ in range(3):
        # The server is killed in the middle of these; what is read is asked for again.
        get, set = client.iget("k", room), client.iset("k", value)
        own_server.kill()
        own_server.start()
        assert get.result(PATIENCE) == value.nbytes and (room == value).all()
        try:
            assert set.result(PATIENCE) == "OK"
        except holdfast.LostUnknownError as error:
            assert error.executed is holdfast.Executed.UNKNOWN
    client.close()


def test_nobody_there_is_told_in_time(tmp_path):
    with holdfast.Client(str(tmp_path / "none"), request_timeout=0.2) as client:
        started = time.monotonic()
        with pytest.raises(holdfast.TimedOutError, match="No such file") as error:
            client.set("k", "v")
        assert isinstance(error.value, TimeoutError) and error.value.executed is holdfast.Executed.NO
        assert 0.2 <= time.monotonic() - started < 5


def test_a_closed_client_and_a_released_request_do_nothing(address):
    client = holdfast.Client(address)
    request, done, released = client.bget("k"), client.bget("k"), client.bget("k")
    result = done.result()
    released.release()
    released.release()
    for call in (released.result, released.wait, released.test, released.test_buffer, released.wait_buffer, released.done,
                 released.cancel, lambda: holdfast.wait_any([released]), lambda: holdfast.wait_all([released]),
                 lambda: released.__await__().send(None)):
        with pytest.raises(holdfast.ReleasedError):
            call()
    assert not client.closed and "in flight" in repr(client)
    client.close()
    client.close()
    assert client.closed and "closed" in repr(client) and "closed" in repr(request)
    for call in (lambda: client.get("k"), lambda: client.set("k", "v"), lambda: client.command("PING"),
                 lambda: client.iget("k", bytearray(1)), lambda: client.submit("PING"), client.flush, client.progress,
                 client.next_completion, client.fileno, lambda: client.in_flight, request.result, request.wait,
                 request.test, request.cancel, lambda: holdfast.wait_some([request]),
                 lambda: request.__await__().send(None)):
        with pytest.raises(holdfast.ClosedError):
            call()
    # What was taken before is there.
    assert done.result() is result and done.wait() and done.test() and holdfast.wait_all([done])
    request.release()
    with pytest.raises(holdfast.ClosedError), holdfast.Client(address) as client:
        client.close()
        client.get("k")


def test_a_client_that_is_closed_ends_those_who_wait(client, address):
    other = holdfast.Client(address)
    blocked = other.submit("BLPOP", "list", 0, untimed=True)
    raised = []

    def wait(call):
        try:
            call()
        except holdfast.Error as error:
            raised.append(type(error))

    calls = [blocked.result, lambda: holdfast.wait_all([blocked]), lambda: other.command("BLPOP", "list", 0, untimed=True)]
    threads = [threading.Thread(target=wait, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    other.close()
    for thread in threads:
        thread.join(PATIENCE)
    # Nobody knows what the server did.
    assert raised == [holdfast.ClosedUnknownError] * 3
    with pytest.raises(holdfast.ClosedUnknownError):
        blocked.done()


def test_arguments_that_cannot_be_right(client):
    for args in [(), ("",), ("MULTI",), ("subscribe", "c"), (b"QUIT",), (bytearray(b"HELLO"), 3), ("CLIENT", "REPLY", "OFF")]:
        for call in (client.command, client.submit):
            with pytest.raises(ValueError):
                call(*args)
    frozen = numpy.zeros(10)
    frozen.flags.writeable = False
    for out in (b"bytes", memoryview(b"bytes"), frozen, numpy.zeros((4, 4)).T[1:], numpy.zeros(10)[::2]):
        for call in (client.get_into, client.iget, lambda key, out: client.command("GET", key, out=out)):
            with pytest.raises((BufferError, ValueError)):
                call("k", out)
    for out in ("text", 5, None, [], object()):
        for call in (client.get_into, client.iget):
            with pytest.raises(TypeError):
                call("k", out)
    released = memoryview(bytearray(10))
    released.release()
    with pytest.raises(ValueError):
        client.iset("k", released)
    request = client.bget("k")
    for wrong in (float("nan"), "1", b""):
        with pytest.raises((ValueError, TypeError)):
            request.wait(wrong)
    assert request.wait(-1) in (False, True) and request.wait(float("inf"))
    for wrong in (-1, "k", 1 << 70):
        with pytest.raises((TypeError, OverflowError)):
            client.command("GET", "k", key=wrong)
    for kind in (holdfast.Request, lambda: type("Sub", (holdfast.Client,), {})):
        with pytest.raises(TypeError):
            kind()
    assert client.in_flight == 0


def test_an_object_that_closes_the_client_when_it_is_asked(address):
    client = holdfast.Client(address)

    class Servers:
        def __iter__(self):
            client.close()
            yield address

    with holdfast.Client(Servers()) as other, pytest.raises(holdfast.ClosedError):
        assert other.get("k") is None
        client.get("k")


@pytest.mark.parametrize("thread", [False, True])
def test_a_forked_process_may_not_use_the_client(client, address, thread):
    """It leaves the client of its parent alone, also when it ends, and may open one of its own."""
    program = f"""
import gc, os, sys, warnings
import holdfast
client = holdfast.Client({address!r}, thread={thread})
client.set("forked", "before")
value = bytearray(100_000)
request = client.iget("forked", value)
child = os.fork()
if child == 0:
    for call in (lambda: client.get("forked"), lambda: request.result(), client.fileno, client.progress):
        try:
            call()
            os._exit(1)
        except holdfast.ClosedError as error:
            assert "fork" in str(error)
    client.close()
    assert client.closed
    request.release()
    del client, request
    gc.collect()
    with holdfast.Client({address!r}) as own:
        own.set("forked", "by the child")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert request.result(30) in (6, 12), request.result()
assert client.get("forked") == b"by the child"
client.close()
"""
    subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", program], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("call", ["client.command('BLPOP', 'none', 0, untimed=True)",
                                  "client.submit('BLPOP', 'none', 0, untimed=True).result()",
                                  "holdfast.wait_any([client.submit('BLPOP', 'none', 0, untimed=True)])",
                                  "client.progress(None)"])
def test_ctrl_c_ends_a_wait(address, call):
    program = f"""
import holdfast
client = holdfast.Client({address!r})
print("waits", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("ended by Ctrl-C")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE)[0] == "ended by Ctrl-C\n" and process.returncode == 0


def test_an_interpreter_may_end_in_the_middle(own_server):
    """Requests in flight, threads that wait, and clients that were not closed are no trouble at the end."""
    program = f"""
import threading
import holdfast
clients = [holdfast.Client({own_server.path("socket")!r}, thread=thread) for thread in (False, True)]
value = bytearray(30_000_000)
kept = [client.iset("k", value) for client in clients] + [client.bget("k") for client in clients]
for client in clients:
    client.submit("GET", "k", listed=True)
    threading.Thread(target=client.get, args=("k",), daemon=True).start()
"""
    with stopped(own_server):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
        assert ran.returncode == 0, ran


def test_a_dropped_request_is_told_and_leaves_an_exception_alone(own_server):
    client = holdfast.Client(own_server.path("socket"))
    client.get("k")
    with stopped(own_server):
        # The request is dropped while the exception is on its way.
        with pytest.warns(ResourceWarning, match="not done"), pytest.raises(ZeroDivisionError):
            (client.iget("k", bytearray(10)), 1 / 0)
    client.close()


@pytest.mark.filterwarnings("ignore:a request that was not done:ResourceWarning")
@pytest.mark.parametrize("thread", [False, True])
def test_random_calls_of_many_threads(address, thread):
    """Threads hand over, take, cancel, release and drop each other's requests, and close the client under each other: each call
    returns or raises what it may, no buffer stays pinned, and nothing crashes."""
    clients, requests, unexpected = [holdfast.Client(address, thread=thread)], [], []
    buffers = [bytearray(size) for size in (10, 5_000, 200_000)]
    end = time.monotonic() + 1

    def step(choose):
        client, buffer = clients[-1], choose.choice(buffers)
        held = list(requests)  # others take some away meanwhile
        few = choose.sample(held, min(len(held), 3))
        request = few[0] if few else client.bget("k")
        match choose.randrange(16):
            case 0 | 1:
                requests.append(client.iset("k", buffer))
            case 2 | 3:
                requests.append(client.iget("k", buffer))
            case 4:
                requests.append(client.submit("SET", "k", buffer, listed=True, lend=True))
            case 5:
                requests.append(client.bset("k", buffer))
            case 6:
                request.result(choose.choice([0, 0.01, None]))
            case 7:
                request.cancel()
            case 8:
                request.release()
            case 9:
                request.wait_buffer(0.01)
            case 10:
                choose.choice([holdfast.wait_any, holdfast.wait_some, holdfast.wait_all])(few, 0.01)
            case 11:
                client.progress(0.01)
            case 12:
                client.next_completion()
            case 13:
                del requests[:choose.randrange(3)]
            case 14:
                client.get_into("k", buffer)
            case 15 if choose.random() < 0.05:
                client.close()
                clients.append(holdfast.Client(address, thread=thread))

    def run(seed):
        choose = random.Random(seed)
        while time.monotonic() < end:
            try:
                step(choose)
            except (holdfast.Error, TimeoutError):
                pass
            except ValueError as error:
                if "clients" not in str(error) and "no requests" not in str(error):
                    unexpected.append(error)
            except BaseException as error:
                unexpected.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE)
        assert not one.is_alive()
    assert not unexpected and len(clients) > 1
    for client in clients:
        client.close()
    for buffer in buffers:
        buffer.append(0)
    with holdfast.Client(address) as client:
        assert client.exists("k")
