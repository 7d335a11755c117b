"""The simulated world: a queue, a machine and jobs that share its cores, in virtual time.

Time is not stepped: between two events all rates are constant, so that the next event is known exactly. Rules are asked
when a job was submitted or has ended and once a period, as on real nodes, where monitoring looks now and then; the
change from one phase of a job to the next is an event too, but shows at the next measurement only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import UnknownName
from asa.estimators.checks import check_positive
from coscheduler.history import Entry, History, RunUsage, SharedQueue
from coscheduler.ledger import Arrivals, Ledger
from coscheduler.nouns import (
    ALONE,
    BY_INSTRUCTIONS,
    FLOOR,
    FORMS,
    LOOK_S,
    Evict,
    JobStates,
    LookAgain,
    SharedRun,
    SharingDecision,
    SharingView,
    StartGuest,
    happiness,
    smoothed,
)
from coscheduler.sharing.starter import FIRST_FIT, Space, open_hosts
from coscheduler.workload import PAPER_LIKE, Contention, Load, LoadPhase, capped, weighted

_DUST = 1e-6  # [s] of work that is taken for none


@dataclass(slots=True)
class Flow:
    """A job in progress."""

    load: Load
    phase: int = 0  # place of what it does among the phases of its load
    left_s: float = 0.0  # work that is left in this phase: so long would it take alone [s]
    done_s: float = 0.0  # work that is done [s]
    rate: float = 0.0  # its speed, 1 when alone
    granted: float = 0.0  # cores that it gets
    unhindered_s: tuple[float, float] = (0.0, 0.0)  # see `RunningJobs` [s]
    unhindered: tuple[float, float] = (1.0, 1.0)  # how fast that grows
    instructions: float = 0.0  # executed so far, of each of its cores [1e9]
    cpu_s: float = 0.0  # CPU time so far [s]
    own_from_s: float = 0.0  # work that was done when it had cores of its own [s]
    crowd_cpu: float = 0.0  # cores in use among its own, by itself and its guests; 0 for a guest
    crowd_memory: float = 0.0  # memory of its own cores in use, by itself and its guests [cores]; 0 for a guest
    busy_s: float = 0.0  # integral of `crowd_cpu` [core-seconds]
    memory_s: float = 0.0  # integral of `crowd_memory` [core-seconds]
    mean_rate: float = math.nan  # average of `rate` over the last minutes
    mean_cpu: float = math.nan  # average share of its cores that it uses, over the last minutes

    @property
    def doing(self) -> LoadPhase:
        return self.load.phases[self.phase]

    @property
    def wanted(self) -> float:
        """Cores that it could use now."""
        return self.doing.demand * self.load.request.cores

    @property
    def used(self) -> RunUsage:
        """What this run has used so far."""
        return RunUsage(self.cpu_s, self.busy_s, self.memory_s)

    def move(self, over_s: float) -> bool:
        """Progress for a time [s]; whether the phase has ended."""
        self.left_s -= over_s * self.rate
        self.done_s += over_s * self.rate
        self.instructions += over_s * self.rate * self.doing.instructions
        least, most = self.unhindered
        self.unhindered_s = self.unhindered_s[0] + over_s * least, self.unhindered_s[1] + over_s * most
        self.cpu_s += over_s * self.granted
        self.busy_s += over_s * self.crowd_cpu
        self.memory_s += over_s * self.crowd_memory
        cpu = min(1.0, self.granted / self.load.request.cores)
        self.mean_rate = smoothed(self.mean_rate, self.rate, over_s)
        self.mean_cpu = smoothed(self.mean_cpu, cpu, over_s)
        return self.left_s <= _DUST

    def go_on(self) -> bool:
        """A phase has ended: begin the next one; False where that was the last."""
        self.phase += 1
        if self.phase == len(self.load.phases):
            return False
        self.left_s = self.doing.alone_s
        return True


class Fluid:
    """Running jobs of a simulated machine."""

    def __init__(self, contention: Contention, form: str) -> None:
        self._contention, self._form = contention, form
        self.flows: dict[str, Flow] = {}

    def begin(self, load: Load) -> None:
        self.flows[load.request.name] = Flow(load, left_s=load.phases[0].alone_s)

    def next_s(self) -> float:
        """Time until a phase of any job ends [s]."""
        return min((flow.left_s / flow.rate for flow in self.flows.values() if flow.rate), default=math.inf)

    def step(self, over_s: float) -> tuple[list[str], bool]:
        """Let a time pass [s], at most `next_s`: who has ended, and whether rates have changed."""
        ended, changed = [], False
        for name, flow in self.flows.items():
            if not flow.move(over_s):
                continue
            changed = True
            if not flow.go_on():
                ended.append(name)
        return ended, changed

    def set_rates(self, ledger: Ledger) -> None:
        """Share the cores of every host out, as the ledger says."""
        for name, placed in ledger.running.items():
            if placed.host is None:
                self._share_out([name, *placed.guests], ledger)

    def states(self, ledger: Ledger, now: float) -> JobStates:
        """What monitoring says of the running jobs, in the ledger's order."""
        flows = [self.flows[name] for name in ledger.running]
        loads = [flow.load for flow in flows]
        walltime = np.array([load.request.walltime_s for load in loads])
        elapsed = now - np.array([placed.started for placed in ledger.running.values()])
        left = np.array([1 - flow.done_s / flow.load.alone_s for flow in flows])
        rate = np.array([_or_now(flow.mean_rate, flow.rate) / flow.load.alone_s for flow in flows])
        return JobStates(
            cpu=np.array([_or_now(flow.mean_cpu, flow.granted / flow.load.request.cores) for flow in flows]),
            memory=np.array([load.memory for load in loads]),
            parallel=np.array([flow.doing.parallel for flow in flows], dtype=np.bool_),
            elapsed=elapsed / walltime,
            happiness=happiness(walltime, elapsed, left, rate, self._form),
        )

    def reported(self, ledger: Ledger) -> Floats:
        """Share of its work that each running job has reported as done, in the ledger's order."""
        flows = (self.flows[name] for name in ledger.running)
        return np.array([flow.load.reported(flow.done_s / flow.load.alone_s) for flow in flows])

    def unhindered(self, ledger: Ledger) -> Floats:
        """How long each running job has not waited for CPUs: that of `RunningJobs`."""
        return np.array([self.flows[name].unhindered_s for name in ledger.running]).reshape(-1, 2)

    def instructions(self, ledger: Ledger) -> Floats:
        """How many instructions each running job has executed, where its bound goes by them: as in `RunningJobs`."""
        flows = [self.flows[name] for name in ledger.running]
        counted = [flow.load.request.bound_by == BY_INSTRUCTIONS for flow in flows]
        return np.where(np.array(counted, dtype=np.bool_), [flow.instructions for flow in flows], math.nan)

    def _share_out(self, names: list[str], ledger: Ledger) -> None:
        """Cores and speed of a host, which is named first, and of its guests."""
        shares = [ledger.own_share(name) for name in names]
        hard = any(ledger.running[name].hard for name in names[1:])
        self.share_out([self.flows[name] for name in names], shares, hard=hard)

    def share_out(self, flows: Sequence[Flow], shares: Sequence[float], *, hard: bool = False) -> None:
        """The same, with these shares of the host's cores; a guest whose share is 0 is stopped, its memory in use."""
        cores = flows[0].load.request.cores
        memory = sum(flow.load.memory * flow.load.request.cores for flow in flows)
        for flow in flows:
            flow.granted = flow.rate = flow.crowd_cpu = flow.crowd_memory = 0.0
            flow.unhindered = (0.0, 0.0)
        flows = [flow for flow, share in zip(flows, shares, strict=True) if share]
        shares = [share for share in shares if share]
        wanted = [flow.wanted for flow in flows]
        granted = (capped if hard else weighted)(cores, wanted, shares)
        factor = self._contention.factor(len(flows), memory / cores)
        bandwidth = sum(
            flow.doing.bandwidth * flow.load.request.cores * got / want
            for flow, want, got in zip(flows, wanted, granted, strict=True)
        )
        factor /= max(1.0, bandwidth / cores)
        for flow, want, got in zip(flows, wanted, granted, strict=True):
            others = [other.load.request.application for other in flows if other is not flow]
            slow = self._contention.slowdown(flow.load.request.application, others) ** flow.doing.exposure
            flow.granted, flow.rate = got, factor * got / want / slow
            flow.unhindered = _unhindered(flow, got / want / (slow if self._contention.waits else 1.0))
        flows[0].crowd_cpu, flows[0].crowd_memory = sum(granted), min(memory, cores)


def _unhindered(flow: Flow, speed: float) -> tuple[float, float]:
    """For which share of the time none of its threads waits for a CPU, at least and at most, by its processors' mean.

    Threads wait at random; where each holds up the others, they run at this speed together if none waits.
    """
    running = float(speed ** (1 / max(1.0, flow.wanted))) if flow.doing.coupled else speed
    return max(0.0, 1 - flow.load.request.cores * (1 - running)), running


def _or_now(average: float, now: float) -> float:
    """An average, or what there is now while that is not known."""
    return now if math.isnan(average) else average


PERIOD_S = 60.0


class SimulatedWorld:
    """A machine with a queue.

    Parameters
    ----------
    period_s
        How often monitoring looks [s].
    sampled
        Whether to keep what is measured.
    pressure
        Whether rules see how long jobs wait for CPUs.
    happiness_form
        ``"rate"`` or ``"literal"``: see `coscheduler.nouns.happiness`.
    log
        Called with every decision, and with jobs that end, as it happens.

    Examples
    --------
    >>> import numpy as np
    >>> from coscheduler.drive import drive
    >>> from coscheduler.sharing.starter import Space
    >>> from coscheduler.workload import paper_queue
    >>> world = SimulatedWorld(paper_queue(64, np.random.default_rng(0)), 64)
    >>> drive(world, Space())
    >>> len(world.result().jobs)
    15
    """

    def __init__(
        self,
        loads: Sequence[Load],
        cores: int,
        contention: Contention = PAPER_LIKE,
        *,
        period_s: float = PERIOD_S,
        sampled: bool = False,
        pressure: bool = False,
        happiness_form: str = FORMS[0],
        log: Callable[[Entry], None] | None = None,
    ) -> None:
        if happiness_form not in FORMS:
            raise UnknownName("form of happiness", happiness_form, FORMS)
        self._period_s, self._sampled = check_positive(period_s, "period_s"), sampled
        self._pressure = pressure
        self._loads = {load.request.name: load for load in loads}
        self._ledger, self._fluid = Ledger(cores), Fluid(contention, happiness_form)
        self._arrivals = Arrivals((load.request for load in loads), self._ledger)
        self._history = History(((load.request, load.alone_s) for load in loads), log)
        self._now = self._look_at = self._arrivals.next if loads else 0.0

    def advance(self) -> SharingView | None:
        """Run to the next moment at which a rule is asked; None once all jobs have ended."""
        news = self._arrivals.submit(self._now + _DUST)
        while not news and self._now < self._look_at - _DUST:
            if not self._fluid.flows and math.isinf(self._arrivals.next):
                self._ledger.check_idle()
                return None
            news = self._step()
        self._look_at = self._now + self._period_s
        return self._view()

    def apply(self, decisions: Iterable[SharingDecision]) -> None:
        """Do what a rule has decided, in order."""
        for decision in decisions:
            if isinstance(decision, LookAgain):
                self._look_at = min(self._look_at, max(decision.at, self._now + LOOK_S))
                continue
            started = self._ledger.apply(decision, self._now)
            if isinstance(decision, Evict):
                self._history.evicted(decision.guest, self._now, self._fluid.flows.pop(decision.guest).used)
            self._history.decided(decision, self._now, started)
            if started is not None:
                self._fluid.begin(self._loads[started])
        self._placed()
        if self._sampled:
            busy = sum(flow.granted for flow in self._fluid.flows.values())
            self._history.sample(self._view().running, busy, self._now)

    def learned(self) -> tuple[SharedRun, ...]:
        """Jobs that have ended since this was asked last, for the rule to learn from."""
        return self._history.learned()

    def result(self) -> SharedQueue:
        return self._history.result(self._ledger.cores)

    def _step(self) -> bool:
        """Run to the next event; whether the rule is to be asked."""
        over_s = min(self._fluid.next_s(), min(self._look_at, self._arrivals.next) - self._now)
        ended, changed = self._fluid.step(over_s)
        self._now += over_s
        for name in ended:
            self._end(name)
        if ended:
            self._placed()
        elif changed:
            self._fluid.set_rates(self._ledger)
        return self._arrivals.submit(self._now + _DUST) or bool(ended)

    def _end(self, name: str) -> None:
        flow = self._fluid.flows.pop(name)
        load = flow.load
        own_s = load.alone_s - flow.own_from_s
        self._history.ended(name, self._now, flow.used, parallel=load.parallel, memory=load.memory, own_alone_s=own_s)
        for guest in self._ledger.end(name):
            self._fluid.flows[guest].own_from_s = self._fluid.flows[guest].done_s

    def _placed(self) -> None:
        self._fluid.set_rates(self._ledger)
        self._history.placed(self._ledger, self._now)

    def _view(self) -> SharingView:
        states = self._fluid.states(self._ledger, self._now)
        unhindered = self._fluid.unhindered(self._ledger) if self._pressure else None
        done, instructions = self._fluid.reported(self._ledger), self._fluid.instructions(self._ledger)
        return self._ledger.view(self._now, states, done, unhindered, instructions)


class PairOutcome(NamedTuple):
    """A host and a guest from now until one of them has ended: how long that takes, and what both do meanwhile, in time
    alone [s]."""

    together_s: float
    host_s: float
    guest_s: float


class SharingOracle(Space):
    """A sharing rule that knows how fast all jobs of a simulated world are beside one another: what one guest for each
    host, chosen now, could gain within the hosts' bounds.

    Of the pairs in which the host stays within its bound until one of the two has ended, and the guest is fast enough,
    those come first that save most core-seconds. Nobody is ever evicted.

    Parameters
    ----------
    min_rate
        Slowest that a guest may be, its speed alone being 1; in [0, 1].
    """

    def __init__(self, world: SimulatedWorld, *, min_rate: float = 0.5) -> None:
        super().__init__(queue=FIRST_FIT)
        self._loads, self._fluid, self._min_rate = world._loads, world._fluid, min_rate
        self._own: dict[str, float] = {}  # job -> since when it has cores of its own [s]

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """Start what fits, the longest first; then the best guests."""
        order = sorted(view.queue, key=lambda job: -self._loads[job.name].alone_s)
        starts, rest = self._starter.starts(view, order)
        for row in np.flatnonzero(view.running.host == ALONE).tolist():
            self._own.setdefault(view.running.names[row], view.now)
        self._own |= {str(start.job): view.now for start in starts}
        found = []
        for host in (view.running.names[row] for row in open_hosts(view.running).tolist()):
            cores, left_s = self._loads[host].request.cores, self._left_s(host, view.now)
            for job in (job for job in rest if job.cores <= cores and not job.exclusive):
                pair = self.pair(host, job.name)
                lost_s = pair.together_s - pair.host_s
                saved = job.cores * pair.guest_s - cores * lost_s
                if lost_s <= left_s and saved > 0 and pair.guest_s >= self._min_rate * pair.together_s:
                    found.append((saved, job.name, host))
        guests: dict[str, str] = {}
        for _, job_name, host in sorted(found, reverse=True):
            if job_name not in guests and host not in guests.values():
                guests[job_name] = host
        return [*starts, *(StartGuest(job, host, FLOOR) for job, host in guests.items())]

    def _left_s(self, host: str, now: float) -> float:
        """What a host may still lose [s]."""
        flow = self._fluid.flows[host]
        lost_s = now - self._own[host] - (flow.done_s - flow.own_from_s)
        return flow.load.request.bound * (flow.load.alone_s - flow.own_from_s) - lost_s

    def pair(self, host: str, guest: str) -> PairOutcome:
        """What comes of a running host and a waiting guest."""
        load = self._loads[guest]
        flows = replace(self._fluid.flows[host]), Flow(load, left_s=load.phases[0].alone_s)
        begun_s, together_s, ended = flows[0].done_s, 0.0, list[Flow]()
        while not ended:
            self._fluid.share_out(flows, (1 - FLOOR, FLOOR))
            over_s = min(flow.left_s / flow.rate for flow in flows)
            together_s += over_s
            ended = [flow for flow in flows if flow.move(over_s) and not flow.go_on()]
        return PairOutcome(together_s, flows[0].done_s - begun_s, flows[1].done_s)
