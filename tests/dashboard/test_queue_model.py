from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asa.dashboard.feed import QueueModel
from tests.cli.test_cli import QUEUE

STATE = {"cpu": 0.2, "memory": 0.1, "parallel": False, "elapsed": 0.3, "happiness": 1.4}
ENTRIES: list[dict[str, Any]] = [
    {"at": 0.0, "decision": "Start", "job": "h", "nodes": [], "why": None},
    {"at": 0.5, "event": "started", "job": "h", "nodes": ["n1"]},
    {"at": 10.0, "decision": "Keep", "host": "h", "why": {"state": {**STATE, "happiness": 0.7}, "action": 0.0}},
    {
        "at": 20.0,
        "decision": "StartGuest",
        "job": "g",
        "host": "h",
        "share": 0.4,
        "hard": False,
        "why": {"state": STATE},
    },
    {"at": 30.0, "decision": "SetShare", "guest": "g", "share": 0.2, "why": None},
    {"at": 40.0, "decision": "Evict", "guest": "g", "why": None},
    {
        "at": 50.0,
        "event": "ended",
        "job": "h",
        "problem": "",
        "run_time_s": 50.0,
        "slowdown": 1.25,
        "loss": {"a": None},
    },
    {"at": 55.0, "decision": "Start", "job": "g", "why": {"state": {**STATE, "happiness": None}}},
    {"at": 60.0, "event": "ended", "job": "g", "problem": "exit code 1"},
]


def shown(count: int = len(ENTRIES)) -> Any:
    model = QueueModel()
    for entry in ENTRIES[:count]:
        model.on(entry)
    return json.loads(json.dumps(model.document(model.last), allow_nan=False))


def test_stays_follow_the_decisions() -> None:
    jobs = shown()["queued"]
    assert jobs["h"]["stays"] == [{"since": 0.0, "until": 50.0, "host": None, "share": 1.0}]
    assert [(stay["host"], stay["share"], stay["until"]) for stay in jobs["g"]["stays"]] == [
        ("h", 0.4, 30.0),
        ("h", 0.2, 40.0),
        (None, 1.0, 60.0),
    ]


def test_states_are_told() -> None:
    assert shown(1)["queued"]["h"]["state"] == "running"
    assert shown(6)["queued"]["g"]["state"] == "waiting"
    assert shown()["queue"] == {"running": 0, "ended": 1, "failed": 1, "waiting": 0}
    assert shown()["queued"]["g"]["problem"] == "exit code 1"
    assert shown()["queued"]["h"]["slowdown"] == 1.25
    assert shown()["queued"]["h"]["nodes"] == ["n1"]


def test_a_job_whose_nodes_were_lost_waits_again() -> None:
    model = QueueModel()
    for entry in (*ENTRIES[:2], {"at": 5.0, "event": "requeued", "job": "h"}):
        model.on(entry)
    job: Any = model.document(model.last)["queued"]["h"]
    assert (job["state"], job["stays"][-1]["until"]) == ("waiting", 5.0)
    assert model.bars_from(0) == [] and model.bars == 0


@pytest.mark.parametrize(
    "entry", [{"event": "drained"}, {"event": "greeted", "job": "h"}, {"decision": "Bow", "host": "h"}]
)
def test_what_it_does_not_know_of_changes_nothing_but_the_time(entry: dict[str, Any]) -> None:
    model = QueueModel()
    model.on(ENTRIES[0])
    before = json.dumps(model.document(model.last))
    model.on({"at": 7.0, **entry})
    assert json.dumps(model.document(model.last)) == before
    assert model.last == 7.0


def test_decisions_have_the_happiness_they_were_made_with() -> None:
    rows = list(shown()["decisions"].values())
    assert [row["decision"] for row in rows] == ["Start", "Keep", "StartGuest", "SetShare", "Evict", "Start"]
    assert [(row["measured"], row["happiness"]) for row in rows] == [
        (False, None), (True, 0.7), (True, 1.4), (False, None), (False, None), (True, None),
    ]  # fmt: skip


def test_what_was_shown_is_never_changed() -> None:
    model = QueueModel()
    before: list[tuple[Any, str]] = []
    for entry in ENTRIES:
        model.on(entry)
        document = model.document(model.last)
        before.append((document, json.dumps(document)))
    assert all(json.dumps(document) == text for document, text in before)


def test_the_log_of_a_real_queue_is_read(tmp_path: Path) -> None:
    """What the co-scheduler writes is what is read here."""
    from asa.cli.main import main
    from asa.dashboard.feed import Sources

    queue = tmp_path / "queue.toml"
    queue.write_text(QUEUE)
    (tmp_path / "cosched").mkdir(0o700)
    tmp_path.chmod(0o700)
    work = tmp_path / "cosched" / "day-1"
    assert main(["cosched", "run", str(queue), "--on", "sim", "--sharing", "static", "--work", str(work)]) == 0
    sources = Sources(tmp_path)
    assert sources.find("day-1") == ("queues", "day-1")
    feed = sources.open("queues", "day-1")
    assert feed.advance()
    document: Any = feed.look().document
    assert {row["state"] for row in document["queued"].values()} == {"ended"}
    assert document["queued"]["guest"]["stays"][0]["host"] == "host"
    assert {row["decision"] for row in document["decisions"].values()} >= {"Start", "StartGuest"}
    feed.close()
