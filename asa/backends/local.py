"""An embedded batch system: this machine's cores and memory, behind a queue, inside the driver's process."""

from __future__ import annotations

import math
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from asa.backends.local_journal import Journal, Record
from asa.backends.local_program import Program
from asa.backends.queue import Queue
from asa.backends.queue_entry import Entry
from asa.core.backfill import EASY
from asa.core.clock import SystemClock
from asa.core.errors import InvalidInput
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
from asa.core.units import memory as bytes_of
from asa.core.view import QueueView


class Local:
    """Batch system of one machine, with a queue, wall times, dependencies and backfilling. It needs nothing installed.

    It has no thread of its own: it starts, ends and notices jobs whenever it is asked something. Jobs run in sessions
    of their own, so Ctrl-C in the driver does not reach them. They go on when the driver is killed; a new object on the
    same directory finds them again.

    Cores, memory and GPUs are counted, not enforced, and two objects do not know of one another. A job that states no
    memory takes none. A job gets one node, this machine, however many it asks for.

    Parameters
    ----------
    cores
        Cores that jobs may hold together; those this process may run on unless given. More than there are is allowed.
    memory
        Bytes, or text such as "4G", that jobs may hold together; the machine's memory unless given.
    gpus
        GPUs that jobs may hold together.
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
        memory: int | str | None = None,
        gpus: int = 0,
        *,
        dispatcher: str | Dispatcher = EASY,
        directory: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        poll_s: float = 0.05,
        grace_s: float = 2.0,
    ) -> None:
        for name, value in (("poll_s", poll_s), ("grace_s", grace_s)):
            if not value > 0:
                raise InvalidInput(f"{name} must be a time above 0 s, not {value!r}")
        self._clock: Clock = clock or SystemClock()
        self._poll_s, self._grace_s = poll_s, grace_s
        capacity = Resources(
            cores=len(os.sched_getaffinity(0)) if cores is None else cores,
            memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if memory is None else bytes_of(memory),
            gpus=gpus,
        )
        chosen = DISPATCHERS.create(dispatcher)
        self._temporary = tempfile.mkdtemp(prefix="asa-local-") if directory is None else None
        self._journal = Journal(Path(os.path.abspath(directory or self._temporary or "")))
        records = self._journal.read()
        self._queue = Queue(
            capacity,
            chosen,
            [record.entry for record in records],
            first_id=int(records[-1].entry.job_id) + 1 if records else 1,
        )
        self._programs: dict[str, Program] = {
            record.entry.job_id: Program(record.process, self._journal.exit_file(record.entry.job_id))
            for record in records
            if record.entry.running and record.process
        }
        self._unsaved: dict[str, Entry] = {}
        self._deadlines: dict[str, float] = {}  # of programs told to end: when they are killed, on the monotonic clock
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
        """Notice what has ended, start what has room, and tell how these jobs stand."""
        self._step()
        return [self._queue.status(handle) for handle in handles]

    def find(self, tokens: Sequence[str]) -> dict[str, JobHandle]:
        """Jobs by the token they were submitted under."""
        return self._queue.find(tokens)

    def update(self, handle: JobHandle, changes: JobChanges) -> None:
        """Change a job that waits, or the throttle of its array.

        Raises
        ------
        BackendError
            When it does not wait any more, when the machine could never run it as changed, or when there is no throttle
            to change.
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
        """See the jobs off that are being cancelled; the others go on."""
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
        return ",".join(f"{name}={asked}" for name, asked, there in sizes if asked > there)

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
            self._deadlines.pop(job_id, None)

    def _spawn(self, entry: Entry, now: float) -> Program | None:
        """A program that waits for the word to go, or None when it cannot even be started."""
        try:
            program = Program.spawn(entry.request, self._journal.exit_file(entry.job_id))
        except (OSError, ValueError) as error:
            self._queue.ended(entry.job_id, now, None, JobState.FAILED, f"could not be started: {error}")
            return None
        self._programs[entry.job_id] = program
        self._queue.placed(entry.job_id, (socket.gethostname(),))
        return program

    def _terminate(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._programs[entry.job_id].terminate()
            self._deadlines[entry.job_id] = time.monotonic() + self._grace_s

    def _save(self) -> None:
        """Write down what has changed, in order; what could not be written is tried again next time."""
        self._unsaved.update({entry.job_id: entry for entry in self._queue.changes()})
        for job_id, entry in list(self._unsaved.items()):
            program = self._programs.get(job_id)
            self._journal.write(Record(entry, program.identity if program else None))
            del self._unsaved[job_id]
