"""The program that a launcher starts in every rank of a task: ``python -m executors.rank FOLDER``.

It calls the order's function and leaves what came of it in the folder: rank 0 always, the others when they fail.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

from asa.log.messages import notify
from asa.security.files import write_private
from executors import node
from executors.call import Caller
from executors.launch import ORDER

# The launcher's own word first: its ranks may inherit what Slurm told the daemon that started them.
_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def number(environ: Mapping[str, str]) -> int:
    """Which rank this process is.

    >>> number({"SLURM_PROCID": "3"})
    3

    Raises
    ------
    KeyError
        When no launcher that we know has started it.
    """
    for name in _NUMBERS:
        if name in environ:
            return int(environ[name])
    raise KeyError(f"none of {', '.join(_NUMBERS)} is set: was this started by srun, mpirun or mpiexec?")


def main(folder: Path) -> int:
    """Do this rank's part; the exit code."""
    rank = number(os.environ)
    order, workdir, path, values = pickle.loads((folder / ORDER).read_bytes())
    sys.path[:] = path
    os.chdir(workdir)
    outcome = Caller(values).run(order, wanted=rank == 0)
    if outcome.value is None:
        notify(f"rank {rank} on {node.name(os.environ)}: {outcome.error}")
    if rank == 0 or outcome.value is None:
        write_private(folder / str(rank), pickle.dumps(outcome))
    return int(outcome.value is None)


if __name__ == "__main__":
    if code := main(Path(sys.argv[1])):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # without MPI_Finalize, which would wait for ranks that wait for this one
