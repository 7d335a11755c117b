"""The simulated world: a queue, a machine and jobs that share its cores, in virtual time.

Nothing is stepped: between two events all rates are constant, so that the next event is known exactly. Rules are asked
when a job was submitted or has ended and once a period, as on real nodes, where monitoring looks now and then; the
change from one phase of a job to the next is an event too, but nobody is told of it before the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from asa.core.decision import Start
from asa.core.errors import InvalidInput, Starved, UnknownName
from asa.core.sharing import Evict, SharedRun, SharingDecision, SharingView, StartGuest
from coscheduler.contention import PAPER_LIKE, Contention
from coscheduler.fluid import Flow, Fluid
from coscheduler.happiness import FORMS
from coscheduler.history import History
from coscheduler.ledger import Ledger
from coscheduler.queuelog import Entry, ended
from coscheduler.result import SharedQueue
from coscheduler.workload import Load

PERIOD_S = 60.0
_DUST = 1e-6  # [s]


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
    log
        Told of every decision, and of jobs that end, as it happens.

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
        log: Callable[[Entry], None] | None = None,
    ) -> None:
        if happiness_form not in FORMS:
            raise UnknownName("form of happiness", happiness_form, FORMS)
        if not period_s > 0:
            raise InvalidInput(f"period_s is {period_s!r}: a time above 0 s expected")
        self._loads = {load.request.name: load for load in loads}
        self._coming = sorted(loads, key=lambda load: load.request.submitted)[::-1]
        self._ledger, self._fluid = Ledger(cores), Fluid(contention, happiness_form)
        self._period_s, self._sampled, self._log = period_s, sampled, log
        self._history = History((load.request, load.alone_s) for load in self._loads.values())
        self._now = self._look_at = self._coming[-1].request.submitted if loads else 0.0
        self._ended: list[SharedRun] = []

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
            decided = self._history.decided(decision, self._now)
            if self._log:  # else nobody asks for reasons, which take their time
                self._log(decided.to_json())
            if isinstance(decision, Start | StartGuest):
                self._fluid.begin(self._loads[str(decision.job)])
        self._placed()
        if self._sampled:
            busy = sum(flow.granted for flow in self._fluid.flows.values())
            self._history.sample(self._view().running, busy, self._now)

    def learned(self) -> tuple[SharedRun, ...]:
        """Jobs that have ended since this was asked last, for the rule to learn from."""
        ended, self._ended = tuple(self._ended), []
        return ended

    def result(self) -> SharedQueue:
        """What came of it, once all jobs have ended."""
        return self._history.result(self._ledger.cores)

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
        flow, past = self._gone(name), self._history.jobs[name]
        past.ended = self._now
        asked = flow.load.request
        run = SharedRun(
            asked.name, asked.application, asked.cores, asked.walltime_s, self._now - past.since,
            flow.load.alone_s, flow.cpu_s, flow.load.parallel, flow.load.memory,
        )  # fmt: skip
        self._ended.append(run)
        if self._log:
            self._log({"at": self._now} | ended(run))
        self._ledger.end(name)

    def _evicted(self, name: str) -> None:
        self._gone(name)
        self._history.jobs[name].evictions += 1

    def _gone(self, name: str) -> Flow:
        """The job does not run any more."""
        flow, past = self._fluid.flows.pop(name), self._history.jobs[name]
        past.cpu_s += flow.cpu_s
        past.busy_s += flow.busy_s
        past.memory_s += flow.memory_s
        self._history.left(name, self._now)
        return flow

    def _placed(self) -> None:
        """Somebody may have other cores, or another share of them, than before."""
        self._fluid.set_rates(self._ledger)
        self._history.placed(self._ledger, self._now)

    def _view(self) -> SharingView:
        return self._ledger.view(self._now, self._fluid.states(self._ledger, self._now))
