"""A workflow as a job of several nodes: each of them runs one rank, which does its part of every stage.

Ranks talk through files in the job's directory. Rank 0 loads the workflow and leaves it there. Task i of a stage is for
rank i modulo the number of ranks. That rank leaves its result there, and ranks that need it wait for the file. All
ranks end when all stages have, or when one has failed: the end of the job is that of each of its ranks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from asa.core.errors import InvalidInput, RunFailed
from asa.core.task import Value
from asa.log.output import OutputReader
from asa.log.values import load
from asa.security.files import private_directory, write_private
from asa.workflows.graph import Graph, make_graph
from asa.workflows.payload import Payloads, pack, unpack
from asa.workflows.settings import load_workflow
from asa.workflows.stage import Node, replace_nodes
from executors import hub, worker
from executors.processes import wakeup
from executors.wire import Hello, OrderOutcome, TaskOrder, TaskReport, Welcome
from executors.worker_pool import ProcessPool

LOOK_S = 0.25
"""How long it takes at most [s] until `Workers` looks up from what it waits for."""

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Workers:
    """Runs orders in up to so many processes, and waits; a signal that asks for the end interrupts both.

    Workers are forked from this process: what it has imported they need not import again, which would take long on a
    fraction of a core. Each has a session of its own, and whatever is in it ends with `close`, or, when this process is
    killed, soon after. To be used as a context manager, in the main thread.

    Raises `KeyboardInterrupt` from `run` and `rest`, after SIGTERM, SIGINT or SIGHUP.

    Parameters
    ----------
    cores
        Whole cores of this node that may be used; at least 1.
    values
        Directory (0700) for results that are longer than `asa.log.values.INLINE_MOST`.
    """

    def __init__(self, cores: int, values: Path) -> None:
        self._cores, self._values = cores, values
        self._selector, self._woken = selectors.DefaultSelector(), ExitStack()
        self._processes: ProcessPool | None = None
        self._outcomes: list[OrderOutcome] = []
        self._signal: int | None = None
        self._printed = OutputReader(values)

    def __enter__(self) -> Self:
        signals = self._woken.enter_context(wakeup((*_STOPS, signal.SIGCHLD), self._on_signal))
        self._selector.register(signals, selectors.EVENT_READ, lambda mask: self._signalled(signals))
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._processes is not None:
            self._processes.close()
            self._show(last=True)
        self._selector.close()
        self._woken.close()

    def run(
        self, orders: Sequence[TaskOrder], look: Callable[[], None], retries: int = 0
    ) -> Iterator[tuple[TaskOrder, OrderOutcome]]:
        """Run orders of one stage, in order; yields each with its outcome as soon as that is known.

        Parameters
        ----------
        orders
            At least one, all of the same needs.
        look
            Called from time to time; what it raises ends the orders that run.
        retries
            How often an order that failed is tried again.
        """
        pool = self._processes = self._processes or self._start_pool()
        # The pool returns what it cannot start soon, as to a driver that may know of a better place: it gets no more
        # than it can start at once.
        room = max(1, self._cores // max(1, orders[0].cores))
        waiting, running, left = deque(orders), dict[int, TaskOrder](), {order.ticket: retries for order in orders}
        while waiting or running:
            while waiting and len(running) < room:
                order = waiting.popleft()
                running[order.ticket] = order
                pool.accept([order])
            self._turn(pool)
            outcomes, self._outcomes = self._outcomes, []
            for outcome in outcomes:
                order = running.pop(outcome.ticket)
                if outcome.value is None and left[order.ticket]:
                    left[order.ticket] -= 1
                    waiting.append(order)
                else:
                    yield order, outcome
            look()

    def rest(self, seconds: float) -> None:
        """Do nothing for so long [s], or until something happens."""
        for key, mask in self._selector.select(seconds):
            key.data(mask)
        self._stop_if_signalled()

    def _turn(self, pool: ProcessPool) -> None:
        soon = pool.advance()
        if not self._outcomes:
            self.rest(LOOK_S if soon is None else min(LOOK_S, soon))
            pool.advance()
            self._show()

    def _show(self, last: bool = False) -> None:
        """Pass on what tasks have printed to our standard output, which is the job's."""
        for line in self._printed.read((), last):
            print(line.text, flush=True)

    def _start_pool(self) -> ProcessPool:
        hello = Hello("", socket.gethostname(), os.getpid(), self._cores, memory=0, gpus=0)
        options = {"output_directory": str(self._values)}
        welcome = Welcome("", options, str(self._values), os.getcwd(), tuple(sys.path), LOOK_S)
        return ProcessPool(hello, welcome, self._selector, self._report)

    def _report(self, report: TaskReport) -> None:
        assert not report.returned, "it is given no more than it can start"
        self._outcomes += report.outcomes

    def _on_signal(self, number: int, frame: object) -> None:
        if number in _STOPS:
            self._signal = number

    def _signalled(self, signals: socket.socket) -> None:
        signals.recv(4096)
        if self._processes is not None and self._signal is None:
            self._processes.reap()

    def _stop_if_signalled(self) -> None:
        if self._signal is not None:
            raise KeyboardInterrupt(f"ended by signal {self._signal} ({signal.strsignal(self._signal)})")


_SOONEST_S, _LATEST_S, _GROWTH = 0.02, 0.25, 1.5
"""How long to wait between two looks [s]: looking costs CPU time, of which there may be little."""

_COUNTS = {"ASA_RANK": 0, "ASA_RANKS": 1, "ASA_CORES": 1}
_BY_HAND = "asa cosched run sets these variables; unset ASA_RANK to run all ranks' parts by hand"


class OtherRankFailed(RunFailed):
    """Another rank has failed; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One of a job's ranks.

    Parameters
    ----------
    number, ranks
        Which it is, counted from 0, of how many.
    cores
        Whole cores on this node that belong to the job; at least 1.
    directory
        Of the job: absolute, private, the same for all ranks, empty when the job starts.
    progress
        File that this rank's progress goes to, or None.
    """

    number: int
    ranks: int
    cores: int
    directory: Path
    progress: Path | None = None


@contextlib.contextmanager
def rank_of(environ: Mapping[str, str]) -> Iterator[Rank]:
    """The rank that these variables make of this process.

    They are ``ASA_RANK``, ``ASA_RANKS``, ``ASA_CORES``, ``ASA_JOB_DIRECTORY`` and, if its progress is to be reported,
    ``ASA_PROGRESS``: a file that has its tasks done and its tasks in all. Without ``ASA_RANK`` it is the only rank and
    has all cores of the machine; tasks run in the current directory, as those of ``asa run`` do, and everything else is
    in a temporary one.

    Raises `InvalidInput` when a variable is missing, or has no use.
    """
    if "ASA_RANK" not in environ:
        with tempfile.TemporaryDirectory(prefix="asa-") as directory:
            yield Rank(0, 1, len(os.sched_getaffinity(0)), Path(directory))
        return
    number, ranks, cores = (_count(environ, name, least) for name, least in _COUNTS.items())
    if number >= ranks:
        raise InvalidInput(f"ASA_RANK={number}, but ASA_RANKS={ranks}: ranks are counted from 0. {_BY_HAND}")
    folder, progress = environ.get("ASA_JOB_DIRECTORY", ""), environ.get("ASA_PROGRESS")
    if not os.path.isabs(folder):
        raise InvalidInput(
            f"ASA_JOB_DIRECTORY={folder!r}: the job's directory expected, as an absolute path. {_BY_HAND}"
        )
    yield Rank(number, ranks, cores, Path(folder), Path(progress) if progress else None)


def _count(environ: Mapping[str, str], name: str, least: int) -> int:
    text = environ.get(name, "")
    if not (text.isdecimal() and int(text) >= least):
        raise InvalidInput(f"{name}={text!r}: a whole number of at least {least} expected. {_BY_HAND}")
    return int(text)


def run_rank(rank: Rank, target: str, arguments: Mapping[str, Any]) -> Any:
    """Do a rank's part of a workflow, and wait for the others; the workflow's value on rank 0, else None.

    It runs in the main thread.

    Parameters
    ----------
    rank
        Which part.
    target, arguments
        ``FILE[:NAME]`` and what it is called with, as for `load_workflow`; read by rank 0 only, because making a
        workflow may write files.
    """
    private_directory(rank.directory)
    files = RankFiles(rank)
    try:
        return _run(rank, files, target, arguments)
    except OtherRankFailed:
        raise
    except BaseException as error:
        said = str(error).strip() or (
            "ended by a signal" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        )
        files.fail(f"rank {rank.number} of {rank.ranks}: {said}")
        raise


def _run(rank: Rank, files: RankFiles, target: str, arguments: Mapping[str, Any]) -> Any:
    if rank.number == 0:
        with _single_threaded():
            graph = make_graph(load_workflow(target, arguments))
        files.publish(graph)
    with Workers(rank.cores, files.values) as workers:
        if rank.number:
            files.wait(files.workflow.parent, [files.workflow.name], workers)
            with _single_threaded():
                graph = files.read()
        part = _Part(rank, files, graph, workers)
        part.run()
        return part.value() if rank.number == 0 else None


class RankFiles:
    """Where things are in the job's directory: results and failures in sight, the rest in a hidden folder."""

    def __init__(self, rank: Rank) -> None:
        hidden = rank.directory / ".asa"
        self.workflow, self._failed, self._results = (
            hidden / "workflow",
            rank.directory / "failed",
            rank.directory / "results",
        )
        self.functions = hidden / "functions"
        self.values = private_directory(hidden / f"values-{rank.number}")

    def publish(self, graph: Graph) -> None:
        """Leave the workflow to the other ranks."""
        for stage in graph.nodes:
            private_directory(self.stage(stage))
        private_directory(self.functions)
        self.payloads(graph).save()
        write_private(self.workflow, pack(graph, sys.path, graph.nodes.values()))

    def read(self) -> Graph:
        return make_graph(unpack(self.workflow.read_bytes()))

    def payloads(self, graph: Graph) -> Payloads:
        """What makes the tasks of a workflow whose results are here."""
        return Payloads(graph, self.functions, self.values, self.result)

    def stage(self, name: str) -> Path:
        """Directory of a stage's results."""
        return self._results / quote(name, safe="").replace(".", "%2E")

    def result(self, name: str, index: int) -> Value:
        return str(self.stage(name) / str(index))

    def keep(self, order: TaskOrder, outcome: OrderOutcome) -> None:
        """Leave a task's result to the other ranks."""
        path = self.stage(order.stage) / str(order.number)
        if isinstance(outcome.value, str):
            os.replace(outcome.value, path)
        else:
            assert outcome.value is not None, "the task has succeeded"
            write_private(path, outcome.value)

    def fail(self, reason: str) -> None:
        """Report a failure to the other ranks, unless one has been reported already."""
        if not self._failed.exists():
            write_private(self._failed, f"{reason}\n".encode())

    def look(self) -> None:
        """Raise `OtherRankFailed` when one has."""
        if self._failed.exists():
            raise OtherRankFailed(self._failed.read_text(errors="replace").strip())

    def wait(self, folder: Path, names: Iterable[str], workers: Workers) -> None:
        pause, names = _SOONEST_S, set(names)
        # Not one by one: a network file system may remember for long that a file was not there.
        while not names.issubset(os.listdir(folder)):
            self.look()
            workers.rest(pause)
            pause = min(_LATEST_S, pause * _GROWTH)


class _Part:
    """A rank's part of a workflow."""

    def __init__(self, rank: Rank, files: RankFiles, graph: Graph, workers: Workers) -> None:
        self._rank, self._files, self._graph, self._workers = rank, files, graph, workers
        self._payloads = files.payloads(graph)
        self._widths = dict(graph.widths)
        self._complete: set[str] = set()
        self._done = self._ticket = 0

    def run(self) -> None:
        """Run all tasks of this rank, and wait for those of the others."""
        self._report_progress()
        for name in self._graph.nodes:
            self._run_stage(name)
        for name in self._graph.nodes:
            self._await(name)

    def value(self) -> Any:
        """What the workflow has come to."""

        def value_of(node: Node) -> Any:
            name = self._graph.names[node]
            values = [load(self._files.result(name, index)) for index in range(self._width(name))]
            return values if node.mapped else values[0]

        return replace_nodes(self._graph.result, value_of)

    def _run_stage(self, name: str) -> None:
        own = self._own(self._width(name))
        if not own:
            return
        self._await_before(name)
        needs = self._graph.nodes[name].stage.needs
        orders = [self._order(name, index) for index in own]
        for order, outcome in self._workers.run(orders, self._files.look, needs.retries):
            if outcome.value is None:
                raise self._failure(order, outcome)
            self._files.keep(order, outcome)
            self._done += 1
            self._report_progress()

    def _order(self, name: str, index: int) -> TaskOrder:
        needs = self._graph.nodes[name].stage.needs
        task = self._payloads.task(name, index, needs.resources if needs.launcher else needs.task)
        self._ticket += 1
        return hub.task_order(task, self._ticket, spanning=False)

    def _failure(self, order: TaskOrder, outcome: OrderOutcome) -> RunFailed:
        what = f"stage {order.stage!r}, task {order.number} of {self._width(order.stage)}: {outcome.error}"
        return RunFailed(f"{what}\n{outcome.traceback}".rstrip(), stage=order.stage)

    def _width(self, name: str) -> int:
        """How many tasks a stage has; waits until that is known."""
        width = self._widths[name]
        if width is None:
            self._await_before(name)
            width = self._widths[name] = self._payloads.width(name)
        return width

    def _await_before(self, name: str) -> None:
        for before in self._graph.predecessors[name]:
            self._await(before)

    def _await(self, name: str) -> None:
        if name in self._complete:
            return
        self._files.wait(self._files.stage(name), map(str, range(self._width(name))), self._workers)
        self._complete.add(name)

    def _own(self, width: int) -> range:
        return range(self._rank.number, width, self._rank.ranks)

    def _report_progress(self) -> None:
        """Write the progress; of a stage whose width is not known yet, one task is counted."""
        if self._rank.progress is not None:
            total = sum(1 if width is None else len(self._own(width)) for width in self._widths.values())
            write_private(self._rank.progress, f"{self._done} {total}\n".encode())


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    """Have numeric libraries that are loaded meanwhile use one thread: tasks use the cores. Workers set it anew."""
    variables = worker.environment(1, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
