"""Sharing rules side by side on the ASA_X paper's queue, over many seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.units import HOUR
from asa.lab.studies.interval import Estimate, estimate
from coscheduler.contention import named
from coscheduler.drive import drive
from coscheduler.registry import SHARING_RULES
from coscheduler.result import SharedQueue
from coscheduler.studies.words import in_words
from coscheduler.workload import CLUSTERS, paper_queue
from coscheduler.world import SimulatedWorld

RULES = ("space", "static", "asax", "scavenger")
QUEUES = 3
"""The queue is run so many times in a row; what a rule learns, it keeps from one to the next."""


@dataclass(frozen=True, slots=True)
class Row:
    """A rule on a machine.

    Parameters
    ----------
    rule, cores
        Which, and where.
    metrics
        The paper's Table 3 and more (see `SharedQueue.metrics`), means over seeds and queues.
    workflows
        The paper's Table 2: run time [h], and CPU and memory use of the cores that its jobs held, for each application.
    """

    rule: str
    cores: int
    metrics: dict[str, Estimate]
    workflows: dict[str, dict[str, Estimate]]

    def to_json(self) -> dict[str, Any]:
        """Numbers, and their intervals by themselves."""
        return {
            "rule": self.rule,
            "cores": self.cores,
            **{name: found.value for name, found in self.metrics.items()},
            "intervals": {name: [found.low, found.high] for name, found in self.metrics.items()},
            "workflows": {
                name: {metric: found.to_json() for metric, found in each.items()}
                for name, each in self.workflows.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of it, a row for each rule and machine."""

    rows: tuple[Row, ...]
    seeds: int

    def to_json(self) -> dict[str, Any]:
        """Rows, JSON-able."""
        return {"seeds": self.seeds, "queues": QUEUES, "rows": [row.to_json() for row in self.rows]}

    def text(self) -> str:
        """The tables, for people."""
        tables = [(row.rule, row.cores, row.metrics, row.workflows) for row in self.rows]
        return in_words(tables, self.seeds, QUEUES)


def compare(
    rules: Sequence[str] = RULES,
    *,
    cores: Sequence[int] = CLUSTERS,
    seeds: int = 8,
    seed: int = 0,
    contention: str = "paper-like",
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> Comparison:
    """Run the paper's queue under several rules, on machines of several sizes.

    Parameters
    ----------
    rules
        Specs, as in ``"asax:loss=walltime,hard=true"``.
    cores
        Of the machines; of `CLUSTERS`.
    seeds, seed
        How many times, each with queues of its own, one or more; and the first one's seed.
    contention
        Name of the constants of sharing.
    progress
        Told how many runs of how many are done.

    Raises
    ------
    InvalidInput
        When a name is not known, or nothing is left to compare.
    """
    rules, cores = list(dict.fromkeys(rules)), list(dict.fromkeys(cores))
    if seeds < 1 or not rules or not cores:
        raise InvalidInput(f"{len(rules)} rules, {len(cores)} machines, {seeds} seeds: at least one of each expected")
    for rule in rules:
        SHARING_RULES.create(rule)  # a misspelt one is found before the others have run
    rows: list[Row] = []
    for size in cores:
        for rule in rules:
            queues = []
            for each in range(seed, seed + seeds):
                queues.append(_queues(rule, size, each, contention))
                progress(len(rows) * seeds + len(queues), len(rules) * len(cores) * seeds)
            rows.append(_row(rule, size, queues))
    return Comparison(tuple(rows), seeds)


def _queues(spec: str, cores: int, seed: int, contention: str) -> list[SharedQueue]:
    """Queues in a row; the same for all rules."""
    rng = np.random.default_rng(seed)
    rule, found = SHARING_RULES.create(spec, seed=seed), []
    for number in range(QUEUES):
        world = SimulatedWorld(paper_queue(cores, rng, f"{number + 1}-"), cores, named(contention))
        drive(world, rule)
        found.append(world.result())
    return found


def _row(rule: str, cores: int, runs: Sequence[Sequence[SharedQueue]]) -> Row:
    metrics = [[queue.metrics() for queue in queues] for queues in runs]
    tables = [[_workflows(queue) for queue in queues] for queues in runs]
    return Row(
        rule,
        cores,
        {name: _over([[each[name] for each in some] for some in metrics]) for name in metrics[0][0]},
        {
            workflow: {name: _over([[each[workflow][name] for each in some] for some in tables]) for name in columns}
            for workflow, columns in tables[0][0].items()
        },
    )


def _over(values: list[list[float]]) -> Estimate:
    return estimate(lambda found: np.nanmean(found, axis=(-2, -1)), np.array(values))


def _workflows(queue: SharedQueue) -> dict[str, dict[str, float]]:
    """Means over the jobs of each application; not a number where none of them held cores of its own."""
    found = {}
    for name in sorted({job.application for job in queue.jobs}):
        jobs = [job for job in queue.jobs if job.application == name]
        held_s = sum(job.held_s for job in jobs) or np.nan
        found[name] = {
            "run_time_h": float(np.mean([job.ended - job.started for job in jobs])) / HOUR,
            "cpu": sum(job.busy_s for job in jobs) / held_s,
            "memory": sum(job.memory_s for job in jobs) / held_s,
        }
    return found
