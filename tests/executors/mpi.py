"""A real MPI program.

PYTEST_DONT_REWRITE: nothing is asserted here, and a search for doctests imports this module before it is asked for.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.host import open_mpi

HELLO = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, ranks, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, sum %d\n", ranks, sum);
    MPI_Finalize();
    return argc > 1 && rank == ranks - 1 ? 7 : 0;
}
"""


needs_mpirun = pytest.mark.skipif(open_mpi() < 4, reason="not on PATH: mpirun of Open MPI (Debian package openmpi-bin)")
"""For tests of several nodes, all of which are this machine."""


@pytest.fixture(scope="session")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It says how many ranks there are, and the sum of their numbers."""
    if shutil.which("mpicc") is None or shutil.which("gcc") is None:
        pytest.skip("not on PATH: mpicc and gcc (Debian packages libopenmpi-dev, gcc)")
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "hello.c").write_text(HELLO)
    subprocess.run(["mpicc", "-o", folder / "hello", folder / "hello.c"], check=True, timeout=60)
    return folder / "hello"


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A folder in which ranks leave files with their process numbers; none outlives the test."""
    folder = tmp_path / "pids"
    folder.mkdir()
    yield folder
    for name in os.listdir(folder):
        if name.isdecimal():
            with suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)
