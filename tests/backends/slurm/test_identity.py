from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.backends.slurm.words import CLOCK_SKEW_S, JobRecord, agrees, handle_of, key, match
from asa.core.job import JobHandle

HANDLE = JobHandle("7", "token", submitted=1000.0)
RECORD = JobRecord("7", "token", "RUNNING", submitted=1000.0)


def test_the_same_job() -> None:
    assert agrees(HANDLE, RECORD)
    assert agrees(HANDLE, replace(RECORD, submitted=1000.0 + CLOCK_SKEW_S))


@pytest.mark.parametrize(
    "other",
    [
        replace(RECORD, key="8"),
        replace(RECORD, key="7_1"),
        replace(RECORD, name="another"),
        replace(RECORD, submitted=1001.0 + CLOCK_SKEW_S),
        replace(RECORD, submitted=999.0 - CLOCK_SKEW_S),
        replace(RECORD, submitted=999.0 - CLOCK_SKEW_S, restarts=1),
    ],
)
def test_another_job(other: JobRecord) -> None:
    assert not agrees(HANDLE, other)


def test_a_requeued_job_is_submitted_anew() -> None:
    assert agrees(HANDLE, replace(RECORD, submitted=90000.0, restarts=2))


def test_elements_of_an_array_share_id_and_name() -> None:
    handles = [replace(HANDLE, array_index=index) for index in (0, 1)]
    records = [replace(RECORD, key=f"7_{index}", reason=str(index)) for index in (1, 0, 2)]
    assert {handle: record.reason for handle, record in match(handles, records).items()} == {
        handles[0]: "0",
        handles[1]: "1",
    }


def test_a_reused_id_matches_by_name() -> None:
    later = JobHandle("7", "later", submitted=5000.0)
    records = [RECORD, replace(RECORD, name="later", submitted=5000.0)]
    assert match([later, HANDLE], records) == {HANDLE: records[0], later: records[1]}


@given(st.integers(1, 10**9), st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_handle_of_a_record_is_of_that_job(number: int, index: int | None) -> None:
    handle = JobHandle(str(number), "token", 1000.0, index)
    assert handle_of(replace(RECORD, key=key(handle))) == handle
