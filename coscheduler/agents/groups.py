"""Where the co-scheduler's agents are: on this machine, in a batch job, or in a named pool that is there already."""

from __future__ import annotations

import getpass
import json
import logging
import math
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from asa.core.errors import AsaError, BackendError, InvalidInput, StateError
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, Refused, Resources
from asa.core.ports import Backend
from asa.core.registry import BACKENDS
from asa.core.task import ending
from asa.log.messages import notify
from asa.log.rundir import state_directory
from asa.security.files import locked, private_directory, write_private
from asa.web.hosts import LOOPBACK
from executors import node
from executors.hub import node_program
from executors.mesos.codec import BadMessage
from executors.mesos.master.server import MasterService
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import field, identity
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import PoolDirectory

_log = logging.getLogger(__name__)

ORPHAN_GRACE_S = 5.0
"""How long containers go on when their agent has died [s]."""

_PATIENCE_S = 60.0
ENDING_S, JOB_ENDS_S = 15.0, 30.0
AGENTS_S = 120.0  # from the start of the batch job until its agents have registered
_LONE_S = 10.0  # how long an agent looks for a master: that of a dead co-scheduler does not come back
PING_S, PINGS = 2.0, 5  # an agent is lost after about 10 s of silence
_LOOK_S = 0.5
_OUTPUT_MOST = 2000


class AgentGroup(Protocol):
    """Agents, one on each node, and what was started for them."""

    @property
    def directory(self) -> PoolDirectory: ...
    @property
    def nodes(self) -> int:
        """How many nodes must be there before work begins."""

    @property
    def patience_s(self) -> float:
        """How long that may take [s]; infinite in a queue."""

    @property
    def lasts(self) -> bool:
        """Whether agents go on when this process dies."""

    def check(self) -> None:
        """Raise `StateError` when they will not come any more."""

    def last_words(self) -> str:
        """The last output of the agents, for error messages."""

    def close(self) -> None:
        """End what was started."""


class NamedPool:
    """The agents of a pool that runs already. Raises `StateError` when there is none, or it has no master."""

    nodes, patience_s, lasts = 1, _PATIENCE_S, True

    def __init__(self, path: Path) -> None:
        self.directory = PoolDirectory(path.absolute())
        if not self.directory.is_whole() or self.directory.master() is None:
            raise StateError(f"there is no pool with a master in {path}: asa master --directory {path} makes one")

    def check(self) -> None:
        """Its agents are not ours."""

    def last_words(self) -> str:
        return f"Start agents with: asa agent --directory {self.directory.path}"

    def close(self) -> None:
        """It goes on."""


class OwnMaster:
    """A master in this process, with a private directory.

    Parameters
    ----------
    above
        Where to make the directory; None for the usual place of temporary files. It is removed by `close`.
    address
        The address to listen on, ``""`` for all.
    """

    def __init__(self, above: Path | None, address: str) -> None:
        self.path = private_directory(Path(tempfile.mkdtemp(prefix="asa-cosched-", dir=above)))
        options = MasterOptions(user=getpass.getuser(), ping_s=PING_S, pings=PINGS)
        with ExitStack() as undo:
            undo.callback(self._remove)
            self.directory = PoolDirectory.create(self.path / "pool", "cosched")
            self.master = MasterService(self.directory, options, host=address)
            self.master.start()
            undo.pop_all()
        _log.info("a master has started, with directory %s", self.path)

    def agent(self, **options: object) -> tuple[str, ...]:
        """The command line of an agent of this master, with further options."""
        common = {"directory": self.directory.path, "patience": _LONE_S, "orphan-grace": ORPHAN_GRACE_S}
        return node_program("executors.mesos.agent", common | options)

    def close(self) -> None:
        try:
            self.master.close()
        finally:
            self._remove()
            _log.info("the master in %s has ended", self.path)

    def _remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class LocalAgents:
    """Agents on this machine, each a process of its own, and their master in this process.

    Each agent and its containers are bound to as many processors as its capacity needs, in turn. Otherwise requests
    would mean little: a container that finds another processor free has no competitor there, and a capacity that is
    used up from two processors is used up in equal parts.

    Raises `InvalidInput` when a number is out of range.

    Parameters
    ----------
    cores
        That each agent offers; None for all that this process may use.
    capacity
        Cores of the processor that all containers of one agent may use together; None for as many as there are.
    held
        A file that each agent keeps open while it lives, with the lock on it; see `alone`.
    """

    patience_s, lasts = _PATIENCE_S, False

    def __init__(
        self, nodes: int = 1, cores: int | None = None, capacity: float | None = None, held: int | None = None
    ) -> None:
        cores = node.cores(None, os.environ) if cores is None else cores
        if nodes < 1 or cores < 1 or (capacity is not None and not capacity > 0):
            raise InvalidInput(
                f"{nodes} nodes of {cores} cores with a capacity of {capacity}: expected at least 1 node, 1 core and a "
                "capacity above 0"
            )
        self.nodes = nodes
        self._held = () if held is None else (held,)
        self.own = OwnMaster(None, LOOPBACK)
        self.directory = self.own.directory
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        """Processes of the agents, by their node's name."""
        memory = node.memory(None, os.environ) // nodes
        options = {"cores": cores, "memory": memory, "host": LOOPBACK}
        options |= {} if capacity is None else {"capacity": capacity}
        most = cores if capacity is None else math.ceil(capacity)
        try:
            for number in range(nodes):
                self._start(f"node{number}", options, _processors(number, most))
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        for name, agent in self.agents.items():
            if agent.poll() is not None:
                raise StateError(f"the agent {name} {ending(agent.returncode)}: {self._output(name)}")

    def last_words(self) -> str:
        return "; ".join(f"{name}: {self._output(name)}" for name in self.agents)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.terminate()
        deadline = time.monotonic() + ENDING_S
        for name, agent in self.agents.items():
            try:
                agent.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.warning("the agent %s has not ended %g s after SIGTERM: SIGKILL", name, ENDING_S)
                agent.send_signal(signal.SIGKILL)
                agent.wait()
        self.own.close()

    def _start(self, name: str, options: dict[str, object], processors: set[int]) -> None:
        words = self.own.agent(name=name, work=self.own.path / name, **options)
        with open(self._log_file(name), "xb") as log:
            # a session of its own: Ctrl-C is for the co-scheduler, which then ends its agents in order
            self.agents[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
                pass_fds=self._held,
            )  # fmt: skip
        _log.info("agent %s is process %d on processors %s", name, self.agents[name].pid, sorted(processors))
        with suppress(ProcessLookupError):  # it has ended: `check` says so
            os.sched_setaffinity(self.agents[name].pid, processors)

    def _log_file(self, name: str) -> Path:
        return self.own.path / f"{name}.log"

    def _output(self, name: str) -> str:
        with suppress(OSError):
            return self._log_file(name).read_text(errors="replace")[-_OUTPUT_MOST:].strip() or "it has said nothing"
        return "it has said nothing"


@contextmanager
def alone(path: Path, patience_s: float = _PATIENCE_S) -> Iterator[int]:
    """A locked file for agents of this machine to keep open: while one of them lives, no other process can lock it.

    Agents, and so jobs, outlive a co-scheduler that is killed by some seconds. What begins these jobs anew waits here
    until they have ended.

    Raises
    ------
    StateError
        When they have not ended after `patience_s`.
    """
    with open(path, "ab") as file:
        began, waits = time.monotonic(), False
        while not locked(file.fileno()):
            if not waits:
                waits = True
                notify("agents of the co-scheduler before are still there: waiting until they have ended")
            if time.monotonic() > began + patience_s:
                raise StateError(
                    f"agents of the co-scheduler before still run after {patience_s:g} s, and have {path} open: end "
                    "them (fuser -v shows them), and resume again"
                )
            time.sleep(_LOOK_S)
        yield file.fileno()


def end_recorded(record: Path, patience_s: float = _PATIENCE_S) -> None:
    """Cancel the batch job of a killed co-scheduler's agents, and wait until it has ended; nothing without a record.

    Raises
    ------
    BackendError
        When the batch system does not answer.
    StateError
        When the record cannot be read, or the job has not ended after `patience_s`.
    """
    try:
        written = json.loads(record.read_bytes())
        spec, token = written["backend"], written["token"]
    except FileNotFoundError:
        return
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise StateError(
            f"{record} does not say which batch job ran the agents before ({error}): see that none runs, remove the "
            "file, and resume again"
        ) from error
    with closing(BACKENDS.create(spec)) as backend:
        deadline, cancelled = time.monotonic() + patience_s, False
        left = list(backend.find([token]).values())
        while left := [job for job, now in zip(left, backend.query(left), strict=True) if not now.state.final]:
            names = ", ".join(job.job_id for job in left)
            if not cancelled:
                cancelled = True
                notify(f"the agents of the co-scheduler before are in job {names}: it is cancelled")
                backend.cancel(left)
            if time.monotonic() > deadline:
                raise StateError(
                    f"job {names} with the agents before has not ended {patience_s:g} s after it was cancelled: end "
                    "it, and resume again"
                )
            time.sleep(max(_LOOK_S, min(backend.capabilities().poll_s, deadline - time.monotonic())))
    record.unlink(missing_ok=True)


def _processors(number: int, count: int) -> set[int]:
    """Processors of an agent: other ones than those of the agents before it, while there are."""
    allowed = sorted(os.sched_getaffinity(0))
    return {allowed[(number * count + place) % len(allowed)] for place in range(count)}


class BatchAgents:
    """Agents, one on each node of a batch job, and their master in this process.

    Its directory is in the state directory, which all nodes must see. How long the job waits is not limited.

    Raises `InvalidInput` when a number is out of range, and `BackendError` when the batch system refuses the job.

    Parameters
    ----------
    cores
        On each node.
    walltime_s
        Of the job [s].
    backend
        Where it is submitted, with options: ``slurm:partition=core``.
    record
        A file that names the job before it is submitted, for `end_recorded`.
    """

    patience_s, lasts = math.inf, False

    def __init__(
        self, nodes: int, cores: int, walltime_s: float, backend: str = "slurm", record: Path | None = None
    ) -> None:
        if nodes < 1 or cores < 1 or not walltime_s > 0:
            raise InvalidInput(
                f"a job of {nodes} nodes of {cores} cores for {walltime_s:g} s: expected at least 1 node, 1 core, and "
                "a wall time above 0"
            )
        self.nodes = nodes
        self.backend: Backend = BACKENDS.create(backend)
        with ExitStack() as undo:
            undo.callback(self.backend.close)
            self.poll_s = self.backend.capabilities().poll_s
            """How often the batch system is asked about the job, at most [s]."""
            self._own = OwnMaster(state_directory(), "")
            undo.callback(self._own.close)
            self.directory, self.output = self._own.directory, self._own.path / "agents.log"
            token = f"asa-cosched-{secrets.token_hex(4)}"
            if record is not None:
                write_private(record, json.dumps({"backend": backend, "token": token}).encode(), durable=True)
            self.job = self._submit(token, nodes, cores, walltime_s)
            """The batch job that runs the agents."""
            undo.pop_all()
        self._status: JobStatus | None = None
        self._queried, self._shown = -math.inf, ""

    def check(self) -> None:
        if time.monotonic() >= self._queried + self.poll_s:
            self._query()
        status = self._status
        if status is None:
            return
        if status.state.final:
            problem = f"has ended ({_described(status)}), and none of the queue's jobs was run"
            raise StateError(f"job {self.job.job_id} {problem}. {self.last_words()}")
        if status.state is JobState.RUNNING and status.started and time.time() > status.started + AGENTS_S:
            raise StateError(
                f"job {self.job.job_id} runs, but not all of its agents have come within {AGENTS_S:g} s. "
                f"{self.last_words()}"
            )
        if (shown := _described(status)) != self._shown:
            self._shown = shown
            notify(f"job {self.job.job_id} with {self.nodes} nodes: {shown}")

    def last_words(self) -> str:
        with suppress(OSError):
            return "Its agents have said: " + self.output.read_text(errors="replace")[-_OUTPUT_MOST:].strip()
        return "Its agents have said nothing"

    def close(self) -> None:
        """Dismiss the agents, which ends the job with exit code 0; a job that does not end so is cancelled."""
        with ExitStack() as last:
            last.callback(self.backend.close)
            last.callback(self._own.close)
            if not self._dismissed():
                self._cancel()

    def _submit(self, token: str, nodes: int, cores: int, walltime_s: float) -> JobHandle:
        request = JobRequest(
            token=token,
            resources=Resources(nodes * cores, nodes),
            walltime_s=walltime_s,
            argv=self._own.agent(cores=cores, lasts=walltime_s),
            workdir=str(self._own.path),
            output=str(self.output),
        )
        (outcome,) = self.backend.submit([request])
        if isinstance(outcome, Refused):
            raise BackendError(
                f"the batch system refuses {nodes} nodes of {cores} cores: {outcome.reason}. Ask for others with "
                "--nodes and --walltime, or name a partition (--on slurm:partition=...)"
            )
        _log.info("job %s asks for %d nodes of %d cores for %g s", outcome.job_id, nodes, cores, walltime_s)
        return outcome

    def _query(self) -> None:
        self._queried = time.monotonic()
        try:
            (self._status,) = self.backend.query([self.job])
        except BackendError as error:
            if not error.transient:
                raise
            _log.warning("job %s could not be queried, and will be again: %s", self.job.job_id, error)
        else:
            _log.debug("job %s: %s", self.job.job_id, _described(self._status))

    def _dismissed(self) -> bool:
        """Mark the agents gone until the job has ended; False when it was not running, or does not end."""
        self._query_quietly()
        deadline, pause_s = time.monotonic() + JOB_ENDS_S, _LOOK_S
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
        _log.info("job %s has not ended by itself, and is cancelled", self.job.job_id)
        try:
            self.backend.cancel([self.job])
        except AsaError as error:
            notify(f"job {self.job.job_id} could not be cancelled: {error}")


def _described(status: JobStatus) -> str:
    return f"{status.state.value}{f', {status.reason}' if status.reason else ''}"
