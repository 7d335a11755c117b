"""How far `asa.strategies.grouping` is from the best of all groupings of small workflows, each counted job by job.

    python -m tests.strategies.groupings [WORKFLOWS]

Of a workflow of up to eight stages every partition is tried in which no group waits for another that waits for it.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from asa.core.stage import StageState
from asa.core.view import StageView, WorkflowView
from asa.strategies.grouping import FREE_S, Grouping
from tests.strategies.views import stage, view


class Outcome(NamedTuple):
    """When the last stage ends [s from now], and what all are charged [core-s]."""

    end: float
    cost: float


def partitions(names: list[str]) -> Iterator[list[list[str]]]:
    """All ways to divide them into groups."""
    if not names:
        yield []
        return
    for rest in partitions(names[1:]):
        yield [[names[0]], *rest]
        for place, group in enumerate(rest):
            yield [*rest[:place], [names[0], *group], *rest[place + 1 :]]


def outcome(seen: WorkflowView, groups: list[list[str]]) -> Outcome | None:
    """What comes of a grouping; None if one group waits for itself, or is wider than any stage and than a node.

    A job waits from now on as long as the longest of its stages would, and when its stages may begin for half as long,
    at most `FREE_S`. In it, stages with as many others of it before them run at the same time.
    """
    of = {name: number for number, group in enumerate(groups) for name in group}
    stages = {item.spec.name: item for item in seen.stages}
    before = {
        number: {of[need] for name in group for need in stages[name].spec.predecessors} - {number}
        for number, group in enumerate(groups)
    }
    try:
        order = [*TopologicalSorter(before).static_order()]
    except CycleError:
        return None
    most = max(seen.cores_per_node or 0, *(item.spec.resources.cores for item in seen.stages))
    ends: dict[int, float] = {}
    cost = 0.0
    for number in order:
        group = sorted((stages[name] for name in groups[number]), key=lambda item: seen.stages.index(item))
        rows: dict[int, list[StageView]] = {}
        depth: dict[str, int] = {}
        for item in group:
            inside = [depth[need] for need in item.spec.predecessors if need in depth]
            depth[item.spec.name] = place = 1 + max(inside, default=-1)
            rows.setdefault(place, []).append(item)
        cores = max(sum(item.spec.resources.cores for item in row) for row in rows.values())
        if len(group) > 1 and cores > most:
            return None
        held_s = seen.fixed_s[cores > (seen.cores_per_node or math.inf)]
        held_s += sum(max(item.spec.run_time_s for item in row) for row in rows.values())
        wait_s = max(item.predicted_wait_s or 0.0 for item in group)
        ready = max((ends[each] + min(wait_s / 2, FREE_S) for each in before[number]), default=0.0)
        ends[number] = max(wait_s, ready) + held_s
        cost += cores * held_s
    return Outcome(max(ends.values()), cost)


def front(seen: WorkflowView) -> list[Outcome]:
    """All outcomes than which no other is both sooner and cheaper."""
    names = [item.spec.name for item in seen.stages]
    found = {made for groups in partitions(names) if (made := outcome(seen, groups)) is not None}
    best: list[Outcome] = []
    for each in sorted(found):
        if not best or each.cost < best[-1].cost - 1e-9:
            best.append(each)
    return best


def planned(seen: WorkflowView, patience: float) -> Outcome:
    """What comes of what is planned."""
    sharing = Grouping(seen, patience)
    groups = dict.fromkeys(sharing.of(item.spec.name) for item in seen.stages)
    made = outcome(seen, [[item.spec.name for item in group] for group in groups])
    assert made is not None, "it is a grouping"
    return made


def drawn(rng: random.Random, shape: str) -> WorkflowView:
    """A workflow: a ``chain``, one with ``branches`` (stages side by side now and then), or any (``dag``); where jobs
    wait or cost some seconds of their own."""
    count, stages = rng.randint(3, 8), list[StageView]()
    waits = {cores: rng.choice([0.0, rng.uniform(0, 600), rng.uniform(0, 9000)]) for cores in (1, 2, 8, 32)}
    ends: list[str] = []
    while len(stages) < count:
        many = min(count - len(stages), rng.choice([1, 1, 2, 3])) if shape == "branches" and stages else 1
        made = []
        for _ in range(many):
            if shape == "dag":
                names = [item.spec.name for item in stages]
                ends = rng.sample(names, min(len(names), rng.choice([1, 1, 2])))
            cores = rng.choice([*waits])
            run_s = rng.choice([30.0, 240.0, 1200.0]) * rng.uniform(0.5, 1.5)
            state = StageState.WAITING if ends else StageState.READY
            name = chr(ord("a") + len(stages))
            stages.append(
                stage(
                    name, *ends, cores=cores, walltime_s=2 * run_s, run_time_s=run_s, state=state,
                    predicted_wait_s=waits[cores],
                )
            )  # fmt: skip
            made.append(name)
        ends = made
    return view(*stages, now=0.0, fixed_s=rng.choice([(0.0, 0.0), (5.0, 5.0), (60.0, 60.0)]))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    for shape in ("chain", "branches", "dag"):
        rng, over, alike, apart = random.Random(1), list[float](), 0, list[float]()
        for _ in range(count):
            seen = drawn(rng, shape)
            best = front(seen)
            for worth in (0.5, 4.0, 32.0):
                least = min(each.cost + worth * each.end for each in best)
                got = planned(seen, worth)
                single = outcome(seen, [[item.spec.name] for item in seen.stages])
                assert single is not None, "each by itself"
                over.append((got.cost + worth * got.end) / least - 1)
                apart.append((single.cost + worth * single.end) / least - 1)
                alike += over[-1] < 1e-9
        mean, alone = sum(over) / len(over), sum(apart) / len(apart)
        print(
            f"{shape}: {count} workflows, three patiences: the best in {alike / len(over):.0%}, {mean:.2%} above it in "
            f"the mean, {max(over):.1%} at most; with a job for each stage {alone:.1%} and {max(apart):.0%}"
        )


if __name__ == "__main__":
    main()
