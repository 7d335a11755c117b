"""The simulated world: a queue, a machine and jobs that share its cores, in virtual time.

Nothing is stepped: between two events all rates are constant, so that the next event is known exactly. Rules are asked
when a job was submitted or has ended and once a period, as on real nodes, where monitoring looks now and then; the
change from one phase of a job to the next is an event too, but nobody is told of it before the next look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from asa.core.errors import UnknownName
from asa.estimators.checks import check_positive
from coscheduler.arrivals import Arrivals
from coscheduler.contention import PAPER_LIKE, Contention
from coscheduler.fluid import Fluid
from coscheduler.happiness import FORMS
from coscheduler.history import History
from coscheduler.ledger import Ledger
from coscheduler.nouns import Evict, SharedRun, SharingDecision, SharingView
from coscheduler.queuelog import Entry
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
        self._period_s, self._sampled = check_positive(period_s, "period_s"), sampled
        self._loads = {load.request.name: load for load in loads}
        self._ledger, self._fluid = Ledger(cores), Fluid(contention, happiness_form)
        self._arrivals = Arrivals((load.request for load in loads), self._ledger)
        self._history = History(((load.request, load.alone_s) for load in loads), log)
        self._now = self._look_at = self._arrivals.next if loads else 0.0

    def advance(self) -> SharingView | None:
        """Run to the next moment at which a rule is asked; None once all jobs have ended.

        Raises
        ------
        Starved
            When jobs wait, none runs and none will be submitted: the rule has started nobody.
        """
        news = self._arrivals.submit(self._now + _DUST)
        while not news and self._now < self._look_at - _DUST:
            if not self._fluid.flows and math.isinf(self._arrivals.next):
                self._ledger.check_idle()
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
        """What came of it, once all jobs have ended."""
        return self._history.result(self._ledger.cores)

    def _step(self) -> bool:
        """Run to the next event; whether a rule is to be told of it."""
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
        self._history.ended(name, self._now, flow.used, parallel=flow.load.parallel, memory=flow.load.memory)
        self._ledger.end(name)

    def _placed(self) -> None:
        """Somebody may have other cores, or another share of them, than before."""
        self._fluid.set_rates(self._ledger)
        self._history.placed(self._ledger, self._now)

    def _view(self) -> SharingView:
        return self._ledger.view(self._now, self._fluid.states(self._ledger, self._now))
