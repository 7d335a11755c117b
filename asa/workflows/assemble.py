"""Putting a run together, of a workflow or of calls: from names and options to a runner that is ready to go.

`assemble` reads from top to bottom: lock, backend, what is to be decided, executor, time, what was learned, log, first
event or replay, watch, runner. Everything is closed in the reverse order. Runs in memory (`asa.lab.virtual`) have the
last part in common, `make_runner`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from asa.allocations.budget import QUERY, SharedBudget, in_turn
from asa.allocations.watch import SPARE, Budget, JobWatch, WatchCalls, WatchThread
from asa.core.clock import SystemClock
from asa.core.decision import Predict
from asa.core.errors import AsaError, BackendError, GraphError, InvalidInput
from asa.core.event import (
    VERSION,
    VIRTUAL,
    DriverStarted,
    Predicted,
    ResultsLost,
    RunStarted,
    RunState,
    StagesAdded,
    Submitted,
    Submitting,
)
from asa.core.job import Capabilities, JobHandle, JobRequest, JobStatus, QueueRegime, alternatives, queue_name
from asa.core.ports import (
    Backend,
    Clock,
    CountsQuestions,
    Executor,
    KeepsSecrets,
    Previews,
    RunContext,
    SharesProcesses,
    Sharing,
    Strategy,
    TakesGuests,
    VirtualBackend,
)
from asa.core.queues import QueueTerms, misfit
from asa.core.registry import BACKENDS, EXECUTORS, STRATEGIES, is_pooled
from asa.core.run import FoldedRun, TaskState
from asa.core.stage import StageSpec, StageState
from asa.core.units import brief
from asa.log.events import EventLog
from asa.log.messages import log_to_file, warn
from asa.log.rundir import RunDirectory
from asa.strategies.asking import ask_for
from asa.workflows.fingerprint import meaning
from asa.workflows.graph import Graph
from asa.workflows.learned import FIXED_S, LearnedWaits, WaitBook, keep_usage
from asa.workflows.payload import Payloads
from asa.workflows.plan import Mold, Plan, Submit
from asa.workflows.reuse import Reuse
from asa.workflows.runner import Decider, Inbox, Log, Runner, TaskMaker, job_request
from asa.workflows.settings import Settings, never_began, save_settings
from asa.workflows.stage import nodes_in

_log = logging.getLogger(__name__)

P = TypeVar("P", bound=Decider)


@dataclass(frozen=True)
class Timing:
    """What differs between real and virtual time.

    Parameters
    ----------
    clock
        Time.
    watcher
        Calls the job watch.
    listen
        Takes what is to be called when something has happened to a job; real batch systems have to be asked.
    """

    clock: Clock
    watcher: WatchThread | WatchCalls
    listen: Callable[[Callable[[], None]], None] = lambda _call: None

    @classmethod
    def of(cls, backend: Backend, held: contextlib.ExitStack) -> Timing:
        """The backend's own time, which is this run's until `held` is closed, and the backend with it; or real time."""
        if isinstance(backend, VirtualBackend):
            virtual = backend.enter()
            held.callback(backend.close)
            return cls(virtual, WatchCalls(virtual), backend.listen)
        clock = SystemClock()
        return cls(clock, WatchThread(clock))


@dataclass(frozen=True)
class Parts(Generic[P]):
    """What a run of a workflow and one of calls differ in.

    Parameters
    ----------
    graph
        Of stages that are to fit the site.
    plan
        Decides; an event may be folded into it as soon as it is in the log.
    estimator
        Spec of what learns the waits.
    strategy
        What the log calls whatever decides.
    shared
        Whether a task may run in any allocation.
    stages
        The stages of a graph as they are at the site, from what was learned of them.
    payloads
        What makes the tasks, from the log.
    results
        Whether the log keeps what tasks returned.
    clock
        What stands in for a clock in virtual time.
    """

    graph: Graph
    plan: P
    estimator: str
    strategy: Any
    shared: bool
    stages: Callable[[Graph, LearnedWaits], tuple[StageSpec, ...]]
    payloads: Callable[[EventLog], TaskMaker]
    results: bool = True
    clock: Callable[[Clock], Clock] = lambda clock: clock


@dataclass(frozen=True)
class Assembly(Generic[P]):
    """A plan and its runner, and all that is closed with them; whether the run has had no driver before."""

    plan: P
    runner: Runner
    backend: Backend
    first: bool
    _held: contextlib.ExitStack

    @property
    def virtual(self) -> bool:
        return isinstance(self.backend, VirtualBackend)

    def close(self) -> None:
        """Let go of everything, what was made last first."""
        self._held.close()


def assemble(directory: RunDirectory, graph: Graph, settings: Settings, timing: Timing | None = None) -> Assembly[Plan]:
    """All parts of a workflow's run, new or resumed, which is this process's from now on; `timing` is the backend's.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or an argument cannot travel.
    StateError
        When another driver is at it.
    """

    variables = graph.variables(os.environ)

    def parts(site: Capabilities) -> Parts[Plan]:
        plan = make_plan(settings, site)
        return Parts(
            graph,
            plan,
            plan.strategy.estimator,
            chosen_strategy(settings, site),
            plan.shared,
            lambda part, learned: stages_of(part, settings, site, learned, directory.state),
            lambda log: Payloads(
                graph, directory.functions, directory.values, log.value, variables, workdir=settings.workdir, run=plan
            ),
        )

    return assemble_parts(directory, settings, parts, timing)


def stages_of(
    graph: Graph, settings: Settings, site: Capabilities, learned: LearnedWaits, state: Path
) -> tuple[StageSpec, ...]:
    """The stages of a graph as they are at the site, from what was learned of them."""
    expect = learned.expect(settings.name)
    specs = _asking(graph, settings, graph.specs(site, learned.run_time(settings.name), settings.keep_going))
    return _with_requests(graph, tuple(learned.measured(expect(spec)) for spec in specs), settings, site, state)


def _with_requests(
    graph: Graph, specs: tuple[StageSpec, ...], settings: Settings, site: Capabilities, state: Path
) -> tuple[StageSpec, ...]:
    """Stages, with requests that are learned in place of those that are declared."""
    if not settings.learn_requests and not any(node.stage.needs.auto for node in graph.nodes.values()):
        return specs
    from asa.workflows.requests import LearnedRequests  # here: few runs need it

    learned = LearnedRequests(state, site, everything=settings.learn_requests, workdir=settings.workdir)
    return learned.ask(graph, specs)


def _asking(graph: Graph, settings: Settings, specs: tuple[StageSpec, ...]) -> tuple[StageSpec, ...]:
    """Stages, of which those are marked for which results of earlier runs are to be looked for; with their codes."""
    asks = {name: settings.asks(node.stage.needs.reuse) for name, node in graph.nodes.items()}
    functions = {name: id(node.stage.function) for name, node in graph.nodes.items()}
    stages = {functions[name]: node.stage for name, node in graph.nodes.items()}  # many may have one function
    codes = {function: meaning(stage) for function, stage in stages.items()}
    return tuple(replace(spec, reuse=asks[spec.name], code=codes[functions[spec.name]]) for spec in specs)


def assemble_parts(
    directory: RunDirectory,
    settings: Settings,
    make: Callable[[Capabilities], Parts[P]],
    timing: Timing | None = None,
) -> Assembly[P]:
    """All parts of a run, of which `make` makes those that depend on what is run, once the site is known.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or an argument cannot travel.
    StateError
        When another driver is at it.
    """
    with contextlib.ExitStack() as held:
        # Whose it is, and where its jobs go. Until `held` is closed the run is this process's.
        lock = held.enter_context(directory.lock())
        held.enter_context(log_to_file(directory.log))
        backend: Backend = BACKENDS.create(settings.backend, directory=directory.backend, clock=SystemClock())
        if not isinstance(backend, VirtualBackend):  # one in virtual time may be another run's until it is entered
            held.callback(backend.close)
        asks = isinstance(backend, CountsQuestions)
        with in_turn(directory.state / "scheduler-start.lock") if asks else contextlib.nullcontext():
            site = _site(backend)
        # What is run, and how.
        parts = make(site)
        parts.graph.check(site)
        settings.terms.check(parts.graph.queues)
        named, executor = _executor(directory, settings, parts.graph, backend)
        timing = timing or Timing.of(backend, held)
        if isinstance(backend, VirtualBackend):
            timing = replace(timing, clock=parts.clock(timing.clock))
        learned = held.enter_context(
            contextlib.closing(LearnedWaits(directory.state / "learned.db", parts.estimator, site))
        )
        budget = _budget(directory, backend, site)
        # What happened so far.
        log = held.enter_context(EventLog(directory.events, results=parts.results))
        payloads = parts.payloads(log)
        first_driver = log.latest(DriverStarted) is None
        if log.last:
            if isinstance(payloads, Payloads):
                payloads.regrow(log.each(StagesAdded))
            _replay(parts.plan, log, virtual=isinstance(backend, VirtualBackend))
            if isinstance(parts.plan, Plan) and not isinstance(backend, VirtualBackend):
                results = parts.plan.made_of(parts.graph.names[node] for node in nodes_in(parts.graph.result))
                if not _is_whole(parts.plan, log, results):
                    _revoke_lost(parts.plan, log, results, timing.clock.now())
        else:
            if isinstance(payloads, Payloads):
                for caution in [*parts.graph.cautions(), *_unlimited(parts.graph, backend, site, executor)]:
                    warn(caution)
                payloads.save()
            stages = parts.stages(parts.graph, learned)
            save_settings(directory, settings, parts.graph.nodes.values())
            start = first_event(
                settings,
                site,
                stages,
                run=directory.name,
                strategy=parts.strategy,
                executor=named,
                shared=parts.shared,
                at=timing.clock.now(),
                fixed_s=(0.0, 0.0) if isinstance(backend, VirtualBackend) else learned.fixed_s(),
            )
            log.append([start])
            parts.plan.on(start)
        if first_driver and isinstance(parts.plan, Plan):  # stages of a resumed run seem to have run without a driver
            look = partial(_last_look, backend, budget, timing.clock, parts.plan)
            held.callback(learned.learn_run_times, parts.plan, settings.name, look)
        if isinstance(parts.plan, Plan) and not isinstance(backend, VirtualBackend):
            held.callback(keep_usage, directory.state, parts.plan, log)
        # What drives it.
        runner = make_runner(
            held,
            backend,
            timing,
            parts.plan,
            estimator=parts.estimator,
            executor=executor,
            payloads=payloads,
            log=log,
            waits=learned,
            context=RunContext(
                run=directory.name,
                directory=directory.path,
                workdir=settings.workdir,
                sys_path=settings.sys_path,
                orphan_grace_s=settings.orphan_grace_s,
                local=site.regime is QueueRegime.IMMEDIATE,
                pool=directory.state / "pools" / settings.pool_name if settings.pool_name else None,
                secrets=parts.graph.withheld,
                now=timing.clock.now,
                output_limit=settings.output_limit,
                generation=lock.begin(),
                newest=lambda: directory.generation,
            ),
            outputs=str(directory.jobs),
            budget=budget,
            may_be_late=lock.is_doubtful,
            terms=settings.terms,
        )
        if site.apart is not None and isinstance(parts.plan, FoldedRun):
            held.callback(learned.learn_survival, parts.plan)
        grows = any(node.stage.needs.expands for node in parts.graph.nodes.values())
        if grows and isinstance(payloads, Payloads) and isinstance(parts.plan, Plan):
            from asa.workflows.expand import Growth  # here: few runs need it

            admit = partial(_admit, parts, payloads, site, settings, learned, backend, executor)
            runner.add = Growth(parts.graph, parts.plan, log.value, admit).add
        if isinstance(payloads, Payloads) and not isinstance(backend, VirtualBackend):
            runner.reuse = Reuse(directory, parts.graph, settings, payloads, log, timing.clock.now)
            held.callback(runner.reuse.close)
        learned.report(runner.inbox.post, runner.clock)
        _heed(directory, runner, held, virtual=isinstance(backend, VirtualBackend))
        if first_driver and isinstance(parts.plan, Plan):
            held.callback(learned.learn_quote, parts.plan)
            held.callback(learned.learn_instants, parts.plan)
        return Assembly(parts.plan, runner, backend, first_driver, held.pop_all())


def _admit(
    parts: Parts[Any],
    payloads: Payloads,
    site: Capabilities,
    settings: Settings,
    learned: LearnedWaits,
    backend: Backend,
    executor: Executor,
    part: Graph,
) -> tuple[StageSpec, ...]:
    """Check what a task adds to a run as its graph was checked at first, and make it ready to run.

    Raises
    ------
    InvalidInput
        When it cannot be part of the run.
    """
    part.check(site)
    part.outputs(settings.workdir)
    if not isinstance(backend, VirtualBackend):
        _check_executor(settings, part, executor)
    if hidden := [name for name in part.withheld if name not in parts.graph.withheld]:
        raise GraphError(
            f"the secret {hidden[0]} is none of a stage that the run began with, so its jobs have it in their "
            "environment: say secrets= of the stage that expands, too"
        )
    payloads.extend(part, part.variables(os.environ))
    return parts.stages(part, learned)


REQUESTS_S = 1.0
"""How long from one look for a request to cancel or hold the run to the next [s]."""

HOLD, RELEASE = "hold", "release"
"""What a request to hold a run says, and one to go on."""


def _heed(directory: RunDirectory, runner: Runner, held: contextlib.ExitStack, *, virtual: bool) -> None:
    """Cancel or hold the run when another process asks for that, until `held` is closed; in virtual time cancel it."""
    over = threading.Event()
    requests: dict[Path, Callable[[str], None]] = {directory.cancel_request: runner.cancel}
    if not virtual:
        requests[directory.hold_request] = lambda words: runner.hold(words == HOLD)
        requests[directory.handover_request] = runner.hand_over

    def look() -> None:
        while not over.wait(REQUESTS_S):
            for request, do in requests.items():
                with contextlib.suppress(OSError):
                    words = request.read_text(errors="replace")
                    request.unlink()
                    do(words)

    for request in requests:
        request.unlink(missing_ok=True)  # it was meant for an earlier driver
    held.callback(over.set)
    threading.Thread(target=copy_context().run, args=(look,), name="asa-requests", daemon=True).start()


def _unlimited(graph: Graph, backend: Backend, site: Capabilities, executor: Executor) -> list[str]:
    """What to say of memory that stages ask for, where nothing keeps them within it."""
    if site.regime is not QueueRegime.IMMEDIATE or isinstance(backend, VirtualBackend) or isinstance(executor, Sharing):
        return []  # a batch system knows; agents limit containers where there are cgroups
    asking = [name for name, node in graph.nodes.items() if node.stage.needs.resources.memory]
    return [
        f"memory= of {', '.join(asking)} is counted, but not enforced: nothing on {site.site} keeps a task within its "
        "memory; executor='mesos' does, where there are cgroups"
    ] * bool(asking)


def make_runner(
    held: contextlib.ExitStack,
    backend: Backend,
    timing: Timing,
    plan: Decider,
    *,
    estimator: str,
    executor: Executor,
    payloads: TaskMaker,
    log: Log,
    waits: WaitBook,
    context: RunContext,
    outputs: str,
    budget: Budget | None = None,
    may_be_late: bool = False,
    terms: QueueTerms | None = None,
) -> Runner:
    """The runner of these parts, and a watch over its jobs, which ends with `held`, as the executor does.

    Where jobs may go to several queues, these have been looked at once when it is made, if the batch system answers.
    """
    site, inbox = backend.capabilities(), Inbox()
    asked = dict.fromkeys(stage.spec.resources.options for stage in plan.stages.values())
    queues = {options: alternatives(options) for options in asked if options}
    chooses = any(len(found) > 1 for found in queues.values())
    looks = site.regime is not QueueRegime.IMMEDIATE and (chooses or is_pooled(estimator))
    watch = JobWatch(
        backend,
        timing.clock,
        inbox.post,
        timing.watcher.wake,
        looks=looks,
        queues=[options for found in queues.values() for options in found],
        budget=budget,
        is_replaced=context.is_replaced,
        may_be_late=may_be_late,
    )
    timing.listen(watch.hurry)
    if chooses and not isinstance(backend, VirtualBackend):
        watch.step()
    held.callback(timing.watcher.close)
    timing.watcher.start(watch)
    held.callback(executor.close)
    return Runner(
        plan,
        payloads,
        executor,
        watch,
        log,
        waits,
        timing.clock,
        context,
        outputs,
        inbox,
        site=site,
        terms=terms or QueueTerms(),
        patience=getattr(getattr(plan, "strategy", None), "patience", None),
    )


def _budget(directory: RunDirectory, backend: Backend, site: Capabilities) -> SharedBudget | None:
    """How often the site may be called, which all runs of the user share; None where there is no queue."""
    if isinstance(backend, VirtualBackend) or site.regime is QueueRegime.IMMEDIATE:
        return None
    return SharedBudget.of(directory.state)


def _last_look(
    backend: Backend, budget: SharedBudget | None, clock: Clock, plan: FoldedRun, handles: Sequence[JobHandle]
) -> Sequence[JobStatus]:
    """How jobs stand whose ends the run has not seen, or nothing: only to learn from, so other questions come first.

    A run that goes on without this driver is not kept waiting for it: its nodes wait for the next one.
    """
    if plan.outcome is RunState.RUNNING or isinstance(backend, VirtualBackend):
        return ()
    if budget and budget.reserve(QUERY, clock.now(), SPARE) is None:
        return ()
    try:
        return backend.query(handles)
    except BackendError:
        return ()


def first_event(
    settings: Settings,
    site: Capabilities,
    stages: tuple[StageSpec, ...],
    *,
    run: str,
    strategy: Any,
    executor: Any,
    shared: bool,
    at: float,
    fixed_s: tuple[float, float] = (0.0, 0.0),
) -> RunStarted:
    """What a new run's log begins with."""
    return RunStarted(
        at=at,
        run=run,
        workflow=settings.name,
        stages=stages,
        backend=_spec(settings.backend),
        strategy=_spec(strategy),
        executor=_spec(executor),
        pool=settings.pool if shared else "per-stage",
        site=site.site,
        partition=site.partition,
        regime=site.regime,
        arrays=site.arrays,
        parks=site.parks,
        unordered=site.unordered,
        most_jobs=site.most_jobs,
        version=VERSION,
        fixed_s=fixed_s,
    )


# ---------------------------------------------------------------- what runs the tasks


def _site(backend: Backend) -> Capabilities:
    """What the batch system says of itself, which is asked first of all."""
    try:
        return backend.capabilities()
    except BackendError as error:
        if not error.transient:
            raise
        advice = "so nothing was started. Try again later, or see `asa doctor`"
        raise BackendError(f"the batch system does not answer, {advice}. {error}", transient=True) from error


def default_executor(site: Capabilities, pool: str | None = None) -> str:
    """The site's default: `mesos` where there is a queue or a named pool, else `local`, which starts at once."""
    return "local" if site.regime is QueueRegime.IMMEDIATE and pool is None else "mesos"


def _executor(directory: RunDirectory, settings: Settings, graph: Graph, backend: Backend) -> tuple[Any, Executor]:
    """What the log calls the executor, and the executor: a backend in virtual time brings its own."""
    if isinstance(backend, VirtualBackend):
        return VIRTUAL, _virtual_executor(directory, settings, graph, backend)
    chosen = settings.executor
    if chosen is None:
        chosen = default_executor(backend.capabilities(), settings.pool_name)
    executor: Executor = EXECUTORS.create(chosen)
    _check_executor(replace(settings, executor=chosen), graph, executor)
    return chosen, executor


def _check_executor(settings: Settings, graph: Graph, executor: Executor) -> None:
    """Whether an executor can run what is in a graph.

    Raises
    ------
    InvalidInput
        When it cannot.
    """
    chosen = settings.executor or executor
    if settings.pool_name and not isinstance(executor, Sharing):
        problem = f"runs share nodes through agents, and executor {_spec(chosen)!r} has none"
        raise settings.unshareable(problem, "leave executor= out, or say executor='mesos'")
    exposed = executor.exposes() if isinstance(executor, KeepsSecrets) else "it cannot: say executor='local'"
    if exposed and (names := graph.withheld):
        raise InvalidInput(f"executor {_spec(chosen)!r} is to give {', '.join(names)} to tasks as secrets: {exposed}")
    with_env = [name for name, node in graph.nodes.items() if node.stage.needs.env]
    if exposed and with_env:
        raise InvalidInput(f"executor {_spec(chosen)!r} is to give tasks of {with_env[0]!r} their env=: {exposed}")
    with_gpus = [name for name, node in graph.nodes.items() if node.stage.needs.resources.gpus]
    if with_gpus and isinstance(executor, SharesProcesses) and (why := executor.mingles()):
        raise InvalidInput(f"executor {_spec(chosen)!r} is to give each task of {with_gpus[0]!r} its own GPUs: {why}")
    going_on = [name for name, node in graph.nodes.items() if node.stage.needs.checkpoint]
    if going_on and isinstance(executor, SharesProcesses) and (why := executor.outlasts()):
        raise InvalidInput(f"executor {_spec(chosen)!r} is to end {going_on[0]!r} with its allocation: {why}")
    sharing = [name for name, node in graph.nodes.items() if node.stage.needs.shares]
    crowded = executor.crowds() if isinstance(executor, TakesGuests) else "it cannot: say executor='local', or 'mesos'"
    if sharing and crowded:
        raise InvalidInput(f"executor {_spec(chosen)!r} is to run guests on cores of {sharing[0]!r}: {crowded}")
    timed = [name for name, node in graph.nodes.items() if node.stage.needs.timeout_s is not None]
    if timed and isinstance(executor, SharesProcesses) and (why := executor.outlasts()):
        raise InvalidInput(f"executor {_spec(chosen)!r} is to end tasks of {timed[0]!r} after timeout=: {why}")


def _virtual_executor(directory: RunDirectory, settings: Settings, graph: Graph, backend: VirtualBackend) -> Executor:
    from asa.workflows.virtual_work import Calls, Times, check_known

    if settings.pool_name:
        raise settings.unshareable("a run in virtual time is alone", "say pool='shared'")
    if settings.executor is not None:
        raise InvalidInput(
            f"executor {_spec(settings.executor)!r} runs tasks in real time, in which no simulated job ever starts: a "
            "simulated backend brings an executor of its own, so leave executor= out"
        )
    times = Times.of(graph, backend.times, directory.state)
    if not backend.compute:
        check_known(graph, times)
    return backend.executor(Calls(times, directory.values, settings.workdir, compute=backend.compute))


def _spec(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


# ---------------------------------------------------------------- what decides


def _replay(plan: Decider, log: EventLog, *, virtual: bool) -> None:
    """Fold what earlier drivers logged."""
    if isinstance(plan, FoldedRun):
        for _, event in log.packed():
            plan.on(event)
    else:
        for _, event in log.read():
            plan.on(event)
    if virtual and isinstance(plan, FoldedRun) and plan.outcome is not RunState.SUCCEEDED:
        raise InvalidInput(
            f"run {plan.run} was in virtual time, and its queue ended with its driver: it cannot be resumed. Run the "
            "workflow again; the same seed gives the same queue"
        )


def _is_whole(plan: Plan, log: EventLog, results: Collection[str]) -> bool:
    """Whether the run has succeeded, and its value can be read; of these stages are the results that it consists of."""
    return plan.outcome is RunState.SUCCEEDED and all(log.is_whole(name, plan.stages[name].width) for name in results)


def _revoke_lost(plan: Plan, log: EventLog, results: Collection[str], now: float) -> None:
    """Have tasks run again whose results are damaged or gone, but not where only stages needed them that are done.

    `results` are the stages whose results are the workflow's.
    """
    done = {
        name: {index for index, state in enumerate(stage.tasks) if state == TaskState.DONE}
        for name, stage in plan.stages.items()
    }
    damaged: dict[str, dict[int, str]] = {}
    for (name, index), why in log.lost(done).items():
        damaged.setdefault(name, {})[index] = why
    lost: dict[tuple[str, int], str] = {}
    unfinished: set[str] = set()
    for stage in reversed(plan.in_order):
        name = stage.spec.name
        if stage.orphaned:
            continue
        more = [spec.name for event in stage.added.values() for spec in event.specs]
        needed = name in results or not unfinished.isdisjoint([*stage.followers, *more])
        found = damaged.get(name, {}) if needed else {}
        if found or stage.state is not StageState.DONE:
            unfinished.add(name)
        lost = {(name, index): why for index, why in found.items()} | lost
    for (name, index), why in lost.items():
        _log.warning("task %d of %s runs again: %s", index, name, why)
    if lost:
        event = ResultsLost(now, tuple(lost), next(iter(lost.values())))
        log.append([event])
        plan.on(event)


def logged_strategy(start: RunStarted) -> Strategy | None:
    """A run's strategy; None where it is an object of the user's: the log has only its name."""
    try:
        found: Strategy = STRATEGIES.create(start.strategy)
    except AsaError:
        return None
    return found


def logged_plan(start: RunStarted) -> Plan:
    """A plan to fold a run's events with, the first of them, too, and to explain them; it is not to decide anything."""
    from asa.strategies.perstage import PerStage

    site = Capabilities(
        start.site,
        start.partition,
        start.regime,
        arrays=start.arrays,
        unordered=start.unordered,
        parks=start.parks,
    )
    strategy = logged_strategy(start) or PerStage()
    return Plan(strategy, site, shared=start.pool != "per-stage" and not strategy.own_pools)


def restore_plan(run: str, log: EventLog) -> Plan:
    """The plan of the run of this name as its log has it, for looking at; the site is not asked.

    Raises
    ------
    RunNotFound
        When the log is empty.
    """
    start = log.latest(RunStarted)
    if not isinstance(start, RunStarted):
        raise never_began(run)
    plan = logged_plan(start)
    _replay(plan, log, virtual=False)
    return plan


def make_plan(settings: Settings, site: Capabilities) -> Plan:
    """A plan with the strategy asked for, or the site's default.

    Raises
    ------
    InvalidInput
        When the strategy cannot be used, or not in a pool that several runs share.
    """
    strategy: Strategy = STRATEGIES.create(chosen_strategy(settings, site))
    if settings.pool_name and strategy.own_pools:
        problem = "the strategy keeps the tasks of each stage in the stage's own allocation"
        raise settings.unshareable(problem, "choose another one")
    shared = settings.pool != "per-stage" and not strategy.own_pools
    return Plan(strategy, site, shared=shared, borrows=settings.pool_name is not None)


def chosen_strategy(settings: Settings, site: Capabilities) -> Any:
    """The strategy asked for, or the site's default: `auto` where there is a queue, else one allocation."""
    default = "big-job" if site.regime is QueueRegime.IMMEDIATE else "auto"
    return default if settings.strategy is None else settings.strategy


# ---------------------------------------------------------------- before anything is started


@dataclass(frozen=True)
class PreviewedJob:
    """A job that a run would submit.

    Parameters
    ----------
    stages
        What it is for.
    at_once
        Whether it would be submitted when the run starts; others when their time comes.
    commands
        How, in the batch system's words; the first element of a job array has those of all.
    cores, walltime_s
        The cores that it is charged for and its wall time [s]: their product at most.
    """

    stages: tuple[str, ...]
    at_once: bool
    commands: tuple[str, ...]
    cores: int
    walltime_s: float


def preview(graph: Graph, settings: Settings, state: Path) -> list[PreviewedJob]:
    """The jobs that a run would submit, each once, as far as is known before it starts; nothing is started.

    What the strategy asks for at once, were all waits 0, and a job of its own for each other stage. The site is asked
    what it is.

    Raises
    ------
    InvalidInput
        When a name is unknown, a stage does not fit the site, or a secret is missing.
    """
    graph.variables(os.environ)
    hidden = [value for name in graph.withheld if (value := os.environ[name])]
    backend: Backend = BACKENDS.create(settings.backend)
    try:
        site, clock = _site(backend), SystemClock()
        graph.check(site)
        plan, now = make_plan(settings, site), clock.now()
        start = first_event(
            settings,
            site,
            _with_requests(graph, graph.specs(site), settings, site, state),
            run=settings.name,
            strategy=chosen_strategy(settings, site),
            executor=settings.executor,
            shared=plan.shared,
            at=now,
            fixed_s=(0.0, 0.0) if isinstance(backend, VirtualBackend) else FIXED_S,
        )
        plan.on(start)
        directory = state / "runs" / settings.name
        context = RunContext(settings.name, directory, settings.workdir, (), secrets=graph.withheld)
        outputs = str(directory / "jobs")
        found = _asked_at_once(plan, context, outputs, now)
        count = len(found)
        covered = {name for stages, _ in found for name in stages}
        for stage in plan.view(now).stages:
            if stage.spec.name not in covered:
                action = Submit(f"{settings.name}.{len(found)}", ask_for(stage))
                found.append((action.ask.stages, job_request(action, (), (), context, outputs, now)))
        found = [(stages, _in_first_queue(request, site)) for stages, request in found]
        groups: dict[str, list[JobRequest]] = {}
        for _, request in found:
            groups.setdefault(request.array or request.token, []).append(request)
        jobs = []
        for number, (stages, request) in enumerate(found):
            group = groups[request.array or request.token]
            commands = _commands(backend, group) if request is group[0] else []
            for value in hidden:
                commands = [line.replace(value, "***") for line in commands]
            spec = plan.stages[stages[0]].spec  # an element of an array gets its own size before it starts
            sized = spec if request.array and len(stages) == 1 else request
            cores = site.charged(sized.resources)
            jobs.append(PreviewedJob(stages, number < count, tuple(commands), cores, sized.walltime_s))
        return jobs
    finally:
        backend.close()


def _in_first_queue(request: JobRequest, site: Capabilities) -> JobRequest:
    """A request in the first queue that takes it, where there are several to choose from."""
    found = alternatives(request.resources.options)
    fits = (each for each in found if not misfit(request, site.for_jobs(each), "queue", spreads=True))
    return replace(request, queue=next(fits, found[0])) if len(found) > 1 else request


def _commands(backend: Backend, requests: list[JobRequest]) -> list[str]:
    others = [queue_name(each) for each in alternatives(requests[0].resources.options) if each != requests[0].options]
    if isinstance(backend, Previews):
        also = [f"# or in {', '.join(others)}: where it is expected to be best by then"] if others else []
        return backend.preview(requests) + also
    return [f"{request.resources} for {brief(request.walltime_s)}" for request in requests]


_Asked = list[tuple[tuple[str, ...], JobRequest]]


def _asked_at_once(plan: Plan, context: RunContext, outputs: str, now: float) -> _Asked:
    """What the plan submits before anything has happened, and for which stages."""
    found: _Asked = []
    handles: dict[str, JobHandle] = {}
    for _ in range(3 * len(plan.stages) + 2):
        actions = [action for action in plan.decide(now) if isinstance(action, Submit | Predict | Mold)]
        for action in actions:
            if isinstance(action, Mold):
                plan.on(action.chosen(now))
                continue
            if isinstance(action, Predict):
                plan.on(Predicted(now, action.stage, 0.0, None if action.soon is None else 0.0))
                continue
            ask = action.ask
            after = [handles[key] for key in ask.after if key in handles]
            request = job_request(action, after, (), context, outputs, now)
            found.append((ask.stages, request))
            index = sum(other.array == ask.array for _, other in found) - 1 if ask.array else None
            handles[action.token] = JobHandle(action.token, action.token, now, index)  # the name stands for the id
            plan.on(Submitting(now, action.token, request, ask.stages, ask.after))
            plan.on(Submitted(now, action.token, handles[action.token]))
        if not actions:
            break
    return found
