from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.event import Event, TaskDone
from asa.integrations import wfformat as module
from asa.integrations.wfformat import wfformat
from asa.lab.traces.wfformat import parse_workflow
from asa.testing.runlogs import MadeStage, montage, run_begins, run_log, stage_spec

# What schema 1.5 asks for, in our own words (the published file is under another licence).
ID = {"type": "string", "minLength": 1, "pattern": "^[0-9a-zA-Z-_.#]*$"}
TIME = {"type": "string", "format": "date-time", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00$"}
SCHEMA = {
    "type": "object",
    "required": ["name", "schemaVersion", "workflow"],
    "properties": {
        "schemaVersion": {"enum": ["1.5"]},
        "createdAt": TIME,
        "runtimeSystem": {"type": "object", "required": ["name", "version"]},
        "workflow": {
            "type": "object",
            "required": ["specification"],
            "properties": {
                "specification": {
                    "type": "object",
                    "required": ["tasks"],
                    "properties": {
                        "tasks": {
                            "minItems": 1,
                            "items": {
                                "required": ["name", "id", "parents", "children"],
                                "properties": {
                                    "id": ID,
                                    "name": {"type": "string", "minLength": 1},
                                    "parents": {"type": "array", "items": ID},
                                    "children": {"type": "array", "items": ID},
                                },
                            },
                        }
                    },
                },
                "execution": {
                    "type": "object",
                    "required": ["makespanInSeconds", "executedAt", "tasks"],
                    "properties": {
                        "makespanInSeconds": {"type": "number"},
                        "executedAt": TIME,
                        "tasks": {
                            "minItems": 1,
                            "items": {
                                "required": ["id", "runtimeInSeconds"],
                                "properties": {
                                    "runtimeInSeconds": {"type": "number", "minimum": 0},
                                    "coreCount": {"type": "number", "minimum": 1},
                                    "executedAt": TIME,
                                },
                            },
                        },
                        "machines": {
                            "minItems": 1,
                            "items": {"required": ["nodeName"], "properties": {"system": {"enum": ["linux"]}}},
                        },
                    },
                },
            },
        },
    },
}


def log(*stages: MadeStage) -> list[Event]:
    return run_log(stages, seed=3)


def checked(document: dict[str, Any]) -> dict[str, Any]:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(document, SCHEMA)
    return document


def test_it_is_what_the_format_asks_for() -> None:
    document = checked(wfformat(log(*montage(2)), "1.2.3"))
    assert document["runtimeSystem"] == {"name": "ASA", "version": "1.2.3"}
    assert json.loads(json.dumps(document)) == document


def test_what_is_read_again_is_what_ran() -> None:
    events = log(*montage(2))
    instance = parse_workflow(wfformat(events, "1"))
    assert [(stage.name, len(stage.tasks)) for stage in instance.stages()] == [
        (stage.name, stage.tasks) for stage in montage(2)
    ]
    assert [stage.after for stage in instance.stages()] == [stage.after for stage in montage(2)]
    ran: dict[tuple[str, int], float] = {}
    for event in events:
        if isinstance(event, TaskDone):
            ran.setdefault((event.stage, event.index), max(0.0, event.at - event.started))
    assert sorted(task.run_time_s for task in instance.tasks) == pytest.approx(sorted(ran.values()))
    assert instance.makespan_s is not None and instance.makespan_s >= instance.critical_path_s


@pytest.mark.slow
def test_wfcommons_reads_it(tmp_path: Path) -> None:
    instances = pytest.importorskip("wfcommons.wfinstances")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))  # or it would fetch one; its checks of meaning are code
    (tmp_path / "run.json").write_text(json.dumps(wfformat(log(*montage(2)), "1")))
    found = instances.Instance(tmp_path / "run.json", schema_file=str(tmp_path / "schema.json"))
    assert len(found.workflow.nodes) == sum(stage.tasks for stage in montage(2))
    widths = {stage.name: stage.tasks for stage in montage(2)}
    edges = sum(stage.tasks * widths[before] for stage in montage(2) for before in stage.after)
    assert len(found.workflow.edges) == edges


def test_wide_stages_are_joined_by_a_task_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EDGES_MOST", 50)
    document = checked(wfformat(log(MadeStage("a", 8, 10), MadeStage("b", 8, 10, after=("a",))), "1"))
    tasks = {task["id"]: task for task in document["workflow"]["specification"]["tasks"]}
    assert len(tasks["a.all"]["parents"]) == len(tasks["a.all"]["children"]) == 10
    assert tasks["b_ID000001"]["parents"] == ["a.all"]
    assert parse_workflow(document).levels.max() == 2


def test_a_run_that_is_not_done_is_told_as_far_as_it_went() -> None:
    events: list[Event] = [*run_begins(stage_spec("a", 2, 2), stage_spec("b", 1, None, "a"))]
    with pytest.raises(InvalidInput, match="no task has returned"):
        wfformat(events, "1")
    events.append(TaskDone(9.0, "a", 1, "job", "n1", 5.0))
    document = checked(wfformat(events, "1"))
    assert [task["id"] for task in document["workflow"]["specification"]["tasks"]] == ["a_ID000001", "a_ID000002"]
    assert [task["id"] for task in document["workflow"]["execution"]["tasks"]] == ["a_ID000002"]


def test_no_events_are_no_run() -> None:
    with pytest.raises(InvalidInput, match="RunStarted"):
        wfformat([], "1")


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=6, unique=True))
def test_any_names_give_ids_that_differ_and_fit(names: list[str]) -> None:
    events: list[Event] = [*run_begins(*(stage_spec(name, 1, 2) for name in names))]
    events += [TaskDone(2.0, name, index, "job", "n1", 1.0) for name in names for index in range(2)]
    tasks = wfformat(events, "1")["workflow"]["specification"]["tasks"]
    ids = [task["id"] for task in tasks]
    assert len(set(ids)) == 2 * len(names)
    assert all(re.fullmatch(r"[0-9a-zA-Z\-_.#]+", each) for each in ids)
