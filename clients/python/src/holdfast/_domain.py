"""Graphs, counts of n-grams, and vectors: what Holdfast's commands for programs that compute do, by their arguments' types."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from ._errors import FullError
from ._native import Client


def _name(name):
    return name.encode() if isinstance(name, str) else bytes(name)


class Graph:
    """A directed graph, whose vertices are keys. Names are str or bytes, and come back as bytes.

    Where the ends of edges are on different servers, because the client has several or they are a cluster, `spread=True` has both ends of an
    edge written one after the other. Whatever fails between, `repair` puts right.
    """

    def __init__(self, client: Client, *, spread: bool = False) -> None:
        self._client, self._spread = client, spread

    def add_edges(self, edges: Iterable[tuple]) -> int:
        """Adds edges, pairs of a vertex and the one that the edge leads to; returns how many were not there. Without `spread`
        this is one transaction."""
        edges = [(_name(start), _name(end)) for start, end in edges]
        if not self._spread:
            return self._whole("GRAPH.ADDEDGE", edges)
        ends = [(end, start) for start, end in edges]
        self._halves("GRAPH.ADDHALF", "IN", ends)
        added = self._halves("GRAPH.ADDHALF", "OUT", edges)
        # Somebody may have removed them between.
        self._halves("GRAPH.ADDHALF", "IN", ends)
        return added

    def remove_edges(self, edges: Iterable[tuple]) -> int:
        """Removes edges; returns how many were there. Without `spread` this is one transaction."""
        edges = [(_name(start), _name(end)) for start, end in edges]
        if not self._spread:
            return self._whole("GRAPH.REMOVEEDGE", edges)
        removed = self._halves("GRAPH.REMOVEHALF", "OUT", edges)
        self._remove_ends(edges)
        return removed

    def is_connected(self, start, end) -> bool:
        """Whether an edge leads from one vertex to another."""
        return self._client.command("GRAPH.ISCONNECTED", start, end, read_only=True) == 1

    def neighbors(self, vertex) -> list[bytes]:
        """The vertices that edges lead to from this one."""
        return self._client.command("GRAPH.NEIGHBORS", vertex, read_only=True)

    def predecessors(self, vertex) -> list[bytes]:
        """The vertices that edges lead to this one from."""
        return self._client.command("GRAPH.PREDECESSORS", vertex, read_only=True)

    def scan(self, vertex, direction: str = "OUT", count: int = 10_000) -> Iterator[bytes]:
        """The same in steps, for vertices with many: `OUT` as neighbors, `IN` as predecessors. One that is there all the time comes at
        least once."""
        cursor = b"0"
        while True:
            cursor, names = self._client.command(
                "GRAPH.SCAN", vertex, direction, cursor, "COUNT", count, read_only=True)
            yield from names
            if cursor == b"0":
                return

    def degree(self, vertex) -> tuple[int, int]:
        """How many edges begin at a vertex, and how many end there."""
        reply = self._client.command("GRAPH.DEGREE", vertex, read_only=True)
        # A map over RESP3.
        return tuple(reply.values()) if isinstance(reply, dict) else (reply[1], reply[3])

    def remove_vertex(self, vertex, count: int = 100_000) -> int:
        """Removes a vertex with all of its edges, those to so many neighbours at a time; returns how many they were."""
        removed = 0
        while True:
            if self._spread:
                names = {direction: [name for name, _ in zip(self.scan(vertex, direction), range(count))]
                         for direction in ("OUT", "IN")}
                step = self.remove_edges([(vertex, name) for name in names["OUT"]])
                step += self.remove_edges([(name, vertex) for name in names["IN"]])
                if not any(names.values()):
                    return removed
            else:
                step = self._client.command("GRAPH.REMOVEVERTEX", vertex, "COUNT", count)
                if step == 0:
                    return removed
            removed += step

    def repair(self, vertex) -> None:
        """Sees to it that the edges of a vertex are written at both of their ends, or at none. For graphs that are spread, after a
        failure, for each of the vertices; others may change the graph meanwhile."""
        vertex = _name(vertex)
        starts = [(start, vertex) for start in self.scan(vertex, "IN")]
        there = self._are_connected(starts)
        self._remove_ends([edge for edge, is_there in zip(starts, there) if not is_there])
        self._halves("GRAPH.ADDHALF", "IN", [(end, vertex) for end in self.scan(vertex, "OUT")])

    def _whole(self, command, edges):
        return self._client.command(command, *(name for edge in edges for name in edge)) if edges else 0

    def _halves(self, command, direction, halves):
        others = {}
        for vertex, other in halves:
            others.setdefault(vertex, []).append(other)
        return sum(self._results((command, vertex, direction, *names) for vertex, names in others.items()))

    def _are_connected(self, edges):
        there = self._results((("GRAPH.ISCONNECTED", *edge) for edge in edges), read_only=True)
        return [number == 1 for number in there]

    def _results(self, commands, **keywords):
        """What commands come to, of which as many are on their way as the client has room for."""
        requests = deque()
        for command in commands:
            while True:
                try:
                    requests.append(self._client.submit(*command, **keywords))
                    break
                except FullError:
                    if not requests:
                        raise
                    yield requests.popleft().result()
        for request in requests:
            yield request.result()

    def _remove_ends(self, edges):
        self._halves("GRAPH.REMOVEHALF", "IN", [(end, start) for start, end in edges])
        # Those that somebody has added meanwhile.
        again = [edge for edge, is_there in zip(edges, self._are_connected(edges)) if is_there]
        self._halves("GRAPH.ADDHALF", "IN", [(end, start) for start, end in again])


class NGrams:
    """The counts of n-grams in a key."""

    def __init__(self, client: Client, key) -> None:
        self._client, self._key = client, key

    def count(self, ngrams: Iterable) -> list[int]:
        """Counts n-grams, each as often as it is there; returns what each comes to."""
        ngrams = list(ngrams)
        return self._client.command("NGRAM.INCR", self._key, *ngrams) if ngrams else []

    def add(self, counts: Mapping) -> list[int]:
        """Adds to counts; returns what each comes to."""
        pairs = [part for pair in counts.items() for part in pair]
        return self._client.command("NGRAM.INCRBY", self._key, *pairs) if pairs else []

    def get(self, *ngrams) -> list[int]:
        """The counts of n-grams, 0 of one that was never counted."""
        return self._client.command("NGRAM.GET", self._key, *ngrams, read_only=True)


class Vector:
    """The vector in a key: of numbers (`INT32`, `INT64`, `FLOAT`, `DOUBLE`) or of strings (`STRING`)."""

    def __init__(self, client: Client, key) -> None:
        self._client, self._key = client, key

    def create(self, kind: str, content) -> None:
        """Makes a vector the key's value: of zeroes or empty strings, if the content is their number; of the numbers that a buffer
        has, such as an array of numpy; or of elements one by one."""
        if isinstance(content, int):
            how = ["LEN", content]
        else:
            how = _content(content)
        self._client.command("VEC.CREATE", self._key, kind, *how)

    def info(self) -> tuple[str, int]:
        """The type of the elements, and how many they are."""
        reply = self._client.command("VEC.INFO", self._key, read_only=True)
        kind, length = reply.values() if isinstance(reply, dict) else (reply[1], reply[3])
        return kind if isinstance(kind, str) else kind.decode(), length

    def __len__(self) -> int:
        return self.info()[1]

    def get(self, *indices: int) -> list:
        """Elements."""
        return self._client.command("VEC.GET", self._key, *indices, read_only=True)

    def set(self, elements: Mapping) -> None:
        """Replaces elements, by their indices."""
        self._client.command("VEC.SET", self._key, *(part for pair in elements.items() for part in pair))

    def range(self, start: int = 0, stop: int = -1, out=None):
        """The elements from one index to another, both included: as a list, or as bytes in a buffer, of which it returns how
        many there are."""
        if out is None:
            return self._client.command("VEC.RANGE", self._key, start, stop, read_only=True)
        return self._client.command("VEC.RANGE", self._key, start, stop, "BLOB", read_only=True, out=out)

    def set_range(self, start: int, content) -> None:
        """Replaces elements that follow each other, by those of a buffer, or one by one."""
        self._client.command("VEC.SETRANGE", self._key, start, *_content(content))


def _content(content):
    """How the elements of a vector are told to the server."""
    try:
        memoryview(content)
    except TypeError:
        return ["VALUES", *content]
    return ["BLOB", content]
