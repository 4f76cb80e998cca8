"""Makes a random directed graph: each process draws two vertices, and adds the edge if there is none, until it has added as many as
it is to.

    mpirun -n 4 python3 graph.py 127.0.0.1:6379 50000
"""

import math

import holdfast
from example import (Window, amount, client, fail, finish, random_numbers, rank, ranks, start_clock, tell,
                     tell_half, world)

# Of all edges that there may be, a hundredth.
vertices = max(100, 10 * math.isqrt(amount * ranks) + 10)
edges = []
lost = set()
added = doubtful = 0


def ends(number):
    """Where an edge is kept: the keys of its two ends, and the members there."""
    first, second = edges[number]
    return (f"graph:out:{first}", str(second)), (f"graph:in:{second}", str(first))


def add_end(tag):
    """Adds one end of an edge: an even tag where it begins, whose reply says whether the edge is new, an odd one where it ends."""
    window.begin(tag, client.submit, "SADD", *ends(tag // 2)[tag % 2])


def edge_added(tag, reply):
    global added, doubtful
    if isinstance(reply, holdfast.Error):
        # To add an edge twice does no harm; whether it is new, nobody can tell any more.
        if tag % 2 == 0 and reply.executed == holdfast.Executed.UNKNOWN:
            lost.add(tag)
        add_end(tag)
    elif tag % 2 == 0:
        if reply == 1:
            added += 1
        elif tag in lost:
            doubtful += 1


draw = random_numbers(rank + 1)
window = Window(edge_added)
told = False
started = start_clock()
while True:
    # What is on its way may be new or not; only as many are begun as can be needed.
    while added + doubtful + len(window.requests) // 2 < amount:
        edges.append((draw(vertices), draw(vertices)))
        add_end(2 * len(edges) - 2)
        add_end(2 * len(edges) - 1)
        if not told and len(edges) >= amount // 2:
            told = True
            tell_half()
    if not window.requests:
        break
    window.end_oldest()
tell("graph", started, 2 * len(edges))


def is_there(tag, reply):
    if reply != 1:
        fail(f"an edge is missing: {ends(tag // 2)[tag % 2]}")


# Every edge of this process is there, seen from both ends.
started = start_clock()
window = Window(is_there)
for tag in range(2 * len(edges)):
    window.begin(tag, client.submit, "SISMEMBER", *ends(tag // 2)[tag % 2], read_only=True)
window.end_all()
tell("graph-read", started, 2 * len(edges))


# There are as many as were new, and none but those, seen from both ends.
all_added, all_doubtful = world.allreduce(added), world.allreduce(doubtful)
for end in "out", "in":
    degrees = []
    window = Window(lambda _, degree: degrees.append(degree))
    for vertex in range(rank, vertices, ranks):
        window.begin(vertex, client.submit, "SCARD", f"graph:{end}:{vertex}", read_only=True)
    window.end_all()
    total = world.allreduce(sum(degrees))
    if not all_added <= total <= all_added + all_doubtful:
        fail(f"{total} edges instead of {all_added} and at most {all_doubtful} more")
finish()
