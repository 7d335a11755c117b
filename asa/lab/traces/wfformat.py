"""Recorded runs of workflows, in WfFormat: tasks, how long each ran, and which wait for which.

References
----------
T. Coleman, H. Casanova, L. Pottier, M. Kaushik, E. Deelman and R. Ferreira da Silva, "WfCommons: A framework for
enabling scientific workflow research and development", Future Generation Computer Systems 128, 2022; schema 1.5.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from asa.core.arrays import Ints
from asa.core.errors import GraphError, InvalidInput
from asa.core.history import Usage
from asa.lab.traces.records import contents

_COUNTER = re.compile(r"_(ID)?\d+$")


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task of a recorded run.

    Parameters
    ----------
    run_time_s
        How long it ran [s]; >= 0.
    cores
        Cores it was given; 1 where the record does not tell.
    memory
        Bytes it used at most, or None.
    parents
        Rows of the tasks that it waits for.
    input
        Bytes of the files that it read, or None.
    busy
        How many processors it kept busy, on average, or None.
    """

    name: str
    category: str
    run_time_s: float
    cores: int = 1
    memory: int | None = None
    parents: tuple[int, ...] = ()
    input: int | None = None
    busy: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.run_time_s) and self.run_time_s >= 0):
            raise InvalidInput(f"task {self.name!r} ran for {self.run_time_s!r} s: at least 0 s and finite expected")
        if self.cores < 1:
            raise InvalidInput(f"task {self.name!r} has {self.cores!r} cores: at least 1 expected")


@dataclass(frozen=True, slots=True)
class RecordedStage:
    """Tasks of one category at one level: they wait for the same levels, and may run at the same time.

    Parameters
    ----------
    name
        The category, with a number behind it when there are several stages of it.
    level
        How many tasks stand one after the other before it.
    after
        Names of the stages that some of its tasks wait for.
    """

    name: str
    level: int
    tasks: tuple[int, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class WorkflowInstance:
    """A recorded run of a workflow.

    Parameters
    ----------
    makespan_s
        How long the whole run took where it was recorded [s], or None.
    written
        When the record was written [s since the epoch]; 0 where it does not tell.

    Raises
    ------
    GraphError
        When tasks wait for one another in a circle, or for one that is not there.

    Examples
    --------
    >>> split = RecordedTask("split", "split", 5.0)
    >>> halves = [RecordedTask(f"half-{k}", "half", 10.0 + k, parents=(0,)) for k in range(2)]
    >>> run = WorkflowInstance("small", (split, *halves, RecordedTask("join", "join", 1.0, parents=(1, 2))))
    >>> run.levels.tolist(), run.critical_path, run.critical_path_s
    ([0, 1, 1, 2], (0, 2, 3), 17.0)
    >>> [(stage.name, len(stage.tasks), stage.after) for stage in run.stages()]
    [('split', 1, ()), ('half', 2, ('split',)), ('join', 1, ('half',))]
    """

    name: str
    tasks: tuple[RecordedTask, ...]
    makespan_s: float | None = None
    written: float = 0.0

    def __post_init__(self) -> None:
        for task in self.tasks:
            for parent in task.parents:
                if not 0 <= parent < len(self.tasks):
                    raise GraphError(f"task {task.name!r} of {self.name!r} waits for row {parent}, which is not there")
        if len(self.order) < len(self.tasks):
            stuck = self.tasks[min(set(range(len(self.tasks))) - set(self.order))]
            raise GraphError(f"tasks of {self.name!r} wait for one another in a circle; {stuck.name!r} never starts")

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Rows of the tasks, each behind those that it waits for."""
        children: list[list[int]] = [[] for _ in self.tasks]
        open_parents = [len(task.parents) for task in self.tasks]
        for row, task in enumerate(self.tasks):
            for parent in task.parents:
                children[parent].append(row)
        order = [row for row, count in enumerate(open_parents) if count == 0]
        for row in order:  # which grows meanwhile
            for child in children[row]:
                open_parents[child] -= 1
                if open_parents[child] == 0:
                    order.append(child)
        return tuple(order)

    @cached_property
    def levels(self) -> Ints:
        """How many tasks stand one after the other before each task, shape (tasks,)."""
        levels = np.zeros(len(self.tasks), dtype=np.int64)
        for row in self.order:
            levels[row] = max((levels[parent] + 1 for parent in self.tasks[row].parents), default=0)
        levels.setflags(write=False)
        return levels

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """Rows of the tasks, one behind the other, that take longest in all."""
        ends = [0.0] * len(self.tasks)
        for row in self.order:
            ready = max((ends[parent] for parent in self.tasks[row].parents), default=0.0)
            ends[row] = ready + self.tasks[row].run_time_s
        path = [int(np.argmax(ends))] if ends else []
        while path and (parents := self.tasks[path[-1]].parents):
            path.append(max(parents, key=ends.__getitem__))
        return tuple(reversed(path))

    @property
    def critical_path_s(self) -> float:
        """How long the run would take with as many cores as it likes [s]."""
        return sum(self.tasks[row].run_time_s for row in self.critical_path)

    @property
    def core_seconds(self) -> float:
        """Cores times run time of all tasks [core-seconds]."""
        return sum(task.cores * task.run_time_s for task in self.tasks)

    def stages(self) -> tuple[RecordedStage, ...]:
        """The tasks in stages, by level, and in the order of the record within one."""
        members: dict[tuple[int, str], list[int]] = {}
        levels = self.levels.tolist()
        for row in sorted(range(len(self.tasks)), key=levels.__getitem__):
            members.setdefault((levels[row], self.tasks[row].category), []).append(row)
        many = Counter(category for _, category in members)
        seen: Counter[str] = Counter()
        names: dict[tuple[int, str], str] = {}
        stages = []
        for key, rows in members.items():
            level, category = key
            seen[category] += 1
            names[key] = f"{category}-{seen[category]}" if many[category] > 1 else category
            parents = {parent for row in rows for parent in self.tasks[row].parents}
            above = dict.fromkeys(sorted((levels[parent], self.tasks[parent].category) for parent in parents))
            stages.append(RecordedStage(names[key], level, tuple(rows), tuple(names[one] for one in above)))
        return tuple(stages)

    def __repr__(self) -> str:
        return (
            f"<WorkflowInstance {self.name}: {len(self.tasks)} tasks on {int(self.levels.max(initial=-1)) + 1} levels>"
        )


def read_workflow(path: str | Path) -> WorkflowInstance:
    """Read an instance, plain or packed with gzip.

    Raises
    ------
    InvalidInput
        When the file cannot be read, is no JSON, or no instance with measured run times.
    GraphError
        When its tasks do not form a workflow.
    """
    try:
        document = json.loads(contents(path))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no JSON: {error}") from error
    return parse_workflow(document, str(path))


def parse_workflow(document: Any, source: str = "workflow") -> WorkflowInstance:
    """The instance that a JSON document describes: schema 1.5, or an older one, whose tasks tell all themselves.

    Tasks wait for their parents, and for all that name them as children. A task's category is its program; its name
    without the number at its end where the program is a whole script.

    Raises
    ------
    InvalidInput
        When it is no instance, or a task lacks its run time; the message names the task.
    GraphError
        When a task waits for one that is not there, or tasks wait for one another in a circle.
    """
    try:
        workflow = document["workflow"]
        known = workflow.get("specification", workflow)
        tasks = known["tasks"] if "tasks" in known else known["jobs"]
        records = {record["id"]: record for record in workflow.get("execution", {}).get("tasks", ())}
        ids = [str(task["id"] if "id" in task else task["name"]) for task in tasks]
        parents = _parents(tasks, ids, source)
        sizes = {str(file["id"]): int(file["sizeInBytes"]) for file in known.get("files", ())}
        found = tuple(
            _task(task, records.get(key, task), key, above, sizes)
            for task, key, above in zip(tasks, ids, parents, strict=True)
        )
        makespan = workflow.get("execution", workflow).get("makespanInSeconds")
        written = _moment(str(document.get("createdAt", "")))
        took = None if makespan is None else float(makespan)
        return WorkflowInstance(str(document.get("name", source)), found, took, written)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"{source} is no workflow in WfFormat ({type(error).__name__}: {error}): "
            "workflow.specification.tasks and workflow.execution.tasks (schema 1.5) or workflow.tasks (before) expected"
        ) from error


def _moment(text: str) -> float:
    """Time [s since the epoch] of an ISO date and time; 0 of anything else."""
    try:
        return max(0.0, datetime.datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return 0.0


def _parents(tasks: Sequence[Mapping[str, Any]], ids: Sequence[str], source: str) -> list[tuple[int, ...]]:
    rows = {key: row for row, key in enumerate(ids)}
    if len(rows) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise GraphError(f"{source} has two tasks with the id {twice!r}: each has its own in WfFormat, mend the file")
    names = {str(task.get("name")): row for row, task in enumerate(tasks)}  # older schemas refer to tasks by name

    def row_of(key: str, task: str) -> int:
        row = rows.get(key, names.get(key))
        if row is None:
            raise GraphError(f"{source}: task {task!r} is bound to {key!r}, which is not there: mend the file")
        return row

    above: list[set[int]] = [set() for _ in ids]
    for row, task in enumerate(tasks):
        above[row].update(row_of(parent, ids[row]) for parent in task.get("parents", ()))
        for child in task.get("children", ()):
            above[row_of(child, ids[row])].add(row)
    return [tuple(sorted(found)) for found in above]


def _task(
    task: Mapping[str, Any], record: Mapping[str, Any], key: str, parents: tuple[int, ...], sizes: Mapping[str, int]
) -> RecordedTask:
    run_time = record.get("runtimeInSeconds", record.get("runtime"))
    if run_time is None:
        raise InvalidInput(f"task {key!r} has no measured run time (runtimeInSeconds): only recorded runs can be used")
    command = record.get("command", {})
    program = str(command.get("program", "")) if isinstance(command, Mapping) else ""
    name = _COUNTER.sub("", str(task.get("name", key)))
    memory, busy = record.get("memoryInBytes"), record.get("avgCPU")
    return RecordedTask(
        name=key,
        category=PurePosixPath(program).name if program and not program.split()[1:] else name,
        run_time_s=float(run_time),
        cores=math.ceil(record.get("coreCount", record.get("cores", 1))),
        memory=int(memory) if memory else None,
        parents=parents,
        input=_input(task, sizes),
        busy=float(busy) / 100 if busy is not None and 0 <= float(busy) < math.inf else None,
    )


def _input(task: Mapping[str, Any], sizes: Mapping[str, int]) -> int | None:
    """Bytes of the files that a task read: those of schema 1.5 by their ids, or, before, what the task says itself."""
    names = [str(name) for name in task.get("inputFiles", ())]
    if names and all(name in sizes for name in names):
        return sum(sizes[name] for name in names)
    read = [file for file in task.get("files", ()) if isinstance(file, Mapping) and file.get("link") == "input"]
    known = [file.get("sizeInBytes", file.get("size")) for file in read]
    return sum(map(int, known)) if known and None not in known else None


def usage_of_instance(path: str | Path) -> list[Usage]:
    """What tasks of a recorded run took, for the history; a stage is a category of tasks. They count as ended when the
    record was written.

    Raises
    ------
    InvalidInput, GraphError
        As `read_workflow` does.
    """
    instance = read_workflow(path)
    return [
        Usage(
            stage=task.category,
            code="",
            machine="",
            input=task.input,
            cores=task.cores,
            width=None,
            run_time_s=task.run_time_s,
            cpu_s=None if task.busy is None else task.busy * task.run_time_s,
            memory=task.memory,
            asked_memory=None,
            asked_s=None,
            outcome="ok",
            ended=instance.written,
            source="wfcommons",
        )
        for task in instance.tasks
    ]
