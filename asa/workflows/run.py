"""Starting runs and looking at them: `run`, `submit`, `resume` and the `Run` they return."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from asa.core.clock import SystemClock, start_thread
from asa.core.errors import AsaError, InvalidInput, RunFailed, StateError, UnknownName
from asa.core.event import (
    DriverStarted,
    Event,
    RunEnded,
    RunStarted,
    RunState,
    StagesAdded,
    SubmitRefused,
    Submitted,
    TaskFailed,
    TasksDone,
)
from asa.core.ports import VirtualBackend
from asa.core.stage import StageState
from asa.core.task import Failed, Value
from asa.core.units import brief
from asa.log.events import EventLog
from asa.log.messages import log_to_file, logged_in, warn
from asa.log.rundir import RunDirectory
from asa.log.values import Ref, load, load_all
from asa.security.files import write_private
from asa.workflows.assemble import Assembly, assemble, restore_plan
from asa.workflows.graph import Graph, make_graph
from asa.workflows.notice import check_notice, send_notice
from asa.workflows.plan import Plan
from asa.workflows.settings import (
    RunOptions,
    Settings,
    Unread,
    load_settings,
    make_settings,
    never_began,
    new_directory,
    shown,
    state_path,
)
from asa.workflows.stage import Node, check_options, replace_nodes, shows

if TYPE_CHECKING:
    from asa.log.output import OutputLine, OutputReader
    from asa.metrics.workflow import RunSummary


_FOLLOW_S = 0.25
"""How often what was printed is looked for [s]."""

_AWAIT_S = 0.05
"""How often an event loop looks whether there is news [s]."""

_ENDED = {RunState.SUCCEEDED: "succeeded", RunState.FAILED: "failed", RunState.CANCELLED: "been cancelled"}

IN_VIRTUAL_TIME = "it was in virtual time: run it again, it cannot be resumed"
"""What can be done about a run whose queue has ended with its driver."""
_MAY_PASS = re.compile("limit|policy|temporar", re.IGNORECASE)
"""Refusals of a site that may not be its last word."""

_NOTIFY = "notify"
"""File in a run's directory with the notice that a resumed run asked for instead of its own."""

QUOTE_AFTER_S = 5.0
"""How long after its start the quote of a run in real time is made [s]: its first jobs are on their way by then."""

_READ_MOST = 200
"""Results that are read at once."""

_log = logging.getLogger(__name__)


Read = Callable[[Iterator[Value]], list[Any] | Unread]


def _as_refs(stored: Iterator[Value]) -> list[Any]:
    return [Ref.to(each) for each in stored]


class Run:
    """A run of a workflow: going on, ended, or opened again from its log."""

    def __init__(
        self,
        directory: RunDirectory,
        graph: Graph | None,
        assembly: Assembly[Plan] | None,
        notify: str = "",
        quote: Callable[[], Event] | None = None,
    ) -> None:
        self._make_quote = quote
        self.directory, self.name, self._notify = directory, directory.name, notify
        self._graph, self._assembly = graph, assembly
        self._log = EventLog(directory.events)
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._attached: threading.Event | None = None

    def attach(self, awaits: Callable[[], bool] = lambda: False) -> None:
        """Have `decided` and `now` follow the process that drives the run, until its outcome is known or that process
        is gone; cancelling stays with that process. Of a run that is driven here it changes nothing.

        Parameters
        ----------
        awaits
            Asked while the run has no driver: whether there will be another one.
        """
        if self._assembly is not None or self._attached is not None:
            return
        attached = self._attached = threading.Event()

        def look() -> None:
            while (state := self.status) is RunState.RUNNING or (state is RunState.INTERRUPTED and awaits()):
                time.sleep(_FOLLOW_S)
            attached.set()

        threading.Thread(target=copy_context().run, args=(look,), name=f"asa-attached-{self.name}", daemon=True).start()

    @property
    def handed_over(self) -> bool:
        """Whether the driver here has let go of the run, which goes on, for another one that was waiting."""
        return self._assembly is not None and self._assembly.runner.handed_over

    def await_driver(self) -> None:
        """Return once this process has taken the run over, so that the log says so, or its outcome is known."""
        while not self.decided.is_set():
            last = self._log.latest(DriverStarted)
            if isinstance(last, DriverStarted) and last.pid == os.getpid():
                return
            time.sleep(_AWAIT_S)

    def result(self, timeout: float = math.inf, *, refs: bool = False) -> Any:
        """The workflow's value, as soon as it is known.

        Parameters
        ----------
        timeout
            Longest time to wait for it [s].
        refs
            True for an `asa.Ref` in the place of each result, which is opened when it is asked for.

        Raises
        ------
        RunFailed
            When a stage failed or the run was cancelled; the message says why.
        StateError
            When the state directory could not be written any more.
        TimeoutError
            When it is not known yet.
        KeyboardInterrupt
            On Ctrl-C, with words that say how to go on. In a notebook or at a prompt the run goes on; that of a script
            is cancelled, which would wait for it otherwise.
        """
        self.check(timeout)
        return self._value(_as_refs if refs else load_all)

    def results(self, stage: str | None = None, timeout: float = math.inf, *, refs: bool = False) -> Any:
        """As `result`, but also of a run in which some tasks failed: with `asa.Failed` in the place of each result that
        there is not.

        Parameters
        ----------
        stage
            A stage, for what its task returned or, of a parallel one, the list of what its tasks did; default what the
            workflow's value consists of.
        timeout
            Longest time to wait for the run's outcome [s].
        refs
            As for `result`.

        Raises
        ------
        UnknownName
            When there is no such stage.
        StateError
            When a result cannot be read.
        TimeoutError
            When the outcome is not known yet.

        Examples
        --------
        >>> good = [each for each in run.results("align") if not isinstance(each, asa.Failed)]  # doctest: +SKIP
        """
        if self._assembly is not None and not self._decided(timeout):
            raise TimeoutError(f"run {self.name} has no outcome after {timeout:g} s")
        graph = self._whole_graph
        plan = restore_plan(self.name, self._log) if self._assembly is None else self._assembly.plan
        read = _as_refs if refs else load_all
        if stage is None:
            return replace_nodes(graph.result, lambda node: self._results_of(graph, plan, node, read))
        if stage not in graph.nodes:
            raise UnknownName("stage", stage, graph.nodes)
        return self._results_of(graph, plan, graph.nodes[stage], read)

    def _results_of(self, graph: Graph, plan: Plan, node: Node, read: Read) -> Any:
        name = graph.names[node]
        stage, found, start = plan.stages[name], list[Any](), 0
        if graph.has_added(name):
            each = [self._result_at(graph, plan, name, index, read) for index in range(stage.width or 0)]
            return each if node.mapped else each[0]
        if stage.state is StageState.DONE:
            return self._value_of(graph, node, read)
        for index in (*stage.not_done, len(stage.tasks)):
            for first in range(start, index, _READ_MOST):
                values = self._log.values(name, first, min(first + _READ_MOST, index))
                found += read(iter(values))
            start = index + 1
            if index < len(stage.tasks):
                found.append(plan.failure(name, index) or Failed(name, index, "it was not run"))
        if not node.mapped or stage.is_widthless:
            return found[0] if found else plan.failure(name, 0) or Failed(name, 0, "it was not run")
        return found

    def _result_at(self, graph: Graph, plan: Plan, name: str, index: int, read: Read) -> Any:
        name, index, value = graph.end_of(name, index)
        if value is not None:
            return replace_nodes(value, lambda node: self._results_of(graph, plan, node, read))
        if plan.stages[name].is_done(index):
            return next(iter(read(iter([self._log.value(name, index)]))))
        return plan.failure(name, index) or Failed(name, index, "it was not run")

    def check(self, timeout: float = math.inf) -> None:
        """Raise what `result` would raise, without reading the value."""
        try:
            in_time = self._assembly is None or self._decided(timeout)
        except KeyboardInterrupt:
            raise self._interrupted(ends=not hasattr(sys, "ps1")) from None
        if not in_time:
            raise TimeoutError(f"run {self.name} has no result after {timeout:g} s")
        if self._error is not None:
            raise self._error
        ended = self._ended()
        if ended is None or ended.state is not RunState.SUCCEEDED:
            what = "it has no outcome yet, and no driver here" if ended is None else ended.message
            stage = ended.stage if ended else ""
            if stage and self.directory.output.exists():
                what += f"\n(`asa logs {self.name} --failed` shows all that failed tasks printed)"
            raise RunFailed(f"run {self.name}: {what}\n({self._hint()})", stage=stage or None, run=self)

    def __await__(self) -> Generator[Any, None, Any]:
        """As `result`, in an event loop, such as a notebook's own. Where that is cancelled, the run goes on."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        import asyncio

        while not self.decided.is_set():
            await asyncio.sleep(_AWAIT_S)
        return await asyncio.to_thread(self.result)

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The run's events, from the first on, as they happen; they end with the run."""
        import asyncio

        last, over = 0, False
        while not over:
            over = self.status is not RunState.RUNNING
            for number, event in self._log.read(last):
                last = number
                yield event
            await asyncio.sleep(0 if over else _AWAIT_S)

    def shown_result(self) -> str:
        """As `result`, for people: what is long is cut, and of many results no more is read than is shown."""
        if self.status is RunState.PARTIAL:
            return shown(self.results())
        self.check()
        return shown(self._value(lambda stored: Unread(map(load, stored))))

    @property
    def _whole_graph(self) -> Graph:
        """The workflow, with what its tasks have added."""
        if self._graph is None:
            graph = make_graph(load_settings(self.directory).result)
            if any(node.stage.needs.expands for node in graph.nodes.values()):
                from asa.workflows.expand import regrow  # here: few runs need it

                regrow(graph, self._log.each(StagesAdded), self._log.value)
            return graph
        return self._graph

    def _value(self, read: Read) -> Any:
        """The workflow's value, with what is made of a parallel stage's results in their place."""
        graph = self._whole_graph
        return replace_nodes(graph.result, lambda node: self._value_of(graph, node, read))

    def wait(self, timeout: float = math.inf) -> bool:
        """Wait until the run's jobs have ended, too [s]; False when they had not."""
        if self._thread is None:
            return self._attached is None or self._let_go(timeout)
        # Not by joining the thread: interrupted by Ctrl-C, Python before 3.13 takes it for ended (cpython issue 90882).
        return self._over.wait(None if timeout == math.inf else timeout)

    def _let_go(self, timeout: float) -> bool:
        """Whether the process that drives the run lets go of it within so long [s]."""
        until = time.monotonic() + timeout
        while driven := self.directory.is_driven():
            if time.monotonic() >= until:
                break
            time.sleep(_AWAIT_S)
        return not driven

    def cancel(self, reason: str = "cancelled") -> None:
        """End the run: pending jobs are cancelled, running ones released. What is done stays done: see `resume`."""
        if self._assembly is not None:
            self._assembly.runner.cancel(reason)

    def hold(self) -> None:
        """Have nothing new submitted or launched until `release`: what runs goes on, what is queued stays there."""
        if self._assembly is not None:
            self._assembly.runner.hold(True)

    def release(self) -> None:
        """Go on after `hold`."""
        if self._assembly is not None:
            self._assembly.runner.hold(False)

    def leave(self, reason: str) -> None:
        """End the driver alone: jobs go on as when it dies, for the grace that they were given, and a `resume` in that
        time takes them over with what they run. The run's log says so. A run in virtual time is cancelled."""
        if self._assembly is None:
            return
        if self._assembly.virtual:
            self.cancel(reason)
            return
        grace = brief(self._assembly.runner.context.orphan_grace_s)
        _log.warning("%s: the driver ends, jobs go on for %s without one; %s", reason, grace, self._hint())
        self._assembly.runner.leave()

    def now(self) -> float:
        """The run's own time [s since the epoch], which may be virtual; once it is over, that of its last event."""
        if self._assembly is not None and not self.decided.is_set():
            return self._assembly.runner.clock.now()
        if self._assembly is None and self.status is RunState.RUNNING and not self._is_virtual:
            return time.time()  # another process drives it
        last = self._log.latest(*Event.kinds.values())
        return 0.0 if last is None else last.at

    @property
    def status(self) -> RunState:
        """How the run stands."""
        return self.directory.standing(self._log)

    @property
    def decided(self) -> threading.Event:
        """Set once the outcome is known; jobs may still be ending."""
        if self._assembly is not None:
            return self._assembly.runner.decided
        if self._attached is not None:
            return self._attached
        over = threading.Event()
        over.set()
        return over

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """The run's log from sequence number `after` on."""
        return self._log.read(after)

    def packed(self, after: int = 0) -> Iterator[tuple[int, Event | TasksDone]]:
        """The same; of tasks that returned together one item, with the number of the last: to be folded sooner."""
        return self._log.packed(after)

    @property
    def summary(self) -> RunSummary:
        """Waits, makespan and core-hours, of the whole run and of every stage and job, to the last one's end."""
        return self.summarise()

    def summarise(self, patience: float = math.inf) -> RunSummary:
        """As `summary`; jobs of a run that is over have so long to end [s], or count as far as they are known."""
        from asa.metrics.workflow import summarise, summary

        if self.decided.is_set():
            self.wait(patience)
        driven = self.directory.is_driven()
        if self._assembly is not None and self._over.is_set():  # the driver has folded all there is
            return summary(self._assembly.plan, driven=driven)
        if self._log.latest(RunStarted) is None:
            raise never_began(self.name)
        now = self.now() if self.status is RunState.RUNNING else None
        return summarise((item for _, item in self._log.packed()), now, driven=driven)

    def explain(self) -> str:
        """Why every stage that is not running is not running, in plain words."""
        from asa.workflows.explain import explain

        if self._assembly is not None:
            return explain(self._assembly.plan, self.now())
        driven = self.directory.is_driven()
        plan = restore_plan(self.name, self._log)
        text = explain(plan, self.now(), driven=driven)
        return text if driven or plan.outcome is not RunState.RUNNING else f"driver: gone ({self._hint()})\n{text}"

    def logs(
        self,
        stage: str | None = None,
        index: int | None = None,
        *,
        failed: bool = False,
        grep: str | None = None,
        follow: bool = False,
    ) -> Iterator[OutputLine]:
        """What tasks have printed, line by line: standard output and standard error in the order of writing.

        Of each worker's tasks what began first comes first. Nothing is kept in memory.

        Parameters
        ----------
        stage, index
            Of which stage, and which of its tasks; default all.
        failed
            Only attempts that failed, also those after which another one succeeded.
        grep
            Only lines in which this regular expression is found.
        follow
            Wait for more until the run is over. Lines of a task that runs come as they are printed.

        Raises
        ------
        UnknownName
            When there is no such stage.
        InvalidInput
            When `grep` is no regular expression.

        Examples
        --------
        >>> for line in run.logs("align", failed=True):  # doctest: +SKIP
        ...     print(f"{line.stage}[{line.index}] on {line.node}: {line.text}")
        """
        from asa.log.output import OutputReader

        started = self._log.latest(RunStarted)
        names = [each.name for each in started.stages] if isinstance(started, RunStarted) else []
        names += [each.name for event in self._log.each(StagesAdded) for each in event.specs]
        if stage is not None and stage not in names:
            raise UnknownName("stage", stage, names)
        try:
            reader = OutputReader(self.directory.path, stage, index, failed=failed, grep=grep)
        except re.error as error:
            raise InvalidInput(f"{grep!r} is no regular expression: {error}") from None
        return self._logs(reader, follow)

    def _logs(self, reader: OutputReader, follow: bool) -> Iterator[OutputLine]:
        while follow and self.status is RunState.RUNNING:
            yield from reader.read(self._log.each(TaskFailed), last=False)
            time.sleep(_FOLLOW_S)
        over = self.status is not RunState.RUNNING
        yield from reader.read(self._log.each(TaskFailed), over=over)

    def report(self, path: str | Path) -> Path:
        """Write a report, by the file's ending: ``.html``, ``.png`` or ``.json``."""
        from asa.report.write import check_report, write_summary

        check_report(path)  # before what may take long
        write_summary(self.summary, path)
        return Path(path)

    def __repr__(self) -> str:
        return f"<run {self.name}: {self.status.value}>"

    def _repr_html_(self) -> str:
        from asa.metrics.workflow import summarise
        from asa.report.notebook import progress_html

        found = summarise((item for _, item in self._log.packed()), self.now(), driven=self.directory.is_driven())
        return progress_html(found)

    def _interrupted(self, ends: bool) -> KeyboardInterrupt:
        """What to raise for Ctrl-C while the run was waited for, which `ends` it: it says how to go on."""
        if ends and not self.decided.is_set():
            self._end("interrupted from the keyboard")
        if not self.decided.is_set():
            return KeyboardInterrupt(
                f"run {self.name} goes on: result() waits for it again, cancel() ends it; if this process ends before "
                f"it, {self._hint()}"
            )
        state = self.status
        after = f"its result is asa.open_run({self.name!r}).result()" if state is RunState.SUCCEEDED else self._hint()
        ended = _ENDED.get(state, "stopped")
        return KeyboardInterrupt(f"run {self.name} has {ended}; nothing that is done is lost: {after}")

    def _give_notice(self, secrets: Sequence[str]) -> None:
        with logged_in(self.directory.log), log_to_file(self.directory.log):
            try:
                send_notice(self._notify, self.directory, self.status.value, self._ended(), self._hint(), secrets)
            except Exception as error:  # as when warnings are errors: the run's outcome is not changed by that
                _log.warning("no notice that the run has ended: %s", error)

    def _stop(self, interrupt: KeyboardInterrupt) -> None:
        """Cancel it, or leave it for SIGHUP; the command line names the signal, if it was not Ctrl-C."""
        reason = f"interrupted by {interrupt.args[0]}" if interrupt.args else "interrupted from the keyboard"
        with logged_in(self.directory.log):
            self.leave(reason) if interrupt.args == ("SIGHUP",) else self.cancel(reason)

    def _end(self, reason: str) -> None:
        with logged_in(self.directory.log):
            self.cancel(reason)
        self.wait()

    def _decided(self, timeout: float) -> bool:
        assert self._assembly is not None
        return self._assembly.runner.decided.wait(None if timeout == math.inf else timeout)

    @property
    def _is_virtual(self) -> bool:
        started = self._log.latest(RunStarted)
        return isinstance(started, RunStarted) and started.is_virtual

    def _ended(self) -> RunEnded | None:
        last = self._log.latest(RunEnded, DriverStarted)
        return last if isinstance(last, RunEnded) else None

    def _hint(self) -> str:
        """What can be done about a run that failed, or has lost its driver."""
        if self._is_virtual:
            return IN_VIRTUAL_TIME
        refused = self._log.latest(SubmitRefused, Submitted, DriverStarted)
        final = isinstance(refused, SubmitRefused) and not (refused.later or _MAY_PASS.search(refused.reason))
        if final and self._ended():
            return "the same job would be refused again: change what it asks for, and run the workflow again"
        by_tasks = self.status in (RunState.FAILED, RunState.PARTIAL)
        changed = "; add `--code FILE` if you have changed the code" if by_tasks else ""
        return f"`asa resume {self.name}` runs only what is not done{changed}"

    def _value_of(self, graph: Graph, node: Node, read: Read) -> Any:
        name = graph.names[node]
        try:
            if not node.mapped:
                return self._value_at(graph, name, 0, read)
            if graph.has_added(name):
                known = graph.width(name)
                tasks = range((self._log.width(name) or 0) if known is None else known)
                return [self._value_at(graph, name, index, read) for index in tasks]
            found = read(self._log.all_values(name))
            known = graph.width(name)
            width = self._log.width(name) if known is None else known
            if not isinstance(found, Unread) and len(found) != width:
                raise StateError(f"there are {len(found)} results of {width} tasks")
            return found
        except (StateError, KeyError) as error:
            why = "it is missing" if isinstance(error, KeyError) else error
            raise StateError(
                f"run {self.name}: the result of stage {name!r} cannot be read: {why}. `asa resume {self.name}` runs "
                "again what is damaged"
            ) from error

    def _value_at(self, graph: Graph, name: str, index: int, read: Read) -> Any:
        """What a task returned, with the results of the stages that it added."""
        name, index, value = graph.end_of(name, index)
        if value is None:
            return next(iter(read(iter([self._log.value(name, index)]))))
        return replace_nodes(value, lambda node: self._value_of(graph, node, read))

    def _quote(self) -> None:
        """Log when a new run is expected to be done, beside all else that it does; not of one that is over soon."""
        assert self._assembly is not None
        runner, make = self._assembly.runner, self._make_quote
        if make is not None and (self._assembly.virtual or not runner.decided.wait(QUOTE_AFTER_S)):
            try:
                runner.inbox.post([make()])
            except Exception as error:  # of a strategy, an estimator, a run time of the user's: no run fails for it
                _log.info("there is no quote: %s: %s", type(error).__name__, error)

    def _start(self) -> None:
        assert self._assembly is not None
        assembly = self._assembly

        def drive() -> None:
            try:
                if assembly.virtual:
                    assembly.runner.start_executor()
                    self._quote()
                assembly.runner.run()
            except BaseException as error:
                self._error = error
            finally:
                assembly.runner.decided.set()
                try:
                    assembly.close()
                except AsaError as error:  # the outcome is known: this does not change it
                    _log.warning("the driver has not cleaned up: %s", error)
                finally:
                    try:
                        if self._notify and not self.handed_over:
                            self._give_notice(assembly.runner.context.secrets)
                    finally:
                        self._over.set()

        self._thread = threading.Thread(target=copy_context().run, args=(drive,), name=f"asa-run-{self.name}")
        try:
            self._thread.start()  # which waits for it: a signal may come when it drives already
            if not assembly.virtual:
                start_thread(self._quote, f"asa-quote-{self.name}")
                assembly.runner.start_executor()
        except KeyboardInterrupt as interrupt:
            self._stop(interrupt)
            raise
        except BaseException as error:
            self._error = error
            self.cancel(f"the executor did not start: {error}")
            raise


@shows(RunOptions)
def submit(workflow: Any, **options: Unpack[RunOptions]) -> Run:
    """Start a workflow and return at once, whatever its tasks will do. Takes the same parameters as `run`, without
    `check` and `progress`."""
    check_options("option of asa.submit()", options, RunOptions)
    return _submit(workflow, **options)


def _submit(workflow: Any, *, state: str | Path | None = None, **options: Any) -> Run:
    graph, settings = _checked(workflow, **options)
    with new_directory(settings.name, state) as directory:
        return _go(directory, graph, settings)


def _checked(workflow: Any, *, name: str | None = None, **options: Any) -> tuple[Graph, Settings]:
    graph = make_graph(workflow).copy()
    settings = make_settings(graph, name or next(reversed(graph.nodes)), **options)
    graph.outputs(settings.workdir)
    return graph, settings


@shows(RunOptions)
def prepare(workflow: Any, **options: Unpack[RunOptions]) -> RunDirectory:
    """Make a run that any process can drive, with `resume`: its site takes it, all that it needs is in its directory.

    Takes the same parameters as `submit`.

    Raises
    ------
    InvalidInput
        When the workflow or an option cannot be used, or the run would be in virtual time.
    """
    state = options.pop("state", None)
    return _prepared(*_checked(workflow, **options), state)


def _prepared(graph: Graph, settings: Settings, state: str | Path | None) -> RunDirectory:
    with new_directory(settings.name, state) as directory, logged_in(directory.log):
        assembly = assemble(directory, graph, settings)
        assembly.close()
    if assembly.virtual:
        shutil.rmtree(directory.path)
        raise InvalidInput("a run in virtual time is driven where it is started: leave --detach and --driver out")
    return directory


@shows(RunOptions)
def run(workflow: Any, *, check: bool = True, progress: bool | None = None, **options: Unpack[RunOptions]) -> Run:
    """Run a workflow until its outcome is known. Its jobs may end a moment later: see `Run.wait`.

    Parameters
    ----------
    workflow
        What calling stages returned: a node, or a list, tuple or dict of nodes.
    check
        Whether a run that fails, or is cancelled, raises `RunFailed`; otherwise its `Run.status` tells.
    progress
        Whether it is shown how the run gets on, on standard error or in the notebook; default only on a terminal and in
        a notebook.
    backend
        Where jobs go: ``"local"`` (default), ``"slurm"``, with options as in ``"slurm:partition=core"``; or, in virtual
        time, a simulated queue: ``"sim:hpc2n"``, ``"sim:nodes=16,cores=8,load=0.7"``.
    strategy
        When jobs are asked for: ``"big-job"`` (default where there is no queue), ``"auto"`` (default elsewhere),
        ``"per-stage"``, ``"asa"``, ``"asa-naive"``, ``"cascade"``, with options as in ``"asa:dependency=predicted"``.
    executor
        How tasks run inside allocations: ``"local"`` (default where there is no queue), ``"dask"`` (whose tasks end
        with their driver), or, through agents, ``"mesos"`` (default elsewhere).
    pool
        ``"shared"``: a ready task runs in any allocation with room; ``"per-stage"``: only in its stage's own;
        ``"shared:NAME"``: also in what other runs with the same pool leave idle, and they in ours.
    name
        Beginning of the run's name; default the last stage's name.
    workdir
        Directory that tasks run in, which must be there; default the current one.
    state
        State directory; default ``$ASA_STATE_DIR`` or ``~/.local/state/asa``.
    orphan_grace
        How long allocations outlive a driver that died, so that `resume` finds them: seconds, or like ``"10m"``.
    output_limit
        How much is kept of what each task prints, its beginning and its end: bytes, or like ``"10M"``.
    reuse
        Whether results of earlier runs stand for tasks that would do the same again; of a stage, ``reuse=`` decides.
    reuse_from
        Other state directories whose runs' results may be reused, too; implies `reuse`.
    notify
        A command that is run when the run has ended, however, with its name and outcome as further arguments; or a mail
        address. `resume` gives notice, too.
    keep_going
        Whether all that does not need it goes on when a task has failed for good; of a stage, ``on_error=`` decides.
        The run is `partial` then, not successful: `Run.results` has what there is.
    price
        Price of a core-hour, by the queue that a stage may go to: ``{"core": 1.0, "gpu-low": 0.2}``; 1 where nothing is
        said.
    preempted
        How often an hour jobs there are preempted, likewise; learned where nothing is said.
    ask_twice
        Whether each job is asked for in the second best queue, too; the other one is withdrawn when one of both starts.
    learn_requests
        Whether memory and wall time of each stage are asked for by what its tasks used in earlier runs, as those of a
        stage with ``memory="auto"`` and ``walltime="auto"``. What is declared is the first request then.

    Returns
    -------
    Run
        Whose ``result()`` is the workflow's value.

    Raises
    ------
    InvalidInput
        When the workflow or an option cannot be used.
    RunFailed
        When the run does not succeed, or not as a whole, unless `check` is false; its ``run`` is what else would be
        returned.
    KeyboardInterrupt
        On Ctrl-C, which cancels the run, with words that say how to go on.

    Examples
    --------
    >>> import asa
    >>> @asa.stage
    ... def double(x):
    ...     return 2 * x
    >>> asa.run(double.map([1, 2, 3])).result()  # doctest: +SKIP
    [2, 4, 6]
    """
    check_options("option of asa.run()", options, RunOptions)
    done = _submit(workflow, **options)
    try:
        finish(done, show_progress if _is_shown(progress) and not done.decided.is_set() else None)
    except KeyboardInterrupt:
        raise done._interrupted(ends=True) from None
    if check:
        done.check()
    return done


def resume(name: str, *, state: str | Path | None = None, code: Any = None, notify: str | None = None) -> Run:
    """Go on with a run whose driver died, that failed, or that was cancelled: only what is not done is run.

    Parameters
    ----------
    name
        The run's name, or a beginning of it (of several runs the newest is meant), or ``"@last"``.
    code
        The workflow anew, as `run` takes it: another run goes on with it, which runs what has changed in it, and what
        follows from that, and takes all else from the run of this name. That stays as it is.
    notify
        As for `run`, instead of what the run was started with, for later drivers, too.

    Raises
    ------
    InvalidInput
        When such a notice could not be given.
    RunNotFound
        When there is no such run.
    StateError
        When another driver is at it.
    """
    directory = RunDirectory.open(state_path(state), name)
    settings = _settings(directory, notify)
    if code is None:
        return _go(directory, make_graph(settings.result), settings)
    graph, settings = _continued(directory, settings, code)
    with new_directory(settings.name, state) as anew:
        return _go(anew, graph, settings)


def prepare_resume(
    name: str,
    *,
    state: str | Path | None = None,
    code: Any = None,
    notify: str | None = None,
    driven: bool = False,
) -> RunDirectory:
    """As `resume`, but the run, whose directory is returned, goes on only when some process resumes that.

    Parameters
    ----------
    driven
        Whether it may have a driver, which hands it over then.
    """
    directory = RunDirectory.open(state_path(state), name)
    settings = _settings(directory, notify)
    if code is not None:
        return _prepared(*_continued(directory, settings, code), state)
    if not driven and (holder := directory.lock().holder()):
        who = f"process {holder.pid} on {holder.host}"
        raise StateError(f"run {directory.name} has a driver, {who}: asa attach {directory.name} shows how it gets on")
    return directory


def _settings(directory: RunDirectory, notify: str | None) -> Settings:
    """What the run was started with; another notice that is asked for is kept, for later drivers, too."""
    settings, kept = load_settings(directory), directory.path / _NOTIFY
    if notify is not None:
        check_notice(notify, os.environ)
        write_private(kept, notify.encode())
    with suppress(FileNotFoundError):
        return replace(settings, notify=kept.read_text())
    return settings


def _continued(directory: RunDirectory, settings: Settings, code: Any) -> tuple[Graph, Settings]:
    """Workflow and settings of a run that goes on with other code."""
    if directory.is_driven():
        raise StateError(f"run {directory.name} has a driver: wait for it, or stop it, and go on with other code then")
    graph = make_graph(code)
    return graph, replace(settings, result=graph, line=settings.line or directory.name, sys_path=tuple(sys.path))


def open_run(name: str, *, state: str | Path | None = None) -> Run:
    """Look at a run, of whichever driver, without touching it."""
    return Run(RunDirectory.open(state_path(state), name), None, None)


def _is_shown(progress: bool | None) -> bool:
    if progress is not None:
        return progress
    if "IPython" in sys.modules:
        from asa.report.notebook import notebook

        if notebook():
            return True
    return bool(sys.stderr and sys.stderr.isatty()) and threading.current_thread() is threading.main_thread()


def show_progress(run: Run) -> None:
    """Show how a run gets on until its outcome is known, in the notebook or on standard error."""
    from asa.report.notebook import NotebookDisplay, notebook
    from asa.report.progress import ProgressDisplay, follow

    with NotebookDisplay() if notebook() else ProgressDisplay() as display:
        follow(run.packed, display, SystemClock(), run.decided, now=run.now)


def finish(run: Run, while_waiting: Callable[[Run], None] | None = None) -> Run:
    """Wait for a run's outcome, not for its last job.

    Ctrl-C cancels it, lets its jobs go, and comes through; so does SIGTERM on the command line. SIGHUP, a terminal that
    was closed, ends the driver alone: see `Run.leave`.
    """
    try:
        if while_waiting is not None:
            while_waiting(run)
        run.decided.wait()
    except KeyboardInterrupt as interrupt:
        run._stop(interrupt)
        run.wait()
        raise
    return run


def _go(directory: RunDirectory, graph: Graph, settings: Settings) -> Run:
    with logged_in(directory.log):
        assembly = assemble(directory, graph, settings)
        quote = partial(_quoted, graph.copy(), settings, assembly, directory.state) if assembly.first else None
        result = Run(directory, graph, assembly, settings.notify, quote)
        if assembly.plan.on_hold is not None:
            warn(f"run {directory.name} is held, so nothing new is submitted or launched: asa release {directory.name}")
        if assembly.plan.outcome is RunState.SUCCEEDED:
            assembly.runner.decided.set()
            assembly.close()
            result._over.set()
        else:
            result._start()
        return result


def _quoted(graph: Graph, settings: Settings, assembly: Assembly[Plan], state: Path) -> Event:
    """When a run that has begun is expected to be done; the estimator is not asked again."""
    from asa.workflows.quote import Seen, quoted, seen_of  # here: short runs are over before

    plan, runner, backend, times = assembly.plan, assembly.runner, assembly.backend, None
    assert plan.start is not None, "it has begun"
    seen: Seen = runner.watch.seen
    if isinstance(backend, VirtualBackend):
        seen, times = seen_of(backend), backend.times
    return quoted(graph, settings, plan.site, plan.start, state, seen, runner.clock.now(), times)
