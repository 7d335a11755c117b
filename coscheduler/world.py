"""The simulated world: a queue, a machine and jobs that share its cores, in virtual time.

Nothing is stepped: between two events all rates are constant, so that the next event is known exactly. Rules are asked
when a job was submitted or has ended and once a period, as on real nodes, where monitoring looks now and then; the
change from one phase of a job to the next is an event too, but nobody is told of it before the next look.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from asa.core.decision import Start
from asa.core.errors import InvalidInput, Starved, UnknownName
from asa.core.sharing import Evict, RunningJobs, SharedRun, SharingDecision, SharingView, StartGuest
from coscheduler.contention import PAPER_LIKE, Contention
from coscheduler.fluid import Flow, Fluid
from coscheduler.happiness import FORMS
from coscheduler.ledger import Ledger
from coscheduler.result import Decided, JobRun, Sample, SharedQueue, Stay
from coscheduler.workload import Load

PERIOD_S = 60.0
_DUST = 1e-6  # [s]


@dataclass(slots=True)
class _History:
    """What is kept of a job over all its runs. Times are [s]."""

    first: float = math.nan
    since: float = math.nan
    ended: float = math.nan
    cpu_s: float = 0.0
    busy_s: float = 0.0
    memory_s: float = 0.0
    evictions: int = 0
    place: tuple[str | None, float] | None = None
    stays: list[Stay] = field(default_factory=list)


class SimulatedWorld:
    """A machine with a queue.

    Parameters
    ----------
    loads
        Jobs that will be submitted, at the times they say.
    cores
        Of the machine.
    contention
        What sharing costs.
    period_s
        How often monitoring looks [s].
    sampled
        Whether to keep what is measured.
    happiness_form
        ``"rate"`` or ``"literal"``: see `coscheduler.happiness.happiness`.

    Examples
    --------
    >>> import numpy as np
    >>> from coscheduler.drive import drive
    >>> from coscheduler.sharing.space import Space
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
        happiness_form: str = FORMS[0],
    ) -> None:
        if happiness_form not in FORMS:
            raise UnknownName("form of happiness", happiness_form, FORMS)
        if not period_s > 0:
            raise InvalidInput(f"period_s is {period_s!r}: a time above 0 s expected")
        self._loads = {load.request.name: load for load in loads}
        self._coming = sorted(loads, key=lambda load: load.request.submitted)[::-1]
        self._ledger, self._fluid = Ledger(cores), Fluid(contention, happiness_form)
        self._period_s, self._sampled = period_s, sampled
        self._history = {name: _History() for name in self._loads}
        self._now = self._look_at = self._coming[-1].request.submitted if loads else 0.0
        self._ended: list[SharedRun] = []
        self._decisions: list[Decided] = []
        self._samples: list[Sample] = []

    def advance(self) -> SharingView | None:
        """Run to the next moment at which a rule is asked; None once all jobs have ended.

        Raises
        ------
        Starved
            When jobs wait, none runs and none will be submitted: the rule has started nobody.
        """
        news = self._submit()
        while not news and self._now < self._look_at - _DUST:
            if not self._fluid.flows and not self._coming:
                if self._ledger.queue:
                    raise Starved(f"job {self._ledger.queue[0].name!r} waits on an idle machine: start it")
                return None
            news = self._step()
        self._look_at = self._now + self._period_s
        return self._view()

    def apply(self, decisions: Iterable[SharingDecision]) -> None:
        """Do what a rule has decided, in order.

        Raises
        ------
        IllegalDecision
            When one breaks a law; those before it were done.
        """
        for decision in decisions:
            self._ledger.apply(decision, self._now)
            if isinstance(decision, Evict):
                self._evicted(decision.guest)
            self._decisions.append(Decided(self._now, decision))
            if isinstance(decision, Start | StartGuest):
                name = str(decision.job)
                self._fluid.begin(self._loads[name])
                history = self._history[name]
                history.since = self._now
                history.first = self._now if math.isnan(history.first) else history.first
        self._placed()
        if self._sampled:
            self._sample(self._view().running)

    def learned(self) -> tuple[SharedRun, ...]:
        """Jobs that have ended since this was asked last, for the rule to learn from."""
        ended, self._ended = tuple(self._ended), []
        return ended

    def result(self) -> SharedQueue:
        """What came of it, once all jobs have ended."""
        jobs = []
        for name, load in self._loads.items():
            asked, kept = load.request, self._history[name]
            held_s = asked.cores * sum(stay.until - stay.since for stay in kept.stays if stay.host is None)
            jobs.append(
                JobRun(
                    name=name,
                    application=asked.application,
                    cores=asked.cores,
                    walltime_s=asked.walltime_s,
                    submitted=asked.submitted,
                    started=kept.first,
                    ended=kept.ended,
                    alone_s=load.alone_s,
                    cpu_s=kept.cpu_s,
                    held_s=held_s,
                    busy_s=kept.busy_s,
                    memory_s=kept.memory_s,
                    stays=tuple(kept.stays),
                    evictions=kept.evictions,
                )
            )
        return SharedQueue(self._ledger.cores, tuple(jobs), tuple(self._decisions), tuple(self._samples))

    def _submit(self) -> bool:
        """Jobs whose time has come join the queue; whether there were any."""
        before = len(self._coming)
        while self._coming and self._coming[-1].request.submitted <= self._now + _DUST:
            self._ledger.submit(self._coming.pop().request)
        return len(self._coming) < before

    def _step(self) -> bool:
        """Run to the next event; whether a rule is to be told of it."""
        until = self._look_at
        if self._coming:
            until = min(until, self._coming[-1].request.submitted)
        over_s = min(self._fluid.next_s(), until - self._now)
        ended, changed = self._fluid.step(over_s)
        self._now += over_s
        for name in ended:
            self._end(name)
        if ended:
            self._placed()
        elif changed:
            self._fluid.set_rates(self._ledger)
        return self._submit() or bool(ended)

    def _end(self, name: str) -> None:
        flow = self._gone(name)
        self._history[name].ended = self._now
        asked = flow.load.request
        self._ended.append(
            SharedRun(
                asked.name, asked.application, asked.cores, asked.walltime_s, self._now - self._history[name].since,
                flow.load.alone_s, flow.cpu_s, flow.load.parallel, flow.load.memory,
            )
        )  # fmt: skip
        self._ledger.end(name)

    def _evicted(self, name: str) -> None:
        self._gone(name)
        self._history[name].evictions += 1

    def _gone(self, name: str) -> Flow:
        """The job does not run any more."""
        flow, history = self._fluid.flows.pop(name), self._history[name]
        history.cpu_s += flow.cpu_s
        history.busy_s += flow.busy_s
        history.memory_s += flow.memory_s
        self._leave(name)
        return flow

    def _placed(self) -> None:
        """Somebody may have other cores, or another share of them, than before."""
        self._fluid.set_rates(self._ledger)
        for name, placed in self._ledger.running.items():
            history, place = self._history[name], (placed.host, self._ledger.own_share(name))
            if history.place != place:
                self._leave(name)
                history.place = place
                history.stays.append(Stay(self._now, math.nan, *place))

    def _leave(self, name: str) -> None:
        history = self._history[name]
        if history.place is not None:
            history.stays[-1] = history.stays[-1]._replace(until=self._now)
            history.place = None

    def _view(self) -> SharingView:
        return self._ledger.view(self._now, self._fluid.states(self._ledger, self._now))

    def _sample(self, running: RunningJobs) -> None:
        happy = dict(zip(running.names, running.states.happiness.tolist(), strict=True))
        shares = dict(zip(running.names, running.share.tolist(), strict=True))
        self._samples.append(Sample(self._now, sum(flow.granted for flow in self._fluid.flows.values()), happy, shares))
