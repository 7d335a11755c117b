"""Stages that share an allocation because one is sooner and no dearer than several."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.decision import Ask, Predict
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.stage import StageState
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.strategies.auto import Auto, Contracted
from asa.strategies.grouping import LATE, Gain, Group, Grouping, shape_of
from asa.strategies.hold import Hold
from asa.strategies.places import technique_for
from tests.strategies.groupings import drawn, front, outcome, planned
from tests.strategies.views import allocation, stage, view

READY = StageState.READY
REGIMES = [regime for regime in QueueRegime if regime is not QueueRegime.IMMEDIATE]


def chain(*sizes: tuple[int, float], **more: Any) -> tuple[StageView, ...]:
    """Stages a, b, c ... in turn, of so many cores and seconds; the first is ready."""
    found = []
    for number, (cores, run_s) in enumerate(sizes):
        after = [chr(ord("a") + number - 1)] if number else []
        fields = {"predicted_wait_s": 0.0} | more | ({} if number else {"state": READY})
        found.append(stage(chr(ord("a") + number), *after, cores=cores, walltime_s=60.0, run_time_s=run_s, **fields))
    return tuple(found)


def groups(seen: WorkflowView, patience: float | None = 0.0, **more: Any) -> list[Group]:
    """Stages that share an allocation; without a patience, where that is no dearer."""
    sharing = Grouping(seen, patience, **more)
    found = dict.fromkeys(sharing.of(stage.spec.name) for stage in seen.stages)
    return [group for group in found if len(group) > 1]


def merged(*stages: StageView, patience: float | None = 0.0, **more: Any) -> list[str]:
    fields: dict[str, Any] = {"fixed_s": (2.0, 2.0), "arrays": True}
    return ["".join(item.spec.name for item in group) for group in groups(view(*stages, **fields | more), patience)]


def why(seen: WorkflowView, name: str, patience: float | None = 0.0) -> str:
    sharing = Grouping(seen, patience)
    return sharing.why.get(sharing.of(name)[0].spec.name, "")


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
    said = why(view(*two, fixed_s=(0.5, 0.5), cores_per_node=8, charged=site.charged), "a")
    assert said.endswith("charged 84 instead of 88 core-seconds"), "8 * 10.5, 8 * 11.0"


def test_all_at_once_may_pay_where_no_two_do() -> None:
    sizes = ((8, 4.0), (2, 1.0), (12, 4.0))
    assert merged(*chain(*sizes), fixed_s=(2.7, 2.7)) == ["abc"]
    assert merged(*chain(*sizes[:2]), fixed_s=(2.7, 2.7)) == merged(*chain(*sizes[1:]), fixed_s=(2.7, 2.7)) == []


def test_what_an_allocation_costs_decides_and_where_that_is_not_known_nothing_is_merged() -> None:
    sizes = ((1, 1.0), (8, 4.0), (2, 1.0), (12, 4.0), (1, 0.0))
    assert merged(*chain(*sizes), fixed_s=(1.0, 1.0)) == ["de"]
    assert merged(*chain(*sizes), fixed_s=(5.0, 5.0)) == ["bcde"]
    assert merged(*chain(*sizes), fixed_s=(5.0, 5.0), patience=None) == ["abcde"], "6 core-seconds for 5 s"
    assert merged(*chain(*sizes), fixed_s=(0.0, 0.0)) == []


def test_nodes_decide_which_cost_counts() -> None:
    two = chain((8, 9.0), (8, 9.0))
    assert why(view(*two, fixed_s=(1.0, 3.0), cores_per_node=4), "a") == Gain(3.0, 8 * 21, 8 * 24, 8, 2).explained()
    assert why(view(*two, fixed_s=(1.0, 3.0), cores_per_node=8), "a") == Gain(1.0, 8 * 19, 8 * 20, 8, 2).explained()


def test_a_narrow_stage_does_not_wait_for_many_cores_when_that_is_later() -> None:
    narrow, wide = chain((4, 1.0), (5, 9.0))
    assert merged(narrow, wide) == ["ab"]
    assert merged(narrow, replace(wide, predicted_wait_s=60.0), patience=20.0) == []
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
    assert why(view(*chain((8, 4.0), (2, 1.0)), fixed_s=(1.0, 1.0), wide_first=True), "a") == (
        "one allocation of 8 cores for these 2 stages: narrower jobs wait here for as long as others submit wider "
        "ones, charged 48 instead of 44 core-seconds"
    )


def test_only_stages_that_follow_on_one_another_alone_are_merged() -> None:
    known = {"predicted_wait_s": 0.0}
    fork = [stage("a", state=READY, **known), *(stage(name, "a", **known) for name in "bc")]
    join = [stage("d", "b", "c", **known), stage("e", "d", **known)]
    assert merged(*fork, *join) == ["de"], "two cores are more than any of them wants"
    assert merged(*fork, join[0], replace(join[1], attempts=1)) == []
    astray = stage("f", "b", **known)
    assert merged(*fork, *join, astray) == ["de"]


def test_stages_that_state_their_memory_share_none_with_those_that_do_not() -> None:
    """What suffices for the ones need not for the others."""
    stated = [chain((4, 9.0), (4, 9.0), (4, 9.0), memory=size)[place] for place, size in enumerate((None, 7, 9))]
    assert merged(*stated) == ["bc"]
    (group,) = groups(view(*stated, fixed_s=(2.0, 2.0), arrays=True))
    shape = shape_of(group, None)
    assert shape is not None and shape.resources == Resources(4, memory=9)


def test_what_was_asked_for_stays_as_it_is() -> None:
    a, b, c = chain((1, 9.0), (1, 9.0), (1, 9.0))
    asked = replace(a, attempts=1, allocations=(allocation("x", "a"),))
    assert merged(asked, b, c) == ["bc"]
    assert merged(replace(a, state=StageState.DONE, attempts=1), b, replace(c, attempts=1)) == []


def test_limits_of_the_site_are_kept() -> None:
    two = chain((1, 9.0), (1, 9.0))
    assert merged(*two, longest_s=119.0) == [] and merged(*two, longest_s=120.0) == ["ab"]
    known = {"walltime_s": 60.0, "run_time_s": 9.0, "predicted_wait_s": 0.0}
    gpu = stage("b", "a", gpus=1, **known)
    assert merged(two[0], gpu) == [], "GPUs would idle"
    spread = stage("b", "a", cores=4, nodes=4, **known)
    assert merged(chain((4, 9.0))[0], spread, cores_per_node=4) == ["ab"]
    big = stage("b", "a", cores=6, nodes=3, **known)
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


@pytest.mark.timeout(20)
def test_one_with_a_job_of_its_own_may_wait_for_the_last_of_those_that_share_one() -> None:
    """Where nothing holds places: when it will be ready is when the stage ends that stands for these."""
    shared, own = allocation("s", "a", "b"), allocation("o", "c")
    a, b, c = chain((4, 9.0), (4, 9.0), (4, 9.0))
    stages = _with(a, shared), _with(b, shared), replace(_with(c, own), predicted_wait_s=100.0)
    (ask,) = Auto().decide(view(*stages, regime=QueueRegime.FIFO, dependencies=False))
    assert isinstance(ask, Ask) and ask.stages == ("c",)


def test_stages_of_a_shared_allocation_are_seen_as_one_until_it_leaves() -> None:
    item = allocation("x", "a", "b", started=900.0, busy=True, walltime_s=120.0)
    a, b, c = chain((4, 9.0), (4, 8.0), (1, 7.0))
    a = replace(a, state=StageState.RUNNING, expected_end=1005.0, attempts=1, allocations=(item,))
    b = replace(b, attempts=1, allocations=(item,))

    def seen_as(*stages: StageView) -> list[StageView]:
        seen = view(*stages, arrays=True, fixed_s=(2.0, 2.0))
        return Contracted(seen, Grouping(seen)).contracted(seen.stages)

    one, behind = seen_as(a, b, c)
    assert (one.state, one.expected_end, one.spec.run_time_s) == (StageState.RUNNING, 1013.0, 17.0)
    assert behind.spec.predecessors == ("a",)
    over = replace(a, state=StageState.DONE, expected_end=None, ended=990.0)
    assert seen_as(over, replace(b, state=READY), c)[0].state is StageState.RUNNING, "one of them is not done"
    gone = replace(item, leaving=True)
    left = replace(over, allocations=(gone,)), replace(b, state=READY, allocations=(gone,)), c
    assert len(seen_as(*left)) == 3
    assert [ask.stages for ask in Auto().decide(view(*left, arrays=True)) if isinstance(ask, Ask)] == [("b",)]


SIZES = st.lists(st.tuples(st.integers(1, 12), st.floats(0.0, 30.0)), min_size=1, max_size=15)
FIXED = st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32).map(random.Random), st.sampled_from([0.0, 0.5, 4.0, 32.0]))
def test_of_all_ways_to_cut_a_chain_the_best_is_found(rng: random.Random, patience: float) -> None:
    """Each counted job by job (`groupings.outcome`), all others than the planned one tried."""
    seen = drawn(rng, "chain")
    least = min(each.cost + patience * each.end for each in front(seen))
    found = planned(seen, patience)
    assert found.cost + patience * found.end == pytest.approx(least)


@pytest.mark.parametrize("shape", ["branches", "dag"])
def test_sharing_is_better_than_a_job_for_each_stage(shape: str) -> None:
    """In the mean: what a chain gains for its cost may be of no use where another branch ends later."""
    rng, together, alone = random.Random(1), 0.0, 0.0
    for _ in range(30):
        seen = drawn(rng, shape)
        apart, found = outcome(seen, [[item.spec.name] for item in seen.stages]), planned(seen, 4.0)
        assert apart is not None
        together += (found.cost + 4.0 * found.end) / (apart.cost + 4.0 * apart.end)
        alone += 1.0
    assert together < alone


def test_branches_and_what_they_end_in_share_an_allocation() -> None:
    """Where they fit beside one another into what the widest wants: what a wider one would wait is not known."""
    known = {"predicted_wait_s": 7200.0, "run_time_s": 60.0}
    split, wide = stage("s", cores=8, state=READY, **known), stage("j", "x", "z", cores=8, **known)
    branches = [stage("x", "s", cores=4, **known), stage("y", "s", cores=4, **known), stage("z", "y", cores=2, **known)]
    assert merged(split, *branches, wide, patience=8.0) == ["sxyzj"]
    broad = replace(branches[0], spec=replace(branches[0].spec, resources=Resources(5)))
    assert merged(split, broad, *branches[1:], wide, patience=8.0) == ["yz"]
    one = Contracted(seen := view(split, *branches, wide), Grouping(seen, 8.0)).contracted(seen.stages)
    assert [(item.spec.resources.cores, item.spec.run_time_s) for item in one] == [(8, 240.0)]


@pytest.mark.parametrize("patience", [0.5, 32.0])
@pytest.mark.parametrize("count", range(2, 14))
def test_each_of_many_branches_is_in_one_group(count: int, patience: float) -> None:
    names, known = [f"b{number}" for number in range(count)], {"walltime_s": 10.0, "run_time_s": 5.0}
    for before, wait_s in [((), 100.0), (("a",), 100.0), (("a",), 5000.0)]:
        first = [stage("a", cores=8, state=READY, predicted_wait_s=0.0)] if before else []
        branches = [stage(name, *before, predicted_wait_s=wait_s, **known) for name in names]
        ends = stage("c", *names, cores=8, predicted_wait_s=0.0, **known), stage("d", "c", predicted_wait_s=wait_s)
        seen = view(*first, *branches, *ends, now=0.0, cores_per_node=16, fixed_s=(60.0, 60.0))
        sharing = Grouping(seen, patience)
        found = dict.fromkeys(sharing.of(item.spec.name) for item in seen.stages)
        assert sorted(item.spec.name for group in found for item in group) == sorted(s.spec.name for s in seen.stages)


def test_branches_by_themselves_wait_for_nodes_once_they_may_start() -> None:
    """As each job behind another does: together these end 1000 s sooner, for 2400 core-seconds."""
    known: dict[str, Any] = {"predicted_wait_s": 1000.0, "run_time_s": 600.0}
    branches = [stage("b", "a", cores=2, **known), stage("c", "a", cores=2, **known)]
    seen = view(stage("a", cores=8, state=READY, **known), *branches, stage("d", "b", "c", cores=8, **known), now=0.0)
    assert outcome(seen, [["a"], ["b"], ["c"], ["d"]]) == (3800.0, 12000.0)
    assert planned(seen, 3.0) == outcome(seen, [["a", "b", "c", "d"]]) == (2800.0, 14400.0)


def test_branches_side_by_side_are_not_counted_one_after_the_other() -> None:
    """That a stage behind them would end sooner with the next one is said only if it would."""
    known: dict[str, Any] = {"predicted_wait_s": 0.0, "run_time_s": 3000.0, "walltime_s": 3600.0}
    branches = [stage("b", "a", cores=2, **known), stage("c", "a", cores=2, **known)]
    narrow = stage("d", "b", "c", **known | {"run_time_s": 60.0})
    wide = stage("e", "d", cores=8, predicted_wait_s=5000.0)
    seen = view(stage("a", cores=8, state=READY, **known | {"run_time_s": 10.0}), *branches, narrow, wide, now=0.0)
    assert merged(*seen.stages) == [] and why(seen, "d") == ""


def test_a_narrow_stage_between_wide_ones_keeps_their_nodes_where_jobs_wait() -> None:
    sizes = ((320, 715.0), (1, 159.0), (320, 477.0), (1, 238.0))
    busy = [replace(item, predicted_wait_s=7200.0 if cores > 1 else 0.0) for item, (cores, _) in zip(
        chain(*sizes), sizes, strict=True)]  # fmt: skip
    fields: dict[str, Any] = {"fixed_s": (0.0, 0.0), "patience": None}
    assert merged(*busy, **fields) == ["abc"]
    assert merged(*chain(*sizes), **fields) == [], "nobody waits"
    seen = view(*busy)
    assert why(seen, "a", None) == (
        "one allocation of 320 cores for these 3 stages: expected to end 15 min sooner than 3, charged 432320 instead "
        "of 381599 core-seconds; a second is worth 96.1 of them (patience)"
    )
    assert groups(seen, None, max_overhead=0.1) == []
    assert why(seen, "a", 40.0).startswith("an allocation of its own: one of 320 cores for a, b and c would be")


@pytest.mark.parametrize("arrays", [True, False])
def test_waits_are_asked_for_before_jobs_where_they_decide(arrays: bool) -> None:
    stages = [replace(item, predicted_wait_s=None) for item in chain((320, 715.0), (1, 159.0), (320, 477.0))]
    fields: dict[str, Any] = {"arrays": arrays, "regime": QueueRegime.LIMITS if arrays else QueueRegime.FIFO}
    asked = Auto().decide(view(*stages, **fields))
    assert asked == [Predict("a", LATE), Predict("b", LATE)], "a and c are of one size"
    long = [replace(item, predicted_wait_s=None) for item in chain((320, 9.0), (1, 9000.0))]
    assert not any(isinstance(item, Predict) for item in Auto().decide(view(*long, **fields))), "no wait is so long"
    there = [replace(stages[0], predicted_wait_s=7200.0), replace(stages[1], predicted_wait_s=0.0), stages[2]]
    (ask,) = [item for item in Auto().decide(view(*there, **fields)) if isinstance(item, Ask)]
    assert ask.stages == ("a", "b", "c") and ask.predicted_wait_s is None


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
def test_where_nothing_costs_or_waits_it_is_hold(sizes: list[tuple[int, float]]) -> None:
    stages = [replace(item, predicted_wait_s=None) for item in chain(*sizes)]
    held = Hold().decide(view(*stages, arrays=True))
    stages = [replace(item, predicted_wait_s=0.0) for item in stages]
    assert Auto().decide(view(*stages, arrays=True)) == held


@pytest.mark.parametrize("cores", [1, 12])
def test_words(cores: int) -> None:
    said = Gain(1.0, 10.4, 12.6, cores, 3).explained()
    assert f"{cores} core{'s' * (cores > 1)} for these 3 stages" in said and "10 instead of 13 core-seconds" in said
