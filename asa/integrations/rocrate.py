"""Where a run's results come from, as a Workflow Run RO-Crate: a folder that describes itself in JSON-LD.

References
----------
S. Leo et al., "Recording provenance of workflow runs with RO-Crate", PLoS ONE 19(9), e0309210, 2024; Provenance Run
Crate 0.5. S. Soiland-Reyes et al., "Packaging research artefacts with RO-Crate", Data Science 5(2), 2022; RO-Crate 1.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

from asa.core.errors import InvalidInput, StateError
from asa.core.event import Event, RunState, TasksDone, encode
from asa.core.serial import to_json
from asa.integrations.recorded import LastAttempt, RecordedRun, identifiers, pieces, recorded, timestamp

METADATA = "ro-crate-metadata.json"
WORKFLOW, EVENTS = "workflow.json", "events.jsonl"

Entity = dict[str, Any]

_RUN_CRATE = "https://w3id.org/ro/wfrun"
_PROFILES = {
    f"{_RUN_CRATE}/process/0.5": "Process Run Crate",
    f"{_RUN_CRATE}/workflow/0.5": "Workflow Run Crate",
    f"{_RUN_CRATE}/provenance/0.5": "Provenance Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
_CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
_SPEC = "https://w3id.org/ro/crate/1.1"
_LANGUAGE, _ENGINE, _RUN = "#asa-workflow", "#asa", "#run"
_LICENSE = "no license is stated: ask its authors before you use its contents"
_DONE, _FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"


def write_crate(events: Iterable[Event | TasksDone], folder: Path, version: str, license_: str = _LICENSE) -> Path:
    """Write a run's crate: its description, the workflow (`WORKFLOW`) and the whole event log (`EVENTS`).

    What tasks were given and what they returned is not in it; nor is who ran it, which a log does not tell.

    Parameters
    ----------
    events
        The whole log; it is read twice, so that of millions of tasks not all need be held.
    folder
        Made when missing; if there it must be empty, or hold a crate, which is overwritten.
    license_
        Under which its contents may be used: an address, or words.

    Raises
    ------
    InvalidInput
        When the events do not say what was run, or the folder holds something else.
    StateError
        When it cannot be written.
    """
    run = recorded(events)
    workflow = {"name": run.start.workflow, "stages": to_json(run.stages)}
    one_by_one = (each for item in events for each in (item.events() if isinstance(item, TasksDone) else [item]))
    texts: dict[str, Iterable[str]] = {
        WORKFLOW: [json.dumps(workflow, indent=1)],
        EVENTS: (json.dumps({"kind": kind, **fields}) + "\n" for kind, fields in map(encode, one_by_one)),
        METADATA: pieces(_crate(run, version, license_)),
    }
    if folder.exists() and not (folder / METADATA).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{str(folder)!r} is there and is no crate: name a folder that is empty, or not there")
    try:
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            with open(folder / name, "w", encoding="utf-8") as file:
                file.writelines(text)
    except OSError as error:
        raise StateError(f"{folder} cannot be written: {error.strerror}") from error
    return folder


def crate(run: RecordedRun, version: str, license_: str = _LICENSE) -> dict[str, Any]:
    """The crate's description, as a JSON document; see `write_crate`."""
    return cast("dict[str, Any]", json.loads("".join(pieces(_crate(run, version, license_)))))


def _crate(run: RecordedRun, version: str, license_: str) -> dict[str, Any]:
    names = identifiers(run.stages)
    planned = [*_root(run, license_), *_software(version), *_prospective(run, names)]
    return {"@context": _CONTEXT, "@graph": chain(planned, _retrospective(run, names))}


def _root(run: RecordedRun, license_: str) -> list[Entity]:
    """The folder, its description, and the profiles that it follows."""
    parts = [WORKFLOW, EVENTS]
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Run {run.start.run}",
        "description": f"A run of the workflow {run.start.workflow} with ASA, on {run.start.backend}",
        "datePublished": timestamp(run.last),
        "license": license_,
        "conformsTo": _refer(_PROFILES),
        "hasPart": _refer(parts),
        "mainEntity": {"@id": WORKFLOW},
        "mentions": {"@id": _RUN},
    }
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": _refer([_SPEC, list(_PROFILES)[-1]]),
    }
    log = {
        "@id": EVENTS,
        "@type": "File",
        "name": "Event log",
        "description": "All that happened in the run, an event on each line",
        "encodingFormat": "application/jsonl",
    }
    profiles = [
        {"@id": key, "@type": "CreativeWork", "name": name, "version": key.rpartition("/")[2]}
        for key, name in _PROFILES.items()
    ]
    return [descriptor, root, log, *profiles]


def _software(version: str) -> list[Entity]:
    engine = {"@id": _ENGINE, "@type": "SoftwareApplication", "name": "ASA", "softwareVersion": version}
    return [engine, {"@id": _LANGUAGE, "@type": "ComputerLanguage", "name": "ASA workflow", "version": version}]


def _prospective(run: RecordedRun, names: dict[str, str]) -> list[Entity]:
    """The workflow as it was planned: its stages as steps, and the programs that they call."""
    workflow = {
        "@id": WORKFLOW,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        "name": run.start.workflow,
        "encodingFormat": "application/json",
        "programmingLanguage": {"@id": _LANGUAGE},
        "step": _refer(f"#step-{names[stage.name]}" for stage in run.stages),
        "hasPart": _refer(f"#stage-{names[stage.name]}" for stage in run.stages),
    }
    found: list[Entity] = [workflow]
    for position, stage in enumerate(run.stages):
        name, tool = names[stage.name], f"#stage-{names[stage.name]}"
        after = f"; after {', '.join(stage.predecessors)}" if stage.predecessors else ""
        found.append(
            {"@id": f"#step-{name}", "@type": "HowToStep", "position": str(position), "workExample": {"@id": tool}}
        )
        needs = f"an allocation of {stage.resources}, {stage.task} for each task{after}"
        found.append({"@id": tool, "@type": "SoftwareApplication", "name": stage.name, "description": needs})
    return found


def _retrospective(run: RecordedRun, names: dict[str, str]) -> Iterator[Entity]:
    """What was done: the run, its orchestration, and every task of it."""
    kept = {stage.name: dict(run.reused(stage.name)) for stage in run.stages}
    acted = (stage.name for stage in run.stages if run.ran(stage.name) or kept[stage.name])
    controls = {name: f"#control-{names[name]}" for name in acted}
    started, ended = timestamp(run.start.at), timestamp(run.last)
    action: Entity = {
        "@id": _RUN,
        "@type": "CreateAction",
        "name": f"Run {run.start.run}",
        "instrument": {"@id": WORKFLOW},
        "result": {"@id": EVENTS},
        "startTime": started,
    }
    over = run.state is not RunState.RUNNING
    action |= {"endTime": ended, **_status(run.message, failed=run.state is not RunState.SUCCEEDED)} if over else {}
    organize: Entity = {
        "@id": "#orchestration",
        "@type": "OrganizeAction",
        "name": f"Orchestration by ASA, with strategy {run.start.strategy} and executor {run.start.executor}",
        "instrument": {"@id": _ENGINE},
        "object": _refer(controls.values()),
        "result": {"@id": _RUN},
        "startTime": started,
    } | ({"endTime": ended} if over else {})
    yield from (action, organize)
    for stage, key in controls.items():
        name = names[stage]
        again = [{"@id": f"#task-{name}-{index}"} for index in kept[stage]]
        tasks = chain(({"@id": _task_id(name, attempt)} for attempt in run.attempts(stage)), again)
        step = {"instrument": {"@id": f"#step-{name}"}}
        yield {"@id": key, "@type": "ControlAction", "name": f"Run stage {stage}", **step, "object": tasks}
        yield from (_task(attempt, name) for attempt in run.attempts(stage))
        for (index, other), entry in zip(kept[stage].items(), again, strict=True):
            yield {
                **entry,
                "@type": "CreateAction",
                "name": f"Task {index} of {stage}",
                "description": f"its result is that of run {other}, which had done the same",
                "instrument": {"@id": f"#stage-{name}"},
                "endTime": started,
                **_status("", failed=False),
            }


def _task_id(name: str, attempt: LastAttempt) -> str:
    return f"#task-{name}-{attempt.index}"


def _task(attempt: LastAttempt, name: str) -> Entity:
    return {
        "@id": _task_id(name, attempt),
        "@type": "CreateAction",
        "name": f"Task {attempt.index} of {attempt.stage}",
        "description": f"on node {attempt.node}",
        "instrument": {"@id": f"#stage-{name}"},
        "startTime": timestamp(attempt.started),
        "endTime": timestamp(max(attempt.started, attempt.ended)),
        **_status(attempt.error, failed=bool(attempt.error)),
    }


def _status(error: str, *, failed: bool) -> Entity:
    return {"actionStatus": {"@id": _FAILED}, "error": error} if failed else {"actionStatus": {"@id": _DONE}}


def _refer(keys: Any) -> list[Entity]:
    return [{"@id": key} for key in keys]
