"""Planners on the same saved decisions: how large their models are, how long they take, how good their plans are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.dispatchers.planning.instance import Planner
from asa.lab.dispatchers.planning.verify import violations
from asa.lab.simulator.decisions import Decision, DecisionSample
from asa.lab.simulator.run import simulate
from asa.lab.studies.cp_case import Case
from asa.lab.studies.timing import clocked

SAVED_UNDER = "listplan:scheme=non-delay"
"""Whose decisions are saved. The paper saved PCP'19's; this one is quick."""

SAVED_PREDICTOR = "heuristic"


@dataclass(frozen=True)
class SavedRow:
    """A planner on one decision.

    Parameters
    ----------
    dispatcher
        Spec.
    decision
        Its number in the simulation.
    queue, running
        Waiting jobs, and runs of nodes that are held.
    status
        Of the plan; ``"broken"`` where it breaks a law of the machine.
    seconds, cpu_s
        What it took [s], and the processor time of all its threads [s], compilation excluded.
    objective
        Mean slowdown of the plan; None without one.
    variables, constraints
        Size of its model; None where it has none, does not tell, or ran out of time while it built it.
    """

    dispatcher: str
    decision: int
    queue: int
    running: int
    status: str
    seconds: float
    cpu_s: float
    objective: float | None
    variables: int | None
    constraints: int | None


def sampled(case: Case, count: int, seed: int) -> DecisionSample:
    """Decisions of a simulated case, each with the same chance."""
    sample = DecisionSample(count, seed)
    simulate(case.workload, case.cluster, SAVED_UNDER, predictor=SAVED_PREDICTOR, watch=sample)
    return sample


def on_saved(decisions: Iterable[Decision], dispatchers: Sequence[str], time_limit: float) -> list[SavedRow]:
    """Let each planner plan each decision.

    Parameters
    ----------
    time_limit
        For each plan [s]. Those that search for better plans do so for as long.

    Raises
    ------
    InvalidInput
        When a dispatcher plans no whole queues.
    """
    planners = {spec: planner(spec) for spec in dispatchers}
    warm: set[str] = set()
    found = []
    for decision in decisions:
        for spec, one in planners.items():
            if spec not in warm:
                one.solve(decision.instance, time_limit)  # compiles
                warm.add(spec)
            found.append(_row(spec, one, decision, time_limit))
    return found


def planner(spec: str) -> Planner:
    """The planner of a spec.

    Raises
    ------
    InvalidInput
        When that dispatcher plans no whole queues.
    """
    made: Planner = DISPATCHERS.create(spec)
    if not hasattr(made, "solve"):
        raise InvalidInput(f"dispatcher {spec!r} makes no plans of whole queues, which saved decisions are for")
    return made


def _row(spec: str, one: Planner, decision: Decision, time_limit: float) -> SavedRow:
    instance = decision.instance
    planned, seconds, cpu_s = clocked(one.solve, instance, time_limit)
    status, objective = planned.status, None
    if planned.plan is not None:
        objective = planned.plan.objective(instance)
        status = "broken" if violations(instance, planned.plan) else status
    built = "out of time" not in planned.notes
    return SavedRow(
        dispatcher=spec,
        decision=decision.number,
        queue=len(instance),
        running=len(instance.release),
        status=status,
        seconds=seconds,
        cpu_s=cpu_s,
        objective=objective,
        variables=_whole(planned.notes.get("variables")) if built else None,
        constraints=_whole(planned.notes.get("constraints")) if built else None,
    )


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


@dataclass(frozen=True)
class Ratio:
    """One planner over another on the decisions of one queue size; medians with extremes, None where not known.

    Parameters
    ----------
    least, most
        Waiting jobs.
    decisions
        How many there are.
    solved
        On how many of them each found a plan.
    variables, cpu_s, objective
        Least, median and largest ratio. That of the objective is over decisions on which both found a plan; the time
        of one without a plan is what it took in vain.
    """

    least: int
    most: int
    decisions: int
    solved: tuple[int, int]
    variables: tuple[float, float, float] | None
    cpu_s: tuple[float, float, float] | None
    objective: tuple[float, float, float] | None


def pairs(rows: Sequence[SavedRow], one: str, other: str) -> list[tuple[SavedRow, SavedRow]]:
    """Rows of the two on the same decisions."""
    theirs = {row.decision: row for row in rows if row.dispatcher == other}
    return [(row, theirs[row.decision]) for row in rows if row.dispatcher == one and row.decision in theirs]


def ratios(rows: Sequence[SavedRow], one: str, other: str) -> list[Ratio]:
    """How `one` compares to `other`, by classes of queue sizes that end at powers of two."""
    both = pairs(rows, one, other)
    classes = np.array([(mine.queue - 1).bit_length() for mine, _ in both], dtype=np.int64)
    found = []
    for size in np.unique(classes).tolist():
        chosen = [pair for pair, of in zip(both, classes.tolist(), strict=True) if of == size]
        mine, theirs = ([pair[side].objective is not None for pair in chosen] for side in (0, 1))
        measured = (spread_of(chosen, what) for what in ("variables", "cpu_s", "objective"))
        found.append(Ratio(2**size // 2 + 1 if size else 1, 2**size, len(chosen), (sum(mine), sum(theirs)), *measured))
    return found


def spread_of(chosen: Sequence[tuple[SavedRow, SavedRow]], what: str) -> tuple[float, float, float] | None:
    """Least, median and largest ratio of a column, where both have it."""
    values = [(getattr(mine, what), getattr(theirs, what)) for mine, theirs in chosen]
    known = [mine / theirs for mine, theirs in values if mine is not None and theirs]
    return (min(known), float(np.median(known)), max(known)) if known else None
