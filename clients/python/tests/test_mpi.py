"""The MPI programs in Python, with a few processes."""

import os
import shutil
import subprocess

import pytest

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "examples", "mpi", "run")


@pytest.mark.skipif(not shutil.which("mpirun.openmpi"), reason="Open MPI is not installed")
@pytest.mark.parametrize("options", [["--ranks", "1,3"], ["--ranks", "2", "--kill"]])
def test_programs_check_their_results(options):
    server = os.environ["HOLDFAST_SERVER"]
    subprocess.run([RUN, "--server", server, "--languages", "python", "--share", "0.1", *options], check=True)
