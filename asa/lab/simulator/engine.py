"""The pull engine: `advance` runs to the next instant at which a dispatcher must decide, `apply` takes the decisions.

`simulate` is a loop around these two; the step of a learning environment is `apply` and `advance`; the simulated
backend is the same engine behind a clock. Everything is deterministic.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.decision import DispatchDecision, NodeRun, Reject, Reserve, SetSpeed, SetWidth, Start
from asa.core.errors import IllegalDecision, Starved
from asa.core.view import QueuedJob
from asa.lab.core.cluster import Cluster
from asa.lab.core.schedule import Schedule
from asa.lab.core.table import EXEMPT, PREEMPTS, TableView
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import AS_ASKED, NEVER, BackfillRule
from asa.lab.placement.nodes import choose_within
from asa.lab.simulator import loop
from asa.lab.simulator.loop import advance, dispatch_loop, has_room, ranked, releases
from asa.lab.simulator.settings import MachineSettings
from asa.lab.simulator.state import (
    CANCELLED,
    LOOK,
    NONE,
    RUNNING,
    WAITING,
    SimulationState,
    StopReason,
    grown,
    load,
    schedule_of,
)


class Engine:
    """A machine, its queue and its running jobs, at one moment of virtual time.

    Raises
    ------
    InvalidInput
        When the workload asks for resources or partitions that the machine does not know.

    Examples
    --------
    Two jobs of two cores, one after the other, on a machine of two.

    >>> engine = Engine(Workload.of(submit=[0, 1], run=[10, 10], cores=[2, 2], walltime=[20, 20]), Cluster.of(2))
    >>> view = engine.advance()
    >>> engine.apply([Start(row) for row in view.waiting.tolist()])
    >>> view = engine.advance()  # the second is there; the first still runs
    >>> view.now, view.waiting.tolist(), view.ends.tolist()
    (1.0, [1], [20.0])
    """

    def __init__(self, workload: Workload, cluster: Cluster, settings: MachineSettings | None = None) -> None:
        self.workload, self.cluster = workload, cluster
        self.settings = settings or MachineSettings()
        self._state = load(workload, cluster, self.settings)
        self.weights = self.settings.model.weights()
        for window in cluster.windows:
            if window.end > self.now:
                self.room()
                loop.push(self._state, window.end, LOOK, 0)
        self._made: dict[int, QueuedJob] = {}

    @property
    def state(self) -> SimulationState:
        """The tables; for those who extend the engine."""
        return self._state

    @property
    def now(self) -> float:
        return float(self._state.world[0]["now"])

    @property
    def submitted(self) -> float:
        """Share of the workload that has been submitted, in [0, 1]."""
        world = self._state.world[0]
        return float(world["arrival"] / max(1, world["arrivals"]))

    def advance(self, until: float = math.inf) -> TableView | None:
        """Let time pass to the next instant at which jobs wait and something has changed.

        Returns
        -------
        TableView
            What there is to decide on; None when nothing more will happen, or nothing until `until` [s].

        Raises
        ------
        Starved
            When nothing more will happen, but jobs wait that could start.
        """
        while (why := self.step(until)) is StopReason.JOB_CHANGED:
            pass
        if why is StopReason.OVER:
            self.check_starved()
        return self.view() if why is StopReason.DECIDE else None

    def step(self, until: float = math.inf) -> StopReason:
        """As `advance`, but it also comes back when something happens to a watched job; why it came back."""
        while (why := advance(self._state, float(until))) == StopReason.GROW:
            self.grow()
        return StopReason(why)

    def view(self) -> TableView:
        """What a dispatcher may see now."""
        s = self._state
        world = s.world[0]
        slots, running = int(world["slots"]), int(world["running"])
        release_at, release, holder = releases(s) if slots < 0 else (s.ends[:0], s.runs[:0], s.active[:0])
        return TableView(
            now=float(world["now"]),
            cluster=self.cluster,
            jobs=_frozen(s.jobs[: world["jobs"]]),
            waiting=_frozen(ranked(s, BackfillRule(1.0), self.weights)),  # of the rule only its order counts: none
            active=_frozen(s.active[:running]),
            ends=_frozen(np.maximum(s.ends[:running], world["now"])),
            free=_frozen(s.free),
            demands=s.demands,
            slots=int(world["free"]) if slots >= 0 else -1,
            all_slots=slots,
            placement=max(0, int(world["placement"])),
            release_at=release_at,
            release=release,
            holder=holder,
            allowed=s.allowed,
            windows=s.windows,
            preemption=s.preemption,
            molds=s.molds,
            widths=s.widths,
            labels=self.workload.labels,
            made=self._made,
        )

    def apply(self, decisions: Iterable[DispatchDecision]) -> None:
        """Take decisions, in order.

        Once a start has preempted others, or has made a limit keep back another waiting job, no further one
        starts: the dispatcher is asked again, and does not see that job.

        Raises
        ------
        IllegalDecision
            When one breaks a law of the machine. Those before it have been taken.
        """
        world = self._state.world[0]
        world["dirty"] = 0
        world["decisions"] += 1
        kept, preempted = loop.kept_back(self._state), False
        for decision in decisions:
            if isinstance(decision, Start):
                if preempted or loop.kept_back(self._state) > kept:
                    world["dirty"] = 1
                else:
                    self._start(decision)
                    preempted = len(decision.preempts) > 0
            elif isinstance(decision, Reserve):
                row = self._row(decision, WAITING)
                self._state.jobs["planned"][row] = decision.at
            elif isinstance(decision, Reject):
                row = self._row(decision, WAITING)
                self.room()
                loop.finish(self._state, row, CANCELLED)
            elif isinstance(decision, SetSpeed):
                if not 0 < decision.speed < math.inf:
                    raise IllegalDecision("a speed must be above 0 and finite", decision)
                row = self._row(decision, RUNNING)
                self.room()
                loop.set_speed(self._state, row, decision.speed)
            elif isinstance(decision, SetWidth):
                self._set_width(decision)
            else:
                raise IllegalDecision("Start, Reserve, Reject, SetSpeed or SetWidth expected", decision)

    def dispatch(
        self, rule: BackfillRule, until: float = math.inf, promise: bool = False, most: int = -1
    ) -> StopReason:
        """`step` and `apply` until `until` [s], with a backfilling rule, compiled; why it came back.

        `promise` keeps the promised starts in the table of jobs; `most` ends it after so many decisions.
        """
        while True:
            s = self._state
            nodes = None if s.world[0]["slots"] >= 0 else True
            molds = True if rule.width != AS_ASKED and len(s.molds) else None
            s.world[0]["resizes"] = rule.resize != NEVER and len(s.molds) > 0
            resizes = True if s.world[0]["resizes"] else None
            why = dispatch_loop(s, float(until), rule, self.weights, promise, most, nodes, molds, resizes)
            if why != StopReason.GROW:
                return StopReason(why)
            self.grow()

    def copy(self) -> Engine:
        """The same machine at the same moment, free to go its own way."""
        other = copy.copy(self)
        tables: Any = (table.copy() for table in self._state)
        other._state = SimulationState(*tables)
        other.weights, other._made = self.weights.copy(), {}
        return other

    def schedule(self) -> Schedule:
        """What has become of all jobs by now."""
        return schedule_of(self._state, self.workload, self.cluster)

    def check_starved(self) -> None:
        """Raise `Starved` when jobs wait on an idle machine that has room for them, and no limit keeps them back."""
        s = self._state
        loop.kept_back(s)  # counts what limits look at
        for row in s.queue[: s.world[0]["waiting"]].tolist():
            if loop.limited_by(s, row) == NONE and loop.find(s, row):
                job, waiting = s.jobs[row], int(s.world[0]["waiting"])
                raise Starved(
                    f"{waiting} jobs wait and nothing more will happen, but job {job['number']} ({job['cores']} cores) "
                    f"could start since {job['eligible']:g} s: the dispatcher never starts it"
                )

    # -- rooms and rows ----------------------------------------------------------------------------------------------

    def room(self) -> None:
        """Make room for one more start or event."""
        while not has_room(self._state):
            self.grow()

    def grow(self) -> None:
        """Make more room in the tables."""
        self._state = grown(self._state)

    def extend(self, **tables: Any) -> None:
        """Put longer tables in the place of these."""
        self._state = self._state._replace(**tables)

    def _start(self, decision: Start) -> None:
        row = self._row(decision, WAITING)
        self.room()
        s = self._state
        if loop.limited_by(s, row) != NONE:
            raise IllegalDecision("a limit keeps the job from starting now", decision)
        for victim in decision.preempts:
            self._preempt(row, self._row(Start(victim), RUNNING), decision)
        s = self._state
        count = self._use(decision, row) if decision.nodes else self._find(row)
        if not count:
            raise IllegalDecision(f"no room for {self._need(row)}: {self._left()}", decision)
        loop.leave(s, row)
        loop.start(s, row, count)

    def _set_width(self, decision: SetWidth) -> None:
        s = self._state
        row = self._row(decision, WAITING, RUNNING)
        had, runs = int(s.jobs[row]["units"]), s.job_states[row]["status"] == RUNNING
        if decision.units not in (widths := self._widths(row)):
            raise IllegalDecision(f"it may have {', '.join(map(str, widths))} units", decision)
        if not runs:
            loop.mold(s, row, decision.units)
        elif decision.units != had:
            if not s.jobs[row]["malleable"] or s.world[0]["slots"] < 0 or len(s.limits):
                raise IllegalDecision(
                    "the width of a job that runs stays unless it is malleable, on equal nodes", decision
                )
            if decision.units - had > s.world[0]["free"]:
                raise IllegalDecision(f"it has {had} units, and {s.world[0]['free']} are free", decision)
            self.room()
            loop.resize(self._state, row, decision.units)

    def _widths(self, row: int) -> list[int]:
        """Units that a job may have."""
        s = self._state
        known = s.widths[s.molds[row] : s.molds[row + 1], 0] if row + 1 < len(s.molds) else s.widths[:0, 0]
        return [int(units) for units in known] or [int(s.jobs[row]["units"])]

    def _preempt(self, row: int, victim: int, decision: Start) -> None:
        s = self._state
        of, now = s.jobs["standing"][[row, victim]], float(s.world[0]["now"])
        if not (len(s.preemption) and s.preemption[of[0], PREEMPTS + of[1]]):
            raise IllegalDecision(f"jobs such as it may not preempt jobs such as {victim}", decision)
        if now - float(s.jobs["started"][victim]) < s.preemption[of[1], EXEMPT]:
            raise IllegalDecision(
                f"job {victim} is not preempted before it has run for {s.preemption[of[1], EXEMPT]:g} s", decision
            )
        self.room()
        loop.preempt(self._state, victim)
        self.room()  # for the start

    def _find(self, row: int) -> int:
        """Nodes by the machine's own placement, into the scratch table; how many runs."""
        s = self._state
        if self.settings.native is not None:
            return int(loop.find(s, row))
        job = s.jobs[row]
        free = loop.visible(s, row)
        asked = s.demands[job["kind"]], int(job["units"]), int(job["per_node"])
        runs = choose_within(self.settings.method.choose, free, *asked, int(job["max_nodes"]))
        return self._use(Start(row, tuple(runs)), row) if runs else 0

    def _use(self, decision: Start, row: int) -> int:
        """Check the nodes that a decision names, and put them into the scratch table; how many runs."""
        s = self._state
        job = s.jobs[row]
        free, need, units = loop.visible(s, row), s.demands[job["kind"]], 0
        used = np.zeros(len(free), dtype=bool)
        for count, run in enumerate(decision.nodes):
            if not 0 <= run.first <= run.last < len(free) or run.units < 1:
                raise IllegalDecision(f"nodes {run.first} to {run.last}: there are {len(free)}, from 0", decision)
            here = slice(run.first, run.last + 1)
            if used[here].any():
                raise IllegalDecision(f"{run} names a node again: name each once, with all its units", decision)
            used[here] = True
            left = free[here] - run.units * need
            if (left[:, need > 0] < 0).any() or (job["per_node"] and run.units > job["per_node"]):
                raise IllegalDecision(
                    f"{run} has no room for {run.units} units of {self._need(row)}{self._kept(row, run)}", decision
                )
            units += run.units * (run.last - run.first + 1)
            s.runs[count] = run
        if 0 < job["max_nodes"] < used.sum():
            raise IllegalDecision(f"it has {used.sum()} nodes: its partition gives it {job['max_nodes']}", decision)
        if units != job["units"]:
            raise IllegalDecision(f"its nodes hold {units} units; the job has {job['units']}", decision)
        return len(decision.nodes)

    def _kept(self, row: int, run: NodeRun) -> str:
        """The windows that keep some of these nodes from a job."""
        view, here = self.view(), slice(2 + run.first, 3 + run.last)
        names = [window.name for window in sorted(self.cluster.windows, key=lambda window: window.start)]
        barred = view.barred()[view.waiting.tolist().index(row)]
        found = [repr(names[w]) for w in np.flatnonzero(barred & view.windows[:, here].any(axis=1))]
        return f"; window {', '.join(found)} keeps nodes from it" if found else ""

    def _row(self, decision: DispatchDecision, *status: int) -> int:
        """The row that a decision names, NumPy's integers included; its job must stand in one of these ways."""
        s = self._state
        named: Any = decision.job
        try:
            row = operator.index(named)
        except TypeError:
            row = -1
        if not 0 <= row < s.world[0]["jobs"]:
            raise IllegalDecision(f"there is no row {named!r}: rows go from 0 to {s.world[0]['jobs'] - 1}", decision)
        is_status = int(s.job_states[row]["status"])
        if is_status not in status:
            words = ("not submitted yet", "held back", "waiting", "running", "over")
            expected = " or ".join(words[each] for each in status)
            raise IllegalDecision(f"the job is {words[is_status]}, not {expected}", decision)
        return row

    def _need(self, row: int) -> str:
        job = self._state.jobs[row]
        amounts = self._state.demands[job["kind"]].tolist()
        unit = ", ".join(f"{n} {name}" for n, name in zip(amounts, self.cluster.resources, strict=True) if n)
        return f"{job['units']} x ({unit})"

    def _left(self) -> str:
        free = np.maximum(self._state.free, 0).sum(axis=0).tolist()
        return ", ".join(f"{n} {name}" for n, name in zip(free, self.cluster.resources, strict=True)) + " are free"


def _frozen(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same, not to be written to."""
    view = table.view()
    view.setflags(write=False)
    return view
