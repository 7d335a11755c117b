"""A run of ours in WfFormat, which WfCommons and the simulators around it read.

References
----------
T. Coleman, H. Casanova, L. Pottier, M. Kaushik, E. Deelman and R. Ferreira da Silva, "WfCommons: A framework for
enabling scientific workflow research and development", Future Generation Computer Systems 128, 2022; schema 1.5.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, cast

from asa.core.errors import InvalidInput
from asa.core.event import Event, TasksDone
from asa.integrations.recorded import LastAttempt, RecordedRun, identifiers, pieces, recorded, timestamp

SCHEMA = "1.5"
EDGES_MOST = 100_000
"""Between two stages; from there on a task that takes no time stands between them."""


def wfformat(events: Iterable[Event | TasksDone], version: str) -> dict[str, Any]:
    """The instance that a run's log describes, as a JSON document of schema 1.5.

    Every task waits for all tasks of the stages before its own: so they do, and a log tells of stages only. Where that
    were more than `EDGES_MOST` edges, a task ``STAGE.all`` of 0 s, which never ran, joins them. Only tasks that
    returned have an execution, that of the attempt that did. What tasks read and wrote is not in the log.

    Raises
    ------
    InvalidInput
        When the log does not say what was run, or no task has returned.
    """
    return cast("dict[str, Any]", json.loads("".join(wfformat_text(events, version))))


def wfformat_text(events: Iterable[Event | TasksDone], version: str) -> Iterator[str]:
    """As `wfformat`, as text, in pieces: of millions of tasks the document would be too large to hold.

    Raises
    ------
    InvalidInput
        Before the first piece, as `wfformat` does.
    """
    run = recorded(events)
    graph = _Graph(run)
    reused = [(stage.name, *each) for stage in run.stages for each in run.reused(stage.name)]
    first = run.start.at if run.first is None else run.first
    if run.first is None and not reused:
        raise InvalidInput(f"run {run.start.run}: no task has returned, so there is nothing to tell in WfFormat")
    done = (attempt for stage in run.stages for attempt in run.attempts(stage.name, returned=True))
    execution = {
        "makespanInSeconds": max(0.0, run.last - run.start.at),
        "executedAt": timestamp(run.start.at),
        "tasks": chain(map(graph.execution, done), graph.reused(reused, run.start.at), graph.joints(first)),
        "machines": [{"nodeName": node, "system": "linux"} for node in run.nodes],
    }
    document = {
        "name": run.start.run,
        "description": f"{run.start.workflow}, on {run.start.backend} with strategy {run.start.strategy}",
        "createdAt": timestamp(run.last),
        "schemaVersion": SCHEMA,
        "runtimeSystem": {"name": "ASA", "version": version},
        "workflow": {"specification": {"tasks": graph.tasks()}, "execution": execution},
    }
    return pieces(document)


class _Graph:
    """Tasks with ids, and who waits for whom."""

    def __init__(self, run: RecordedRun) -> None:
        self._run, self._names = run, identifiers(run.stages)
        self._specs = {stage.name: stage for stage in run.stages}
        self._after: dict[str, list[str]] = {name: [] for name in self._specs}
        self._joints: dict[str, str] = {}
        for stage in run.stages:
            for before in stage.predecessors:
                self._after[before].append(stage.name)
                if len(run.tasks(before)) * len(run.tasks(stage.name)) > EDGES_MOST:
                    self._joints[before] = f"{self._names[before]}.all"

    def tasks(self) -> Iterator[dict[str, Any]]:
        """As the specification has them."""
        for stage in self._run.stages:
            name, joint = stage.name, self._joints.get(stage.name)
            parents = [task for before in stage.predecessors for task in self._ends(before)]
            children = [joint] if joint else list(self._below(name))
            for task in self._ids(name):
                yield {"name": name, "id": task, "parents": parents, "children": children}
            if joint:
                ends = {"parents": self._ids(name), "children": self._below(name)}
                yield {"name": f"{name}.all", "id": joint, **ends}

    def execution(self, attempt: LastAttempt) -> dict[str, Any]:
        """How a task ran."""
        return {
            "id": self._id(attempt.stage, attempt.index),
            "runtimeInSeconds": attempt.run_time_s,
            "executedAt": timestamp(attempt.started),
            "command": {"program": attempt.stage},
            "coreCount": self._specs[attempt.stage].task.cores,
            "machines": [attempt.node],
        }

    def reused(self, tasks: Iterable[tuple[str, int, str]], at: float) -> Iterator[dict[str, Any]]:
        """Of tasks that did not run, as another run had their results: the program has that run for an argument."""
        for stage, index, run in tasks:
            program = {"program": stage, "arguments": [f"reused from run {run}"]}
            yield {
                "id": self._id(stage, index),
                "runtimeInSeconds": 0.0,
                "executedAt": timestamp(at),
                "command": program,
            }

    def joints(self, at: float) -> Iterator[dict[str, Any]]:
        """Of tasks that never ran."""
        for joint in self._joints.values():
            yield {"id": joint, "runtimeInSeconds": 0.0, "executedAt": timestamp(at)}

    def _id(self, stage: str, index: int) -> str:
        return f"{self._names[stage]}_ID{index + 1:06d}"

    def _ids(self, stage: str) -> Iterator[str]:
        return (self._id(stage, index) for index in self._run.tasks(stage))

    def _ends(self, stage: str) -> Iterable[str]:
        """What waits for all of a stage."""
        return [self._joints[stage]] if stage in self._joints else self._ids(stage)

    def _below(self, stage: str) -> Iterator[str]:
        return (task for after in self._after[stage] for task in self._ids(after))
