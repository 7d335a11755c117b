"""Does a bandit that chooses guests' shares inside the promise beat a fixed small share?

`scavenger` decides which guest comes to which host, and keeps the bound; every guest has a weight of 5 %. Here the
mixture of experts (ASA_X, Algorithm 1, with importance weights) draws the weight instead, 5 to 90 %, and is charged the
host's slowdown. Beside it: other fixed weights. The interference is hidden from all.

    python -m benchmarks.cosched_bandit --seeds 20
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from coscheduler.algorithm import Mixture
from coscheduler.compare import compare
from coscheduler.nouns import ACTIONS, FLOOR, LOSSES, SetShare, SharedRun, SharingDecision, SharingView, StartGuest
from coscheduler.registry import EXPERTS
from coscheduler.sharing.asax import FIGURE_2
from coscheduler.sharing.scavenger import Scavenger
from coscheduler.workload import HIDDEN


class BanditShares(Scavenger):
    """`scavenger`, with shares drawn by the mixture of experts; `seed` is that of the draws."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        experts = {name: EXPERTS.create(name) for name in FIGURE_2.split("+")}
        self._mixture = Mixture(experts, importance=True, seed=seed)
        self._drawn: dict[str, float] = {}

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """As `scavenger`, but for shares."""
        found: list[SharingDecision] = []
        for decision in super().decide(view):
            if isinstance(decision, StartGuest):
                found.append(replace(decision, share=self._draw(view, decision)))
            elif isinstance(decision, SetShare) and decision.share == self.options.share:
                found += self._restored(view, decision)
            else:
                found.append(decision)
        return found

    def learn(self, run: SharedRun) -> None:
        """A job has ended: its loss goes to the shares that were drawn of its cores."""
        super().learn(run)
        self._drawn.pop(run.job, None)
        self._mixture.settle(run.job, LOSSES["slowdown"](run))

    def _draw(self, view: SharingView, decision: StartGuest) -> float:
        running = view.running
        row = np.array([running.names.index(decision.host)])
        states, kinds = running.states.take(row), running.application[row]
        choice = self._mixture.choose(running.applications, kinds, states)
        self._mixture.hold([decision.host], [running.applications[kinds[0]]], choice, np.array([0]), states)
        self._drawn[decision.job] = max(FLOOR, float(ACTIONS[choice.actions[0]]))
        return self._drawn[decision.job]

    def _restored(self, view: SharingView, decision: SetShare) -> list[SharingDecision]:
        """A guest that goes on gets the share that was drawn for it, if it has another one now."""
        share = self._drawn.get(decision.guest, decision.share)
        now = float(view.running.share[view.running.names.index(decision.guest)])
        return [] if abs(now - share) < 1e-9 else [replace(decision, share=share)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cosched_bandit")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--bound", type=float, default=0.1)
    options = parser.parse_args()
    rules = "space", "scavenger:worth=1e-9", "scavenger", "scavenger:share=0.2", "scavenger:share=0.5", BanditShares
    print(compare(rules, seeds=options.seeds, contention=HIDDEN, bound=options.bound).text().split("\n\n")[0])
