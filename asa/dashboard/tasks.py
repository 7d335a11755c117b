"""Tasks of a run: a page of those that fit a query, and all that is known of one, its arguments included."""

from __future__ import annotations

import io
import math
import pickle
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.event import RunState, TaskFailed
from asa.core.run import ATTEMPT, TAKEN, AttemptLog, FoldedRun, Held, StageProgress, TaskOutcome, TaskState
from asa.dashboard.document import plain
from asa.dashboard.rows import begun
from asa.log.curve import UsageSample, read_curve
from asa.log.output import parsed_task
from asa.log.rundir import RunDirectory
from asa.report.words import last_words
from asa.workflows.graph import Graph
from asa.workflows.settings import Settings
from asa.workflows.stage import Node

STATES = ("waiting", "running", "done", "failed", "skipped", "not run", "stopped", "unknown")
"""Of tasks as the page names them: those of `TaskState`, then of tasks that a run has left as they were."""
ORDERS = ("number", "longest", "newest", "tries", "memory")
PAGE_MOST = 500
"""Tasks in one answer."""
WORDS_MOST, STORY_MOST = 200, 4000
"""Letters of an error in a row, and of all that is shown of one attempt."""

_NOT_RUN, _STOPPED, _UNKNOWN = range(len(TaskState), len(STATES))
_RECORD = np.dtype([*((name, "<i4") for name in ("stage", "index", "job", "node", "outcome")), ("at", "<f8", 2)])
_TAKEN = np.dtype([("cpu_s", "<f8"), ("peak", "<i8"), ("given", "<i8"), ("source", "u1"), ("lacked", "?", 2)])
assert (_RECORD.itemsize, _TAKEN.itemsize) == (ATTEMPT.size, TAKEN.size)

Failures = Mapping[tuple[str, int], Sequence[TaskFailed]]
"""Task -> its attempts that failed."""


@dataclass(frozen=True)
class TaskQuery:
    """Which tasks of a run are wanted; "" for all.

    Parameters
    ----------
    text
        A part of the stage's name, of the node's, or of what the last attempt failed with; an index, or
        ``STAGE[INDEX]``.
    state, stage, node
        Names; the node is that of the last attempt.
    order
        One of `ORDERS`: by stage and index, or by run time, end, attempts, or memory, the largest first. What runs has
        run until now.
    first, count
        Of those that fit, from this one on, so many.
    """

    text: str = ""
    state: str = ""
    stage: str = ""
    node: str = ""
    order: str = ORDERS[0]
    first: int = 0
    count: int = 100


class TaskTable:
    """All tasks of a run as columns, at one moment.

    Parameters
    ----------
    failures
        Attempts that failed.
    now
        The time [s since the epoch].
    driven
        Whether a driver is at it.
    """

    def __init__(self, run: FoldedRun, failures: Failures, now: float, driven: bool) -> None:
        self._run, self._failures, self._now = run, failures, now
        self._stages = list(run.in_order)
        self._number = {stage.spec.name: number for number, stage in enumerate(self._stages)}
        widths = [max(stage.width or 0, len(stage.tasks)) for stage in self._stages]
        self._first = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])
        self._log: AttemptLog = run.attempts
        self._records = np.frombuffer(bytes(self._log.records), _RECORD)
        self._taken = np.frombuffer(bytes(self._log.taken), _TAKEN)
        first = np.array([self._first[self._number[name]] for name in self._log.stages], np.int64)
        task = first[self._records["stage"]] + self._records["index"] if len(first) else np.zeros(0, np.int64)
        total = int(self._first[-1])
        self._tries = np.bincount(task, minlength=total)
        self._last = np.full(total, -1)
        self._last[task] = np.arange(len(task))  # the last of several stays
        self._running = dict(_running(run.pool.held))
        over = run.outcome is not RunState.RUNNING
        self._state = np.concatenate([np.zeros(0, np.uint8), *(self._states(*each, over, driven) for each in
                                                               zip(self._stages, widths, strict=True))])  # fmt: skip
        if self._running or any(item.running for item in run.pool.held.values()):
            begun_here = np.array([self._task(*key) for key in self._running], np.int64)
            queued = self._state == TaskState.RUNNING  # those that an allocation has, and no room for yet, wait there
            queued[begun_here] = False
            self._state[queued] = TaskState.WAITING

    def at(self, now: float) -> TaskTable:
        """The same some time [s since the epoch] later, when nothing has happened since."""
        found = copy(self)
        found._now = now
        return found

    @staticmethod
    def _states(stage: StageProgress, width: int, over: bool, driven: bool) -> Any:
        """Of the tasks of a stage, numbers of `STATES`."""
        found = np.zeros(width, np.uint8)
        found[: len(stage.tasks)] = np.frombuffer(bytes(stage.tasks), np.uint8)
        if over or stage.state.final:
            found[found == TaskState.WAITING] = _NOT_RUN
            found[[index for index in stage.errors if found[index] == _NOT_RUN]] = TaskState.FAILED
        if over or not driven:
            found[found == TaskState.RUNNING] = _STOPPED if over else _UNKNOWN
        return found

    def page(self, query: TaskQuery) -> dict[str, Any]:
        """The tasks that a query asks for: ``rows``, how many there are in all, in each state, and names of nodes."""
        fits = self._fitting(query)
        counts = np.bincount(self._state[fits], minlength=len(STATES))
        if query.state:
            fits = fits[self._state[fits] == STATES.index(query.state)] if query.state in STATES else fits[:0]
        ordered = self._ordered(fits, query.order)[query.first : query.first + query.count]
        return {
            "rows": [self._row(int(task)) for task in ordered],
            "total": len(fits),
            "states": {name: int(count) for name, count in zip(STATES, counts, strict=True) if count},
            "nodes": sorted(self._nodes())[:PAGE_MOST],
        }

    def _fitting(self, query: TaskQuery) -> Any:
        """Numbers of the tasks that fit but for their state."""
        start, stop = 0, len(self._state)
        if query.stage:
            number = self._number.get(query.stage)
            start, stop = (0, 0) if number is None else (self._first[number], self._first[number + 1])
        fits = np.arange(start, stop)
        if query.node:
            fits = fits[self._on(fits, {query.node})]
        return fits[self._matches(fits, query.text.strip().lower())] if query.text.strip() else fits

    def _nodes(self) -> set[str]:
        """Where tasks have run, or run now."""
        return {*self._log.nodes, *(node for _, _, node in self._running.values())} - {""}

    def _on(self, tasks: Any, nodes: set[str]) -> Any:
        """Which of these ran last, or run now, on one of these nodes."""
        numbers = [number for name, number in self._log.nodes.items() if name in nodes]
        last = self._last[tasks]
        found = (last >= 0) & np.isin(self._records["node"][last], numbers) if len(self._records) else last > 0
        here = [self._task(*key) for key, (_, _, node) in self._running.items() if node in nodes]
        return found & ~np.isin(tasks, [self._task(*key) for key in self._running]) | np.isin(tasks, here)

    def _matches(self, tasks: Any, text: str) -> Any:
        name, index = parsed_task(text)
        stage = np.searchsorted(self._first, tasks, side="right") - 1
        named = np.array([name in each.spec.name.lower() for each in self._stages], bool)
        if index is not None:
            return named[stage] & (tasks - self._first[stage] == index)
        found = named[stage] | self._on(tasks, {node for node in self._nodes() if text in node.lower()})
        if text.isdecimal():
            found |= tasks - self._first[stage] == int(text)
        failed = [self._task(*key) for key in [*self._failures] if text in self._error(*key).lower()]
        return found | np.isin(tasks, failed)

    def _ordered(self, tasks: Any, order: str) -> Any:
        known = self._last >= 0
        last, key = self._last[known], np.full(len(known), -1.0)
        match order:
            case "tries":
                key = self._tries
            case "memory":
                key[known] = self._taken["peak"][last]
            case "longest" | "newest":
                at = self._records["at"][last]
                key[known] = at[:, 1] - (at[:, 0] if order == "longest" else 0.0)
                for name, (_, launched, _) in self._running.items():
                    key[self._task(*name)] = self._now - (launched if order == "longest" else 0.0)
            case _:
                return tasks
        return tasks[np.argsort(-key[tasks], kind="stable")]

    def _task(self, stage: str, index: int) -> int:
        return int(self._first[self._number[stage]]) + index

    def _name(self, task: int) -> tuple[str, int]:
        number = int(np.searchsorted(self._first, task, side="right")) - 1
        return self._stages[number].spec.name, task - int(self._first[number])

    def _row(self, task: int) -> dict[str, Any]:
        stage, index = self._name(task)
        row = {"stage": stage, "index": index, "state": STATES[self._state[task]], "tries": int(self._tries[task])}
        attempt = self._attempt(int(self._last[task])) if self._last[task] >= 0 else {}
        if (running := self._running.get((stage, index))) is not None:
            token, launched, node = running
            attempt = {"job": token, "node": node, "started": plain(launched), "ran": plain(self._now - launched)}
        return row | attempt | {"error": last_words(self._error(stage, index), WORDS_MOST)}

    def _attempt(self, number: int) -> dict[str, Any]:
        """An attempt that was reported; with what its task had used where the log says it."""
        record = self._records[number]
        start, end = (float(at) for at in record["at"])
        stage, index = list(self._log.stages)[record["stage"]], int(record["index"])
        found = {
            "job": list(self._log.allocations)[record["job"]],
            "node": list(self._log.nodes)[record["node"]],
            "outcome": TaskOutcome(record["outcome"]).name.lower(),
            "started": plain(start),
            "ended": plain(end),
            "ran": plain(end - start),
            "cpu_s": plain(float(self._taken["cpu_s"][number])) or None,
            "peak": int(self._taken["peak"][number]) or None,
        }
        if record["outcome"] in (TaskOutcome.FAILED, TaskOutcome.LOST):
            for event in self._failures.get((stage, index), ()):
                if event.started == start:
                    story = "\n".join(filter(None, (event.error, event.traceback, event.stderr)))
                    found |= {"exit": event.exit, "story": last_words(story, STORY_MOST)}
        return found

    def _error(self, stage: str, index: int) -> str:
        """What the last attempt of a task that is not done failed with, or why it is not tried."""
        progress = self._run.stages[stage]
        if progress.is_done(index):
            return ""
        if (failed := progress.failed.get(index)) is not None:
            return failed.message
        return progress.given_up.get(index, "") or progress.errors.get(index, "")

    def one(self, stage: str, index: int) -> dict[str, Any] | None:
        """A task with all its attempts; None where there is none such."""
        number = self._number.get(stage)
        if number is None or not 0 <= index < self._first[number + 1] - self._first[number]:
            return None
        task, spec = self._task(stage, index), self._stages[number].spec
        row = self._row(task)
        if self._tries[task]:
            numbers = np.flatnonzero((self._records["stage"] == self._log.stages[stage]) &
                                     (self._records["index"] == index))  # fmt: skip
            row["attempts"] = [self._attempt(int(each)) for each in numbers]
        else:
            row["attempts"] = []
        jobs = {row.get("job"), *(each["job"] for each in row["attempts"])} - {None}
        held = {token: self._run.pool.ever.get(token) for token in jobs}
        ids = {token: item.handle.job_id for token, item in held.items() if item is not None and item.handle}
        needs = {"cores": spec.task.cores, "memory": spec.task.memory, "walltime_s": spec.walltime_s}
        return row | needs | {"jobs": ids, "reused": row["state"] == "done" and not row["attempts"]}


CURVES_MOST = 4
"""Attempts of a task, the last ones, of which it is shown what they took as time went on."""

_CLOCKS_S = 60.0
"""By how much clocks of driver and nodes may differ [s]."""


def curves(directory: Path, one: Mapping[str, Any], until: float = math.inf) -> list[dict[str, Any]]:
    """What attempts of a task took as time went on, where that was kept; of one that runs, so far.

    Parameters
    ----------
    directory
        The run's.
    one
        The task, as `TaskTable.one` has it.
    until
        What came later is left out [s since the epoch].

    Returns
    -------
    list
        Of each attempt its number from 1 on, the most and the mean memory [bytes], the most and the mean cores, and
        ``points``: end [s since it was first looked at], length [s], memory [bytes] and cores of each sample.
    """
    which, found, ended = (one["stage"], one["index"]), list[dict[str, Any]](), -math.inf
    tried = [(attempt, True) for attempt in one["attempts"]]
    if one["state"] == "running" and "job" in one:  # when it was given out is known, by the clock of the driver
        tried.append((one, False))
    for number, (attempt, over) in [*enumerate(tried, 1)][-CURVES_MOST:]:
        since = attempt["started"] if over else max(ended, attempt["started"] - _CLOCKS_S)
        ended = attempt["ended"] if over else ended
        samples = read_curve(directory, attempt["job"], attempt["node"], which, since, exact=over)
        if samples := [sample for sample in samples if sample.at <= until]:
            found.append({"attempt": number, **_curve(samples)})
    return found


def _curve(samples: Sequence[UsageSample]) -> dict[str, Any]:
    start, length = samples[0].at - samples[0].span_s, sum(sample.span_s for sample in samples) or 1.0
    memory, cores = [sample.memory for sample in samples], [sample.cores for sample in samples]
    means = (sum(sample.span_s * value for sample, value in zip(samples, of, strict=True)) / length
             for of in (memory, cores))  # fmt: skip
    mean_memory, mean_cores = means
    return {
        "memory": [max(memory), round(mean_memory)],
        "cores": [plain(max(cores)), plain(mean_cores)],
        "points": [[plain(each.at - start), plain(each.span_s), each.memory, plain(each.cores)] for each in samples],
    }


def _running(held: Mapping[str, Held]) -> Iterator[tuple[tuple[str, int], tuple[str, float, str]]]:
    """Tasks that run: in which allocation, since when, and on which node where it has only one."""
    for token, item in held.items():
        node = next(iter(item.nodes)) if len(item.nodes) == 1 else ""
        for key, (_, launched) in begun(item):
            yield key, (token, launched, node)


# ---------------------------------------------------------------- arguments

SETTINGS_MOST = 64 << 20
"""Size of settings, which have the arguments, that are read [bytes]."""
_ELSEWHERE = "arguments that tasks make while the run goes on are not kept where the page can see them"
_FOREIGN = "objects of your own classes are named only: to show them, the dashboard would have to run your code"


class _Foreign:
    """Stands for what only code of others could make: nothing of it is run, its class is named."""

    _path = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take whatever it was made of."""

    def __new__(cls, *args: Any, **kwargs: Any) -> _Foreign:
        return super().__new__(cls)

    def __repr__(self) -> str:
        return f"<{type(self)._path}>"

    def __call__(self, *args: Any, **kwargs: Any) -> _Foreign:
        return self

    def __setstate__(self, state: Any) -> None:
        """It has none."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nor has it parts."""

    def append(self, value: Any) -> None:
        """Nor elements."""

    extend = add = append


@lru_cache
def _foreign(path: str) -> type[_Foreign]:
    return type("_Foreign", (_Foreign,), {"_path": path})


def _named(constructor: Any, name: str, *details: Any) -> type[_Foreign]:
    return _foreign(f"{name} object")


_PLAIN = {
    "builtins": {"set", "frozenset", "complex", "bytearray", "range", "slice", "list", "dict", "tuple", "object"},
    "collections": {"OrderedDict", "deque"},
    "copyreg": {"__newobj__", "_reconstructor"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "pathlib": {"PosixPath", "PurePosixPath", "Path", "PurePath"},
    "uuid": {"UUID"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
}
"""What is made as it is: plain values. Of ASA classes are, no functions."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        if module.startswith("asa."):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__.startswith("asa."):  # not what that module has imported
                return found
        if name.startswith("_make_skeleton"):  # of cloudpickle: a class of the user's own file
            return _named
        return _foreign(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        return _foreign("elsewhere")()


class Arguments:
    """What the tasks of a run are called with, as its settings have it, without running any code of the user's."""

    def __init__(self, directory: RunDirectory) -> None:
        self._graph, self._problem = _graph_of(directory.settings)

    def of(self, stage: str, index: int) -> dict[str, Any]:
        """Texts of a task's arguments by name or place, and what there is to say of them, or why there are none."""
        node = None if self._graph is None else self._graph.nodes.get(stage)
        if self._graph is None or node is None:
            return {"values": {}, "note": self._problem or _ELSEWHERE}
        texts = _Repr(self._graph)
        args = [texts.element(column, index) if node.mapped else texts.repr(column) for column in node.args]
        shown = {str(number): text for number, text in enumerate(args, 1)}
        shown |= {name: texts.repr(value) for name, value in node.kwargs.items()}
        return {"values": shown, "note": _FOREIGN if texts.foreign else ""}


class _Repr(reprlib.Repr):
    """Short texts of values; of nodes, whose results they stand for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 300
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = 12
        self._graph, self.foreign = graph, False

    def element(self, column: Any, index: int) -> str:
        """Of the value for one task of those that a stage is mapped over."""
        if not isinstance(column, Node):
            return self.repr(column[index]) if index < len(column) else "?"
        name = self._graph.names.get(column, column.stage.name)
        return f"the result of {name}[{index}]" if column.mapped else f"element {index} of the result of {name}"

    def repr_Node(self, node: Node, level: int) -> str:  # noqa: N802
        results = "all results" if node.mapped else "the result"
        return f"{results} of {self._graph.names.get(node, node.stage.name)}"

    def repr__Foreign(self, value: _Foreign, level: int) -> str:  # noqa: N802
        self.foreign = True
        return repr(value)


def _graph_of(settings: Path) -> tuple[Graph | None, str]:
    """The workflow that settings have, or why it cannot be read."""
    try:
        if settings.stat().st_size > SETTINGS_MOST:
            return None, f"the run's settings, which have its arguments, are larger than {SETTINGS_MOST >> 20} MiB"
        _, _, body = settings.read_bytes().partition(b"\n")
        _, packed = _PlainUnpickler(io.BytesIO(body)).load()
        file = io.BytesIO(packed)
        unpickler, value = _PlainUnpickler(file), None
        while file.tell() < len(packed):
            value = unpickler.load()
    except FileNotFoundError:
        return None, "the run has no settings: nothing was kept of what its tasks are called with"
    except Exception as error:  # damaged, or of another version: whatever may come of that
        return None, f"the run's settings cannot be read here: {type(error).__name__}: {error}"
    graph = value.result if isinstance(value, Settings) else None
    return (graph, "") if isinstance(graph, Graph) else (None, _ELSEWHERE)
