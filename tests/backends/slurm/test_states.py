from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.slurm.words import STATES, JobRecord, state_of
from asa.backends.slurm.words import job_status as status
from asa.core.job import JobHandle, JobState

NOW = 130.0
HANDLE = JobHandle("7", "token", submitted=100.0)


def record(word: str, *, nodes: tuple[str, ...] = ("n1",), reason: str = "") -> JobRecord:
    return JobRecord("7", "token", word, reason, 100.0, 101.0, 110.0, 120.0, 0, 0, nodes)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", JobState.PENDING),
        ("CONFIGURING", JobState.RUNNING),
        ("COMPLETING", JobState.RUNNING),
        ("COMPLETED", JobState.COMPLETED),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("BOOT_FAIL", JobState.NODE_FAIL),
        ("TIMEOUT", JobState.TIMEOUT),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("PREEMPTED", JobState.PREEMPTED),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED,COMPLETING", JobState.CANCELLED),  # newer versions, made by hand
        ("PENDING,REQUEUED", JobState.PENDING),  # newer versions, made by hand
        ("RUNNING+POWERING_UP", JobState.RUNNING),  # newer versions, made by hand
    ],
)
def test_words(word: str, state: JobState) -> None:
    assert state_of(record(word)) is state


def test_every_final_state_but_lost_has_a_word() -> None:
    assert {state for state in STATES.values() if state.final} == {s for s in JobState if s.final} - {JobState.LOST}


@given(st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", min_size=1), st.booleans())
def test_an_unknown_word_is_never_final(word: str, holds: bool) -> None:
    told = record(f"NEW_{word}", nodes=("n1",) if holds else ())
    assert state_of(told) is (JobState.RUNNING if holds else JobState.PENDING)
    assert f"unknown state 'NEW_{word}'" in status(HANDLE, told, None, NOW).reason


def test_a_waiting_job_has_a_plan_and_no_start() -> None:
    found = status(HANDLE, record("PENDING", nodes=(), reason="Resources"), None, NOW)
    assert (found.planned, found.started, found.ended, found.exit_code) == (110.0, None, None, None)
    assert (found.reason, found.eligible) == ("Resources", 101.0)


@pytest.mark.parametrize(("since", "told"), [(None, None), (120.0, 120.0), (NOW + 1, NOW + 1), (NOW + 3600, None)])
def test_a_waiting_job_ages_once_its_time_has_come(since: float | None, told: float | None) -> None:
    waiting = replace(record("PENDING", nodes=()), ages_since=since)
    assert status(HANDLE, waiting, None, NOW).ages_since == told
    assert status(HANDLE, replace(waiting, word="RUNNING", nodes=("n1",)), None, NOW).ages_since is None


def test_a_running_job_has_a_start_and_no_end() -> None:
    found = status(HANDLE, record("RUNNING"), None, NOW)
    assert (found.planned, found.started, found.ended, found.exit_code) == (None, 110.0, None, None)
    assert found.nodes == ("n1",)


def test_a_job_cancelled_before_it_started_never_started() -> None:
    found = status(HANDLE, record("CANCELLED", nodes=()), None, NOW)
    assert (found.state, found.started, found.ended, found.exit_code) == (JobState.CANCELLED, None, 120.0, None)


def test_who_cancelled_is_told() -> None:
    assert status(HANDLE, None, record("CANCELLED by 1000"), NOW).reason == "cancelled by uid 1000"


def test_the_controller_knows_best() -> None:
    found = status(HANDLE, record("RUNNING"), record("FAILED"), NOW)
    assert found.state is JobState.RUNNING


def test_the_accounting_tells_how_a_forgotten_job_ended() -> None:
    found = status(HANDLE, None, record("TIMEOUT"), NOW)
    assert (found.state, found.started, found.ended) == (JobState.TIMEOUT, 110.0, 120.0)


@pytest.mark.parametrize("accounted", [None, record("RUNNING"), record("PENDING", nodes=())])
def test_a_forgotten_job_that_nobody_saw_end_is_lost(accounted: JobRecord | None) -> None:
    found = status(HANDLE, None, accounted, NOW)
    assert found.state is JobState.LOST
    assert "job 7 (token)" in found.reason
    assert found.ended is None
