"""The `local` executor: tasks in processes, or threads, of the allocation's own nodes. Needs nothing installed."""

from __future__ import annotations

from collections.abc import Sequence

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.ports import Post, RunContext
from asa.core.task import Task
from executors.station import Station, program


class Local:
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

    def __init__(self, workers: str = "processes", heartbeat_s: float = 60.0) -> None:
        if workers not in ("processes", "threads"):
            raise InvalidInput(f"workers={workers!r}: choose 'processes' or 'threads'")
        if not heartbeat_s > 0:
            raise InvalidInput(f"heartbeat_s={heartbeat_s!r} must be a positive number of seconds")
        self._workers, self._heartbeat = workers, heartbeat_s
        self._station: Station | None = None

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The supervisor's command line."""
        return program(allocation, context)

    def start(self, context: RunContext, post: Post) -> None:
        """Listen, and say where in the run's directory.

        Raises
        ------
        StateError
            When the run's directory cannot be used.
        """
        self._station = Station(context, post, "executors.crew:Crew", {"workers": self._workers}, self._heartbeat)

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""
        self._started().launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""
        self._started().release(allocation)

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._started().dismiss_idle(idle_s)

    def close(self) -> None:
        """Stop listening. Supervisors that are not released wait for a new driver."""
        if self._station is not None:
            self._station.close()
            self._station = None

    def _started(self) -> Station:
        if self._station is None:
            raise InvalidInput("this executor has not been started, or is closed: call start() first")
        return self._station
