"""ASA_X: the paper's rule, read literally. The share of a guest is drawn by Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from asa.core.arrays import Ints
from asa.core.errors import UnknownName
from asa.estimators.checks import check_positive
from coscheduler.algorithm import Mixture
from coscheduler.nouns import ACTIONS, LOSSES, Keep, SharedRun, SharingDecision, SharingView, StartGuest, WaitingJob
from coscheduler.registry import EXPERTS
from coscheduler.sharing.starter import CANDIDATES, FIRST_FIT, Starter, first_host, open_hosts

FIGURE_2 = "cpu+memory+stage+elapsed"


class AsaX:
    """Asks each running job without a guest how much of its cores it can give, and gives it to the first in the queue.

    A job that gives nothing is asked again after `patience_s`; meanwhile others are. A guest keeps its share until it
    or its host ends, and then the cores that it asked for (the paper does not say). The loss of a host goes to the
    decisions to give it guests, when it ends.

    Parameters
    ----------
    experts
        Names, joined by ``+``.
    loss
        ``"slowdown"`` or ``"walltime"``: see `coscheduler.nouns`.
    hard
        Shares as quotas, else as weights: see `Static`.
    gamma, decay, importance, clip, seed
        See `coscheduler.algorithm.Mixture`.
    patience_s
        How long a refusal holds [s], above 0.
    queue
        See `Starter`.

    References
    ----------
    ASA_X, section 3 and Algorithm 1.
    """

    def __init__(
        self,
        *,
        experts: str = FIGURE_2,
        loss: str = "slowdown",
        hard: bool = False,
        gamma: float = 1.0,
        decay: float = 0.0,
        importance: bool = False,
        clip: float = 5.0,
        patience_s: float = 300.0,
        queue: str = FIRST_FIT,
        seed: int = 0,
    ) -> None:
        if loss not in LOSSES:
            raise UnknownName("loss", loss, LOSSES)
        self._loss, self._hard, self._starter = LOSSES[loss], hard, Starter(queue)
        self._patience_s = check_positive(patience_s, "patience_s")
        self._refused: dict[str, float] = {}
        self._mixture = Mixture(
            {name: EXPERTS.create(name) for name in experts.split("+")},
            gamma=gamma,
            decay=decay,
            importance=importance,
            clip=clip,
            seed=seed,
        )

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """Start what fits, then guests where hosts give something."""
        starts, rest = self._starter.starts(view)
        guests = [job for job in rest[:CANDIDATES] if not job.exclusive]
        hosts = self._asked(view, guests)
        return [*starts, *(self._share_out(view, guests, hosts) if len(hosts) else ())]

    def learn(self, run: SharedRun) -> None:
        """A job has ended: its loss goes to the decision to give of its cores."""
        self._refused.pop(run.job, None)
        self._mixture.settle(run.job, self._loss(run))

    def state(self) -> dict[str, Any]:
        return self._mixture.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self._mixture.restore(state)

    def _asked(self, view: SharingView, guests: list[WaitingJob]) -> Ints:
        """Rows of the hosts that are to be asked: they could take a guest, and have not refused lately."""
        if not guests:
            return np.empty(0, dtype=np.int64)
        hosts, names, smallest = open_hosts(view.running), view.running.names, min(job.cores for job in guests)
        hosts = hosts[view.running.cores[hosts] >= smallest]
        self._refused = {name: until for name, until in self._refused.items() if until > view.now}
        if self._refused:
            hosts = np.array([row for row in hosts.tolist() if names[row] not in self._refused], dtype=np.int64)
        return hosts

    def _share_out(self, view: SharingView, guests: list[WaitingJob], hosts: Ints) -> list[SharingDecision]:
        running, names, states = view.running, view.running.names, view.running.states.take(hosts)
        applications = running.application[hosts]
        choice = self._mixture.choose(running.applications, applications, states)
        decisions: list[SharingDecision] = []
        for place in np.flatnonzero(choice.actions == 0).tolist():
            host = names[int(hosts[place])]
            self._refused[host] = view.now + self._patience_s
            decisions.append(Keep(host, choice.reason(place, self._mixture.names, states)))
        cores, taken = running.cores[hosts], choice.actions == 0
        given: list[int] = []
        for job in guests:
            found = first_host(cores, taken, job)
            if found is not None:
                taken[found] = True
                given.append(found)
                host, share = names[int(hosts[found])], ACTIONS[int(choice.actions[found])]
                why = choice.reason(found, self._mixture.names, states)
                decisions.append(StartGuest(job.name, host, share, self._hard, why))
        rows = np.array(given, dtype=np.int64)
        kinds = [running.applications[kind] for kind in applications[rows].tolist()]
        self._mixture.hold([names[row] for row in hosts[rows].tolist()], kinds, choice, rows, states)
        return decisions
