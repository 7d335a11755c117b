from __future__ import annotations

import pickle

import pytest

from asa.core.errors import AsaError, BackendError, IllegalDecision, UnknownName

MADE = [
    AsaError("of the root"),
    UnknownName("strategy", "bigjob", ["big-job", "asa"]),
    BackendError("busy", transient=True),
    IllegalDecision("capacity", "job 1 has started already"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_errors_travel_to_other_processes_as_they_are(error: AsaError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))


def test_the_nearest_name_is_found_in_whatever_case() -> None:
    assert "did you mean 'pcp20'?" in str(UnknownName("dispatcher", "PCP20", ["easy", "pcp20"]))


def test_nothing_known_is_said_so() -> None:
    assert str(UnknownName("option of strategy 'big-job':", "patience", [])).endswith("Known: none")
