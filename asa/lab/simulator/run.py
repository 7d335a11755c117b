"""A dispatcher decides on a machine's queue: `simulate`, from the first submission to the last end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from asa.core.arrays import Ints
from asa.core.decision import Start
from asa.core.errors import InvalidInput, Starved, UnknownName
from asa.core.ports import Dispatcher, JobPredictor
from asa.core.registry import DISPATCHERS
from asa.core.units import DAY
from asa.core.view import QueuedJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.registry import PREDICTORS
from asa.lab.core.schedule import Placements, Schedule
from asa.lab.core.table import TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import AS_ASKED, NEVER, BackfillRule, refuse_shift
from asa.lab.dispatchers.shift import Shift
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.operations import fail_nodes
from asa.lab.simulator.settings import MachineSettings
from asa.lab.simulator.state import FINISHED, SUBMITTED, StopReason, walltimes

# -- Predicted run times ----------------------------------------------------------------------------------------------


class RunTimeLearning:
    """A predictor learns what happened on an engine, and what it predicts is written into the engine's table.

    A job is predicted when it is submitted, from the jobs that had ended by then; with a predictor that `renews`, again
    whenever a job of its user ends while it waits.

    Parameters
    ----------
    columns
        Of the table of jobs, which take what is predicted.
    """

    def __init__(self, engine: Engine, learner: JobPredictor, columns: Sequence[str]) -> None:
        self._engine, self._learner, self._columns = engine, learner, columns
        self._longest_s = float(np.nanmax(engine.state.jobs["walltime"], initial=0.0)) or math.nan
        self._lines = 0

    def catch_up(self) -> None:
        """Learn from the jobs that ended since the last call, and predict those that were submitted."""
        s = self._engine.state
        view = self._engine.view()
        last, users = int(s.world[0]["lines"]), set[int]()
        for at, kind, row, _ in s.log[self._lines : last].tolist():
            if kind == FINISHED and (started := float(s.jobs["started"][row])) == started:
                self._learner.learn(self._job(view, row), at - started)
                users.add(int(s.jobs["user"][row]))
            elif kind == SUBMITTED:
                self._predict(view, row)
        self._lines = last
        if users and getattr(self._learner, "renews", False):
            waiting = s.queue[: int(s.world[0]["waiting"])]
            for row in waiting[np.isin(s.jobs["user"][waiting], list(users))].tolist():
                self._predict(view, row)

    def _predict(self, view: TableView, row: int) -> None:
        predicted_s = self._learner.predict(self._job(view, row))
        for column in self._columns:
            self._engine.state.jobs[column][row] = predicted_s

    def _job(self, view: TableView, row: int) -> QueuedJob:
        """A job with its wall time: where none was asked for, the longest that was."""
        job = view.job(row, wall=True)
        return job if math.isfinite(job.walltime_s) else replace(job, walltime_s=self._longest_s)


def _learning(engine: Engine, rule: Any) -> RunTimeLearning | None:
    """What the machine's predictor says is planned with; what a dispatcher's own says, gaps are filled by."""
    own = getattr(rule, "predictor", None)
    if own is None:
        learner = engine.settings.learner
        return None if learner is None else RunTimeLearning(engine, learner, ("estimate", "predicted"))
    if engine.settings.predictor != "user":
        raise InvalidInput(
            f"predictor {engine.settings.predictor!r} is for dispatchers without one of their own: give this one "
            "predictor= instead, as in easy++:predictor=heuristic"
        )
    return RunTimeLearning(engine, PREDICTORS.create(own), ("predicted",))


# -- The dispatch loop ------------------------------------------------------------------------------------------------

Watch = Callable[[TableView], None]
"""Called with each view on which a dispatcher is about to decide."""


class DispatchLoop:
    """An engine whose queue a dispatcher serves. One with a `predictor` fills gaps by what that says.

    Parameters
    ----------
    clock
        What the machine's time goes by while the dispatcher thinks, and some jobs wait [s]. None: it stands still.
    watch
        Called before each decision, outside of that time.
    shifted
        Whether jobs have been held already, for a dispatcher that does so.

    Attributes
    ----------
    due
        When a dispatcher of windows is asked next about what has changed already [s]; infinite when nothing has. Such a
        one has a `window`, the length of one [s], and is asked at multiples of it only.
    """

    def __init__(
        self,
        engine: Engine,
        rule: Any,
        clock: Callable[[], float] | None = None,
        watch: Watch | None = None,
        *,
        shifted: bool = False,
    ) -> None:
        if not shifted:
            refuse_shift(rule)
        _check_widths(engine, rule)
        self.engine, self._rule, self._clock, self._watch = engine, rule, clock, watch
        engine.state.world[0]["resizes"] = bool(getattr(rule, "resize", NEVER))
        self._window = float(getattr(rule, "window", 0.0))
        self._next = -math.inf  # number of the first window at whose end it may be asked: once at each
        self.due = math.inf
        self._learning = _learning(engine, rule)
        engine.state.world[0]["stops_often"] = self._learning is not None
        compiled = engine.settings.native is not None and clock is None and watch is None
        self.native: BackfillRule | None = getattr(rule, "native", None) if compiled else None

    def run(self, until: float = math.inf, promise: bool = False, most: int = -1) -> StopReason:
        """As `Engine.dispatch`, whatever the dispatcher is; without the promises where it is not compiled."""
        engine = self.engine
        if self.native is not None and self._learning is None:
            return engine.dispatch(self.native, until, promise, most)
        while most != 0:
            why = self._step(until) if self._window else engine.step(until)
            if why is not StopReason.DECIDE:
                return why
            if self._learning is not None:
                self._learning.catch_up()
                if engine.state.world[0]["job_changed"]:  # the owner of held jobs hears of it before any decision
                    engine.state.world[0]["job_changed"] = 0
                    return StopReason.JOB_CHANGED
            if self.native is None:
                self._decide(engine.view())
            elif engine.dispatch(self.native, engine.now, promise, 1) is StopReason.JOB_CHANGED:
                return StopReason.JOB_CHANGED
            most -= 1
        return StopReason.DECIDE

    def _step(self, until: float) -> StopReason:
        """As `Engine.step`, but a decision waits for the end of the window in which something has changed."""
        while True:
            why = self.engine.step(min(until, self.due))
            world = self.engine.state.world[0]
            if why is StopReason.DECIDE:
                world["dirty"] = 0
                self.due = min(self.due, max(math.ceil(world["now"] / self._window), self._next) * self._window)
            elif why is StopReason.UNTIL and self.due <= world["now"]:
                self._next, self.due = round(self.due / self._window) + 1, math.inf
                if world["waiting"]:
                    return StopReason.DECIDE
            else:
                return why

    def _decide(self, view: TableView) -> None:
        if self._watch is not None:
            self._watch(view)
        if self._clock is None or not len(view.waiting):
            self.engine.apply(self._rule.decide(view))
            return
        before = int(self.engine.state.world[0]["lines"])
        began = self._clock()
        decisions = tuple(self._rule.decide(view))
        self._let_pass(self._clock() - began)
        state = self.engine.state
        meanwhile = state.log[before : state.world[0]["lines"]]
        over = {int(line["what"]) for line in meanwhile if line["kind"] == FINISHED}
        self.engine.apply(each for each in decisions if getattr(each, "job", None) not in over)
        if len(meanwhile):
            state.world[0]["dirty"] = 1  # that has not been decided on yet

    def _let_pass(self, seconds: float) -> None:
        """Let so much time pass on the machine without anybody deciding."""
        until = self.engine.now + seconds
        while self.engine.step(until) is not StopReason.UNTIL:
            self.engine.state.world[0]["dirty"] = 0
            if self._learning is not None:
                self._learning.catch_up()


def _check_widths(engine: Engine, rule: Any) -> None:
    s = engine.state
    options = {"width": "as-asked"} if getattr(rule, "width", AS_ASKED) != AS_ASKED else {}
    if getattr(rule, "resize", NEVER) != NEVER and s.jobs["malleable"].any():
        options["resize"] = "none"
    for option, plain in options.items() if len(s.molds) else ():
        if s.world[0]["slots"] < 0 or len(s.limits):
            raise InvalidInput(
                f"{option}= chooses among the widths of moldable jobs on machines of equal nodes without partitions, "
                f"windows and limits, for jobs that need the same of a node: say {option}={plain} here"
            )
        if engine.settings.learner is not None:
            raise InvalidInput(
                f"{option}= plans with wall times or run times: predictor user or oracle expected, not "
                f"{engine.settings.predictor!r}"
            )
        if option == "resize" and engine.settings.native is None:
            raise InvalidInput(
                f"resize= places jobs by first-fit, best-fit or contiguous, not by {engine.settings.placement!r}"
            )


def check_walltimes(workload: Workload, cluster: Cluster, rule: Any, settings: MachineSettings, name: object) -> None:
    """Refuse to plan with wall times that were not given.

    Raises
    ------
    InvalidInput
        When `rule`, called `name`, plans with them, and no job has one, not even from its partition.
    """
    plans = getattr(rule, "needs_estimates", False) and settings.predictor == "user"
    if plans and len(workload) and np.isnan(walltimes(workload, cluster)).all():
        raise InvalidInput(
            f"{len(workload)} of {len(workload)} jobs have no requested time, and {name} plans with it: "
            "take another predictor (oracle, or one with a default such as last-two:default_s=3600), or fcfs"
        )


# -- Simulations ------------------------------------------------------------------------------------------------------

DISPATCH_TIMES = ("ignore", "charge")
"""What becomes of the time that a dispatcher takes to decide."""

_CHUNK = 20_000
"""Decisions between two reports of progress."""


def simulate(
    workload: Workload,
    cluster: Cluster,
    dispatcher: str | Dispatcher = "easy",
    *,
    dispatch_time: str = DISPATCH_TIMES[0],
    clock: Callable[[], float] = time.perf_counter,
    watch: Watch | None = None,
    progress: Callable[[float], None] | None = None,
    **settings: Any,
) -> Schedule:
    """Run a workload on a machine.

    Parameters
    ----------
    dispatcher
        Which jobs start: ``"easy"``, ``"fcfs"``, ``"conservative"``, ``"backfill:depth=4,limit=100"`` ..., or a
        `Dispatcher`.
    dispatch_time
        What becomes of the time that the dispatcher takes to decide: ``"ignore"`` it, machines stand still meanwhile;
        or ``"charge"``: machine and queue go on, and what it starts begins when the answer is there, so that results
        depend on the computer. Jobs that come or end meanwhile are decided on next. Of a dispatcher given by name,
        compilation does not count.
    watch
        Called with each view on which the dispatcher is going to decide; that takes none of its time.
    progress
        Called now and then with the share of the jobs that has been submitted, in [0, 1].
    settings
        Fields of `asa.lab.simulator.settings.MachineSettings`.

    Returns
    -------
    Schedule
        Whose `seconds` are those of the loop; compilation and loading are not in them.

    Raises
    ------
    InvalidInput
        When a name is not known, or the dispatcher plans with wall times that the workload does not have.
    IllegalDecision
        When the dispatcher breaks a law of the machine.
    Starved
        When it never starts a job that it could start.

    Examples
    --------
    Two cores. The second job needs both and waits; the third is short enough to go first.

    >>> jobs = Workload.of(submit=[0, 1, 2], run=[10, 10, 5], cores=[1, 2, 1], walltime=[10, 10, 8])
    >>> simulate(jobs, Cluster.of(nodes=2), "easy").start.tolist()
    [0.0, 10.0, 2.0]
    >>> simulate(jobs, Cluster.of(nodes=2), "fcfs").start.tolist()
    [0.0, 10.0, 20.0]
    """
    if dispatch_time not in DISPATCH_TIMES:
        raise UnknownName("dispatch time", dispatch_time, DISPATCH_TIMES)
    rule: Any = DISPATCHERS.create(dispatcher)
    given, order = workload, None
    if (shift := getattr(rule, "shift", None)) is not None:
        workload, order = _held(workload, cluster, shift)
    engine = Engine(workload, cluster, MachineSettings(**settings))
    fail_nodes(engine)
    check_walltimes(workload, cluster, rule, engine.settings, dispatcher)
    served = DispatchLoop(engine, rule, clock if dispatch_time == "charge" else None, watch, shifted=True)
    _compile(served)
    if served.native is None and isinstance(dispatcher, str):
        rehearse(engine, DISPATCHERS.create(dispatcher))
    begun = time.perf_counter()
    try:
        while served.run(most=_CHUNK) is StopReason.DECIDE:
            _tell(progress, engine)
        engine.check_starved()
    except Starved as error:
        raise Starved(f"{dispatcher}: {error}") from None
    seconds = time.perf_counter() - begun
    _tell(progress, engine)
    made = replace(engine.schedule(), seconds=seconds)
    return made if order is None else _as_submitted(made, given, order)


def _held(workload: Workload, cluster: Cluster, shift: Shift) -> tuple[Workload, Ints]:
    """The jobs as they come into the queue, and which rows of the workload they are."""
    releases = shift.releases(workload, walltimes(workload, cluster), cluster)
    columns = {item.name: getattr(workload, item.name) for item in fields(workload)}
    return Workload.of(**columns | {"submit": releases}), np.argsort(releases, kind="stable")


def _as_submitted(schedule: Schedule, workload: Workload, order: Ints) -> Schedule:
    """A schedule of jobs that came into the queue in this order, by the rows of the workload."""
    place = np.argsort(order)
    columns = ("eligible", "start", "end", "outcome", "restarts", *(("units",) if schedule.units is not None else ()))
    found = replace(schedule, workload=workload, **{name: getattr(schedule, name)[place] for name in columns})
    if schedule.resizes is not None:
        found = replace(found, resizes=replace(schedule.resizes, job=order[schedule.resizes.job]))
    if (placed := schedule.placements) is None:
        return found
    rows = np.argsort(order[placed.job], kind="stable")
    return replace(found, placements=Placements(order[placed.job][rows], placed.runs[rows]))


def _compile(served: DispatchLoop) -> None:
    """Compile, or load from the cache, what the loop will call; takes seconds the first time."""
    if served.native is not None:
        served.engine.dispatch(served.native, -math.inf, most=0)
        return
    small = Engine(Workload.of(submit=[0], run=[1], cores=[1], walltime=[1]), Cluster.of(nodes=1))
    while (view := small.advance()) is not None:
        small.apply([Start(row) for row in view.waiting.tolist()])


def rehearse(engine: Engine, rule: Any) -> None:
    """Let a dispatcher decide twice on a copy of a machine, so that what it compiles is compiled."""
    trial = engine.copy()
    estimates = trial.state.jobs["estimate"]
    np.minimum(estimates, DAY, out=estimates)  # where a predictor has still to come, there may be none
    for _ in range(2):
        if trial.step() is StopReason.DECIDE and len((view := trial.view()).waiting):
            trial.apply(rule.decide(view))


def _tell(progress: Callable[[float], None] | None, engine: Engine) -> None:
    if progress is not None:
        progress(engine.submitted)
