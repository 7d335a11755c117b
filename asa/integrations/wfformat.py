"""A run of ours in WfFormat, which WfCommons and the simulators around it read.

References
----------
T. Coleman, H. Casanova, L. Pottier, M. Kaushik, E. Deelman and R. Ferreira da Silva, "WfCommons: A framework for
enabling scientific workflow research and development", Future Generation Computer Systems 128, 2022; schema 1.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from asa.core.errors import InvalidInput
from asa.core.event import Event
from asa.integrations.recorded import LastAttempt, RecordedRun, identifiers, recorded, timestamp

SCHEMA = "1.5"
EDGES_MOST = 100_000
"""Between two stages; from there on a task that takes no time stands between them."""


def wfformat(events: Iterable[Event], version: str) -> dict[str, Any]:
    """The instance that a run's log describes, as a JSON document of schema 1.5.

    Every task waits for all tasks of the stages before its own: so they do, and a log tells of stages only. Where that
    were more than `EDGES_MOST` edges, a task ``STAGE.all`` of 0 s, which never ran, joins them. Only tasks that
    returned have an execution, that of the attempt that did. What tasks read and wrote is not in the log.

    Raises
    ------
    InvalidInput
        When the log does not say what was run, or no task has returned.
    """
    run = recorded(events)
    graph = _Graph(run)
    done = [attempt for stage in run.stages for attempt in run.attempts(stage.name) if not attempt.error]
    if not done:
        raise InvalidInput(f"run {run.start.run}: no task has returned, so there is nothing to tell in WfFormat")
    first = min(attempt.started for attempt in done)
    execution = {
        "makespanInSeconds": max(0.0, run.last - run.start.at),
        "executedAt": timestamp(run.start.at),
        "tasks": [*(graph.execution(attempt) for attempt in done), *graph.joints(first)],
        "machines": [{"nodeName": node, "system": "linux"} for node in sorted({attempt.node for attempt in done})],
    }
    return {
        "name": run.start.run,
        "description": f"{run.start.workflow}, on {run.start.backend} with strategy {run.start.strategy}",
        "createdAt": timestamp(run.last),
        "schemaVersion": SCHEMA,
        "runtimeSystem": {"name": "ASA", "version": version},
        "workflow": {"specification": {"tasks": graph.tasks()}, "execution": execution},
    }


class _Graph:
    """Tasks with ids, and who waits for whom."""

    def __init__(self, run: RecordedRun) -> None:
        self._run, names = run, identifiers(run.stages)
        self._specs = {stage.name: stage for stage in run.stages}
        self._ids = {name: [f"{names[name]}_ID{index + 1:06d}" for index in run.tasks(name)] for name in self._specs}
        self._joints: dict[str, str] = {}
        for stage in run.stages:
            for before in stage.predecessors:
                if len(self._ids[before]) * len(self._ids[stage.name]) > EDGES_MOST:
                    self._joints[before] = f"{names[before]}.all"

    def tasks(self) -> list[dict[str, Any]]:
        """As the specification has them."""
        parents: dict[str, list[str]] = {}
        for stage in self._run.stages:
            above = [task for before in stage.predecessors for task in self._ends(before)]
            parents |= dict.fromkeys(self._ids[stage.name], above)
            if stage.name in self._joints:
                parents[self._joints[stage.name]] = self._ids[stage.name]
        children: dict[str, list[str]] = {task: [] for task in parents}
        for task, above in parents.items():
            for parent in above:
                children[parent].append(task)
        return [
            {"name": name, "id": task, "parents": parents[task], "children": children[task]}
            for name, task in self._named()
        ]

    def execution(self, attempt: LastAttempt) -> dict[str, Any]:
        """How a task ran."""
        return {
            "id": self._ids[attempt.stage][attempt.index],
            "runtimeInSeconds": attempt.run_time_s,
            "executedAt": timestamp(attempt.started),
            "command": {"program": attempt.stage},
            "coreCount": self._specs[attempt.stage].task.cores,
            "machines": [attempt.node],
        }

    def joints(self, at: float) -> Iterator[dict[str, Any]]:
        """Of tasks that never ran."""
        for joint in self._joints.values():
            yield {"id": joint, "runtimeInSeconds": 0.0, "executedAt": timestamp(at)}

    def _ends(self, stage: str) -> list[str]:
        """What waits for all of a stage."""
        return [self._joints[stage]] if stage in self._joints else self._ids[stage]

    def _named(self) -> Iterator[tuple[str, str]]:
        for name, ids in self._ids.items():
            yield from ((name, task) for task in ids)
            if name in self._joints:
                yield f"{name}.all", self._joints[name]
