"""Requests awaited by tasks of asyncio. As long as tasks of a loop await requests of a client, the loop watches the client's
descriptor, and makes progress when there is some to make."""

import asyncio
import contextlib
import weakref

from ._errors import ClosedError, ReleasedError

# A client that is closed has told all futures, and has no requests.
_unless_gone = contextlib.suppress(ClosedError, ReleasedError)

# Of each loop the clients that it watches.
_watched: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict] = weakref.WeakKeyDictionary()


class _Watch:
    def __init__(self, client, loop):
        self.client, self.loop, self.descriptor = client, loop, client.fileno()
        self.waiting = 0
        self.flushing = False

    def begin(self):
        if self.waiting == 0:
            self.loop.add_reader(self.descriptor, self.progress)
        self.waiting += 1
        # One flush for all that tasks hand over in this turn of the loop.
        if not self.flushing:
            self.flushing = True
            self.loop.call_soon(self.flush)

    def end(self):
        self.waiting -= 1
        if self.waiting == 0:
            self.loop.remove_reader(self.descriptor)
            del _watched[self.loop][self.client]

    def flush(self):
        self.flushing = False
        with _unless_gone:
            self.client.flush()

    def progress(self):
        with _unless_gone:
            self.client.progress()
            wake(self.client._completed(), self.loop)


def _watch(client, loop):
    clients = _watched.setdefault(loop, {})
    if client not in clients:
        clients[client] = _Watch(client, loop)
    return clients[client]


def _tell(future):
    if not future.done():
        future.set_result(None)


def wake(futures, loop=None):
    """Tells futures that their requests are done; at once those of the loop that runs."""
    for future in futures:
        other = future.get_loop()
        if other is loop:
            _tell(future)
        else:
            # A loop that another thread has closed needs to know nothing.
            with contextlib.suppress(RuntimeError):
                other.call_soon_threadsafe(_tell, future)


async def outcome(request):
    """Awaits a request."""
    if not request.done():
        loop, client = asyncio.get_running_loop(), request.client
        future = loop.create_future()
        watch = _watch(client, loop)
        watch.begin()
        try:
            client._notify(request, future)
            await future
        except asyncio.CancelledError:
            with _unless_gone:
                request.cancel()
            raise
        finally:
            watch.end()
    return request.result(0)
