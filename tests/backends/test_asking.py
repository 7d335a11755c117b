"""How commands are asked, and what becomes of those that fail; the words are of a batch system that is not there."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.asking import Asking, Messages, SiteRefusal, by_subprocess, of_known, table
from asa.backends.command import CommandError
from asa.backends.flux.commands import MESSAGES as FLUX
from asa.backends.pbs.commands import MESSAGES as PBS
from asa.backends.slurm.failures import MESSAGES as SLURM
from asa.core.errors import BackendError

WORDS = Messages(
    no_answer=re.compile("timed out"),
    prefix=re.compile("^end: "),
    ended=re.compile("has ended|no such job"),
    broken=re.compile("not configured"),
)
UNKNOWN = re.compile(r"no job (\w+)|(\w+) is gone")


def failed(stderr: str, returncode: int | None = 1, transient: bool = False) -> CommandError:
    return CommandError(["end"], "ended badly", returncode=returncode, stderr=stderr, transient=transient)


class Batch:
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
def test_what_is_nobodys_refusal_stays_as_it_is(error: CommandError) -> None:
    assert WORDS.meaning(error) is error
    with pytest.raises(CommandError) as caught:
        Asking(Batch(error), WORDS)(["end"])
    assert caught.value is error and error.__cause__ is None


def test_no_answer_may_be_tried_again() -> None:
    error = failed("end: not configured?\nend: timed out")
    with pytest.raises(BackendError, match="timed out") as caught:
        Asking(Batch(error), WORDS)(["end"])
    assert caught.value.transient and caught.value.__cause__ is error
    assert not isinstance(caught.value, SiteRefusal)


def test_a_refusal_has_the_sites_words() -> None:
    with pytest.raises(SiteRefusal, match="ended badly") as caught:
        Asking(Batch(failed("end: no money left\r\nend: ask the site\n")), WORDS)(["end"])
    assert caught.value.reason == "no money left\nask the site" and not caught.value.transient


@pytest.mark.parametrize(
    ("messages", "said", "reason"),
    [
        (PBS, "qdel: no\nqstat: why\nno qstat: here", "no\nwhy\nno qstat: here"),
        (PBS, "qdel: qdel: twice", "qdel: twice"),
        (FLUX, "flux-cancel: ERROR: no\nflux-jobs: why", "no\nwhy"),
        (SLURM, "sbatch: error: no\nsbatch: why\n  sbatch: fatal: oh", "no\nwhy\noh"),
    ],
)
def test_a_prefix_is_taken_off_each_line_once(messages: Messages, said: str, reason: str) -> None:
    assert messages.reason(said + "\n") == reason


def test_what_a_command_is_given_and_prints() -> None:
    batch = Batch()
    assert Asking(batch, WORDS)(["put", "in"], "script") == Asking(batch, WORDS)(["look"]) == "done\n"
    assert batch.said == [(["put", "in"], "script"), (["look"], "")]


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
def test_what_has_ended_is_passed_over_and_nothing_else(error: CommandError, passed: bool) -> None:
    ask = Asking(Batch(error), WORDS)
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
def test_whatever_is_unknown_the_others_are_told(asked: list[str], there: frozenset[str], one: bool) -> None:
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


@pytest.mark.parametrize("reason", ["not yours", "no job another"])
def test_another_refusal_is_not_asked_round(reason: str) -> None:
    def ask(ids: Sequence[str]) -> str:
        raise SiteRefusal(reason)

    with pytest.raises(SiteRefusal, match=reason):
        of_known(["a"], ask, UNKNOWN)


def test_silence_is_not_taken_for_an_unknown_job() -> None:
    def ask(ids: Sequence[str]) -> str:
        raise BackendError("no job a: timed out", transient=True)

    with pytest.raises(BackendError, match="timed out"):
        of_known(["a"], ask, UNKNOWN)


def test_json_that_was_printed() -> None:
    def read(found: Any) -> dict[str, Any]:
        return {str(job["id"]): job for job in found.get("jobs")}

    assert table(" \n", read, "X", "?") == {}
    assert table('{"jobs": [{"id": 7, "comment": "two\nlines"}]}', read, "X", "?")["7"]["comment"] == "two\nlines"
    for text in ("JOBID  USER", "[]", "{}", '{"jobs": [{}]}'):
        with pytest.raises(BackendError, match=r"X printed what is no JSON \(\w+: .*\): X 2 expected"):
            table(text, read, "X", "X 2 expected")
