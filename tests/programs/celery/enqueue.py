"""Sends N jobs, less those that an earlier run has noted as sent, unless a worker has dropped them since."""

import os
import sys

from jobs import job


def numbers(name):
    with open(os.environ[name], "a+") as file:
        file.seek(0)
        return {int(line) for line in file}


known = numbers("ADDED") - (numbers("DROPPED") - numbers("DONE"))
with open(os.environ["ADDED"], "a") as added:
    for number in range(int(sys.argv[1])):
        if number not in known:
            job.apply_async((number,), task_id=f"job-{number}")
            print(number, file=added, flush=True)
