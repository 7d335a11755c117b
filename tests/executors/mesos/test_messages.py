"""Bytes and messages: JSON, RecordIO, fields, names, and the oracle that knows the v1 API."""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import executors.mesos
from executors.mesos.codec import BadMessage, Records, decode, encode, frame
from executors.mesos.driver import of_scheduler
from executors.mesos.master import tasks
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
from tests.executors.mesos.oracle import API, check, made
from tests.executors.mesos.proto_table import PLAIN, ROOTS, lines
from tests.mutation import changed, garbled, refused_or_read

# ---------------------------------------------------------------------- codec


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
ANY_MESSAGES = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


def has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(has_null(item) for item in value.values())
    if isinstance(value, list):
        return any(has_null(item) for item in value)
    return value is None


@pytest.mark.slow
@given(st.lists(ANY_MESSAGES, max_size=5), st.data())
def test_a_stream_reads_the_same_however_it_is_cut(messages: list[dict[str, object]], data: st.DataObject) -> None:
    stream = b"".join(map(frame, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    records, found = Records(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += list(records.feed(stream[begin:end]))
    assert found == [decode(encode(message)) for message in messages]


@given(ANY_MESSAGES)
def test_what_is_sent_is_one_line_of_ascii(message: dict[str, object]) -> None:
    line = encode(message)
    assert line.isascii() and b"\n" not in line
    assert json.loads(line) == message


@given(ANY_MESSAGES)
def test_nulls_are_as_good_as_absent(message: dict[str, object]) -> None:
    assert not has_null(decode(encode(message)))


def test_nulls_are_left_out_and_nothing_else_is() -> None:
    assert decode(b'{"filters": null, "ids": [1, null, {"a": null, "b": "null"}]}') == {"ids": [1, {"b": "null"}]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"3",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b"\xff",
        b'{"a":' * 100_000,
        b'"text"',
        rb'{"a": "\ud800"}',
        rb'{"a": {"\uDFFF": 1}}',
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_message_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(body)


@given(st.binary(max_size=200))
def test_nothing_else_than_bad_message_is_raised(noise: bytes) -> None:
    with suppress(BadMessage):
        assert all(isinstance(message, dict) for message in Records(largest=100).feed(noise))


def attempt(rng: random.Random, count: int) -> None:
    """Damaged streams, and damaged messages in sound ones: what is read can be written, in ASCII and in UTF-8."""

    def read(data: bytes) -> None:
        for found in Records().feed(data):
            encode(found)
            json.dumps(found, ensure_ascii=False).encode()

    for _ in range(count):
        data = GOLDEN[rng.choice(list(GOLDEN))]
        refused_or_read(read, garbled(data, rng), BadMessage)
        one = json.dumps(changed(rng.choice(apart(data)), rng)).encode()
        refused_or_read(read, b"%d\n%b" % (len(one), one), BadMessage)


@settings(max_examples=200)
@given(st.randoms(use_true_random=True))
def test_what_was_damaged_is_read_or_refused(rng: random.Random) -> None:
    attempt(rng, 10)


@pytest.mark.slow
def test_what_was_damaged_a_hundred_thousand_times() -> None:
    deadline = time.monotonic() + 300.0
    for seed in range(5_000):
        if time.monotonic() < deadline:
            attempt(random.Random(seed), 10)


def test_a_pair_of_surrogates_is_a_letter() -> None:
    assert decode(rb'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}


@pytest.mark.parametrize("stream", [b"x\n{}", b"-1\n{}", b"101\n", b"99999999999999999999", b"\n{}", b" 2\n{}"])
def test_a_length_that_cannot_be_is_refused_at_once(stream: bytes) -> None:
    with pytest.raises(BadMessage, match="length"):
        list(Records(largest=100).feed(stream))


def test_what_came_before_the_damage_is_read() -> None:
    stream = Records().feed(b"2\n{}x\n")
    assert next(stream) == {}
    with pytest.raises(BadMessage):
        next(stream)


# ---------------------------------------------------------------------- recordio golden


GOLDEN = {path.stem: path.read_bytes() for path in sorted((Path(__file__).parent / "golden").glob("*.recordio"))}
SCHEDULER = [
    None,
    "processHeartBeat",
    "resourceOffers",
    None,
    "offerRescinded",
    None,
    "statusUpdate",
    "frameworkMessage",
    "executorLost",
    "slaveLost",
    "error",
]


def apart(data: bytes) -> list[Any]:
    """The records as a very simple reader finds them, which trusts every byte."""
    found = []
    while data:
        length, _, rest = data.partition(b"\n")
        found.append(json.loads(rest[: int(length)]))
        data = rest[int(length) :]
    return found


def test_the_files_are_there() -> None:
    assert list(GOLDEN) == ["executor", "operator", "scheduler"]


@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_read_is_written_again_to_the_byte(name: str) -> None:
    messages = list(Records().feed(GOLDEN[name]))
    assert messages == apart(GOLDEN[name])
    assert b"".join(frame(message) for message in messages) == GOLDEN[name]


@given(st.sampled_from(list(GOLDEN)), st.lists(st.integers(0, 5000)))
def test_bytes_may_arrive_in_any_pieces(name: str, cuts: list[int]) -> None:
    data, records = GOLDEN[name], Records()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = (data[begin:end] for begin, end in itertools.pairwise(edges))
    assert [message for piece in pieces for message in records.feed(piece)] == apart(data)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_reader_that_looks_for_digits_at_the_beginning_of_what_is_left_reads_the_same(name: str) -> None:
    """As pymesos reads: text and lengths must be told apart, and there is no newline in a record."""
    data, found = GOLDEN[name], []
    while match := re.match(rb"\d+\n", data):
        end = match.end() + int(match[0])
        found.append(json.loads(data[match.end() : end]))
        assert b"\n" not in data[match.end() : end] and data[match.end() : end].isascii()
        data = data[end:]
    assert data == b"" and found == apart(GOLDEN[name])


def test_every_event_has_its_callback() -> None:
    found = [of_scheduler(event) for event in apart(GOLDEN["scheduler"])]
    assert [None if callback is None else callback.name for callback in found] == SCHEDULER
    assert found[8] is not None and found[8].arguments == ({"value": "e"}, {"value": "M1-S1"}, 9)


# ---------------------------------------------------------------------- messages


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


# ---------------------------------------------------------------------- oracle


PROTO = """
package mesos.v1.part;  // a comment { with a brace
import "mesos/v1/mesos.proto";
message Call {
  option allow_alias = true;
  /* message Gone { required string value = 1; } */
  enum Type { UNKNOWN = 0; GO = 1 [deprecated = true]; }
  message Way { required string name = 1; map<string, Way> ways = 2; }
  optional Type type = 1 [default = GO];
  repeated mesos.v1.part.Call.Way ways = 3;
  oneof one { bytes data = 4; Way way = 5; }
}
"""
UPDATE: dict[str, Any] = {
    "type": "UPDATE",
    "update": {"status": {"task_id": {"value": "t"}, "state": "TASK_RUNNING", "timestamp": 1.5, "uuid": "AAAA"}},
}


def test_the_table_is_complete_and_sound() -> None:
    names = API.messages.keys() | API.enums.keys() | PLAIN
    assert set(ROOTS) < names and len(API.messages) > 250 and len(API.enums) > 40
    for fields in API.messages.values():
        assert all(one.type in names for one in fields.values())
    assert API.messages["Value.Range"]["begin"] == ("!", "uint64")
    assert "TASK_GONE_BY_OPERATOR" in API.enums["TaskState"]


def test_a_proto_file_is_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part.proto").write_text(PROTO)
    monkeypatch.setattr("tests.executors.mesos.proto_table.ROOTS", ("part.Call",))
    assert list(lines(tmp_path)) == [
        "part.Call: type?part.Call.Type ways*part.Call.Way data?bytes way?part.Call.Way",
        "part.Call.Type= UNKNOWN GO",
        "part.Call.Way: name!string ways%part.Call.Way",
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": "UPDATED"}, "none of scheduler.Event.Type"),
        ({"updates": []}, "not known"),
        ({"update": []}, "no object"),
        ({"update": {}}, "status is missing"),
        ({"update": {"status": UPDATE["update"]["status"] | {"timestamp": "1"}}}, "no double"),
        ({"update": {"status": UPDATE["update"]["status"] | {"uuid": "_-"}}}, "no bytes"),
        ({"update": {"status": UPDATE["update"]["status"] | {"healthy": 1}}}, "no bool"),
        ({"update": {"status": UPDATE["update"]["status"] | {"labels": {"labels": {}}}}}, "no list"),
        ({"update": {"status": UPDATE["update"]["status"] | {"state": None}}}, "none of TaskState"),
        ({"update": {"status": UPDATE["update"]["status"] | {"message": None}}}, "no string"),
        ({"subscribed": {"framework_id": {"value": "F"}, "heartbeat_interval_seconds": True}}, "no double"),
        ({"failure": {"status": 1.0}}, "no int32"),
        ({"failure": {"status": 1 << 31}}, "no int32"),
    ],
)
def test_what_is_wrong_is_found(change: dict[str, Any], text: str) -> None:
    check("scheduler.Event", UPDATE)
    with pytest.raises(AssertionError, match=text):
        check("scheduler.Event", UPDATE | change)


@pytest.mark.parametrize(("name", "type"), [("scheduler", "scheduler.Event"), ("executor", "executor.Event")])
def test_golden_streams_are_proper(name: str, type: str) -> None:
    events = list(Records().feed(GOLDEN[name]))
    assert len(events) > 5
    for event in events:
        check(type, event)


@pytest.mark.parametrize("type", ROOTS)
def test_what_is_made_at_random_is_proper(type: str) -> None:
    rng = random.Random(1)
    for _ in range(50):
        check(type, json.loads(json.dumps(made(type, rng, ["a", "b"]))))


# ---------------------------------------------------------------------- names


SOURCE = Path(executors.mesos.__file__).parent
STATES = """STAGING STARTING RUNNING KILLING FINISHED FAILED KILLED ERROR LOST DROPPED UNREACHABLE GONE GONE_BY_OPERATOR
UNKNOWN"""
REASONS = """COMMAND_EXECUTOR_FAILED CONTAINER_LAUNCH_FAILED CONTAINER_LIMITATION CONTAINER_LIMITATION_DISK
CONTAINER_LIMITATION_MEMORY CONTAINER_PREEMPTED CONTAINER_UPDATE_FAILED MAX_COMPLETION_TIME_REACHED
EXECUTOR_REGISTRATION_TIMEOUT EXECUTOR_REREGISTRATION_TIMEOUT EXECUTOR_TERMINATED FRAMEWORK_REMOVED GC_ERROR
INVALID_FRAMEWORKID INVALID_OFFERS IO_SWITCHBOARD_EXITED MASTER_DISCONNECTED RECONCILIATION RESOURCES_UNKNOWN
AGENT_DISCONNECTED AGENT_DRAINING AGENT_REMOVED AGENT_REMOVED_BY_OPERATOR AGENT_REREGISTERED AGENT_RESTARTED
AGENT_UNKNOWN TASK_KILLED_DURING_LAUNCH TASK_CHECK_STATUS_UPDATED TASK_HEALTH_CHECK_STATUS_UPDATED TASK_GROUP_INVALID
TASK_GROUP_UNAUTHORIZED TASK_INVALID TASK_UNAUTHORIZED TASK_UNKNOWN"""
OPERATIONS = "UNSUPPORTED PENDING FINISHED FAILED ERROR DROPPED UNREACHABLE GONE_BY_OPERATOR RECOVERING UNKNOWN"


def named(kind: str) -> set[str]:
    """The names of this kind in the source."""
    found = (re.findall(rf'"({kind}_[A-Z_]+)"', path.read_text()) for path in SOURCE.rglob("*.py"))
    return {name for names in found for name in names}


def known(kind: str, words: str) -> set[str]:
    return {f"{kind}_{word}" for word in words.split()}


def test_reasons() -> None:
    found = named("REASON")
    assert {"REASON_AGENT_REMOVED", "REASON_AGENT_REREGISTERED", "REASON_RECONCILIATION"} <= found
    assert found <= known("REASON", REASONS) | {"REASON_"}


def test_states() -> None:
    events, capabilities = {"TASK_ADDED", "TASK_UPDATED"}, {"TASK_KILLING_STATE"}
    assert named("TASK") - events - capabilities <= known("TASK", STATES)
    assert set(tasks.STATES) <= known("TASK", STATES)


def test_sources_and_operations() -> None:
    assert named("SOURCE") == {"SOURCE_MASTER", "SOURCE_AGENT", "SOURCE_EXECUTOR"}
    assert named("OPERATION") <= known("OPERATION", OPERATIONS)
