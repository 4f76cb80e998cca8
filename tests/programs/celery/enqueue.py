"""Sends N jobs, less those that an earlier run has noted as sent."""

import os
import sys

from jobs import job

with open(os.environ["ADDED"], "a+") as added:
    added.seek(0)
    known = {int(line) for line in added}
    for number in range(int(sys.argv[1])):
        if number not in known:
            job.apply_async((number,), task_id=f"job-{number}")
            print(number, file=added, flush=True)
