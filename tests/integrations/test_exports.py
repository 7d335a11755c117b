"""Runs as others read them: WfFormat and RO-Crate."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, StateError
from asa.core.event import Event, RunEnded, RunState, StageExpanded, TaskDone, TaskFailed, TasksDone, decode, packed
from asa.integrations import wfformat as module
from asa.integrations.recorded import identifiers, recorded
from asa.integrations.rocrate import EVENTS, METADATA, WORKFLOW, crate, write_crate
from asa.integrations.wfformat import wfformat, wfformat_text
from asa.lab.traces.wfformat import parse_workflow
from tests.runlogs import MadeStage, montage, run_begins, run_log, stage_spec

BEGUN = run_begins(stage_spec("a", 1, None))


def test_the_width_of_a_stage_is_what_became_known_of_it() -> None:
    assert list(recorded(BEGUN).tasks("a")) == []
    assert list(recorded([*BEGUN, StageExpanded(2.0, "a", 3)]).tasks("a")) == [0, 1, 2]


def test_a_task_that_returned_stands() -> None:
    run = recorded(
        [
            *BEGUN,
            TaskDone(6.0, "a", 0, "job", "n1", 5.0),
            TaskFailed(7.0, "a", 0, "job", "n2", 5.5, "the node was lost", infrastructure=True),
        ]
    )
    (attempt,) = run.attempts("a")
    assert (attempt.node, attempt.error) == ("n1", "")


def test_jobs_that_end_after_the_outcome_do_not_make_a_run_longer() -> None:
    run = recorded([*BEGUN, RunEnded(8.0, RunState.FAILED, "why"), TaskDone(9.0, "a", 0, "job", "n1", 5.0)])
    assert (run.last, run.state, run.message) == (8.0, RunState.FAILED, "why")


@pytest.mark.parametrize("events", [[], [StageExpanded(2.0, "a", 3), *BEGUN]])
def test_events_that_do_not_say_what_was_run_are_refused(events: list[StageExpanded]) -> None:
    with pytest.raises(InvalidInput, match="the first must be RunStarted"):
        recorded(events)


def test_names_that_are_written_alike_get_numbers() -> None:
    assert identifiers([stage_spec("a*", 1, 1), stage_spec("a+", 1, 1)]) == {"a*": "a_", "a+": "a_.2"}


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


def test_an_unfinished_run_is_exported_as_far_as_it_went() -> None:
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


LOG = run_log((MadeStage("cut", 4, 3), MadeStage("paste it", 1, 1, after=("cut",))), seed=1)


def entities(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = {entity["@id"]: entity for entity in document["@graph"]}
    assert len(found) == len(document["@graph"]), "every id once"
    return found


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [key for item in value for key in references(item)]
    return [value["@id"]] if isinstance(value, dict) else []


def test_the_folder_describes_itself(tmp_path: Path) -> None:
    folder = write_crate(LOG, tmp_path / "crate", "1.2.3")
    found = entities(json.loads((folder / METADATA).read_text()))
    assert found[METADATA]["about"] == {"@id": "./"}
    assert {"@id": "https://w3id.org/ro/crate/1.1"} in found[METADATA]["conformsTo"]
    parts = references(found["./"]["hasPart"])
    assert sorted([METADATA, *parts]) == sorted(path.name for path in folder.iterdir())
    assert {"name", "description", "datePublished", "license"} <= found["./"].keys()
    for key in ("process", "workflow", "provenance"):
        assert f"https://w3id.org/ro/wfrun/{key}/0.5" in references(found["./"]["conformsTo"])
    assert found["#asa"]["softwareVersion"] == "1.2.3"


def test_all_that_is_referred_to_is_there() -> None:
    found = entities(crate(recorded(LOG), "1"))
    outside = {"https://w3id.org/ro/crate/1.1"}
    for entity in found.values():
        for key, value in entity.items():
            for other in references(value) if key != "@id" else []:
                assert other in found or other in outside or other.startswith("http://schema.org/")


def test_what_was_done_leads_to_what_was_planned() -> None:
    found = entities(crate(recorded(LOG), "1"))
    run = found["#run"]
    assert found["./"]["mainEntity"] == run["instrument"] == {"@id": WORKFLOW}
    assert found["./"]["mentions"] == {"@id": "#run"} == found["#orchestration"]["result"]
    assert {"File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"} == set(found[WORKFLOW]["@type"])
    tasks: dict[str, int] = {}
    for control in references(found["#orchestration"]["object"]):
        step = found[references(found[control]["instrument"])[0]]
        assert step["@id"] in references(found[WORKFLOW]["step"])
        for task in references(found[control]["object"]):
            assert found[task]["instrument"] == step["workExample"]
            assert run["startTime"] <= found[task]["startTime"] <= found[task]["endTime"] <= run["endTime"]
            tool = found[found[task]["instrument"]["@id"]]["name"]
            tasks[tool] = tasks.get(tool, 0) + 1
    assert tasks == {"cut": 3, "paste it": 1}


def test_the_log_in_it_is_the_log(tmp_path: Path) -> None:
    folder = write_crate(LOG, tmp_path / "crate", "1")
    again = [json.loads(line) for line in (folder / EVENTS).read_text().splitlines()]
    assert [decode(fields.pop("kind"), fields) for fields in again] == LOG
    assert [stage["name"] for stage in json.loads((folder / WORKFLOW).read_text())["stages"]] == ["cut", "paste it"]


def test_failures_are_in_the_crate() -> None:
    events: list[Event] = [
        *run_begins(stage_spec("a", 1, 1)),
        TaskFailed(3.0, "a", 0, "job", "n1", 2.0, "KeyError: 7"),
        RunEnded(4.0, RunState.FAILED, "stage 'a' failed", "a"),
    ]
    found = entities(crate(recorded(events), "1"))
    assert found["#task-a-0"]["error"] == "KeyError: 7"
    assert found["#run"]["error"] == "stage 'a' failed"
    assert found["#run"]["actionStatus"] == {"@id": "http://schema.org/FailedActionStatus"}


def test_a_task_that_was_tried_again_counts_as_it_ended() -> None:
    events: list[Event] = [
        *run_begins(stage_spec("a", 1, 1)),
        TaskFailed(3.0, "a", 0, "job", "n1", 2.0, "lost", infrastructure=True),
        TaskDone(6.0, "a", 0, "job", "n2", 5.0),
    ]
    found = entities(crate(recorded(events), "1"))
    assert found["#task-a-0"]["description"] == "on node n2" and "error" not in found["#task-a-0"]
    assert "endTime" not in found["#run"]


def test_a_crate_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"none/crate cannot be written: No such file or directory"):
        write_crate(LOG, tmp_path / "none" / "crate", "1")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="is no crate"):
        write_crate(LOG, tmp_path, "1")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    again = write_crate(LOG, tmp_path / "crate", "1")
    assert write_crate(LOG, again, "2", "CC0-1.0") == again
    assert entities(json.loads((again / METADATA).read_text()))["./"]["license"] == "CC0-1.0"


@pytest.mark.slow
def test_the_library_for_crates_reads_it(tmp_path: Path) -> None:
    library = pytest.importorskip("rocrate.rocrate")
    found = library.ROCrate(write_crate(LOG, tmp_path / "crate", "1"))
    assert found.mainEntity.id == WORKFLOW
    assert {entity.id for entity in found.get_by_type("CreateAction")} >= {"#run", "#task-cut-0"}
    assert found.get("#run")["instrument"].id == WORKFLOW
    assert found.get("#task-cut-1")["instrument"]["name"] == "cut"
    found.write(tmp_path / "again")
    assert (tmp_path / "again" / EVENTS).read_text() == (tmp_path / "crate" / EVENTS).read_text()


# ------------------------------------------------------------------------------------------------ many tasks


@st.composite
def attempts(draw: st.DrawFn) -> list[Event]:
    """Attempts at tasks of two stages, in any order: some fail, some return twice."""
    events: list[Event] = [*run_begins(stage_spec("a", 4, 5), stage_spec("b", 4, 7, "a"))]
    for at in range(draw(st.integers(0, 25))):
        stage, index, node = draw(st.sampled_from("ab")), draw(st.integers(0, 4)), draw(st.sampled_from(["n1", "n2"]))
        if draw(st.booleans()):
            events.append(TaskDone(10.0 + at, stage, index, "job", node, 5.0 + at))
        else:
            events.append(TaskFailed(10.0 + at, stage, index, "job", node, 5.0 + at, f"error {at}"))
    return events


@given(attempts())
def test_of_each_task_the_first_attempt_that_returned_stands_or_else_the_last(events: list[Event]) -> None:
    expected: dict[tuple[str, int], TaskDone | TaskFailed] = {}
    for event in events:
        if isinstance(event, TaskDone | TaskFailed):
            key = event.stage, event.index
            if isinstance(expected.setdefault(key, event), TaskFailed):
                expected[key] = event
    run = recorded(packed(events))
    found = {(stage, each.index): each for stage in "ab" for each in run.attempts(stage)}
    assert list(found) == sorted(expected)
    for key, event in expected.items():
        each, error = found[key], event.error if isinstance(event, TaskFailed) else ""
        assert (each.node, each.started, each.ended, each.error) == (event.node, event.started, event.at, error)
    done = [event for event in expected.values() if isinstance(event, TaskDone)]
    assert run.nodes == sorted({event.node for event in done})
    assert run.first == min((event.started for event in done), default=None)
    assert [*run.attempts("a", returned=True)] == [each for each in run.attempts("a") if not each.error]


def peak(write: Callable[[int], object], tasks: int) -> int:
    """Most memory that is in use while so many are written [bytes]."""
    tracemalloc.start()
    try:
        write(tasks)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path) -> None:
    class Log:
        def __init__(self, tasks: int) -> None:
            self.tasks = tasks

        def __iter__(self) -> Iterator[Event | TasksDone]:
            yield from run_begins(stage_spec("a", 8, self.tasks))
            yield from packed(TaskDone(9.0, "a", index, "job", "n1", 5.0) for index in range(self.tasks))

    def instance(tasks: int) -> None:
        with open(tmp_path / "run.json", "w") as file:
            file.writelines(wfformat_text(Log(tasks), "1"))

    for write in (instance, lambda tasks: write_crate(Log(tasks), tmp_path / "crate", "1")):
        write(10)  # what is imported at first
        more = peak(write, 20_000) - peak(write, 10_000)
        assert more < 10_000 * 400  # columns of numbers; the text has 300 to 500 bytes a task, objects had 2,000
    assert len(json.loads((tmp_path / "run.json").read_text())["workflow"]["execution"]["tasks"]) == 10_000
