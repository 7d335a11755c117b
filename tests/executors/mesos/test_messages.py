"""How fields are asked for, and what is said when they are not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.mesos.codec import BadMessage
from executors.mesos.messages import (
    TERMINAL,
    base64_of,
    field,
    identity,
    nanoseconds,
    octets,
    task_status,
    value_of,
    values,
)


def test_a_path_leads_to_a_value() -> None:
    call = {"accept": {"offer_ids": [{"value": "o"}], "filters": {"refuse_seconds": "5.5"}}}
    assert field(call, "accept.offer_ids", list) == [{"value": "o"}]
    assert field(call, "accept.filters.refuse_seconds", float) == 5.5
    assert field(call, "accept.filters.none", float, 1.0) == 1.0
    assert field({"x": {"value": "Infinity"}}, "x.value", float) == float("inf")


@pytest.mark.parametrize(
    ("source", "path", "kind", "said"),
    [
        ({}, "kill.task_id", dict, "expected 'kill.task_id' to be present"),
        ({"kill": 3}, "kill.task_id", dict, "expected an object around 'task_id'"),
        ({"kill": []}, "kill", dict, "to be an object, found list"),
        ({"a": "x"}, "a", list, "to be a list"),
        ({"a": 3}, "a", str, "to be a text"),
        ({"a": "nan"}, "a", float, "to be a number"),
        ({"a": True}, "a", int, "to be a number"),
        ({"a": "x"}, "a", int, "to be a number"),
        ({"a": "Infinity"}, "a", int, "to be a number"),
        ({"a": 1}, "a", bool, "to be true or false"),
    ],
)
def test_what_is_wrong_is_named(source: dict[str, object], path: str, kind: type, said: str) -> None:
    with pytest.raises(BadMessage, match=said):
        field(source, path, kind)


def test_a_required_path_may_not_lead_through_anything_else_even_with_a_default() -> None:
    with pytest.raises(BadMessage):
        field({"a": "text"}, "a.b", str, "default")


def test_ids() -> None:
    assert value_of({"task_id": identity("t")}, "task_id") == "t"
    assert value_of({}, "task_id", None) is None
    assert values([identity("a"), identity("b")], "offer_ids") == ["a", "b"]
    with pytest.raises(BadMessage, match=r"offer_ids\.value"):
        values([{}], "offer_ids")


@given(st.binary(max_size=40))
def test_bytes_travel_in_either_alphabet(data: bytes) -> None:
    text = base64_of(data)
    assert octets({"d": text}, "d") == octets({"d": text.replace("+", "-").replace("/", "_")}, "d") == data


def test_bytes_that_are_none() -> None:
    with pytest.raises(BadMessage, match="base64"):
        octets({"d": "***"}, "d")
    with pytest.raises(BadMessage, match="present"):
        octets({}, "d")
    assert octets({}, "d", b"") == b""


@given(st.floats(0, 4e9))
def test_times_are_as_exact_as_a_double(seconds: float) -> None:
    assert nanoseconds(seconds)["nanoseconds"] / 1e9 == pytest.approx(seconds, abs=1e-6)


def test_a_status_has_what_was_given_and_no_more() -> None:
    status = task_status("t", "TASK_LOST", 3.5, source="SOURCE_MASTER", reason="REASON_RECONCILIATION")
    assert status == {
        "task_id": {"value": "t"},
        "state": "TASK_LOST",
        "source": "SOURCE_MASTER",
        "timestamp": 3.5,
        "reason": "REASON_RECONCILIATION",
    }
    assert task_status("t", "TASK_RUNNING", 1.0, source="SOURCE_AGENT", uuid=b"\0" * 16)["uuid"] == "A" * 22 + "=="


def test_a_task_out_of_reach_is_not_over() -> None:
    assert "TASK_LOST" in TERMINAL and not {"TASK_UNREACHABLE", "TASK_UNKNOWN", "TASK_RUNNING"} & TERMINAL
