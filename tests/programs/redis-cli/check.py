"""redis-cli in all its modes, less those that need replication (--replica) or a debugger, and --rdb and --functions-rdb, which have tests of their own."""

import json
import os
import re
import subprocess
import tempfile

PORT, TLS_PORT = os.environ["SERVER_PORT"], os.environ["SERVER_TLS_PORT"]


def cli(*args, text="", seconds=None, status=0):
    """What it prints. Modes without an end are ended after some seconds."""
    command = ["redis-cli", "-p", PORT, *args]
    if seconds:
        command = ["stdbuf", "-o0", "timeout", str(seconds), *command]
    done = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    output = done.stdout.decode(errors="replace")
    if done.returncode != (124 if seconds else status):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{output}")
    return output


def same(got, want):
    if got != want:
        raise AssertionError(f"expected {want!r}, got {got!r}")


def has(output, *parts):
    for part in parts:
        if not re.search(part, output):
            raise AssertionError(f"no {part!r} in:\n{output}")


# Mass insertion, as text and as requests.
has(cli("--pipe", text="".join(f"SET k{i} v{i}\r\n" for i in range(500))), "errors: 0, replies: 500")
requests = "".join(f"*3\r\n$3\r\nSET\r\n$4\r\nr{i:03}\r\n$1\r\nx\r\n" for i in range(500))
has(cli("--pipe", text=requests), "errors: 0, replies: 500")
same(cli("dbsize"), "1000\n")
has(cli("--pipe", text="SADD k1 x\r\n", status=1), "WRONGTYPE", "errors: 1, replies: 1")

# Shapes of replies.
cli("rpush", "list", "1", "2 3")
cli("hset", "hash", "a", "1")
cli("zadd", "zset", "1", "x")
cli("sadd", "set", "x")
cli("xadd", "stream", "1-1", "f", "v")
same(cli("--no-raw", "lrange", "list", "0", "-1"), '1) "1"\n2) "2 3"\n')
same(cli("--csv", "lrange", "list", "0", "-1"), '"1","2 3"\n')
same(json.loads(cli("--json", "hgetall", "hash")), {"a": "1"})
same(json.loads(cli("--json", "zrange", "zset", "0", "-1", "withscores")), [["x", 1.0]])
same(cli("-3", "--no-raw", "hgetall", "hash"), '1# "a" => "1"\n')
same(cli("-2", "--no-raw", "hgetall", "hash"), '1) "a"\n2) "1"\n')
same(cli("-3", "--no-raw", "zscore", "zset", "x"), "(double) 1\n")
same(cli("-d", ",", "lrange", "list", "0", "-1"), "1,2 3\n")
same(cli("-D", ";", "lrange", "list", "0", "-1"), "1\n2 3;")
has(cli("help", "set"), "SET", "String value|string value")

# Where arguments come from, and how often a command runs.
cli("-x", "set", "input", text="hello\nthere")
same(cli("get", "input"), "hello\nthere\n")
cli("-X", "VALUE", "set", "input", "VALUE", text="hello")
same(cli("get", "input"), "hello\n")
same(cli("-r", "3", "-i", "0.01", "incr", "counter"), "1\n2\n3\n")
same(cli("-n", "3", "--quoted-input", "set", '"\\x00a"', "v"), "OK\n")
same(cli("-n", "3", "--no-raw", "--scan", "--quoted-pattern", '"\\x00*"'), '"\\x00a"\n')
same(cli(text="multi\nset a 1\nget a\nexec\n"), "OK\nQUEUED\nQUEUED\nOK\n1\n")
with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
    script.write("return {KEYS[1], ARGV[1]}")
    script.flush()
    same(cli("--eval", script.name, "key", ",", "value"), "key\nvalue\n")

# Looks at all keys.
same(len(cli("--scan", "--pattern", "k4?").split()), 10)
has(cli("--bigkeys"), 'Biggest +list found .*"list".* has 2 items', "Biggest +stream", "1003 strings")
has(cli("--memkeys"), r"Biggest string found .* has [1-9]\d* bytes", r"1 zsets with [1-9]\d* bytes")
policy = cli("config", "get", "maxmemory-policy").split()[1]
cli("config", "set", "maxmemory-policy", "allkeys-lfu")
has(cli("--hotkeys"), "-------- summary -------", "Sampled 1008 keys")
cli("config", "set", "maxmemory-policy", policy)

# Modes that measure and listen, for a moment.
has(cli("--latency"), r"^\d+ \d+ \d+\.\d+ \d+")
has(cli("--latency-history", "-i", "1", seconds=3), r"\d+ \d+ \d+\.\d+ \d+")
has(cli("--latency-dist", "-i", "1", seconds=3), "milliseconds")
has(cli("--stat", "-i", "0.2", seconds=2), "keys", r"100\d .*M")
has(cli("monitor", seconds=1), "OK")
has(cli("subscribe", "news", seconds=1), "subscribe\nnews\n1")

# Other ways in.
same(cli("-u", f"redis://localhost:{PORT}/3", "dbsize"), "1\n")
tls = ["--tls", "--cacert", os.environ["TLS_CA"], "--cert", os.environ["TLS_CERT"], "--key", os.environ["TLS_KEY"]]
same(cli("-h", "localhost", "-p", TLS_PORT, *tls, "ping"), "PONG\n")
same(cli("acl", "setuser", "bob", "on", ">secret", "+ping"), "OK\n")
same(cli("--user", "bob", "--pass", "secret", "--no-auth-warning", "ping"), "PONG\n")
has(cli("--user", "bob", "--pass", "secret", "--no-auth-warning", "get", "a"), "NOPERM")
