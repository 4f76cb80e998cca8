"""Makes a random directed graph: each process draws pairs of vertices, and adds those edges of them that are not there, some at a time,
until it has added as many as it is to.

    mpirun -n 4 python3 graph.py 127.0.0.1:6379 50000
"""

import math

import holdfast
from example import (Window, amount, client, fail, finish, random_numbers, rank, ranks, start_clock, tell,
                     tell_half, world)

EDGES = 10  # Those that a request adds.

# Of all edges that there may be, a hundredth.
vertices = max(100, 10 * math.isqrt(amount * ranks) + 10)
edges = []
# For each request the edges that it adds, and those that may have been executed and were lost.
batches = []
lost = set()
# Edges whose requests have ended, the new ones among them, and those of which nobody can tell.
ended = added = doubtful = 0


def add(tag):
    """Begins the request of a batch."""
    window.begin(tag, client.submit, "GRAPH.ADDEDGE", *(f"graph:{vertex}" for edge in batches[tag] for vertex in edge))


def edges_added(tag, reply):
    global ended, added, doubtful
    if isinstance(reply, holdfast.Error):
        # To add an edge twice does no harm; whether it is new, nobody can tell any more.
        if reply.executed == holdfast.Executed.UNKNOWN:
            lost.add(tag)
        add(tag)
        return
    ended += len(batches[tag])
    added += reply
    if tag in lost:
        doubtful += len(batches[tag]) - reply


draw = random_numbers(rank + 1)
window = Window(edges_added)
told = False
started = start_clock()
while True:
    # What is on its way may be new or not; only as many are begun as can be needed.
    while (missing := amount - (added + doubtful + len(edges) - ended)) > 0:
        batches.append([(draw(vertices), draw(vertices)) for _ in range(min(missing, EDGES))])
        edges += batches[-1]
        add(len(batches) - 1)
        if not told and len(edges) >= amount // 2:
            told = True
            tell_half()
    if not window.requests:
        break
    window.end_oldest()
tell("graph", started, len(batches))


def is_there(tag, reply):
    # The score of a neighbour says which edges there are: 2 or 3 if one leads from it.
    if not (reply or 0) >= 1 + tag % 2:
        fail(f"an edge is missing: {edges[tag // 2]}, {'in' if tag % 2 else 'out'}")


# Every edge of this process is there, seen from both ends.
started = start_clock()
window = Window(is_there)
for number, (start, end) in enumerate(edges):
    start, end = f"graph:{start}", f"graph:{end}"
    window.begin(2 * number, client.submit, "GRAPH.ISCONNECTED", start, end, read_only=True)
    window.begin(2 * number + 1, client.submit, "ZSCORE", end, start, read_only=True)
window.end_all()
tell("graph-read", started, 2 * len(edges))

# There are as many as were new, and none but those, seen from both ends.
degrees = []
window = Window(lambda _, degree: degrees.append(tuple(degree.values())))
for vertex in range(rank, vertices, ranks):
    window.begin(vertex, client.submit, "GRAPH.DEGREE", f"graph:{vertex}", read_only=True)
window.end_all()
all_added, all_doubtful = world.allreduce(added), world.allreduce(doubtful)
outgoing, incoming = (world.allreduce(sum(ends)) for ends in zip(*degrees))
if outgoing != incoming or not all_added <= outgoing <= all_added + all_doubtful:
    fail(f"{outgoing} edges, {incoming} ends of edges instead of {all_added} and at most {all_doubtful} more")
finish()
