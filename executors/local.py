"""The `local` executor: tasks in processes, or threads, of the allocation's own nodes. Needs nothing installed."""

from __future__ import annotations

from asa.core.errors import InvalidInput
from executors.station import Station


def local(workers: str = "processes", heartbeat_s: float = 60.0) -> Station:
    """Runs tasks inside allocations, with nothing but Python on the nodes.

    Each task runs in a worker process of its node's supervisor, which is kept for later tasks of the same size; several
    short tasks travel together. Numeric libraries are told to use as many threads as the task has cores
    (``OMP_NUM_THREADS`` and its like, where they are not set already).

    Parameters
    ----------
    workers
        ``"processes"``: a process for each task that runs. ``"threads"``: the threads of one process for each node,
        for tasks that release the interpreter's lock or share much memory; they share the fate of their process too,
        and no task has GPUs, or a number of library threads, of its own.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.

    Raises
    ------
    InvalidInput
        When an option is out of range.
    """
    if workers not in ("processes", "threads"):
        raise InvalidInput(f"workers={workers!r}: choose 'processes' or 'threads'")
    return Station("executors.crew:Crew", {"workers": workers}, heartbeat_s=heartbeat_s)
