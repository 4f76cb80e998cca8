"""Checks that all results are there."""

import sys

from jobs import app

for number in range(int(sys.argv[1])):
    result = app.AsyncResult(f"job-{number}").get(timeout=60)
    if result != number * 2:
        sys.exit(f"job {number} has the result {result}")
