"""An embedded batch system: this machine's cores and memory, behind a queue, inside the driver's process."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shlex
import shutil
import signal
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path

from asa.backends.queue import BatchQueue, QueueEntry
from asa.core.backfill import EASY
from asa.core.clock import SystemClock
from asa.core.errors import BackendError, StateError
from asa.core.job import (
    Capabilities,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    QueueRegime,
    Refused,
    Resources,
)
from asa.core.ports import Clock, Dispatcher
from asa.core.registry import DISPATCHERS
from asa.core.serial import from_json, to_json
from asa.core.units import check_number
from asa.core.units import memory as bytes_of
from asa.core.view import QueueView
from asa.log import proc
from asa.log.gpus import found, usable, visible
from asa.security.files import private_directory, write_private

log = logging.getLogger(__name__)


class Local:
    """Batch system of one machine, with a queue, wall times, dependencies and backfilling. It needs nothing installed.

    It has no thread of its own: it starts, ends and notices jobs whenever it is asked something. Jobs run in sessions
    of their own, so Ctrl-C in the driver does not reach them. They go on when the driver is killed; a new object on the
    same directory finds them again.

    Cores and memory are counted, not enforced; variables such as ``CUDA_VISIBLE_DEVICES`` show each job GPUs of its
    own. Two objects do not share them. A job that states no memory takes none. A job gets one node, this machine,
    however many it asks for.

    Parameters
    ----------
    cores
        Cores that jobs may hold together; those this process may run on unless given. More than there are is allowed.
    memory
        Such as "4G", that jobs may hold together; the machine's memory unless given.
    gpus
        GPUs that jobs may hold together; those found unless given, see `asa.log.gpus.found`. More than there are is
        allowed: jobs then share some.
    dispatcher
        Which waiting jobs start: EASY backfilling unless given; a dispatcher, or the name of one of the laboratory's,
        which need the extra ``[lab]``.
    directory
        Where jobs are remembered, 0700; a temporary one unless given.
    clock
        Where the time of day comes from.
    poll_s
        Seconds [s] between questions about jobs.
    grace_s
        Seconds [s] that a program has between being asked to end (SIGTERM) and being killed.

    Raises
    ------
    InvalidInput
        When a number is out of range.
    StateError
        When the directory cannot be used.

    Examples
    --------
    >>> batch = Local(cores=4)
    >>> batch.capabilities().largest.cores
    4
    >>> too_large = JobRequest("big", Resources(cores=64), walltime_s=60, argv=("true",))
    >>> print(batch.submit([too_large])[0].reason)
    job 'big' asks for 64 cores, more than the 4 there are: ask for less, or let the machine pretend: local:cores=64
    >>> batch.close()
    """

    def __init__(
        self,
        cores: int | None = None,
        memory: str | None = None,
        gpus: int | None = None,
        *,
        dispatcher: str | Dispatcher = EASY,
        directory: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        poll_s: float = 0.05,
        grace_s: float = 2.0,
    ) -> None:
        check_number("poll_s", poll_s, 0, above=True)
        check_number("grace_s", grace_s, 0, above=True)
        self._clock: Clock = clock or SystemClock()
        self._poll_s, self._grace_s = poll_s, grace_s
        capacity = Resources(
            cores=len(os.sched_getaffinity(0)) if cores is None else cores,
            memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if memory is None else bytes_of(memory),
            gpus=len(found(os.environ)) if gpus is None else gpus,
        )
        chosen = DISPATCHERS.create(dispatcher)
        self._temporary = tempfile.mkdtemp(prefix="asa-local-") if directory is None else None
        self._journal = JobJournal(Path(os.path.abspath(directory or self._temporary or "")))
        records = self._journal.read()
        self._queue = BatchQueue(
            capacity,
            chosen,
            [record.entry for record in records],
            first_id=int(records[-1].entry.job_id) + 1 if records else 1,
        )
        self._programs: dict[str, JobProcess] = {
            record.entry.job_id: JobProcess(record.process, self._journal.exit_file(record.entry.job_id))
            for record in records
            if record.entry.running and record.process
        }
        self._devices = {record.entry.job_id: record.gpus for record in records if record.entry.running}
        self._unsaved: dict[str, QueueEntry] = {}
        self._deadlines: dict[str, float] = {}  # of programs asked to end: when they are killed, on the monotonic clock
        self._terminate([record.entry for record in records if record.entry.running and record.entry.ending])

    def capabilities(self) -> Capabilities:
        """This machine; there is no queue of other people's jobs."""
        capacity = self._queue.capacity
        return Capabilities(
            site="local",
            regime=QueueRegime.IMMEDIATE,
            largest=capacity,
            cores_per_node=capacity.cores,
            poll_s=self._poll_s,
            arrays=True,
            parks=True,
        )

    def submit(self, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """Queue jobs; those that fit have started when this returns."""
        # A later driver may start elsewhere: working directories must not depend on this one's.
        anchored = [replace(request, workdir=os.path.abspath(request.workdir)) for request in requests]
        outcomes = self._queue.submit(anchored, self._clock.now())
        self._step()
        return [self._advised(*pair) for pair in zip(requests, outcomes, strict=True)]

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        """How these jobs stand, after those that have ended are noticed and those that fit are started."""
        self._step()
        return [self._queue.status(handle) for handle in handles]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        return self._queue.find(tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits, or the throttle of its array.

        Raises a `BackendError` when it does not wait any more, when the machine could never run it as changed, or
        when there is no throttle to change.
        """
        self._queue.update(handle, changes)
        self._step()

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """Ask jobs to end; what has not ended when the grace is over is killed at the next call."""
        now = self._clock.now()
        doomed = [entry for handle in handles for entry in self._queue.cancel(handle, now)]
        try:
            self._save()
        finally:  # whatever the disk says: jobs are to end
            self._terminate(doomed)
        self._step()

    def look(self) -> QueueView:
        """One's own jobs: there are no others."""
        self._step()
        return self._queue.look(self._clock.now())

    def close(self) -> None:
        """Wait for the jobs that are being cancelled; the others go on."""
        while self._deadlines:
            self._reap(self._clock.now())
            time.sleep(0.005)
        self._save()
        if self._temporary and not self._programs:
            shutil.rmtree(self._temporary)

    def _advised(self, request: JobRequest, outcome: JobHandle | Refused) -> JobHandle | Refused:
        if isinstance(outcome, Refused) and (options := self._pretence(request.resources)):
            advice = f"ask for less, or let the machine pretend: local:{options}"
            return Refused(outcome.token, f"{outcome.reason}: {advice}")
        return outcome

    def _pretence(self, need: Resources) -> str:
        """Options under which this machine would take a job that is too large for it."""
        room = self._queue.capacity
        sizes = (
            ("cores", need.cores, room.cores),
            ("memory", need.memory or 0, room.memory or math.inf),
            ("gpus", need.gpus, room.gpus),
        )
        return ",".join(f"{name}={asked}{'B' * (name == 'memory')}" for name, asked, there in sizes if asked > there)

    def _step(self) -> None:
        """Notice ends, then start and kill until nothing is left to do; each change is written down first."""
        while True:
            now = self._clock.now()
            self._reap(now)
            actions = self._queue.tick(now)
            programs = [self._spawn(entry, now) for entry in actions.start]
            try:
                self._save()
                for program in filter(None, programs):
                    program.go()
            finally:
                for program in filter(None, programs):
                    program.abandon()
                self._terminate(actions.kill)
            if not actions.start:
                return

    def _reap(self, now: float) -> None:
        for job_id, program in list(self._programs.items()):
            if time.monotonic() >= self._deadlines.get(job_id, math.inf):
                program.kill()
            elif job_id in self._deadlines:
                program.terminate()
            ended = program.poll()
            if ended is None:
                continue
            lost = ended.exit_code is None
            self._queue.ended(
                job_id,
                now if ended.at is None else min(now, ended.at),
                ended.exit_code,
                JobState.NODE_FAIL if lost else None,
                "its process is gone and left no exit code: it was killed, or the machine restarted" if lost else "",
            )
            del self._programs[job_id]
            self._devices.pop(job_id, None)
            self._deadlines.pop(job_id, None)
            log.info("job %s: its process has ended with exit code %s", job_id, ended.exit_code)

    def _spawn(self, entry: QueueEntry, now: float) -> JobProcess | None:
        """A process that waits at its gate, or None when it cannot be started."""
        devices = self._free_devices(entry.request.resources.gpus)
        seen = visible(devices, os.environ) if devices else {}
        try:
            program = JobProcess.spawn(entry.request, self._journal.exit_file(entry.job_id), seen)
        except (OSError, ValueError) as error:
            log.warning("job %s (%s) could not be started: %s", entry.job_id, entry.request.token, error)
            self._queue.ended(entry.job_id, now, None, JobState.FAILED, f"could not be started: {error}")
            return None
        words, pid = shlex.join(entry.request.argv), program.identity.pid
        log.info("job %s (%s): process %d runs %s", entry.job_id, entry.request.token, pid, words)
        self._programs[entry.job_id], self._devices[entry.job_id] = program, devices
        self._queue.placed(entry.job_id, (socket.gethostname(),))
        return program

    def _free_devices(self, count: int) -> tuple[str, ...]:
        """What these GPUs for a job are called: those that the fewest jobs have."""
        names = usable(self._queue.capacity.gpus, os.environ)
        held = Counter(chain.from_iterable(self._devices.values()))
        return tuple(sorted(sorted(names, key=held.__getitem__)[:count], key=names.index))

    def _terminate(self, entries: Sequence[QueueEntry]) -> None:
        for entry in entries:
            log.info("job %s is to end within %g s", entry.job_id, self._grace_s)
            self._programs[entry.job_id].terminate()
            self._deadlines[entry.job_id] = time.monotonic() + self._grace_s

    def _save(self) -> None:
        """Write down what has changed, in order; what could not be written is tried again next time."""
        self._unsaved.update({entry.job_id: entry for entry in self._queue.changes()})
        for job_id, entry in list(self._unsaved.items()):
            program = self._programs.get(job_id)
            devices = self._devices.get(job_id, ())
            self._journal.write(JournalRecord(entry, program.identity if program else None, devices))
            del self._unsaved[job_id]


# -- what is on disk: a small JSON file per job, for when the driver is killed -----------------------------------------


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A job's entry in the queue; once it has started, the process that runs it and what its GPUs are called."""

    entry: QueueEntry
    process: ProcessIdentity | None = None
    gpus: tuple[str, ...] = ()


class JobJournal:
    """Records of one embedded batch system in a 0700 directory; raises `StateError` when they cannot be used."""

    def __init__(self, directory: Path) -> None:
        self.directory = private_directory(directory)

    def exit_file(self, job_id: str) -> Path:
        """Where a job's exit code is kept."""
        return self.directory / f"{job_id}.exit"

    def write(self, record: JournalRecord) -> None:
        """Keep the latest record of a job."""
        text = json.dumps(to_json(record), separators=(",", ":"))
        write_private(self.directory / f"{record.entry.job_id}.json", text.encode())

    def read(self) -> list[JournalRecord]:
        """All records, in order of submission."""
        paths = [path for path in self.directory.glob("*.json") if path.stem.isdecimal()]
        return [self._read(path) for path in sorted(paths, key=lambda path: int(path.stem))]

    def _read(self, path: Path) -> JournalRecord:
        try:
            record: JournalRecord = from_json(JournalRecord, json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise StateError(
                f"{path} is not the record of a job ({error}): move it away to go on without it"
            ) from error
        return record


# -- processes ---------------------------------------------------------------------------------------------------------
#
# Each job's program is in a session of its own. A small shell wrapper runs it and keeps its exit code in a file, so
# that a later driver can read how it ended. The wrapper first waits at a pipe, the gate: it runs nothing until the
# driver, having recorded the process, opens it. If the driver dies in between, the wrapper ends and nothing has run.
#
# A process is known by its number, its start time and the machine's boot, for numbers are used again. Everything in the
# wrapper's session belongs to the job. So does what a program moves to a session of its own (setsid, a daemon): it is
# known by a variable, which names the job, in the environment that it was started with. What clears that outlives the
# job, as all that makes a session does on clusters that do not track processes by control group.

# $0 is the file for the exit code, $1 the working directory, the rest the program. At last the wrapper kills what the
# program left behind in its process group, itself included.
_WRAPPER = """\
read -r asa_gate || exit 125
cd -- "$1" && shift && "$@" </dev/null
code=$?
umask 077
echo "$code" >"$0.new" && mv -f "$0.new" "$0" && kill -KILL 0
exit "$code"
"""
_KILL_PATIENCE_S = 5.0
_MARK = "ASA_LOCAL_JOB"


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A wrapper's process, distinguished from later ones of the same number, which is its session's, too.

    `started` is in clock ticks since the boot; `boot` names that.
    """

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a program ended: its exit code, and when [s since the epoch]; None when unknown."""

    exit_code: int | None
    at: float | None


class JobProcess:
    """A job's program, started by this driver or by an earlier one.

    The wrapper keeps its exit code in `exit_file`, and waits at `gate`, a pipe; None once that was opened or closed.
    """

    def __init__(self, identity: ProcessIdentity, exit_file: Path, gate: int | None = None) -> None:
        self.identity, self._exit_file, self._gate = identity, exit_file, gate
        self._child = gate is not None
        self._asked = False

    @classmethod
    def spawn(cls, request: JobRequest, exit_file: Path, variables: Mapping[str, str] | None = None) -> JobProcess:
        """Start the wrapper with these variables, too; it waits for `go`. The request's working directory is absolute.

        Raises `OSError` or `ValueError` when the directory, the output file or the arguments cannot be used.
        """
        os.close(os.open(request.workdir, os.O_RDONLY | os.O_DIRECTORY))
        output = os.devnull if request.output is None else os.path.join(request.workdir, request.output)
        sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        inner, gate = os.pipe()
        try:
            pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _WRAPPER, str(exit_file), request.workdir, *request.argv],
                {name: value for name, value in os.environ.items() if name not in request.withheld}
                | {**(variables or {}), _MARK: str(exit_file)},
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((inner, 0), (sink, 1), (sink, 2))],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
            )
        except BaseException:
            os.close(gate)
            raise
        finally:
            os.close(inner)
            os.close(sink)
        found = proc.stat(pid)
        assert found, "a child that was not waited for exists"
        return cls(ProcessIdentity(pid, found.birth, _boot()), exit_file, gate)

    def go(self) -> None:
        """Let the wrapper run the program."""
        if self._gate is not None:
            with contextlib.suppress(BrokenPipeError):  # the wrapper has been killed already
                os.write(self._gate, b"go\n")
            self.abandon()

    def abandon(self) -> None:
        """Close the gate: a wrapper that still waits there ends without running anything."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def poll(self) -> ProcessExit | None:
        """How the program ended, with the rest of its session killed; None while it runs."""
        code: int | None = None
        if self._child:
            try:
                end = os.waitid(os.P_PID, self.identity.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if end is None:
                    return None
                self.kill()  # before the wrapper is waited for: until then no other process can have its number
                code = os.waitstatus_to_exitcode(os.waitpid(self.identity.pid, 0)[1])
                code = 128 - code if code < 0 else code
            except ChildProcessError:
                pass  # the child was waited for elsewhere: its exit code is in the file
        elif self._alive():
            return None
        else:
            self.kill()
        try:
            return ProcessExit(int(self._exit_file.read_text()), self._exit_file.stat().st_mtime)
        except (OSError, ValueError):
            return ProcessExit(code, None)

    def terminate(self) -> None:
        """Ask the program, and what it has started, to end (SIGTERM), once.

        The wrapper gets no signal: it writes how the program ended. While it has no children yet nothing is asked: call
        again later.
        """
        if not self._asked and (self._child or self._alive()):
            session = [pid for pid, found in proc.living() if found.session == self.identity.pid]
            programs = [pid for pid in session if pid != self.identity.pid]
            _signal(programs, signal.SIGTERM)
            self._asked = bool(programs)

    def kill(self) -> None:
        """End every process of the job (SIGKILL), those included that are forked meanwhile.

        Raises a `BackendError` when some are still there after a few seconds: they are stuck in the kernel.
        """
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while members := self._members():
            _signal(members, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise BackendError(
                    f"processes {members} of a job do not end, even when killed: they are stuck in the kernel, mostly "
                    "over a file system that does not answer. Whoever runs this machine should look",
                    transient=True,
                )
            time.sleep(0.001)

    def _alive(self) -> bool:
        found = proc.stat(self.identity.pid)
        if found is None or found.ended:
            return False
        return (found.birth, _boot()) == (self.identity.started, self.identity.boot)

    def _members(self) -> list[int]:
        """Numbers of the job's live processes, none of which is older than its wrapper."""
        mark, is_there = f"{_MARK}={self._exit_file}\0".encode(), self._child or self._alive()
        oldest = self.identity.started if self.identity.boot == _boot() else 0
        return [
            pid
            for pid, found in proc.living()
            if found.birth >= oldest
            and ((is_there and found.session == self.identity.pid) or mark in (proc.environment(pid) or b""))
        ]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
