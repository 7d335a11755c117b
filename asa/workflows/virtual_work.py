"""What tasks do in virtual time, and how long it takes there."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.ports import Outcome
from asa.core.run import FoldedRun, TaskOutcome
from asa.core.task import PAUSED, Checkpoints, Task, last_words
from asa.core.width import ASSUMED, time_on
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.log.running import Paused, running
from asa.log.values import call_with, dump, fill, keep, load
from asa.metrics.attempts import attempts_of
from asa.workflows.graph import Graph
from asa.workflows.stage import ROUND, Node, RunTime, replace_nodes

_NOTHING = b""
Arguments = Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Times:
    """How long tasks take: as their stage declares, or as they took in an earlier run.

    Parameters
    ----------
    declared
        Stage -> seconds, or a function of the task's arguments.
    recorded
        Stage -> task -> seconds; tasks that were not there take the mean of their stage.
    used
        Stage -> mean of the cores that its tasks used, and the most memory of one [bytes].
    """

    declared: Mapping[str, RunTime] = field(default_factory=dict)
    recorded: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    used: Mapping[str, tuple[float, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, times: str | Path | None = None, state: Path | None = None) -> Times:
        """Those of a workflow; `times` is a run in the state directory `state`, or the event log of one."""
        return cls(_Declared(graph)) if times is None else cls(_Declared(graph), *recorded(times, state))

    def knows(self, stage: str) -> bool:
        return stage in self.declared or bool(self.recorded.get(stage))

    def seconds(self, stage: str, index: int, cores: int, arguments: Arguments) -> float | None:
        """Run time of a task on so many cores [s], or None when it is not known.

        Raises
        ------
        InvalidInput
            When the stage's function of the arguments fails, or does not return a time.
        """
        if (model := self.declared.get(stage)) is not None:
            share = self.declared.share(stage, cores) if isinstance(self.declared, _Declared) else 1.0
            return share * (_evaluated(stage, model, arguments) if callable(model) else model)
        if known := self.recorded.get(stage):
            return known[index] if index in known else sum(known.values()) / len(known)
        return None


class _Declared(Mapping[str, RunTime]):
    """What the stages of a graph declare, of those, too, that tasks add to it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __getitem__(self, name: str) -> RunTime:
        if (model := self._graph.nodes[name].stage.needs.run_time) is None:
            raise KeyError(name)
        return model

    def share(self, name: str, cores: int) -> float:
        """How long a task takes on so many cores, of what it takes on the fewest."""
        node = self._graph.nodes[name]
        needs = node.stage.needs
        if not needs.widths or (node.mapped and not needs.launcher):
            return 1.0
        speedup = ASSUMED if needs.speedup is None else needs.speedup
        return time_on(cores, speedup) / time_on(needs.widths[0], speedup)

    def __iter__(self) -> Iterator[str]:
        return (name for name, node in self._graph.nodes.items() if node.stage.needs.run_time is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _evaluated(stage: str, model: Callable[..., float], arguments: Arguments) -> float:
    args, kwargs = arguments()
    try:
        seconds = float(model(*args, **{key: value for key, value in kwargs.items() if key != ROUND}))
    except Exception as error:  # the user's own code
        raise InvalidInput(f"run_time of stage {stage!r} raised {type(error).__name__}: {error}") from error
    if not 0 <= seconds < math.inf:
        raise InvalidInput(f"run_time of stage {stage!r} returned {seconds!r}: seconds of at least 0 expected")
    return seconds


def recorded(times: str | Path, state: Path | None) -> tuple[dict[str, dict[int, float]], dict[str, tuple[float, int]]]:
    """How long the tasks of an earlier run took [s], and what they used: see `Times`.

    Parameters
    ----------
    times
        The run's name, its directory, or its event log.
    state
        The state directory in which a name is looked up.

    Raises
    ------
    RunNotFound
        When there is no such run.
    InvalidInput
        When no task of it has ended.
    """
    path = Path(times)
    if path.is_dir():
        path = RunDirectory(path).events
    elif not path.is_file() and state is not None:
        path = RunDirectory.open(state, str(times)).events
    if not path.is_file():
        raise InvalidInput(f"times={str(times)!r}: there is no such event log")
    run = FoldedRun()
    with EventLog(path) as log:
        for _, event in log.packed():
            run.on(event)
    found: dict[str, dict[int, float]] = {}
    for attempt in attempts_of(run):
        if attempt.outcome is TaskOutcome.DONE:
            found.setdefault(attempt.stage, {}).setdefault(attempt.index, attempt.ended - attempt.started)
    if not found:
        raise InvalidInput(f"times={str(times)!r}: no task of that run has ended, so it has no run times")
    took = {name: sum(seconds.values()) for name, seconds in found.items()}
    stages = [(name, run.stages[name]) for name in found if took[name] and run.stages[name].cpu_s]
    return found, {name: (stage.cpu_s / took[name], stage.peak) for name, stage in stages}


class Calls:
    """Calls the functions of tasks in this process; satisfies `asa.core.ports.Work`.

    Parameters
    ----------
    times
        How long tasks take; those of which it does not tell take as long as the call.
    values
        Directory for results that are too long to travel.
    workdir
        Where tasks run.
    compute
        False to call nothing: every value is None.
    """

    def __init__(self, times: Times, values: Path, workdir: str, *, compute: bool = True) -> None:
        self._times, self._values, self._workdir, self._compute = times, values, workdir, compute
        self._function: Callable[[str], Callable[..., Any]] = cache(load)

    def seconds(self, task: Task) -> float | None:
        """Virtual run time [s]; None for as long as the call takes."""
        return self._times.seconds(task.stage, task.index, task.resources.cores, partial(_arguments, task))

    def used(self, task: Task) -> tuple[float, int] | None:
        return self._times.used.get(task.stage)

    def call(self, task: Task) -> Outcome:
        """Call it, here and now."""
        if not self._compute:
            return Outcome(0.0, dump(None))
        began = time.perf_counter()
        try:
            if task.launch is not None:
                raise InvalidInput(
                    f"its ranks cannot be started by {task.launch.kind} in virtual time: declare run_time= and give "
                    "the backend compute=false"
                )
            function = self._function(task.function)
            args, kwargs = _arguments(task)
            there = contextlib.nullcontext() if os.getcwd() == self._workdir else contextlib.chdir(self._workdir)
            # It is called once, for the time that it has in all its allocations: none of them ends for it.
            with there, running(0.0, task.checkpoints):
                result = function(*args, **kwargs)
            seconds = time.perf_counter() - began
            return Outcome(seconds, keep(result, self._values, task.stage, task.index))
        except Paused:
            return Outcome(time.perf_counter() - began, None, "it goes on from its checkpoint", cause=PAUSED)
        except BaseException as error:  # as in a worker, where sys.exit() ends the task and nothing else
            return Outcome(time.perf_counter() - began, None, *last_words(error, 1))


def _arguments(task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
    *called, refs = call_with(task.arguments)
    args, kwargs = fill(called, task.inputs, refs)
    return args, kwargs


def check_known(graph: Graph, times: Times) -> None:
    """Whether a workflow can run without calling its functions.

    Raises
    ------
    InvalidInput
        When a stage's run time, or its number of tasks, would only be known from a call.
    """
    for name in graph.nodes:
        if not times.knows(name):
            raise InvalidInput(
                f"stage {name!r} has no run time, and its function is not called: declare one, as in "
                "@stage(run_time='5m'), or give the backend times=RUN of an earlier run"
            )
        if graph.nodes[name].stage.needs.expands:
            raise InvalidInput(
                f"which stages {name!r} adds would be known from a call, and no function is called here: run it with "
                "--backend sim:... and without compute=false"
            )
        if graph.width(name) is None:
            raise InvalidInput(
                f"how many tasks stage {name!r} has would be known from the result of another one, and no function is "
                "called here: map it over a list, or run it with --backend sim:... and without compute=false"
            )


class Outlines:
    """Tasks without content, and how long they take: what the runner launches, and the work that the executor does."""

    def __init__(self, graph: Graph, times: Times) -> None:
        self._graph, self._times = graph, times

    def width(self, name: str) -> int:
        width = self._graph.width(name)
        assert width is not None, "was checked"
        return width

    def task(self, name: str, index: int, resources: Resources) -> Task:
        """A task that only says what it needs, and whether it goes on elsewhere."""
        kept = Checkpoints("") if self._graph.nodes[name].stage.needs.checkpoint else None
        return Task(name, index, "", _NOTHING, (), resources, checkpoints=kept)

    def seconds(self, task: Task) -> float | None:
        return self._times.seconds(task.stage, task.index, task.resources.cores, lambda: self._arguments(task))

    def used(self, task: Task) -> tuple[float, int] | None:
        return self._times.used.get(task.stage)

    def call(self, task: Task) -> Outcome:
        return Outcome(0.0, _NOTHING)

    def _arguments(self, task: Task) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What it would be called with, as far as it is known: None for other stages' results."""
        node = self._graph.nodes[task.stage]
        args = node.args
        if node.mapped:
            args = tuple(None if isinstance(column, Node) else column[task.index] for column in node.args)
        known: tuple[tuple[Any, ...], dict[str, Any]] = replace_nodes((args, node.kwargs), lambda _node: None)
        return known
