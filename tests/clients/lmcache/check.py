"""LMCache's native adapter for servers of RESP, in its own asynchronous wrapper: chunks of a model's cache, many at once, by several connections."""

import asyncio
import os
import random
import socket
import sys
import sysconfig
import types

PORT = int(os.environ["SERVER_PORT"])

# Not by the packages' own beginnings, which import PyTorch.
PLACES = ["lmcache", "lmcache.v1", "lmcache.v1.storage_backend", "lmcache.v1.storage_backend.native_clients"]
for name in PLACES:
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [os.path.join(sysconfig.get_path("platlib"), *name.split("."))]

from lmcache.v1.storage_backend.native_clients.resp_client import RESPClient


def same(got, want):
    if got != want:
        raise AssertionError(f"expected {want!r}, got {got!r}")


async def chunks(client, size, count):
    keys = [f"vllm@model@1@0@{size:x}-{i:x}@half" for i in range(count)]
    data = [random.Random(i).randbytes(size) for i in range(count)]
    same(await client.batch_exists(keys), [False] * count)
    await client.batch_set(keys, [memoryview(bytearray(chunk)) for chunk in data])
    same(await client.batch_exists([*keys, "none"]), [True] * count + [False])
    buffers = [bytearray(size) for _ in keys]
    await client.batch_get(keys, [memoryview(buffer) for buffer in buffers])
    assert buffers == data, f"not all of {count} chunks of {size} bytes are what was set"
    # One is written anew, and read by itself.
    await client.set(keys[0], memoryview(bytearray(data[1])))
    await client.get(keys[0], memoryview(buffers[0]))
    assert buffers[0] == data[1]
    return keys


async def delete(client, keys):
    # The wrapper has no call for it, and LMCache makes it without.
    await client._register_future_async("batch_delete", client._client.submit_batch_delete(keys))


async def run():
    client = RESPClient("127.0.0.1", PORT, num_workers=4, username="lmcache", password="sesame")
    same(await client.exists("none"), False)
    for size, count in [(1, 10), (4096, 300), (1 << 20, 32), ((4 << 20) + 3, 8), (64 << 20, 2)]:
        keys = await chunks(client, size, count)
        await delete(client, keys[: count // 2])
        same(await client.batch_exists(keys), [False] * (count // 2) + [True] * (count - count // 2))
    client.close()


with socket.create_connection(("127.0.0.1", PORT)) as one:
    one.sendall(b"ACL SETUSER lmcache on >sesame ~* +@all\r\n")
    same(one.recv(100), b"+OK\r\n")
asyncio.run(asyncio.wait_for(run(), 120))
