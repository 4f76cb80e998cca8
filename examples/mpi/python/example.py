"""What the three programs share: the client, a window of requests on their way, random numbers, and what is printed."""

import sys
from collections import deque

from mpi4py import MPI

import holdfast

WINDOW = 32

world = MPI.COMM_WORLD
rank, ranks = world.rank, world.size
# The servers' addresses, and how much each process is to do.
client = holdfast.Client(*sys.argv[1].split())
amount = int(sys.argv[2])


def fail(what):
    print(f"rank {rank}: {what}", file=sys.stderr, flush=True)
    world.Abort(1)


def handle_exception(kind, error, trace, usual=sys.excepthook):
    usual(kind, error, trace)
    # The others would wait for this process.
    world.Abort(1)


sys.excepthook = handle_exception


def random_numbers(state):
    """A function that draws a number below another one (Park and Miller's generator)."""

    def draw(below):
        nonlocal state
        state = state * 48271 % 2147483647
        return state % below

    return draw


class Window:
    """Requests on their way. They are replied to in order, so the oldest is the one to wait for. `ended` is told of each that has
    ended: by its tag, with the reply, or with the exception if its connection was lost. It may begin another one."""

    unknown = 0  # Requests whose outcome a lost connection has left unknown.

    def __init__(self, ended):
        self.requests = deque()
        self.ended = ended

    def begin(self, tag, submit, *args, **options):
        while len(self.requests) >= WINDOW:
            self.end_oldest()
        self.requests.append((tag, submit(*args, **options)))

    def end_oldest(self):
        tag, request = self.requests.popleft()
        try:
            reply = request.result()
        except holdfast.LostError as error:
            # The program goes on; the library makes another connection. All else ends it.
            Window.unknown += error.executed == holdfast.Executed.UNKNOWN
            reply = error
        self.ended(tag, reply)

    def end_all(self):
        while self.requests:
            self.end_oldest()


def tell_half():
    """Tells those who want to disturb the program that it is in the midst of it."""
    if rank == 0:
        print("half", flush=True)


def start_clock():
    world.Barrier()
    return MPI.Wtime()


def tell(part, started, requests):
    """Prints what a part of the program took: its requests, those of all processes, in so many seconds."""
    seconds = MPI.Wtime() - started
    slowest = world.reduce(seconds, MPI.MAX)
    total = world.reduce(seconds)
    requests = world.reduce(requests)
    unknown = world.reduce(Window.unknown)
    if rank == 0:
        print(f"result {part} {ranks} {requests} {slowest:.6f} {total / requests * 1e6:.3f} {unknown}", flush=True)


def finish():
    client.close()
    if rank == 0:
        print("verified", flush=True)
