from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from asa.core.errors import InvalidInput, StateError
from asa.core.event import Event, RunEnded, RunState, TaskDone, TaskFailed, decode
from asa.integrations.recorded import recorded
from asa.integrations.rocrate import EVENTS, METADATA, WORKFLOW, crate, write_crate
from asa.testing.runlogs import MadeStage, run_begins, run_log, stage_spec

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


def test_failures_are_told() -> None:
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


def test_a_crate_that_cannot_be_written_is_told(tmp_path: Path) -> None:
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
