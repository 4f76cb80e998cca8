"""Blocking calls: what goes to a server, and what comes back."""

import ctypes
import math

import holdfast
import numpy
import pytest
from scripted import scripted


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_values_of_all_sizes_come_back_by_every_way(server, where, thread, protocol):
    address = f"127.0.0.1:{server.port}" if where == "tcp" else server.path("socket")
    with holdfast.Client(address, thread=thread, protocol=protocol) as client:
        client.command("FLUSHALL", key=None)
        for length in [0, 1, 4096, 4097, 65_536, 3_000_000]:
            value = bytes(at * 7 % 251 for at in range(1000)) * (length // 1000 + 1)
            value = value[:length]
            for kind in (bytes, bytearray, memoryview):
                client.set("k", kind(value))
                assert client.get("k") == value
            room = bytearray(length + 1)
            assert client.get_into(b"k", room) == length
            assert room == value + b"\0"
            assert client.bset("b", value).result() == "OK"
            assert client.iset("i", value).result() == "OK"
            assert client.bget("b").result() == client.bget("i").result() == value
        assert client.get("none") is None
        assert client.get_into("none", bytearray(1)) is None
        assert client.exists("k") is True and client.exists("none") is False
        assert client.delete("k") is True and client.delete("k") is False


def test_arguments_are_what_they_seem(client):
    for value, text in [("ä\0", "ä\0".encode()), (12, b"12"), (-(1 << 63), b"-9223372036854775808"),
                        (1 << 70, b"1180591620717411303424"), (1.5, b"1.5"), (1e300, b"1e300"), (math.inf, b"inf"),
                        (numpy.float64(0.1), b"0.1"), (numpy.arange(3, dtype=numpy.uint8), b"\0\1\2"),
                        (memoryview(b"abcdef")[2:4], b"cd"), (numpy.empty(0), b"")]:
        client.set("k", value)
        assert client.get("k") == text
    assert client.command("INCRBYFLOAT", "f", 0.1 + 0.2) == b"0.30000000000000004"
    for value in (True, None, [1], {}, numpy.int64(5), numpy.float32(1), numpy.array(1.5), numpy.bool_(True), object()):
        with pytest.raises(TypeError):
            client.set("k", value)
    with pytest.raises(UnicodeEncodeError):
        client.set("k", "\ud800")
    for array in (numpy.zeros((4, 4))[:, ::2], numpy.asfortranarray(numpy.zeros((40, 40)))):
        with pytest.raises((BufferError, ValueError), match="contiguous"):
            client.set("k", array)


def test_arrays_of_objects_are_refused(client):
    pair = numpy.dtype([("O", "f8"), ("text", "O")])
    arrays = [numpy.array(["x", None], dtype=object), numpy.zeros(3, dtype=pair), (ctypes.py_object * 3)(),
              memoryview(numpy.zeros(3, dtype=object)), numpy.array(["x"], dtype=numpy.dtypes.StringDType())]
    client.set("k", bytes(24))
    for array in arrays:
        for call in (lambda: client.set("k", array), lambda: client.get_into("k", array)):
            with pytest.raises((TypeError, ValueError)):
                call()
    assert client.get("k") == bytes(24)


def test_arrays_of_all_other_types_come_back(client):
    for dtype in ("datetime64[s]", "complex64", "float16", "S5", "U3", "?", [("O", "f8"), ("Other", ">i4")]):
        array, copy = numpy.ones(10, dtype=dtype), numpy.zeros(10, dtype=dtype)
        client.set("k", array)
        assert client.get_into("k", copy) == array.nbytes and array.tobytes() == copy.tobytes()


def test_replies_are_objects_of_their_kinds(client):
    assert client.command("SET", "k", b"\0\xff") == "OK"
    assert client.command("GET", "k", read_only=True) == b"\0\xff"
    assert client.command("GET", "none") is None
    assert client.command("RPUSH", "list", "a", b"b\0c", 3) == 3
    assert client.command("LRANGE", "list", 0, -1) == [b"a", b"b\0c", b"3"]
    assert client.command("HSET", "hash", "f", "v") == 1
    assert client.command("HGETALL", "hash") == {b"f": b"v"}
    assert client.command("SADD", "set", "a", "b") == 2
    assert client.command("SMEMBERS", "set") == {b"a", b"b"}
    assert client.command("ZADD", "zset", 1.5, "m") == 1
    assert client.command("ZSCORE", "zset", "m") == 1.5
    assert client.command("TYPE", "zset") == "zset"
    assert client.command("EVAL", "redis.setresp(3); return {true, false}", 0, key=None) == [True, False]
    room = bytearray(3)
    assert client.command("LINDEX", "list", 1, out=room, read_only=True) == 3 and room == b"b\0c"
    assert client.command("LLEN", "list", out=room) == 3 and room == b"b\0c"


def test_replies_that_servers_seldom_make():
    deep = b"*1\r\n" * 60 + b":1\r\n"
    with scripted(
        b",nan\r\n", b",-inf\r\n", b"#t\r\n", b"_\r\n", b"=8\r\ntxt:some\r\n",
        b"(" + b"9" * 30 + b"\r\n", b"(" + b"9" * 5000 + b"\r\n", b"(x\r\n",
        b"%2\r\n*1\r\n:1\r\n%1\r\n+a\r\n~1\r\n:2\r\n+k\r\n-ERR inner\r\n",
        b"~3\r\n~1\r\n:1\r\n%1\r\n:1\r\n*0\r\n+x\r\n", b"+\xff\r\n", deep,
    ) as address, holdfast.Client(address) as client:
        ask = lambda: client.command("ANY")
        assert math.isnan(ask()) and ask() == -math.inf and ask() is True and ask() is None and ask() == b"some"
        assert ask() == int("9" * 30) and ask() == b"9" * 5000 and ask() == b"x"
        reply = ask()
        assert reply[(1,)] == {"a": {2}}
        assert isinstance(reply["k"], holdfast.ReplyError) and str(reply["k"]) == "ERR inner"
        assert ask() == {frozenset({1}), ((1, ()),), "x"}
        assert ask() == "\ufffd"
        reply = ask()
        for _ in range(60):
            [reply] = reply
        assert reply == 1


def test_a_reply_may_be_too_large(server):
    with holdfast.Client(f"127.0.0.1:{server.port}", reply_bytes_max=4096) as client:
        client.set("large", b"x" * 100_000)
        large, small = client.bget("large"), client.bget("none")
        with pytest.raises(holdfast.TooLargeError, match="reply_bytes_max") as error:
            large.result()
        assert error.value.executed is holdfast.Executed.YES
        assert small.result() is None


def test_errors_have_classes_and_say_what_was_executed(client, server):
    client.set("k", "text")
    with pytest.raises(holdfast.ReplyError, match="^WRONGTYPE ") as error:
        client.command("LPUSH", "k", "x")
    assert error.value.executed is holdfast.Executed.YES and error.value.code == "WRONGTYPE"
    room = bytearray(3)
    with pytest.raises(holdfast.TooSmallError) as error:
        client.get_into("k", room)
    assert error.value.needed == 4 and "4 bytes" in str(error.value)
    assert issubclass(holdfast.LostError, ConnectionError) and issubclass(holdfast.TimedOutError, TimeoutError)
    for name in holdfast.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(holdfast, name), holdfast.Error)
            unknown = getattr(holdfast, name).executed is holdfast.Executed.UNKNOWN
            assert unknown == issubclass(getattr(holdfast, name), holdfast.UnknownOutcomeError)


def test_passwords_names_and_databases(client, server, address):
    client.command("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", key=None)
    with holdfast.Client(address, user="me", password="secret", name="here", database=3) as other:
        other.set("k", "v")
        info = other.command("CLIENT", "INFO", key=None).decode()
        assert " name=here " in info and " db=3 " in info and " user=me " in info
    assert client.get("k") is None
    with holdfast.Client(address, user="me", password="wrong") as other:
        with pytest.raises(holdfast.RefusedError, match="WRONGPASS") as error:
            other.get("k")
        assert isinstance(error.value, ConnectionError) and error.value.executed is holdfast.Executed.NO


def test_tls_carries_values_and_knows_the_server(server):
    own = {"tls_cert_file": server.path("client.crt"), "tls_key_file": server.path("client.key")}
    address = f"127.0.0.1:{server.tls_port}"
    value = bytes(range(256)) * 8192
    with holdfast.Client(address, tls_ca_file=server.path("ca.crt"), tls_server_name="localhost", **own) as client:
        client.set("tls", value)
        assert client.get("tls") == value
    with holdfast.Client(address, tls_ca_file=server.path("ca.crt"), tls_server_name="else", request_timeout=0.5,
                         **own) as client:
        with pytest.raises(holdfast.TimedOutError, match="ertificate"):
            client.get("tls")
    for wrong in ({"tls_ca_file": "/none"}, {"tls_ca_file": server.path("client.key")}):
        with pytest.raises(holdfast.SetupError):
            holdfast.Client(address, **wrong)
    for wrong in (own, {"tls_server_name": "x"}, {"tls_ca_file": server.path("ca.crt"), "tls_cert_file": "x"}):
        with pytest.raises(ValueError):
            holdfast.Client(address, **wrong)


def test_keys_are_spread_over_servers(server, own_server):
    addresses = [server.path("socket"), own_server.path("socket")]
    with holdfast.Client(addresses) as both, holdfast.Client(addresses[0]) as one, holdfast.Client(addresses[1]) as two:
        for client in (one, two):
            client.command("FLUSHALL", key=None)
        requests = [both.bset(f"key{number}", number) for number in range(200)]
        assert holdfast.wait_all(requests, 30)
        counts = [client.command("DBSIZE", key=None) for client in (one, two)]
        assert sum(counts) == 200 and min(counts) > 50
        for number in range(200):
            assert both.get(f"key{number}") == b"%d" % number
        script = "return redis.call('get', KEYS[1])"
        assert both.command("EVAL", script, 1, "key7", key=3) == b"7"


def test_arguments_of_a_client_are_checked():
    for wrong in ("", "host", "host:", "host:65536", ":1", [], ["a:1", "b"]):
        with pytest.raises(ValueError):
            holdfast.Client(wrong)
    for wrong in (None, 5, [5], [b"a:1"]):
        with pytest.raises(TypeError):
            holdfast.Client(wrong)
    for options in ({"protocol": 1}, {"request_timeout": math.nan}, {"connect_timeout": math.inf}, {"requests_max": 0}):
        with pytest.raises(ValueError):
            holdfast.Client("localhost:1", **options)
    for options in ({"database": -1}, {"requests_max": -1}, {"resends_max": 1 << 32}):
        with pytest.raises(OverflowError):
            holdfast.Client("localhost:1", **options)
    with pytest.raises(TypeError):
        holdfast.Client("localhost:1", None)
