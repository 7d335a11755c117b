"""What backends share that reach a batch system through its commands: run a command, ask, judge requests and answers.

Every command is logged with its exit code, its time and, when it failed, its standard error; what it reads from
standard input (a job script) at the level DEBUG. Nothing is logged of the environment or of standard output, which may
hold secrets.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from asa.core.errors import BackendError, InvalidInput
from asa.core.hostlist import InvalidHostList, expand
from asa.core.job import (
    SETUP,
    Capabilities,
    Dependency,
    DependencyKind,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Options,
    Refused,
)
from asa.core.ports import Clock
from asa.core.queues import misfit

log = logging.getLogger(__name__)

REAP_S = 2.0
"""How long to read on from a killed program [s]: a descendant in another process group may hold its output open."""

_LAST_LINES = 8

# -- run a command ----------------------------------------------------------------------------------------------------


class CommandError(BackendError):
    """A program that could not be run, did not end in time, or ended with another status than 0.

    Parameters
    ----------
    problem
        What went wrong, in a few words.
    returncode
        Its exit status; None when it never ended by itself.
    transient
        True when it ran out of time: it may have done its work all the same.
    """

    def __init__(
        self,
        argv: Sequence[str],
        problem: str,
        *,
        returncode: int | None = None,
        stderr: str = "",
        transient: bool = False,
    ) -> None:
        words = "\n".join(stderr.strip().splitlines()[-_LAST_LINES:])
        super().__init__(f"{shlex.join(argv)}: {problem}" + (f":\n{words}" if words else ""), transient=transient)
        self.argv, self.returncode, self.stderr = tuple(argv), returncode, stderr


def run(argv: Sequence[str], *, timeout_s: float, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Run a program to its end, without a shell; returns its standard output.

    It gets a session of its own, so that Ctrl-C in the terminal does not end it half-way through a submission.

    Parameters
    ----------
    argv
        Program, looked up in the PATH of `environment`, and arguments.
    timeout_s
        After so long [s] it and its children are killed.
    environment
        None for the caller's own.

    Raises
    ------
    CommandError
        When the program is missing, takes too long or ends with another status than 0.

    Examples
    --------
    >>> run(["cat"], timeout_s=5, stdin="hello")
    'hello'
    """
    if stdin:
        log.debug("standard input of %s:\n%s", argv[0], stdin)
    begin = time.monotonic()
    try:
        printed = _run(argv, timeout_s, stdin, environment)
    except CommandError as error:
        log.warning("%s (after %.2f s)", error, time.monotonic() - begin)
        raise
    log.info("%s: exit code 0 after %.2f s", shlex.join(argv), time.monotonic() - begin)
    return printed


def _run(argv: Sequence[str], timeout_s: float, stdin: str, environment: Mapping[str, str] | None) -> str:
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CommandError(
            argv, f"no program {argv[0]!r} in PATH: is it installed on this machine, or is a module to be loaded first?"
        ) from error
    except OSError as error:
        raise CommandError(argv, f"cannot be run: {error.strerror}") from error
    with process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            problem = f"no answer within {timeout_s:g} s"
            raise CommandError(argv, problem, stderr=_kill(process), transient=True) from error
        except BaseException:
            _kill(process)
            raise
    if process.returncode != 0:
        status = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise CommandError(argv, f"ended with {status}", returncode=process.returncode, stderr=stderr)
    return stdout


def _kill(process: subprocess.Popen[str]) -> str:
    """End a program and its children; returns its standard error so far."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=REAP_S)[1]
    except subprocess.TimeoutExpired:
        return ""


def without(names: Sequence[str], argv: Sequence[str]) -> list[str]:
    """A command that is to run without these variables in its environment, which it may hand on.

    >>> without(["LICENSE"], ["sbatch", "job"]), without([], ["sbatch", "job"])
    (['env', '-u', 'LICENSE', 'sbatch', 'job'], ['sbatch', 'job'])
    """
    return [*(["env"] if names else []), *(word for name in names for word in ("-u", name)), *argv]


# -- ask a batch system -----------------------------------------------------------------------------------------------

Ask = Callable[[Sequence[str], str], str]
"""What a command prints, from its argument list and its standard input; raises `CommandError`."""


def by_subprocess(timeout_s: float, environment: Mapping[str, str] | None = None) -> Ask:
    """Commands as they are found in PATH, each of which may take so long [s]."""
    return lambda argv, stdin: run(argv, timeout_s=timeout_s, stdin=stdin, environment=environment)


class SiteRefusal(BackendError):
    """The site turned a call down for good; `reason` is its own words, the message has more where there is more."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ErrorPatterns:
    """How a batch system's error messages are read: patterns that are searched for.

    Parameters
    ----------
    no_answer
        A daemon did not answer: the same call may succeed later.
    prefix
        What stands before the site's own words in a line.
    ended
        A line says only that a job has ended, or is unknown.
    broken
        The commands cannot work as they are installed, whatever is asked; or None.

    Examples
    --------
    >>> patterns = ErrorPatterns(re.compile("timed out"), re.compile("^qdel: "), re.compile("Unknown Job"))
    >>> print(patterns.reason("qdel: Unauthorized Request\\nqdel: see the manual"))
    Unauthorized Request
    see the manual
    """

    no_answer: re.Pattern[str]
    prefix: re.Pattern[str]
    ended: re.Pattern[str]
    broken: re.Pattern[str] | None = None

    def meaning(self, error: CommandError) -> BackendError:
        """The error that a failed command amounts to.

        ``transient`` when there was no answer, `SiteRefusal` when the site said no; otherwise (program missing, out of
        time, silent, broken) the error itself.
        """
        if error.transient or error.returncode is None:
            return error
        if self.no_answer.search(error.stderr):
            return BackendError(str(error), transient=True)
        if not error.stderr.strip() or (self.broken is not None and self.broken.search(error.stderr)):
            return error
        return SiteRefusal(self.reason(error.stderr), str(error))

    def reason(self, stderr: str) -> str:
        """The site's own words."""
        return "\n".join(self.prefix.sub("", line) for line in stderr.strip().splitlines())

    def only_ended(self, error: CommandError) -> bool:
        """Whether jobs that were to be ended had ended already, or are unknown, and nothing else is wrong.

        Silence of a daemon may look like that: "flux_open: No such file".
        """
        lines = error.stderr.strip().splitlines()
        return bool(lines) and all(map(self.ended.search, lines)) and not self.no_answer.search(error.stderr)


@dataclass(frozen=True, slots=True)
class Asking:
    """Commands of a batch system, whose failures are understood."""

    run: Ask
    errors: ErrorPatterns

    def __call__(
        self, argv: Sequence[str], stdin: str = "", *, unless: Callable[[CommandError], bool] | None = None
    ) -> str:
        """What a command prints; "" when `unless` says that its failure is none.

        Raises
        ------
        BackendError
            See `ErrorPatterns.meaning`.
        """
        try:
            return self.run(argv, stdin)
        except CommandError as error:
            if error.returncode is not None and unless is not None and unless(error):
                return ""
            meaning = self.errors.meaning(error)
            log.warning("%s: %s", argv[0], _kind(meaning))
            if meaning is error:
                raise
            raise meaning from error


def _kind(error: BackendError) -> str:
    if error.transient:
        return "transient, the same call may succeed later"
    return "refused by the site" if isinstance(error, SiteRefusal) else "broken"


def of_known(ids: Iterable[str], ask: Callable[[Sequence[str]], str], unknown: re.Pattern[str]) -> str:
    """What `ask` prints of these jobs; "" when none of them is known.

    One question; another without those that the batch system says it does not know (their ids are groups of `unknown`),
    because then it may say nothing of the others.

    Raises
    ------
    SiteRefusal
        When it says no, and not because of a job it does not know.
    """
    left = list(dict.fromkeys(ids))
    while left:
        try:
            return ask(left)
        except SiteRefusal as error:
            named = {word for match in unknown.finditer(error.reason) for word in match.groups()}
            if named.isdisjoint(left):
                raise
            left = [job for job in left if job not in named]
    return ""


_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_LATEST = 1e11  # a time in the year 5138: what is later is none [s since the epoch]


def whole(text: str) -> int | None:
    """A whole number that a batch system printed, or None for other words.

    >>> whole("42"), whole("-1"), whole("\u00b2"), whole("9" * 5000)
    (42, None, None, None)
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def moment(seconds: float) -> float | None:
    """A time [s since the epoch], or None where a batch system has another number in its place."""
    return float(seconds) if 0 < seconds < _LATEST else None


_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, InvalidInput)


@contextmanager
def reading(system: str, expected: str) -> Iterator[None]:
    """While what a batch system printed is taken apart: whatever is wrong with it is a `BackendError`.

    Around a block, or as a decorator. `expected` says whose output would do.
    """
    try:
        yield
    except _UNREADABLE as error:
        said = f"{type(error).__name__}: {error!s:.200}"
        raise BackendError(f"{system} printed what cannot be read ({said}): {expected}") from error


def load_json(text: str) -> Any:
    """What JSON text says; halves of surrogate pairs, which could be neither printed nor stored, are question marks.

    Raises `ValueError` or `RecursionError` when it is none.
    """
    found = json.loads(text, strict=False)
    if "\\ud" in text or "\\uD" in text:
        found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"), strict=False)
    return found


def table(text: str, read: Callable[[Any], dict[str, Any]], system: str, expected: str) -> dict[str, Any]:
    """What `read` takes out of the JSON that was printed; {} when nothing was.

    Raises
    ------
    BackendError
        When it is no JSON, or `read` does not find in it what it looks for; `expected` says whose output would do.
    """
    if not text.strip():
        return {}
    try:
        return read(load_json(text))
    except _UNREADABLE as error:
        said = f"{type(error).__name__}: {error!s:.200}"
        raise BackendError(f"{system} printed what is no JSON ({said}): {expected}") from error


def host_names(text: str) -> tuple[str, ...]:
    """Names in a host list that a batch system printed; none in "".

    Raises
    ------
    BackendError
        When it is no host list.
    """
    try:
        return expand(text) if text else ()
    except InvalidHostList as error:
        raise BackendError(str(error)) from error


# -- judge requests and answers ---------------------------------------------------------------------------------------

Query = Callable[[Sequence[JobHandle]], Sequence[JobStatus]]
"""One status per handle, in order: a backend's `query`."""

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
Kept = TypeVar("Kept")

Submitted = JobHandle | Refused
"""What became of a request."""


def submittable(request: JobRequest, site: Capabilities, query: Query, system: str) -> JobRequest:
    """The request as it can be submitted: in an absolute directory, after jobs that have not ended.

    Raises
    ------
    SiteRefusal
        When it could never start, or is an element of an array where there are none.
    """
    if request.array and not site.arrays:
        raise SiteRefusal(f"the {system} backend has no job arrays")
    if (reason := misfit(request, site, "queue")) is not None:
        raise SiteRefusal(reason)
    needed = unfulfilled(request.dependencies, query)
    return replace(request, workdir=os.path.abspath(request.workdir), dependencies=needed)


def variant(backend: Kept, known: dict[Options, Kept], options: Options, adapt: Callable[[Kept], object]) -> Kept:
    """A backend for jobs with options of their own: a copy that `adapt` changes, made once and `known` from then on."""
    if not options:
        return backend
    if (made := known.get(options)) is None:
        made = copy(backend)
        made.__dict__.pop("_site", None)  # what it knows of its site
        adapt(made)
        known[options] = made
    return made


def own_options(options: Options, names: Mapping[str, str], setup: Sequence[str], system: str) -> dict[str, Any]:
    """Options of single jobs by what the system calls them in `names`; ``setup`` goes behind that of all jobs.

    Raises
    ------
    InvalidInput
        When there is one that the system has no name for.

    Examples
    --------
    >>> own_options((("partition", "gpu"), ("setup", "module load cuda")), {"partition": "queue"}, ["set -e"], "PBS")
    {'queue': 'gpu', 'setup': ('set -e', 'module load cuda')}
    """
    found: dict[str, Any] = {}
    for name, value in options:
        if name == SETUP:
            found[SETUP] = (*setup, *value.splitlines())
        elif name in names:
            found[names[name]] = value
        else:
            known = ", ".join([*names, SETUP])
            raise InvalidInput(f"{system} has no option {name!r} for the jobs of one stage: {known} expected")
    return found


def unfulfilled(dependencies: Sequence[Dependency], query: Query) -> tuple[Dependency, ...]:
    """Dependencies that are not fulfilled yet.

    The others are left out: a batch system may turn a job down that is to follow one that has ended, or have forgotten
    how that ended.

    Raises
    ------
    SiteRefusal
        When one can never be fulfilled.
    """
    left: list[Dependency] = []
    for item, status in zip(dependencies, query([item.on for item in dependencies]), strict=True):
        if not status.state.final and not (item.kind is DependencyKind.AFTER and status.started is not None):
            left.append(item)
        elif item.kind is DependencyKind.AFTER_OK and status.state is not JobState.COMPLETED:
            raise SiteRefusal(f"it was to follow job {job_label(item.on)}, which ended as {status.state.value}")
    return tuple(left)


def outcomes(requests: Iterable[JobRequest], submit: Callable[[JobRequest], JobHandle]) -> list[Submitted]:
    """One outcome per request, in order; a refusal of one holds up no other.

    Raises
    ------
    BackendError
        ``transient``, when `submit` raised that.
    """
    found: list[Submitted] = []
    for request in requests:
        try:
            found.append(submit(request))
        except BackendError as error:
            found.append(refusal(request, error))
    return found


def refusal(request: JobRequest, error: BackendError) -> Refused:
    """The outcome of a request that the site turned down; an error that is transient is raised."""
    if error.transient:
        raise error
    reason = error.reason if isinstance(error, SiteRefusal) else str(error)
    log.warning("job %s is refused: %s", request.token, reason)
    return Refused(request.token, reason)


def with_site_times(
    outcomes: list[Submitted], submitted: Callable[[Sequence[JobHandle]], Mapping[JobHandle, float]]
) -> list[Submitted]:
    """Outcomes whose submission times are the batch system's, as far as it answers: `submitted` asks [s].

    Waits are differences of its times.
    """
    try:
        times = submitted([outcome for outcome in outcomes if isinstance(outcome, JobHandle)])
    except BackendError as error:  # the jobs are in: this machine's clock has to do
        log.warning("submission times are those of this machine's clock: %s", error)
        return outcomes
    return [
        replace(outcome, submitted=times[outcome]) if isinstance(outcome, JobHandle) and outcome in times else outcome
        for outcome in outcomes
    ]


def first_submitted(handles: Iterable[JobHandle], tokens: Sequence[str]) -> dict[str, JobHandle]:
    """The job of each of these tokens that has one; of several, the one submitted first."""
    ordered = sorted(handles, key=lambda handle: handle.submitted, reverse=True)
    return {handle.token: handle for handle in ordered if handle.token in tokens}


AGAIN_S = 5.0
"""How long after the first a second question is asked about a job that a batch system does not know [s]."""

_ALONE = 8  # jobs that are asked about one by one; more are asked about together


def found_or_unknown_twice(
    asked: Sequence[Key], answers: Callable[[Sequence[Key]], Mapping[Key, Answer]], clock: Clock
) -> dict[Key, Answer]:
    """What is known of these; one is left out only when it was missing once more, `AGAIN_S` later."""
    found = dict(answers(asked))
    if missing := [item for item in dict.fromkeys(asked) if item not in found]:
        log.info("unknown to the batch system, asked about again in %g s: %s", AGAIN_S, missing)
        clock.wait(threading.Event(), clock.now() + AGAIN_S)
        found |= answers(missing)
    return found


def statuses(handles: Sequence[JobHandle], query: Query, clock: Clock) -> list[JobStatus]:
    """One status per handle, in order; `LOST` only when two questions of the job's own, `AGAIN_S` apart, said so.

    The answer to a question about many jobs may lack one that is alive: the batch system is just moving it, or is only
    starting. A job that is taken for lost is submitted again, and then both run.
    """
    latest = dict(zip(handles, query(handles), strict=True))

    def known(some: Sequence[JobHandle]) -> dict[JobHandle, JobStatus]:
        for part in [[handle] for handle in some] if len(some) <= _ALONE else [some]:
            latest.update(zip(part, query(part), strict=True))
        return {handle: latest[handle] for handle in some if latest[handle].state is not JobState.LOST}

    found_or_unknown_twice([handle for handle in latest if latest[handle].state is JobState.LOST], known, clock)
    return [latest[handle] for handle in handles]


def lost(handle: JobHandle, system: str) -> JobStatus:
    """The status of a job that the batch system does not know."""
    return JobStatus(handle, JobState.LOST, f"{system} does not know it (any more)")


def live_ids(statuses: Iterable[JobStatus]) -> list[str]:
    """Ids of the jobs that have not ended."""
    return [status.handle.job_id for status in statuses if not status.state.final]


def require_pending(status: JobStatus, system: str) -> None:
    """Raise a `BackendError` when a job waits no more: it cannot be changed."""
    if status.state is not JobState.PENDING:
        raise BackendError(f"{system} job {job_label(status.handle)} cannot be changed: it is {status.state.value}")


def key(handle: JobHandle) -> str:
    """What the batch system's commands call the job.

    >>> key(JobHandle("464", "token", submitted=0.0, array_index=2))
    '464_2'
    """
    return handle.job_id if handle.array_index is None else f"{handle.job_id}_{handle.array_index}"


def job_label(handle: JobHandle) -> str:
    """A job in a message, such as ``464_1 (asa-2)``."""
    return f"{key(handle)} ({handle.token})"
