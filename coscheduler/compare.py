"""Sharing rules side by side on the ASA_X paper's queue, over many seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from asa.core.command import table
from asa.core.errors import InvalidInput
from asa.core.units import HOUR
from asa.lab.study import LEVEL, Estimate, estimate
from coscheduler.drive import drive
from coscheduler.history import SharedQueue
from coscheduler.nouns import SharingRule
from coscheduler.registry import SHARING_RULES
from coscheduler.workload import CLUSTERS, HIDDEN, hidden_interference, hide, named, paper_queue
from coscheduler.world import SharingOracle, SimulatedWorld

_COLUMNS = ("space", "static", "asax")
"""Rules of the columns of Table 2; the paper calls the first one slurm."""


class QueueFigures(NamedTuple):
    """A line of Table 3: times [h], CPU use [%]."""

    wait_h: float
    cpu: float
    response_h: float


class WorkflowFigures(NamedTuple):
    """A cell of Table 2: run time [h], CPU and memory use [%]."""

    run_time_h: float
    cpu: float
    memory: float


TABLE3 = {
    ("space", 64): QueueFigures(3.5, 53, 4.4),
    ("space", 128): QueueFigures(1.5, 45, 2.4),
    ("space", 256): QueueFigures(0.5, 32, 1.4),
    ("static", 64): QueueFigures(1.7, 90, 4.8),
    ("static", 128): QueueFigures(0.8, 92, 2.8),
    ("static", 256): QueueFigures(0.3, 89, 2.0),
    ("asax", 64): QueueFigures(1.8, 82, 3.5),
    ("asax", 128): QueueFigures(1.0, 84, 2.0),
    ("asax", 256): QueueFigures(0.3, 83, 0.9),
}
"""By rule and cores. Waits and responses of the paper are about twice those of a queue that is submitted at once."""

_TABLE2 = """\
64 montage 0.35 45 10 0.38 94 10 0.35 95 10
64 blast 0.71 96 44 0.82 99 44 0.75 99 44
64 statistics 0.69 26 5 0.77 51 6 0.73 61 5
64 synthetic 0.49 99 95 0.57 99 95 0.56 99 95
128 montage 0.32 33 7 0.35 73 7 0.33 75 7
128 blast 0.72 95 45 0.79 99 44 0.73 99 44
128 statistics 0.70 16 1 0.76 36 2 0.72 43 1
128 synthetic 0.50 99 93 0.57 99 93 0.55 99 93
256 montage 0.29 21 5 0.32 55 5 0.30 51 5
256 blast 0.70 91 42 0.80 99 43 0.76 99 43
256 statistics 0.72 10 1 0.76 26 1 0.73 86 1
256 synthetic 0.48 99 92 0.53 99 91 0.52 99 93"""


def _table2() -> dict[tuple[str, int, str], WorkflowFigures]:
    found = {}
    for line in _TABLE2.split("\n"):
        cores, workflow, *words = line.split()
        numbers = [float(word) for word in words]
        for place, rule in enumerate(_COLUMNS):
            found[rule, int(cores), workflow] = WorkflowFigures(*numbers[3 * place : 3 * place + 3])
    return found


TABLE2 = _table2()
"""By rule, cores and workflow."""

RULES = ("space", "static", "asax", "scavenger")
ORACLE = "oracle"
"""What the row of a `SharingOracle` is called."""
RuleMaker = Callable[[int], SharingRule]  # for a seed
QUEUES = 3
"""The queue is run so many times in a row; what a rule learns, it keeps from one to the next."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule on a machine.

    Parameters
    ----------
    metrics
        The paper's Table 3 and more (see `SharedQueue.metrics`), means over seeds and queues.
    workflows
        The paper's Table 2: run time [h], and CPU and memory use of the cores that its jobs held, for each application.
    hosts, broken
        Jobs that had a bound on their slowdown, and guests; and those of them that were slowed down by more.
    """

    rule: str
    cores: int
    metrics: dict[str, Estimate]
    workflows: dict[str, dict[str, Estimate]]
    hosts: int = 0
    broken: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "cores": self.cores,
            **{name: found.value for name, found in self.metrics.items()},
            "hosts": self.hosts,
            "broken": self.broken,
            "intervals": {name: [found.low, found.high] for name, found in self.metrics.items()},
            "workflows": {
                name: {metric: found.to_json() for metric, found in each.items()}
                for name, each in self.workflows.items()
            },
        }


@dataclass(frozen=True, slots=True)
class RuleComparison:
    """What came of it, a row for each rule and machine."""

    rows: tuple[RuleRow, ...]
    seeds: int

    def to_json(self) -> dict[str, Any]:
        return {"seeds": self.seeds, "queues": QUEUES, "rows": [row.to_json() for row in self.rows]}

    def text(self) -> str:
        """The ASA_X paper's Tables 3 and 2, and what they leave out."""
        over = f"{100 * LEVEL:.0f} % interval, bootstrap over {self.seeds} seeds" if self.seeds > 1 else "one seed"
        return (
            f"The queue (the paper's Table 3 and more): means of {QUEUES} queues in a row [{over}]\n"
            f"{_queue_table(self.rows)}\n\n"
            "Workflows (the paper's Table 2): run time, and use of the cores that they held\n"
            f"{_workflow_table(self.rows)}\n\n"
            "in brackets (): against the first row of a machine; paper: as printed there, on another machine"
        )


def compare(
    rules: Sequence[str | RuleMaker] = RULES,
    *,
    cores: Sequence[int] = CLUSTERS,
    seeds: int = 8,
    seed: int = 0,
    contention: str = "paper-like",
    bound: float = math.inf,
    oracle: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> RuleComparison:
    """Run the paper's queue under several rules, on machines of several sizes.

    Raises `InvalidInput` when a name is not known, or nothing is left to compare.

    Parameters
    ----------
    rules
        Specs, as in ``"asax:loss=walltime,hard=true"``, or what makes a rule for a seed.
    cores
        Of the machines; of `CLUSTERS`.
    contention
        Of `coscheduler.workload.named`, or `HIDDEN`: drawn for each seed, unknown to the rules.
    bound
        By how much guests may slow their hosts down, as a share; infinite: nothing is promised.
    oracle
        Whether a `SharingOracle` comes last.
    seeds, seed
        How many times, each with queues of its own, one or more; and the first one's seed.
    """
    rules, cores = list(dict.fromkeys(rules)), list(dict.fromkeys(cores))
    if seeds < 1 or not rules or not cores:
        raise InvalidInput(f"{len(rules)} rules, {len(cores)} machines, {seeds} seeds: at least one of each expected")
    for rule in rules:
        SHARING_RULES.create(rule)  # a misspelt spec is found before the others have run
    rules += [ORACLE] * oracle
    rows: list[RuleRow] = []
    for size in cores:
        for rule in rules:
            queues = []
            for each in range(seed, seed + seeds):
                queues.append(_queues(rule, size, each, contention, bound))
                progress(len(rows) * seeds + len(queues), len(rules) * len(cores) * seeds)
            rows.append(_row(rule if isinstance(rule, str) else rule.__name__, size, queues))
    return RuleComparison(tuple(rows), seeds)


def _queues(spec: str | RuleMaker, cores: int, seed: int, contention: str, bound: float) -> list[SharedQueue]:
    """Queues in a row; the same for all rules."""
    rng = np.random.default_rng(seed)
    cost = hidden_interference(rng) if contention == HIDDEN else named(contention)
    made = spec(seed) if callable(spec) else SHARING_RULES.create(spec, seed=seed) if spec != ORACLE else None
    found = []
    for number in range(QUEUES):
        loads = paper_queue(cores, rng, f"{number + 1}-")
        loads = tuple(replace(load, request=load.request.bounded(bound)) for load in loads)
        if contention == HIDDEN:
            loads = tuple(hide(load, rng) for load in loads)
        world = SimulatedWorld(loads, cores, cost)
        drive(world, made or SharingOracle(world))
        found.append(world.result())
    return found


def _row(rule: str, cores: int, runs: Sequence[Sequence[SharedQueue]]) -> RuleRow:
    metrics = [[queue.metrics() for queue in queues] for queues in runs]
    tables = [[workflow_figures(queue) for queue in queues] for queues in runs]
    promises = [queue.promises() for queues in runs for queue in queues]
    return RuleRow(
        rule,
        cores,
        {name: _over([[each[name] for each in some] for some in metrics]) for name in metrics[0][0]},
        {
            workflow: {name: _over([[each[workflow][name] for each in some] for some in tables]) for name in columns}
            for workflow, columns in tables[0][0].items()
        },
        sum(hosts for hosts, _ in promises),
        sum(len(broken) for _, broken in promises),
    )


def _over(values: list[list[float]]) -> Estimate:
    return estimate(lambda found: np.nanmean(found, axis=(-2, -1)), np.array(values))


def workflow_figures(queue: SharedQueue) -> dict[str, dict[str, float]]:
    """Run time [h], and CPU and memory use of the cores held: means over the jobs of each application; not a number
    where none of them held cores of its own."""
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


def _queue_table(lines: Sequence[RuleRow]) -> str:
    first: dict[int, Mapping[str, Estimate]] = {}
    bounded = any(line.hosts for line in lines)
    rows = []
    for line in lines:
        metrics, base = line.metrics, first.setdefault(line.cores, line.metrics)
        paper = TABLE3.get((line.rule, line.cores))
        rows.append(
            {
                "cores": line.cores,
                "rule": line.rule,
                "wait [h]": _against(metrics, base, "mean_wait_h"),
                "CPU [%]": _per_cent(metrics["cpu_utilisation"]),
                "response [h]": _against(metrics, base, "mean_response_h"),
                "makespan [h]": _against(metrics, base, "makespan_h"),
                "slowdown": _plain(metrics["mean_slowdown"]),
                "over wall time [%]": _per_cent(metrics["over_walltime"]),
                **({"hosts beyond bound": f"{line.broken} of {line.hosts}"} if bounded else {}),
                "paper: wait, CPU, response": "-"
                if paper is None
                else f"{paper[0]:g} h, {paper[1]:g} %, {paper[2]:g} h",
            }
        )
    return table(rows, "nothing was run")


def _workflow_table(lines: Sequence[RuleRow]) -> str:
    rows = []
    for line in lines:
        for name, found in line.workflows.items():
            paper = TABLE2.get((line.rule, line.cores, name))
            rows.append(
                {
                    "cores": line.cores,
                    "rule": line.rule,
                    "workflow": name,
                    "run time [h]": f"{found['run_time_h'].value:.2f}{_interval(found['run_time_h'], 2)}",
                    "CPU [%]": _per_cent(found["cpu"]),
                    "memory [%]": _per_cent(found["memory"]),
                    "paper": "-" if paper is None else f"{paper[0]:.2f} h, {paper[1]:g} %, {paper[2]:g} %",
                }
            )
    return table(rows, "nothing was run")


def _against(metrics: Mapping[str, Estimate], base: Mapping[str, Estimate], name: str) -> str:
    found, other = metrics[name], base[name].value
    change = "" if found is base[name] or not other else f" ({100 * (found.value / other - 1):+.0f} %)"
    return f"{found.value:.2f}{_interval(found, 2)}{change}"


def _plain(found: Estimate) -> str:
    return "-" if math.isnan(found.value) else f"{found.value:.3f}{_interval(found, 3)}"


def _per_cent(found: Estimate) -> str:
    if math.isnan(found.value):
        return "-"
    low, high = (None if part is None else 100 * part for part in (found.low, found.high))
    scaled = Estimate(100 * found.value, low, high)
    return f"{scaled.value:.0f}{_interval(scaled, 0)}"


def _interval(found: Estimate, digits: int) -> str:
    if found.low is None or found.high is None or found.low == found.high:
        return ""
    return f" [{found.low:.{digits}f}, {found.high:.{digits}f}]"
