#!/usr/bin/env python3
"""What it costs to scrape the metrics port each second: CPU time of the thread that answers, which does nothing else, and of the
whole process beside an idle one.

    python3 bench/scrape_cost.py                        # 25 scrapes, one a second, of a server with 200,000 keys
    python3 bench/scrape_cost.py --binary target/debug/holdfast
"""

import argparse
import http.client
import pathlib
import socket
import time

import servers

# So that many commands have histograms.
COMMANDS = """APPEND BITCOUNT BITPOS COPY DBSIZE DECR DECRBY DEL ECHO EXISTS EXPIRE EXPIRETIME GET GETBIT GETDEL GETEX GETRANGE GETSET
HDEL HEXISTS HGET HGETALL HINCRBY HKEYS HLEN HMGET HSET HVALS INCR INCRBY INCRBYFLOAT LINDEX LINSERT LLEN LPOP LPUSH LRANGE LREM
LSET LTRIM MGET MSET OBJECT PERSIST PEXPIRE PFADD PFCOUNT PING PTTL RENAME RPOP RPUSH SADD SCAN SCARD SET SETBIT SETEX SETNX
SINTER SISMEMBER SMEMBERS SPOP SREM STRLEN SUNION TOUCH TTL TYPE UNLINK XADD XLEN XRANGE ZADD ZCARD ZCOUNT ZRANGE ZRANK ZREM
ZSCORE""".split()


def cpu_seconds(process, thread=None):
    """CPU time of a process, or of its thread of that name, as exactly as the system tells."""
    if thread is None:
        # The clock of another process: see clock_getcpuclockid(3).
        return time.clock_gettime(~process << 3 | 2)
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / 100
    raise RuntimeError(f"no thread {thread}")


def fill(server, keys):
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        for first in range(0, keys, 1000):
            batch = [f"SET key:{n} {'v' * 100}\r\n" for n in range(first, min(first + 1000, keys))]
            s.sendall("".join(batch).encode())
            missing = 5 * len(batch)
            while missing:
                missing -= len(s.recv(min(missing, 1 << 16)))
    for command in COMMANDS:
        server.command(command, "key:x", "1", "1")
        server.command(command, "key:x")


def scrape(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    started = time.perf_counter()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read()
    assert text.endswith(b"# EOF\n")
    return time.perf_counter() - started, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--scrapes", type=int, default=25)
    parser.add_argument("--binary", help="instead of target/release/holdfast")
    options = parser.parse_args()
    if options.binary:
        servers.HOLDFAST = pathlib.Path(options.binary).resolve()
    port = servers.free_port()
    server = servers.holdfast(cpus="0,1", workers=2, metrics_port=port, appendfsync="everysec")
    try:
        server.wait()
        fill(server, options.keys)
        time.sleep(2)
        pid = server.process.pid

        def spend(scrapes):
            """Seconds of the process and of the thread, the scrapes' durations, and the last text."""
            before = cpu_seconds(pid), cpu_seconds(pid, "metrics")
            looks = []
            for _ in range(options.scrapes):
                next_second = time.monotonic() + 1
                if scrapes:
                    looks.append(scrape(port))
                time.sleep(max(next_second - time.monotonic(), 0))
            after = cpu_seconds(pid), cpu_seconds(pid, "metrics")
            return after[0] - before[0], after[1] - before[1], looks

        idle, _, _ = spend(False)
        process, thread, looks = spend(True)
        samples = sum(not line.startswith(b"#") for line in looks[-1][1].splitlines())
        print(f"{samples} samples, {len(looks[-1][1])} bytes; median {sorted(took for took, _ in looks)[len(looks) // 2] * 1e3:.2f} ms")
        for what, seconds in ("thread", thread), ("process, beside an idle one", process - idle):
            print(f"{what}: {seconds / options.scrapes * 1e3:.2f} ms of CPU a scrape, {seconds / options.scrapes:.2%} of a core at one a second")
    finally:
        server.close()


if __name__ == "__main__":
    main()
