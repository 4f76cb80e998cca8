"""A first program: sets a grid while it goes on computing, and gets it back into place.

    pip install ./clients/python numpy && python first.py 127.0.0.1:6379
"""

import sys

import holdfast
import numpy

grid = numpy.arange(1 << 17, dtype=numpy.float64)
copy = numpy.empty_like(grid)
try:
    with holdfast.Client(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:6379") as client:
        # The grid may be read while the request is on its way, and not be changed.
        request = client.iset("grid", grid)
        total = grid.sum()
        request.result()

        length = client.get_into("grid", copy)
        print(f"{length} bytes, sum {total:.0f}, last {copy[-1]:.0f}")
except holdfast.Error as error:
    sys.exit(str(error))
