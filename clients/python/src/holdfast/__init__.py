"""A client of Holdfast and Redis that lets its caller go on while requests are on their way.

    client = holdfast.Client("127.0.0.1:6379")
    request = client.iset("grid", grid)     # grid: a numpy array, bytes, ...; not copied
    ...                                     # compute
    request.result()
    client.get_into("grid", grid)

A request can be waited for (wait, result, wait_any, wait_some, wait_all), tested, cancelled, and awaited by a task of asyncio.
Graph, NGrams and Vector are for Holdfast's commands of these names.
"""

from ._domain import Graph, NGrams, Vector
from ._errors import (CancelledError, CancelledUnknownError, ClosedError, ClosedUnknownError, Error, Executed, FullError,
                      LostError, LostUnknownError, RedirectedError, RefusedError, ReleasedError, ReplyError, SetupError,
                      TimedOutError, TimedOutUnknownError, TooLargeError, TooSmallError, UnknownOutcomeError)
from ._native import Client, Request, wait_all, wait_any, wait_some

__all__ = [
    "CancelledError", "CancelledUnknownError", "Client", "ClosedError", "ClosedUnknownError", "Error", "Executed", "FullError",
    "Graph", "LostError", "LostUnknownError", "NGrams", "RedirectedError", "RefusedError", "ReleasedError", "ReplyError", "Request",
    "SetupError", "TimedOutError", "TimedOutUnknownError", "TooLargeError", "TooSmallError", "UnknownOutcomeError", "Vector",
    "wait_all", "wait_any", "wait_some",
]
