"""The oracle itself: what it knows, and that it finds what is wrong."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from executors.mesos.codec import Records
from tests.executors.mesos.oracle import API, check, made
from tests.executors.mesos.proto_table import PLAIN, ROOTS, lines
from tests.executors.mesos.test_recordio_golden import GOLDEN

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
