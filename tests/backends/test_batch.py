"""Commands are run and asked, and requests and answers judged, whichever batch system it is."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends import batch
from asa.backends.batch import Asking, CommandError, ErrorPatterns, SiteRefusal, by_subprocess, of_known, run, table
from asa.backends.flux import ERRORS as FLUX
from asa.backends.pbs import ERRORS as PBS
from asa.backends.slurm.words import ERRORS as SLURM
from asa.core.errors import BackendError
from asa.core.job import (
    Capabilities,
    Dependency,
    DependencyKind,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Refused,
    Resources,
)
from asa.core.queues import misfit

_LIVE = (JobState.PENDING, JobState.RUNNING)
SITE = Capabilities("here", "short", largest=Resources(16), cores_per_node=8, longest_s=3600.0)


def handle(token: str = "a", submitted: float = 0.0) -> JobHandle:
    return JobHandle(f"7{token}", token, submitted)


def request(token: str = "a", cores: int = 1, nodes: int | None = None, hours: float = 1.0) -> JobRequest:
    return JobRequest(token, Resources(cores, nodes), 3600 * hours, ("true",))


class Table:
    """Statuses by handle; counts how often it is asked."""

    def __init__(self, *statuses: JobStatus) -> None:
        self.statuses = {status.handle: status for status in statuses}
        self.asked = 0

    def query(self, handles: Sequence[JobHandle]) -> list[JobStatus]:
        self.asked += 1
        return [self.statuses[each] for each in handles]


def expected(kind: DependencyKind, status: JobStatus) -> bool | None:
    """Whether it is fulfilled, as docs/howto/write-a-backend.md has it; None when it never will be."""
    if kind is DependencyKind.AFTER:
        return status.started is not None or status.state.final
    if kind is DependencyKind.AFTER_ANY:
        return status.state.final
    return status.state is JobState.COMPLETED if status.state in (JobState.COMPLETED, *_LIVE) else None


@pytest.mark.parametrize("kind", DependencyKind)
@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("started", [None, 5.0])
def test_which_dependencies_are_left(kind: DependencyKind, state: JobState, started: float | None) -> None:
    first, status = handle("first"), JobStatus(handle("a"), state, started=started)
    waits = JobStatus(first, JobState.PENDING)
    table = Table(waits, status)
    needed = [Dependency(first), Dependency(status.handle, kind)]
    fulfilled = expected(kind, status)
    if fulfilled is None:
        with pytest.raises(SiteRefusal, match=rf"to follow job 7a \(a\), which ended as {state.value}"):
            batch.unfulfilled(needed, table.query)
    else:
        assert batch.unfulfilled(needed, table.query) == tuple(needed[: 1 if fulfilled else 2])
    assert table.asked == 1


def test_a_submittable_request_is_absolute_and_waits_for_live_jobs_only() -> None:
    done, runs = JobStatus(handle("a"), JobState.COMPLETED), JobStatus(handle("b"), JobState.RUNNING)
    asked = JobRequest("c", Resources(), 60.0, ("true",), "out", dependencies=tuple(map(Dependency, map(handle, "ab"))))
    found = batch.submittable(asked, SITE, Table(done, runs).query, "Mine")
    assert (found.workdir, found.dependencies) == (os.path.abspath("out"), (Dependency(runs.handle),))


def test_arrays_only_where_there_are_some() -> None:
    asked = JobRequest("c", Resources(), 60.0, ("true",), array="stages")
    with pytest.raises(SiteRefusal, match="the Mine backend has no job arrays"):
        batch.submittable(asked, SITE, Table().query, "Mine")
    assert batch.submittable(asked, Capabilities("here", arrays=True), Table().query, "Mine").array == "stages"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (request(cores=8), None),
        (request(cores=16, nodes=2), None),
        (request(cores=17), "queue 'short' of 'here' has room for 16 cores at most, and the job asks for 17 cores"),
        (request(cores=16), "nodes of queue 'short' of 'here' have 8 cores at most, and the job asks for 16 on each"),
        (request(hours=2), "queue 'short' of 'here' allows a wall time of 01:00:00, and the job asks for 02:00:00"),
    ],
)
def test_why_a_job_could_never_start(asked: JobRequest, why: str | None) -> None:
    assert misfit(asked, SITE, "queue") == why
    assert misfit(asked, Capabilities("here"), "queue") is None
    if why is not None:
        with pytest.raises(SiteRefusal) as caught:
            batch.submittable(asked, SITE, Table().query, "Mine")
        assert caught.value.reason == why


def test_a_refusal_holds_up_no_other_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    errors = {"b": SiteRefusal("no money", "qsub: no money"), "c": BackendError("qsub printed no job id")}

    def submit(asked: JobRequest) -> JobHandle:
        if asked.token in errors:
            raise errors[asked.token]
        return handle(asked.token)

    found = batch.outcomes(map(request, "abcd"), submit)
    assert found == [handle("a"), Refused("b", "no money"), Refused("c", "qsub printed no job id"), handle("d")]
    assert caplog.messages == ["job b is refused: no money", "job c is refused: qsub printed no job id"]


def test_silence_ends_the_whole_call() -> None:
    silence = BackendError("timed out", transient=True)

    def submit(asked: JobRequest) -> JobHandle:
        raise silence

    with pytest.raises(BackendError) as caught:
        batch.outcomes([request()], submit)
    assert caught.value is silence


def test_submission_times_are_the_sites_where_it_answers() -> None:
    def submitted(handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        assert handles == [handle("a"), handle("c")]
        return {handles[0]: 12.0}

    def silent(handles: Sequence[JobHandle]) -> dict[JobHandle, float]:
        raise BackendError("timed out", transient=True)

    outcomes: list[batch.Submitted] = [handle("a"), Refused("b", "no"), handle("c")]
    assert batch.with_site_times(outcomes, submitted) == [handle("a", 12.0), Refused("b", "no"), handle("c")]
    assert batch.with_site_times(outcomes, silent) == outcomes


@given(st.permutations([JobHandle(str(at), token, float(at)) for at, token in enumerate("abacb")]))
def test_of_several_jobs_of_a_token_the_first_is_found(handles: list[JobHandle]) -> None:
    assert batch.first_submitted(handles, ["a", "b", "d"]) == {
        "a": JobHandle("0", "a", 0.0),
        "b": JobHandle("1", "b", 1.0),
    }


def test_jobs_that_have_not_ended() -> None:
    statuses = [JobStatus(JobHandle(state.value, "a", 0.0), state) for state in JobState]
    assert batch.live_ids([*statuses, batch.lost(handle(), "Mine")]) == ["pending", "running"]


@pytest.mark.parametrize("state", JobState)
def test_only_a_job_that_waits_is_changed(state: JobState) -> None:
    status = JobStatus(handle(), state)
    if state is JobState.PENDING:
        batch.require_pending(status, "Mine")
    else:
        with pytest.raises(BackendError, match=rf"Mine job 7a \(a\) cannot be changed: it is {state.value}") as caught:
            batch.require_pending(status, "Mine")
        assert not caught.value.transient


WORDS = ErrorPatterns(
    no_answer=re.compile("timed out"),
    prefix=re.compile("^end: "),
    ended=re.compile("has ended|no such job"),
    broken=re.compile("not configured"),
)
UNKNOWN = re.compile(r"no job (\w+)|(\w+) is gone")


def failed(stderr: str, returncode: int | None = 1, transient: bool = False) -> CommandError:
    return CommandError(["end"], "ended badly", returncode=returncode, stderr=stderr, transient=transient)


class OneCommand:
    """A command that prints one line, or fails."""

    def __init__(self, error: CommandError | None = None) -> None:
        self.error = error
        self.said: list[tuple[Sequence[str], str]] = []

    def __call__(self, argv: Sequence[str], stdin: str) -> str:
        self.said.append((argv, stdin))
        if self.error is not None:
            raise self.error
        return "done\n"


@pytest.mark.parametrize(
    "error",
    [failed(""), failed(" \n"), failed("end: not configured"), failed("no", None), failed("no", transient=True)],
)
def test_an_error_that_is_no_refusal_stays_as_it_is(error: CommandError) -> None:
    assert WORDS.meaning(error) is error
    with pytest.raises(CommandError) as caught:
        Asking(OneCommand(error), WORDS)(["end"])
    assert caught.value is error and error.__cause__ is None


def test_no_answer_may_be_tried_again() -> None:
    error = failed("end: not configured?\nend: timed out")
    with pytest.raises(BackendError, match="timed out") as caught:
        Asking(OneCommand(error), WORDS)(["end"])
    assert caught.value.transient and caught.value.__cause__ is error
    assert not isinstance(caught.value, SiteRefusal)


def test_a_refusal_has_the_sites_words() -> None:
    with pytest.raises(SiteRefusal, match="ended badly") as caught:
        Asking(OneCommand(failed("end: no money left\r\nend: ask the site\n")), WORDS)(["end"])
    assert caught.value.reason == "no money left\nask the site" and not caught.value.transient


@pytest.mark.parametrize(
    ("patterns", "said", "reason"),
    [
        (PBS, "qdel: no\nqstat: why\nno qstat: here", "no\nwhy\nno qstat: here"),
        (PBS, "qdel: qdel: twice", "qdel: twice"),
        (FLUX, "flux-cancel: ERROR: no\nflux-jobs: why", "no\nwhy"),
        (SLURM, "sbatch: error: no\nsbatch: why\n  sbatch: fatal: oh", "no\nwhy\noh"),
    ],
)
def test_a_prefix_is_taken_off_each_line_once(patterns: ErrorPatterns, said: str, reason: str) -> None:
    assert patterns.reason(said + "\n") == reason


def test_a_command_gets_its_input_and_returns_its_output() -> None:
    command = OneCommand()
    assert Asking(command, WORDS)(["put", "in"], "script") == Asking(command, WORDS)(["look"]) == "done\n"
    assert command.said == [(["put", "in"], "script"), (["look"], "")]


@pytest.mark.parametrize(
    ("error", "passed"),
    [
        (failed("end: 7 has ended\nend: no such job: 8"), True),
        (failed("end: 7 has ended\nend: 8 is not yours"), False),
        (failed("end: no such job: timed out"), False),
        (failed(""), False),
        (failed("7 has ended", None, transient=True), False),
    ],
)
def test_only_ended_jobs_are_passed_over(error: CommandError, passed: bool) -> None:
    ask = Asking(OneCommand(error), WORDS)
    if passed:
        assert ask(["end", "7", "8"], unless=WORDS.only_ended) == ""
    else:
        with pytest.raises(BackendError):
            ask(["end", "7", "8"], unless=WORDS.only_ended)


def test_a_daemon_that_is_not_there_is_no_job_that_is_not_there() -> None:
    error = failed("flux-cancel: ERROR: flux_open: No such file or directory")
    assert FLUX.ended.search(error.stderr) and not FLUX.only_ended(error)
    assert FLUX.meaning(error).transient


def test_commands_run_in_the_environment_they_are_given() -> None:
    script = "import os, sys; print(os.environ.get('HOW', '-') + sys.stdin.read())"
    assert by_subprocess(20.0, {"HOW": "so"})([sys.executable, "-c", script], "!") == "so!\n"
    with pytest.raises(CommandError, match="no answer within") as caught:
        by_subprocess(0.2)(["sleep", "9"], "")
    assert caught.value.transient


IDS = st.lists(st.sampled_from([f"j{number}" for number in range(8)]), max_size=12)


@given(asked=IDS, there=st.frozensets(st.sampled_from([f"j{number}" for number in range(8)])), one=st.booleans())
def test_unknown_jobs_do_not_hide_the_others(asked: list[str], there: frozenset[str], one: bool) -> None:
    questions: list[Sequence[str]] = []

    def ask(ids: Sequence[str]) -> str:
        questions.append(ids)
        gone = [f"no job {job}" if job < "j4" else f"{job} is gone" for job in ids if job not in there]
        if gone:
            raise SiteRefusal(gone[0] if one else "\n".join(gone))  # some systems name the first, some all
        return " ".join(ids)

    known = list(dict.fromkeys(job for job in asked if job in there))
    assert of_known(asked, ask, UNKNOWN) == " ".join(known)
    assert len(questions) == bool(known) + (len({*asked} - there) if one else not {*asked} <= there)


@pytest.mark.parametrize(
    "error",
    [SiteRefusal("not yours"), SiteRefusal("no job another"), BackendError("no job a: timed out", transient=True)],
)
def test_another_refusal_and_silence_are_not_taken_for_an_unknown_job(error: BackendError) -> None:
    def ask(ids: Sequence[str]) -> str:
        raise error

    with pytest.raises(BackendError) as caught:
        of_known(["a"], ask, UNKNOWN)
    assert caught.value is error


def test_json_that_was_printed() -> None:
    def read(found: Any) -> dict[str, Any]:
        return {str(job["id"]): job for job in found.get("jobs")}

    assert table(" \n", read, "X", "?") == {}
    assert table('{"jobs": [{"id": 7, "comment": "two\nlines"}]}', read, "X", "?")["7"]["comment"] == "two\nlines"
    for text in ("JOBID  USER", "[]", "{}", '{"jobs": [{}]}'):
        with pytest.raises(BackendError, match=r"X printed what is no JSON \(\w+: .*\): X 2 expected"):
            table(text, read, "X", "X 2 expected")


@pytest.mark.parametrize(
    ("argv", "options", "printed"),
    [
        (["sh", "-c", "cat; echo warning >&2"], {"stdin": "text"}, "text"),
        (["printenv", "SOME_SETTING"], {}, "a b\n"),
        (["sh", "-c", "echo $SOME_SETTING $HOW"], {"environment": {"PATH": "/bin:/usr/bin", "HOW": "so"}}, "so\n"),
        (["echo", "$HOME", "*", ";"], {}, "$HOME * ;\n"),
        ([sys.executable, "-c", "import os; os.write(1, b'a\\xff')"], {}, "a\ufffd"),
    ],
    ids=["input", "inherited", "replaced", "no shell", "not UTF-8"],
)
def test_a_program_is_run_without_a_shell(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], options: dict[str, Any], printed: str
) -> None:
    monkeypatch.setenv("SOME_SETTING", "a b")
    assert run(argv, timeout_s=10, **options) == printed


@pytest.mark.parametrize(
    ("argv", "words", "returncode", "stderr"),
    [
        (["no-such-program"], "no program 'no-such-program' in PATH", None, ""),
        (["/"], "cannot be run", None, ""),
        (["sh", "-c", "echo bad luck >&2; exit 3"], "ended with exit code 3:\nbad luck", 3, "bad luck\n"),
        (["sh", "-c", "kill -9 $$"], "ended with signal 9", -9, ""),
    ],
)
def test_a_failure_has_the_programs_last_words(
    argv: list[str], words: str, returncode: int | None, stderr: str
) -> None:
    with pytest.raises(CommandError, match=words) as caught:
        run(argv, timeout_s=10)
    assert (caught.value.returncode, caught.value.stderr, caught.value.transient) == (returncode, stderr, False)


def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: object) -> None:
    mark = f"{tmp_path}/mark"
    started = time.monotonic()
    with pytest.raises(CommandError, match=r"no answer within 1.5 s:\nstill here") as caught:
        run(["sh", "-c", f"echo still here >&2; (sleep 3; touch {mark}) & wait"], timeout_s=1.5)
    assert caught.value.transient
    assert caught.value.returncode is None
    time.sleep(max(0.0, started + 3.5 - time.monotonic()))
    assert not os.path.exists(mark)


def test_a_program_runs_in_a_session_of_its_own() -> None:
    script = "import os; print(os.getsid(0))"
    assert int(run([sys.executable, "-c", script], timeout_s=10)) != os.getsid(0)


def test_output_held_open_by_another_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descendant in a session of its own is not killed, and keeps what the program printed to."""
    monkeypatch.setattr("asa.backends.batch.REAP_S", 0.05)
    started = time.monotonic()
    with pytest.raises(CommandError, match=r"no answer within 0.3 s") as caught:
        run(["sh", "-c", "setsid sleep 20 & echo $! >&2; wait"], timeout_s=0.3)
    assert caught.value.transient
    assert time.monotonic() - started < 15


def test_an_interrupted_call_leaves_no_program_behind(tmp_path: Path) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            run(
                ["sh", "-c", f"echo $$ >{tmp_path}/pid; read go; kill -USR1 $PPID; exec sleep 60"],
                timeout_s=60, stdin="go\n",
            )  # fmt: skip
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_every_command_is_logged_with_its_time_and_never_what_it_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "asa.backends")
    run(
        ["sh", "-c", "cat; echo $HIDDEN", "two words"],
        timeout_s=10,
        stdin="#!/bin/sh\n",
        environment={"HIDDEN": "secret"},
    )
    given, ran = caplog.records
    assert (given.levelname, given.message) == ("DEBUG", "standard input of sh:\n#!/bin/sh\n")
    assert ran.levelname == "INFO"
    assert re.fullmatch(r"sh -c 'cat; echo \$HIDDEN' 'two words': exit code 0 after \d+\.\d\d s", ran.message)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("script", "words", "kind"),
    [
        ("echo end: timed out >&2; exit 3", "ended with exit code 3:\nend: timed out", "transient"),
        ("echo end: no money >&2; exit 1", "ended with exit code 1:\nend: no money", "refused by the site"),
        ("exit 2", "ended with exit code 2", "broken"),
        ("sleep 9", "no answer within 0.5 s", "transient"),
    ],
)
def test_a_failure_is_logged_with_its_words_and_what_it_means(
    script: str, words: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BackendError):
        Asking(by_subprocess(0.5 if "sleep" in script else 20.0), WORDS)(["sh", "-c", script])
    failed, meaning = caplog.records
    assert f"sh -c '{script}': {words}" in failed.message and re.search(r"\(after \d+\.\d\d s\)$", failed.message)
    assert failed.levelname == meaning.levelname == "WARNING" and meaning.message.startswith(f"sh: {kind}")


@pytest.mark.parametrize("text", ["n[1-", "n[1-3000000]"])
def test_an_answer_with_a_broken_host_list_is_an_error(text: str) -> None:
    assert batch.host_names("") == () and batch.host_names("n[1-2]") == ("n1", "n2")
    with pytest.raises(BackendError, match="host list"):
        batch.host_names(text)
