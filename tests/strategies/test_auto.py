"""Stages that share an allocation because one is sooner and no dearer than several."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Ask, Predict
from asa.core.job import Capabilities, QueueRegime
from asa.core.stage import StageState
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.strategies.auto import DEARER, Auto, Gain, contracted, mergers, shared, stretches
from asa.strategies.hold import Hold
from asa.strategies.places import technique_for
from tests.strategies.views import allocation, stage, view

READY = StageState.READY
REGIMES = [regime for regime in QueueRegime if regime is not QueueRegime.IMMEDIATE]


def chain(*sizes: tuple[int, float], **more: Any) -> tuple[StageView, ...]:
    """Stages a, b, c ... in turn, of so many cores and seconds; the first is ready."""
    found = []
    for number, (cores, run_s) in enumerate(sizes):
        after = [chr(ord("a") + number - 1)] if number else []
        fields = more if number else more | {"state": READY}
        found.append(stage(chr(ord("a") + number), *after, cores=cores, walltime_s=60.0, run_time_s=run_s, **fields))
    return tuple(found)


def merged(*stages: StageView, patience: float = 0.0, **more: Any) -> list[str]:
    fields: dict[str, Any] = {"fixed_s": (2.0, 2.0), "arrays": True}
    found = mergers(view(*stages, **fields | more), patience)
    return ["".join(item.spec.name for item in group) for group, _ in found]


def test_equal_stages_share_one_allocation() -> None:
    assert merged(*chain((4, 9.0), (4, 9.0), (4, 9.0))) == ["abc"]


def test_a_short_narrow_stage_joins_a_wide_one_but_a_long_one_does_not() -> None:
    """It is charged 11 idle cores for its time, and saves one core for two seconds."""
    assert merged(*chain((12, 9.0), (1, 0.1))) == ["ab"]
    assert merged(*chain((12, 9.0), (1, 1.0))) == []


def test_where_jobs_get_whole_nodes_a_narrow_stage_costs_one_by_itself() -> None:
    two = chain((8, 9.0), (1, 1.0))
    site = Capabilities("here", cores_per_node=8, whole_nodes=True)
    assert merged(*two, cores_per_node=8, fixed_s=(0.5, 0.5)) == []
    assert merged(*two, cores_per_node=8, fixed_s=(0.5, 0.5), charged=site.charged) == ["ab"]
    (_, gain), *_ = mergers(view(*two, fixed_s=(0.5, 0.5), cores_per_node=8, charged=site.charged))
    assert (gain.together, gain.apart) == (8 * 10.5, 8 * 11.0)


def test_all_at_once_may_pay_where_no_two_do() -> None:
    sizes = ((8, 4.0), (2, 1.0), (12, 4.0))
    assert merged(*chain(*sizes), fixed_s=(2.7, 2.7)) == ["abc"]
    assert merged(*chain(*sizes[:2]), fixed_s=(2.7, 2.7)) == merged(*chain(*sizes[1:]), fixed_s=(2.7, 2.7)) == []


def test_what_an_allocation_costs_decides_and_where_that_is_not_known_nothing_is_merged() -> None:
    sizes = ((1, 1.0), (8, 4.0), (2, 1.0), (12, 4.0), (1, 0.0))
    assert merged(*chain(*sizes), fixed_s=(1.0, 1.0)) == ["de"]
    assert merged(*chain(*sizes), fixed_s=(5.0, 5.0)) == ["abcde"]
    assert merged(*chain(*sizes), fixed_s=(0.0, 0.0)) == []


def test_nodes_decide_which_cost_counts() -> None:
    two = chain((8, 9.0), (8, 9.0))
    (_, gain), *_ = mergers(view(*two, fixed_s=(1.0, 3.0), cores_per_node=4))
    assert gain == Gain(3.0, 8 * 21.0, 8 * 24.0, 8, 2)
    (_, gain), *_ = mergers(view(*two, fixed_s=(1.0, 3.0), cores_per_node=8))
    assert gain == Gain(1.0, 8 * 19.0, 8 * 20.0, 8, 2)


def test_a_narrow_stage_does_not_wait_for_many_cores_when_that_is_later() -> None:
    narrow, wide = chain((4, 1.0), (5, 9.0))
    assert merged(narrow, wide) == ["ab"], "as far as is known"
    assert merged(narrow, replace(wide, predicted_wait_s=60.0)) == []
    assert merged(replace(narrow, predicted_wait_s=60.0), replace(wide, predicted_wait_s=60.0)) == ["ab"]


def test_patience_pays_for_time() -> None:
    two = chain((12, 9.0), (1, 1.0))
    assert merged(*two, patience=4.4) == []
    assert merged(*two, patience=4.6) == ["ab"], "it saves 2 s and is charged 9 core-seconds more"
    assert Auto(patience=4.6).patience == 4.6


def test_where_wider_jobs_go_first_a_narrow_stage_waits_for_no_allocation_of_its_own() -> None:
    """Its job might wait for ever; but not if that would be charged more than twice as much."""
    sizes = ((1, 1.0), (8, 4.0), (2, 1.0), (12, 4.0), (1, 0.0))
    assert merged(*chain(*sizes), fixed_s=(0.5, 0.5)) == ["de"]
    assert merged(*chain(*sizes), fixed_s=(0.5, 0.5), wide_first=True) == ["abcde"]
    assert merged(*chain((1, 59.0), (12, 4.0), (8, 4.0)), fixed_s=(0.5, 0.5), wide_first=True) == ["bc"]
    assert merged(*chain((12, 59.0), (12, 59.0)), fixed_s=(0.5, 0.5), wide_first=True) == ["ab"], "no dearer anyway"
    (_, gain), *_ = mergers(view(*chain((8, 4.0), (2, 1.0)), fixed_s=(1.0, 1.0), wide_first=True))
    assert gain.explained() == (
        "one allocation of 8 cores for these 2 stages: narrower jobs wait here for as long as others submit wider "
        "ones, charged 48 instead of 44 core-seconds"
    )


def test_only_stages_that_follow_on_one_another_alone_are_merged() -> None:
    fork = [stage("a", state=READY), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"), stage("e", "d")]
    assert merged(*fork) == ["de"]
    assert [[item.spec.name for item in each] for each in stretches(view(*fork))] == [["a"], ["b"], ["c"], ["d", "e"]]


def test_what_was_asked_for_stays_as_it_is() -> None:
    a, b, c = chain((1, 9.0), (1, 9.0), (1, 9.0))
    asked = replace(a, attempts=1, allocations=(allocation("x", "a"),))
    assert merged(asked, b, c) == ["bc"]
    assert merged(replace(a, state=StageState.DONE, attempts=1), b, replace(c, attempts=1)) == []


def test_limits_of_the_site_are_kept() -> None:
    two = chain((1, 9.0), (1, 9.0))
    assert merged(*two, longest_s=119.0) == [] and merged(*two, longest_s=120.0) == ["ab"]
    gpu = stage("b", "a", walltime_s=60.0, run_time_s=9.0, gpus=1)
    assert merged(two[0], gpu) == [], "GPUs would idle"
    spread = stage("b", "a", cores=4, nodes=4, walltime_s=60.0, run_time_s=9.0)
    assert merged(chain((4, 9.0))[0], spread, cores_per_node=4) == ["ab"]
    big = stage("b", "a", cores=6, nodes=3, walltime_s=60.0, run_time_s=9.0)
    assert merged(chain((8, 9.0))[0], big, cores_per_node=8) == [], "no job of 8 cores holds both"


def test_one_job_is_asked_for_and_says_why() -> None:
    asked = Auto().decide(view(*chain((4, 9.0), (4, 9.0)), arrays=True, fixed_s=(2.0, 2.0)))
    (ask,) = [item for item in asked if isinstance(item, Ask)]
    assert (ask.stages, ask.resources.cores, ask.walltime_s) == (("a", "b"), 4, 120.0)
    assert ask.why == (
        "one allocation of 4 cores for these 2 stages: expected to end 2 s sooner than 2, charged 80 instead of 88 "
        "core-seconds"
    )


def test_elements_of_an_array_are_no_smaller_than_merged_ones_in_front_of_them() -> None:
    stages = chain((4, 9.0), (4, 9.0), (1, 9.0))
    asked = [item for item in Auto().decide(view(*stages, arrays=True, fixed_s=(2.0, 2.0))) if isinstance(item, Ask)]
    assert [(ask.stages, ask.resources.cores, ask.walltime_s, ask.array) for ask in asked] == [
        (("a", "b"), 4, 120.0, "a+1"),
        (("c",), 4, 120.0, "a+1"),
    ]


def test_stages_of_a_shared_allocation_are_seen_as_one_until_it_leaves() -> None:
    item = allocation("x", "a", "b", started=900.0, busy=True, walltime_s=120.0)
    a, b, c = chain((4, 9.0), (4, 8.0), (1, 7.0))
    a = replace(a, state=StageState.RUNNING, expected_end=1005.0, attempts=1, allocations=(item,))
    b = replace(b, attempts=1, allocations=(item,))
    seen = view(a, b, c, arrays=True, fixed_s=(2.0, 2.0))
    one, behind = contracted(seen, [*shared(seen)]).stages
    assert (one.state, one.expected_end, one.spec.run_time_s) == (StageState.RUNNING, 1013.0, 17.0)
    assert behind.spec.predecessors == ("a",)
    over = replace(a, state=StageState.DONE, expected_end=None, ended=990.0)
    seen = view(over, replace(b, state=READY), c)
    assert contracted(seen, [*shared(seen)])["a"].state is StageState.RUNNING, "one of them is not done"
    gone = replace(item, leaving=True)
    seen = view(replace(over, allocations=(gone,)), replace(b, state=READY, allocations=(gone,)), c)
    assert [*shared(seen)] == []
    assert [ask.stages for ask in Auto().decide(replace(seen, arrays=True)) if isinstance(ask, Ask)] == [("b",)]


SIZES = st.lists(st.tuples(st.integers(1, 12), st.floats(0.0, 30.0)), min_size=1, max_size=15)
FIXED = st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0))


@given(SIZES, FIXED, st.lists(st.none() | st.floats(0.0, 100.0), min_size=15, max_size=15), st.booleans())
def test_merged_stages_are_sooner_and_no_dearer(
    sizes: list[tuple[int, float]], fixed_s: tuple[float, float], waits: list[float | None], wide_first: bool
) -> None:
    """Counted once more, job by job."""
    stages = [replace(item, predicted_wait_s=wait) for item, wait in zip(chain(*sizes), waits, strict=False)]
    seen = view(*stages, fixed_s=fixed_s, cores_per_node=4, wide_first=wide_first)

    def held_s(cores: int, run_s: float) -> float:
        return fixed_s[cores > 4] + run_s

    found = [group for group, _ in mergers(seen)]
    names = [item.spec.name for group in found for item in group]
    assert names == sorted(set(names)) and all(len(group) > 1 for group in found)
    for group in found:
        widest = max(group, key=lambda item: item.spec.resources.cores)
        cores = widest.spec.resources.cores
        together = cores * held_s(cores, sum(item.spec.run_time_s for item in group))
        apart = sum(
            item.spec.resources.cores * held_s(item.spec.resources.cores, item.spec.run_time_s) for item in group
        )
        starves = wide_first and len({item.spec.resources.cores for item in group}) > 1
        assert together <= apart * (DEARER if starves else 1.0) * (1 + 1e-9)
        ready = end = max(seen.now, group_ready(seen, group[0]))
        for item in group:
            end = max(end, seen.now + (item.predicted_wait_s or 0.0))
            end += held_s(item.spec.resources.cores, item.spec.run_time_s)
        alone = max(ready, seen.now + (widest.predicted_wait_s or 0.0))
        assert starves or alone + held_s(cores, sum(item.spec.run_time_s for item in group)) < end + 1e-6


def group_ready(seen: WorkflowView, first: StageView) -> float:
    """When a stage of a chain is ready, if each job comes when it was predicted, and at no cost."""
    at = seen.now
    for item in seen.stages:
        if item is first:
            return at
        at = max(at, seen.now + (item.predicted_wait_s or 0.0)) + item.spec.run_time_s
    return math.nan


@given(SIZES, FIXED, st.sampled_from(REGIMES), st.booleans(), st.booleans())
def test_every_stage_gets_one_job(
    sizes: list[tuple[int, float]], fixed_s: tuple[float, float], regime: QueueRegime, arrays: bool, dependencies: bool
) -> None:
    """In every regime, whether places can be held or not: stage by stage until the run is done."""
    stages, asked = list(chain(*sizes)), list[tuple[str, ...]]()
    for round_ in range(12 * len(stages)):
        seen = view(*stages, regime=regime, arrays=arrays, dependencies=dependencies, fixed_s=fixed_s)
        decisions = Auto().decide(seen)
        for item in decisions:
            if isinstance(item, Predict):
                stages = [
                    replace(each, predicted_wait_s=0.0, predicted_at=1000.0) if each.spec.name == item.stage else each
                    for each in stages
                ]
        asks = [item for item in decisions if isinstance(item, Ask)]
        for ask in asks:
            asked.append(ask.stages)
            new = allocation(f"{round_}{ask.stages[0]}", *ask.stages, after=ask.after, array=ask.array)
            stages = [_with(each, new) if each.spec.name in ask.stages else each for each in stages]
        if not any(isinstance(item, Ask | Predict) for item in decisions):
            left = next((number for number, each in enumerate(stages) if not each.state.final), None)
            if left is None:
                break
            stages[left] = replace(stages[left], state=StageState.DONE, unlaunched=False)
            if left + 1 < len(stages):
                stages[left + 1] = replace(stages[left + 1], state=READY)
    assert all(each.state is StageState.DONE for each in stages)
    names = [name for names in dict.fromkeys(asked) for name in names]
    assert sorted(names) == sorted(each.spec.name for each in stages)
    assert len(asked) == len({*asked}) or technique_for(seen) is None, "those that come by chance are asked for thrice"


def _with(stage: StageView, item: AllocationView) -> StageView:
    return replace(stage, allocations=(*stage.allocations, item), attempts=stage.attempts + 1)


@given(SIZES)
def test_without_a_cost_it_is_hold(sizes: list[tuple[int, float]]) -> None:
    seen = view(*chain(*sizes), arrays=True)
    assert Auto().decide(seen) == Hold().decide(seen)


@pytest.mark.parametrize("cores", [1, 12])
def test_words(cores: int) -> None:
    said = Gain(1.0, 10.4, 12.6, cores, 3).explained()
    assert f"{cores} core{'s' * (cores > 1)} for these 3 stages" in said and "10 instead of 13 core-seconds" in said
