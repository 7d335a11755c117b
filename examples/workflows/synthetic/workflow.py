"""A synthetic load as a workflow: a sequential stage fills memory with numbers, a parallel one computes with them.

    python workflow.py --floats 100000000 --seconds 60 --cores 16
    asa run workflow.py --set cores=4

See README.md for what it is for.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import cloudpickle
import stages

import asa

sys.path.append(str(Path(__file__).resolve().parents[1]))
import common

OUT = Path("synthetic-data")
FLOATS, ROUNDS, TASKS = 4_000_000, 50, 8
PROCESS = 128 * 2**20  # memory of a process before it has any numbers [bytes]

# Tasks run in other processes, where this module cannot be imported: its functions travel with the tasks.
cloudpickle.register_pickle_by_value(stages)


def build(
    out: Path,
    floats: int = FLOATS,
    *,
    rounds: int = ROUNDS,
    seconds: float | None = None,
    tasks: int = TASKS,
    cores: int = 2,
) -> asa.Node:
    """Return the workflow; its result is what each task computed and checked, see `stages.compute`.

    Parameters
    ----------
    out
        The folder for the numbers; made if missing. Its path must be the same wherever tasks run.
    floats
        How many numbers, of 8 bytes each. Both stages ask for as much memory.
    rounds
        How often each task goes through its numbers.
    seconds
        If given, each task goes on instead until it has used so much CPU time [s].
    tasks
        Of the parallel stage, at least 1.
    cores
        Of the parallel stage's allocation, at least 1; the other stage asks for one.

    Raises
    ------
    ValueError
        If a number is too small.
    """
    least = {"floats": (floats, 1), "rounds": (rounds, 0), "tasks": (tasks, 1), "cores": (cores, 1)}
    for name, (value, smallest) in {**least, "seconds": (seconds or 0, 0)}.items():
        if value < smallest:
            raise ValueError(f"{name} must be at least {smallest}, not {value}")
    out, size = out.absolute(), 8 * floats
    walltime = 600 + 2 * (seconds or 0) * math.ceil(tasks / cores)
    sequential = asa.stage(cores=1, memory=f"{size + 2 * PROCESS}B", walltime="10m")
    parallel = asa.stage(cores=cores, memory=f"{size + (cores + 1) * PROCESS}B", walltime=walltime)

    path = sequential(stages.fill)(floats, out)
    return parallel(stages.compute).map(
        range(tasks), parts=tasks, floats=floats, path=path, rounds=rounds, seconds=seconds
    )


def workflow(
    out: str = str(OUT),
    floats: int = FLOATS,
    *,
    rounds: int = ROUNDS,
    seconds: float | None = None,
    tasks: int = TASKS,
    cores: int = 2,
) -> asa.Node:
    """Return the workflow, for ``asa run``."""
    return build(Path(out), floats, rounds=rounds, seconds=seconds, tasks=tasks, cores=cores)


def main() -> None:
    """Run the workflow from the command line."""
    parser = common.make_parser("Fill memory with numbers, add and multiply them.", str(OUT))
    parser.add_argument("--floats", type=int, default=FLOATS, help=f"how many numbers ({FLOATS})")
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"of the parallel stage ({TASKS})")
    work = parser.add_mutually_exclusive_group()
    work.add_argument("--rounds", type=int, default=ROUNDS, help=f"through the numbers ({ROUNDS})")
    work.add_argument("--seconds", type=float, help="CPU time of each task, instead of rounds [s]")
    options = parser.parse_args()
    parts = common.run(
        "synthetic",
        parser,
        options,
        lambda: build(
            options.out,
            options.floats,
            rounds=options.rounds,
            seconds=options.seconds,
            tasks=options.tasks,
            cores=options.cores,
        ),
    )
    for name, value in stages.summary(parts).items():
        print(f"{name}: {value:.17g}")


if __name__ == "__main__":
    main()
