"""A pool of agents in a batch job of their own, on nodes that a batch system gives."""

from __future__ import annotations

import math
import secrets
import time
from contextlib import ExitStack, suppress

from asa.core.errors import AsaError, BackendError, InvalidInput, StateError
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, Refused, Resources
from asa.core.ports import Backend
from asa.core.registry import BACKENDS
from asa.log.messages import notify
from asa.log.rundir import state_directory
from coscheduler.pool.pools import OwnPool
from executors.mesos.codec import BadMessage
from executors.mesos.messages import field, identity
from executors.mesos.operator import Operator

_AGENTS_S = 120.0  # from the start of the job until its agents are there
_ENDING_S = 30.0
_LOOK_S = 0.5
_WORDS = 2000


class Batch:
    """Agents in a batch job, one on each of its nodes, and their master: what `slurm_pool` asks for."""

    patience_s = math.inf

    def __init__(self, nodes: int, cores: int, walltime_s: float, backend: Backend) -> None:
        self.nodes, self._backend = nodes, backend
        with ExitStack() as undo:
            undo.callback(backend.close)
            self._poll_s = backend.capabilities().poll_s
            self._own = OwnPool(state_directory(), "")
            undo.callback(self._own.close)
            self.directory, self._output = self._own.directory, self._own.path / "agents.log"
            self._job = self._submit(nodes, cores, walltime_s)
            undo.pop_all()
        self._status: JobStatus | None = None
        self._asked, self._told = 0.0, ""

    @property
    def job(self) -> JobHandle:
        """The job that runs the agents."""
        return self._job

    def check(self) -> None:
        """Raises `StateError` when the job has ended, or its agents do not come; tells people how it waits."""
        if time.monotonic() >= self._asked + self._poll_s:
            self._query()
        status = self._status
        if status is None:
            return
        if status.state.final:
            told = f"has ended ({_described(status)}), and none of the queue's jobs was run"
            raise StateError(f"job {self._job.job_id} {told}. {self.last_words()}")
        if status.state is JobState.RUNNING and status.started and time.time() > status.started + _AGENTS_S:
            raise StateError(
                f"job {self._job.job_id} runs, but not all of its agents have come within {_AGENTS_S:g} s. "
                f"{self.last_words()}"
            )
        if (told := _described(status)) != self._told:
            self._told = told
            notify(f"job {self._job.job_id} with {self.nodes} nodes: {told}")

    def last_words(self) -> str:
        with suppress(OSError):
            return "Its agents have said: " + self._output.read_text(errors="replace")[-_WORDS:].strip()
        return "Its agents have said nothing"

    def close(self) -> None:
        """Send the agents away, which ends the job well; a job that does not end so is cancelled."""
        with ExitStack() as last:
            last.callback(self._backend.close)
            last.callback(self._own.close)
            if not self._dismissed():
                self._cancel()

    # ------------------------------------------------------- inside

    def _submit(self, nodes: int, cores: int, walltime_s: float) -> JobHandle:
        request = JobRequest(
            token=f"asa-cosched-{secrets.token_hex(4)}",
            resources=Resources(nodes * cores, nodes),
            walltime_s=walltime_s,
            argv=self._own.agent(cores=cores, lasts=walltime_s),
            workdir=str(self._own.path),
            output=str(self._output),
        )
        (outcome,) = self._backend.submit([request])
        if isinstance(outcome, Refused):
            raise BackendError(
                f"the batch system refuses {nodes} nodes of {cores} cores: {outcome.reason}. Ask for others with "
                "--nodes and --walltime, or name a partition (--on slurm:partition=...)"
            )
        return outcome

    def _query(self) -> None:
        self._asked = time.monotonic()
        try:
            (self._status,) = self._backend.query([self._job])
        except BackendError as error:
            if not error.transient:
                raise

    def _dismissed(self) -> bool:
        """Mark the agents gone until the job has ended; False when it was not running, or does not end."""
        self._query_quietly()
        deadline, pause_s = time.monotonic() + _ENDING_S, _LOOK_S
        with Operator(self.directory) as operator:
            while self._status is not None and self._status.state is JobState.RUNNING:
                if time.monotonic() > deadline:
                    return False
                with suppress(AsaError, BadMessage):  # it has just gone
                    for agent in operator.get_agents():
                        operator.call("MARK_AGENT_GONE", agent_id=identity(field(agent, "agent_info.id.value", str)))
                time.sleep(pause_s)
                pause_s *= 1.5
                self._query_quietly()
        return self._status is not None and self._status.state.final

    def _query_quietly(self) -> None:
        with suppress(AsaError):  # then it is cancelled
            self._query()

    def _cancel(self) -> None:
        try:
            self._backend.cancel([self._job])
        except AsaError as error:
            notify(f"job {self._job.job_id} could not be cancelled: {error}")


def slurm_pool(nodes: int, cores: int, walltime_s: float, backend: str = "slurm") -> Batch:
    """A pool of agents, one on each node of a batch job, and their master in this process.

    Its directory is in the state directory, which all nodes must see. How long the job waits is not limited.

    Parameters
    ----------
    cores
        On each node.
    walltime_s
        Of the job [s].
    backend
        Where it is submitted, with options: ``slurm:partition=core``.

    Raises
    ------
    InvalidInput
        When a number is out of range, or the backend's name or an option is not known.
    BackendError
        When the batch system refuses the job, or does not answer.
    StateError
        When the directory, or the master's port, cannot be used.
    """
    if nodes < 1 or cores < 1 or not walltime_s > 0:
        raise InvalidInput(
            f"a job of {nodes} nodes of {cores} cores for {walltime_s:g} s: expected at least 1 node, 1 core, and a "
            "wall time above 0"
        )
    return Batch(nodes, cores, walltime_s, BACKENDS.create(backend))


def _described(status: JobStatus) -> str:
    return f"{status.state.value}{f', {status.reason}' if status.reason else ''}"
