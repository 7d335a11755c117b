"""Drivers apart from the terminal: a process in a session of its own, or a batch job.

Jobs of drivers are numbered, from the present driver's *generation* on (`asa.log.rundir`), and named after that: one is
found by its name, and has nothing to do once a driver of its number has begun. There is always another in the queue,
behind the present one, submitted with it, or by it before it does anything else: it starts when that has ended,
however it did. Half a wall time before its own end this one releases it, once there is one more behind that. When
it starts, it asks for the run, which is handed over, and takes it up as `resume` does.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from asa.allocations.budget import QUERY, SUBMIT, SharedBudget
from asa.core.errors import AsaError, BackendError, InvalidInput, StateError
from asa.core.event import RunState
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, QueueRegime, Refused, Resources
from asa.core.ports import Backend, CountsQuestions, VirtualBackend
from asa.core.registry import BACKENDS, parse_spec, with_options
from asa.core.units import duration
from asa.log.events import EventLog
from asa.log.messages import logged_in
from asa.log.rundir import RunDirectory, state_directory
from asa.security.files import write_private
from asa.workflows.clean import driver_name, next_drivers, note_drivers
from asa.workflows.graph import make_graph
from asa.workflows.run import Run, resume
from asa.workflows.settings import Settings, load_settings

PIPE = "ASA_STARTED_PIPE"
"""Variable of a driver that another process waits for: the number of the pipe to that one."""
STARTED = b"started"
"""What a driver writes to the pipe that it was given, once it drives its run."""
_SAID_MOST = 4000


def resume_command(run: RunDirectory, *options: str) -> list[str]:
    """The command line of a driver of this run, with these options of ``asa resume``.

    ``-P``: a file in the working directory must not pose as a module of ours.
    """
    return [sys.executable, "-P", "-m", "asa", "resume", run.name, *options]


def detach(run: RunDirectory, options: Sequence[str]) -> int:
    """Start a driver that ends neither with this process nor with the terminal; its process id, once it drives the run.

    What it prints goes to a file in the run's directory.

    Parameters
    ----------
    options
        Of its ``asa resume``.

    Raises
    ------
    StateError
        When it does not come to drive the run; the message is what it has printed.
    KeyboardInterrupt
        When that came while it started: it has ended then, too.
    """
    output = os.open(run.driver_output, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    before = os.fstat(output).st_size
    ours, theirs = os.pipe()
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which it inherits: some shells send it to all they started
    try:
        driver = subprocess.Popen(
            resume_command(run, *options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs],
            start_new_session=True,
            env=os.environ | {"ASA_STATE_DIR": str(run.state), PIPE: str(theirs)},
        )
    except BaseException:
        os.close(ours)
        os.close(output)
        raise
    finally:
        os.close(theirs)
        signal.signal(signal.SIGHUP, hung_up)
    try:
        with open(ours, "rb") as pipe:
            if pipe.read(len(STARTED)) == STARTED:
                driver.returncode = 0  # not waited for, and not warned of
                return driver.pid
        driver.wait()
        said = os.pread(output, _SAID_MOST, max(before, os.fstat(output).st_size - _SAID_MOST))
        words_said = said.decode(errors="replace").strip().removeprefix("asa: ").removeprefix("error: ")
        raise StateError(words_said or f"the driver of run {run.name} ended with {driver.returncode}, and said nothing")
    except KeyboardInterrupt:
        driver.terminate()
        driver.wait()
        raise
    finally:
        os.close(output)


def pipe_to_starter() -> int | None:
    """The pipe to the process that has started this one and waits until it drives a run, if one does; asked once."""
    number = os.environ.pop(PIPE, "")  # no job or task is to have it
    return int(number) if number else None


def say_started(run: Run, pipe: int | None) -> None:
    """Tell the process at the other end, if there is one, once the run has a driver."""
    if pipe is not None:
        run.await_driver()
        with suppress(OSError):  # it has been interrupted
            os.write(pipe, STARTED)
        os.close(pipe)


# ---------------------------------------------------------------- in a batch job

JOB = "job"
"""The driver's place that `DriverJobs` takes; its options may follow, as in ``job:walltime=4h,partition=long``."""
TURN, SEALED = "ASA_DRIVER_TURN", "ASA_DRIVER_SEALED"
"""Variables of a driver's job: its generation, and one half of the run's secrets."""
_HALF = "driver.half"
"""Beginning of the name of the file with the other half: they are the exclusive or of the two."""
WALLTIME = "12h"
"""A driver's job's wall time, where the site allows so much."""
_LOOK_S, _AGAIN_S = 0.1, 5.0
"""How often to look whether the run is driven; how soon to read its log, ask for it, or call the batch system, again
[s]."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Turn:
    """What a driver's job was submitted for: to be a driver, as long as there was none of this number or above.

    With a run that has failed it goes on only where a user has asked for that when the last driver was of the
    generation `asked`, and it still is.
    """

    number: int
    asked: int = -1

    @classmethod
    def taken(cls) -> Turn | None:
        """That of this process, if it is a driver's job; asked once, since no job or task of the run is to have it."""
        given = os.environ.pop(TURN, "")
        return cls(*map(int, given.split())) if given else None

    def __str__(self) -> str:
        return f"{self.number} {self.asked}"


class DriverJobs:
    """Batch jobs in which a run is driven.

    Parameters
    ----------
    spec
        ``job``, with options: `walltime`, and those of the run's backend, such as partition and account, which are the
        run's own where they are not given.

    Raises
    ------
    InvalidInput
        When there are no such options, jobs of the run's backend cannot be drivers, or a secret is missing.
    """

    def __init__(self, run: RunDirectory, spec: str) -> None:
        name, options = parse_spec(spec)
        if name != JOB:
            raise InvalidInput(f"driver {spec!r}: 'job' expected, with options as in job:walltime=4h,partition=long")
        self.run, self.spec = run, spec
        self._walltime = options.pop("walltime", None)
        self._settings = load_settings(run)
        make_graph(self._settings.result).variables(os.environ)
        self._budget = SharedBudget.of(run.state)
        self._counted = 0
        self.backend = self._made(self._settings, options)
        try:
            site = self.backend.capabilities()
            if isinstance(self.backend, VirtualBackend) or site.regime is QueueRegime.IMMEDIATE:
                raise InvalidInput(f"driver 'job' needs a batch system, and {site.site} is none: say --detach")
            most = site.longest_s or float("inf")
            wanted = duration(WALLTIME if self._walltime is None else self._walltime, what="walltime of the driver")
            if self._walltime is not None and wanted > most:
                raise InvalidInput(f"walltime={self._walltime} of the driver is more than the site allows ({most:g} s)")
            self.walltime_s = min(wanted, most)
        except BaseException:
            self.backend.close()
            raise

    @classmethod
    def here(cls, name: str, spec: str) -> DriverJobs:
        """In a driver's job: those of its run; its secrets are in the environment again."""
        run = RunDirectory.open(state_directory(), name)
        unseal(run)
        return cls(run, spec)

    def _made(self, settings: Settings, options: dict[str, Any]) -> Backend:
        if not isinstance(settings.backend, str):
            raise InvalidInput("driver 'job' needs a backend that is given in words, as in 'slurm:partition=core'")
        name, own = parse_spec(settings.backend)
        made: Backend = BACKENDS.create(with_options(name, **(own | options)), directory=self.run.backend)
        return made

    def close(self) -> None:
        self._count()
        self.backend.close()

    def _count(self) -> None:
        """Have the questions so far count among those of all runs of the user."""
        if self._budget is not None and isinstance(self.backend, CountsQuestions):
            if (more := self.backend.questions - self._counted) > 0:
                self._budget.charge(QUERY, time.time(), more)
            self._counted = self.backend.questions

    def _await_turn(self) -> None:
        """Wait until one more job may be submitted, or changed."""
        if self._budget is not None:
            self._budget.wait(SUBMIT)

    def begin(self, options: Sequence[str]) -> JobHandle:
        """Submit the jobs of a driver and of the next one, behind it, instead of those that wait; the first.

        Raises
        ------
        BackendError
            When the site refuses that one, or does not answer.
        """
        number, asked = max([self.run.generation, *next_drivers(self.run)]) + 1, self.run.generation
        self.withdraw()
        first = self.submit(Turn(number, asked), None, options)
        try:
            self.submit(Turn(number + 1, asked), first, options)
        except BackendError as error:
            _log.warning("the next driver's job is left for the first one to submit: %s", error)
        return first

    def follow(self, turn: Turn, options: Sequence[str]) -> JobHandle:
        """The job of the driver after this one, submitted if there is none.

        Raises
        ------
        BackendError
            When the site refuses it, or does not answer.
        """
        number, kept = turn.number, next_drivers(self.run)
        following = kept.get(number + 1) or self.find(number + 1)
        after = None if following else kept.get(number) or self.find(number)
        return following or self.submit(replace(turn, number=number + 1), after, options)

    def submit(self, turn: Turn, after: JobHandle | None, options: Sequence[str] = ()) -> JobHandle:
        """Submit the job of a driver, to start when another job has ended, or when the queue lets it.

        Parameters
        ----------
        options
            Of its ``asa resume``.

        Raises
        ------
        BackendError
            When the site refuses it, or does not answer.
        """
        withheld = make_graph(self._settings.result).withheld
        variables = {"ASA_STATE_DIR": str(self.run.state), TURN: str(turn)}
        if withheld:
            variables[SEALED] = seal(self.run, withheld)
        words = resume_command(self.run, f"--driver={self.spec}", *options)
        request = JobRequest(
            driver_name(self.run, turn.number),
            Resources(cores=1),
            self.walltime_s,
            ("env", *(f"{name}={value}" for name, value in variables.items()), *words),
            workdir=self._settings.workdir,
            output=str(self.run.jobs / f"driver-{turn.number}.out"),
            dependencies=() if after is None else (Dependency(after, DependencyKind.AFTER_ANY),),
            withheld=withheld,
        )
        self._await_turn()
        (outcome,) = self.backend.submit([request])
        self._count()
        if isinstance(outcome, Refused):
            raise BackendError(f"the job of a driver was refused: {outcome.reason}")
        note_drivers(self.run, next_drivers(self.run) | {turn.number: outcome})
        return outcome

    def find(self, number: int) -> JobHandle | None:
        """The job of this driver, by its name."""
        name = driver_name(self.run, number)
        found = self.backend.find([name]).get(name)
        self._count()
        return found

    def release(self, job: JobHandle) -> None:
        """Release a job that waits for another one to end; where it cannot be changed, the one behind it starts."""
        self._await_turn()
        try:
            self.backend.update(job, JobChanges(dependencies=()))
        except BackendError as error:
            if error.transient:
                raise
            _log.info("job %s cannot be released, and is cancelled: the one behind it starts: %s", job.job_id, error)
            self.backend.cancel([job])
        finally:
            self._count()

    def withdraw(self, but: int = 0) -> None:
        """Cancel the jobs of drivers to come, `but` that of this number."""
        kept = next_drivers(self.run)
        if jobs := [job for number, job in kept.items() if number != but]:
            self.backend.cancel(jobs)
            note_drivers(self.run, {number: job for number, job in kept.items() if number == but})


def seal(run: RunDirectory, names: Sequence[str]) -> str:
    """One half of these variables, which says nothing without the other; that is in a private file of the run."""
    data = json.dumps({name: os.environ[name] for name in names}).encode()
    half = secrets.token_bytes(len(data))
    name = secrets.token_hex(8)
    write_private(run.path / f"{_HALF}.{name}", half)
    return f"{name}:{bytes(a ^ b for a, b in zip(half, data, strict=True)).hex()}"


def unseal(run: RunDirectory) -> None:
    """Have the variables again of which the environment has one half, which goes; the other half stays in the run's
    directory, for a job that is requeued."""
    name, _, sealed = os.environ.pop(SEALED, "").partition(":")
    if name:
        path = run.path / f"{_HALF}.{name}"
        try:
            half = path.read_bytes()
        except OSError as error:
            raise StateError(f"half of the run's secrets cannot be read: {error}: resume the run by hand") from error
        data = bytes(a ^ b for a, b in zip(half, bytes.fromhex(sealed), strict=True))
        os.environ.update(json.loads(data))


def take_turn(jobs: DriverJobs, turn: Turn, options: Sequence[str]) -> Run | None:
    """In a driver's job: take the run up as soon as the driver before lets go of it, or has ended; the next one's job
    is behind this by then, unless the batch system does not answer.

    None when there is no turn any more, because the run is over, or another driver has begun.
    """
    run, asked = jobs.run, -float("inf")
    followed = False
    while True:
        driven, due = run.is_driven(), time.monotonic() >= asked + _AGAIN_S
        if driven and not due:
            time.sleep(_LOOK_S)
            continue
        with EventLog(run.events) as log:
            state = run.standing(log)
        over = state not in (RunState.RUNNING, RunState.INTERRUPTED)
        begun = run.generation
        if begun >= turn.number or state is RunState.SUCCEEDED or (over and begun > turn.asked):
            if followed:
                with suppress(AsaError):
                    jobs.withdraw(turn.number)
            return None
        if not followed:
            followed = True
            with suppress(AsaError):  # it is retried once the run is driven
                jobs.follow(turn, options)
        if not driven:
            try:
                return resume(run.name)
            except StateError:
                if not run.is_driven():
                    raise
        asked = time.monotonic()
        write_private(run.handover_request, b"%d" % turn.number)


@contextmanager
def succeeded_by_job(run: Run, jobs: DriverJobs, turn: Turn, options: Sequence[str]) -> Iterator[None]:
    """While this process drives the run in its job: see to it that the next job's driver is there in time."""
    over = threading.Event()
    until = time.monotonic() + jobs.walltime_s / 2
    given = run, jobs, turn, options, until, over
    turns = threading.Thread(target=_see_to_next, args=given, name="asa-next-driver", daemon=True)
    turns.start()
    try:
        yield
    finally:
        over.set()
        turns.join()
        if not run.handed_over:
            with suppress(AsaError):
                jobs.withdraw(turn.number)


def _see_to_next(
    run: Run, jobs: DriverJobs, turn: Turn, options: Sequence[str], until: float, over: threading.Event
) -> None:
    """Have the next driver's job wait behind this one, and release it at `until` [s, monotonic], another behind it;
    calls that fail are retried."""

    def released() -> JobHandle:
        following = jobs.follow(turn, options)
        jobs.follow(replace(turn, number=turn.number + 1), options)
        jobs.release(following)
        return following

    with logged_in(run.directory.log):
        for at, act, what in (
            (0.0, partial(jobs.follow, turn, options), "is the next driver's, after this one"),
            (until, released, "of the next driver may start from now on"),
        ):
            while not over.wait(max(0.0, at - time.monotonic())):
                try:
                    _log.info("job %s %s", act().job_id, what)
                    break
                except AsaError as error:
                    _log.warning("the next driver's job could not be submitted or released: %s", error)
                    at = time.monotonic() + _AGAIN_S
