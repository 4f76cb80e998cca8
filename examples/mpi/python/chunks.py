"""Stores and loads chunks of 16 bytes to 1 MiB: each process has its own, which are in the library's hands while they are on their
way.

    mpirun -n 4 python3 chunks.py 127.0.0.1:6379 1000
"""

import numpy

import holdfast
from example import Window, amount, client, fail, finish, rank, ranks, start_clock, tell, tell_half

SIZES = [16, 32, 64, 128, 256, 512, 1024, 2048, 16384, 131072, 1 << 20]
MOST_BYTES = 64 << 20


def chunk(number):
    """Each has other words than all others."""
    words = numpy.arange(size // 8, dtype=numpy.int64) * 2654435761
    return words + ((number * ranks + rank) * 1048583 + size)


def key(number):
    return f"chunk:{size}:{rank}:{number}"


def store(number):
    stores.begin(number, client.iset, key(number), chunk(number))


def stored(number, reply):
    # To store a chunk twice does no harm.
    if isinstance(reply, holdfast.Error):
        store(number)


def loaded(tag, length):
    number, buffer = tag
    if length != size or not numpy.array_equal(buffer, chunk(number)):
        fail(f"another chunk: {key(number)}")


for size in SIZES:
    count = max(1, min(amount, MOST_BYTES // ranks // size))
    started = start_clock()
    stores = Window(stored)
    for number in range(count):
        store(number)
        if number == count // 2:
            tell_half()
    stores.end_all()
    tell(f"store-{size}", started, count)

    started = start_clock()
    loads = Window(loaded)
    for number in range(count):
        buffer = numpy.empty(size // 8, numpy.int64)
        loads.begin((number, buffer), client.iget, key(number), buffer)
    loads.end_all()
    tell(f"load-{size}", started, count)
finish()
