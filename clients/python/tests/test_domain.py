"""Graphs, n-grams and vectors."""

import os

import holdfast
import numpy
import pytest
from conftest import Server


@pytest.fixture(params=["one server", "two servers"])
def graph(request, server):
    """A graph on a server, and one that is spread over two."""
    if request.param == "one server":
        with holdfast.Client(f"127.0.0.1:{server.port}") as client:
            client.command("FLUSHALL", key=None)
            yield holdfast.Graph(client)
        return
    other = Server(os.environ["HOLDFAST_SERVER"])
    try:
        with holdfast.Client(server.path("socket")) as client:
            client.command("FLUSHALL", key=None)
        with holdfast.Client([server.path("socket"), other.path("socket")]) as client:
            yield holdfast.Graph(client, spread=True)
    finally:
        other.close()


def both(edges):
    names = {name for edge in edges for name in edge}
    return {name: ({end for start, end in edges if start == name}, {start for start, end in edges if end == name})
            for name in names}


def check(graph, edges):
    """The graph has these edges, at both of their ends."""
    for name, (ends, starts) in both(edges).items():
        assert set(graph.neighbors(name)) == ends == set(graph.scan(name))
        assert set(graph.predecessors(name)) == starts == set(graph.scan(name, "IN", count=1))
        assert graph.degree(name) == (len(ends), len(starts))


def test_a_graph_has_its_edges_at_both_ends(graph):
    edges = {(b"v%d" % (n % 17), b"v%d" % (n * 7 % 23)) for n in range(100)}
    assert graph.add_edges(edges) == len(edges)
    assert graph.add_edges([("v0", "v0"), ("v1", "new")]) == 1
    edges.add((b"v1", b"new"))
    check(graph, edges)
    assert graph.is_connected("v1", "new") and not graph.is_connected("new", "v1")
    gone = [edge for edge in edges if edge[0] == b"v3"]
    assert gone and graph.remove_edges(gone + [("none", "v1")]) == len(gone)
    edges -= set(gone)
    check(graph, edges)
    gone = {edge for edge in edges if b"v5" in edge}
    assert gone and graph.remove_vertex("v5", count=2) == len(gone)
    assert graph.neighbors("v5") == graph.predecessors("v5") == []
    edges -= gone
    check(graph, edges)
    assert graph.add_edges([]) == graph.remove_edges([]) == graph.remove_vertex("none") == 0


def test_a_spread_graph_takes_more_edges_than_its_client_has_requests(client, address):
    with holdfast.Client(address, requests_max=7) as small:
        graph = holdfast.Graph(small, spread=True)
        edges = {(b"hub", b"v%d" % n) for n in range(50)}
        assert graph.add_edges(edges) == 50
        check(graph, edges)
        assert graph.remove_vertex("hub") == 50 and graph.predecessors("v7") == []


def test_halves_that_were_left_are_repaired(graph):
    edges = {(b"a", b"b"), (b"b", b"c"), (b"c", b"a"), (b"c", b"c")}
    graph.add_edges(edges)
    client = graph._client
    # What a client has left that ended while it added an edge, and what one that ended while it removed one.
    client.command("GRAPH.ADDHALF", "c", "IN", "d")
    client.command("GRAPH.REMOVEHALF", "b", "OUT", "c")
    # And an end that is missing.
    client.command("GRAPH.REMOVEHALF", "a", "IN", "c")
    for vertex in "abcd":
        graph.repair(vertex)
    check(graph, edges - {(b"b", b"c")})
    assert graph.predecessors("c") == [b"c"]


def test_n_grams_are_counted(client):
    ngrams = holdfast.NGrams(client, "text")
    assert ngrams.count(["to be", "or not", "to be"]) == [1, 1, 2]
    assert ngrams.add({"to be": 10, b"or not": -1}) == [12, 0]
    assert ngrams.get("to be", "none") == [12, 0]
    assert ngrams.count([]) == ngrams.add({}) == []


def test_vectors_have_numbers_and_strings(client):
    numbers = numpy.arange(1000, dtype=numpy.float64) / 8
    vector = holdfast.Vector(client, "v")
    vector.create("DOUBLE", numbers)
    assert vector.info() == ("DOUBLE", 1000) and len(vector) == 1000
    assert vector.get(8, -1) == [1.0, 124.875]
    vector.set({0: 0.5, -1: 2})
    numbers[[0, -1]] = 0.5, 2
    read = numpy.empty_like(numbers)
    assert vector.range(out=read) == numbers.nbytes and (read == numbers).all()
    vector.set_range(1, numpy.array([7.0, 9.0]))
    vector.set_range(3, [11])
    assert vector.range(0, 3) == [0.5, 7.0, 9.0, 11.0]
    vector.create("INT32", 3)
    assert vector.range() == [0, 0, 0]
    names = holdfast.Vector(client, "names")
    names.create("STRING", ["a", "b"])
    names.set({1: "x"})
    assert names.range() == [b"a", b"x"] and names.info() == ("STRING", 2)
    with pytest.raises(holdfast.ReplyError, match="out of range"):
        names.get(2)
