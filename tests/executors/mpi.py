"""A real MPI program.

PYTEST_DONT_REWRITE: nothing is asserted here, and a search for doctests imports this module before it is asked for.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def hello(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It says how many ranks there are, and the sum of their numbers."""
    if shutil.which("mpicc") is None or shutil.which("gcc") is None:
        pytest.skip("not on PATH: mpicc and gcc (Debian packages libopenmpi-dev, gcc)")
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "hello.c").write_text(HELLO)
    subprocess.run(["mpicc", "-o", folder / "hello", folder / "hello.c"], check=True, timeout=60)
    return folder / "hello"
