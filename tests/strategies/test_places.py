"""Places in the queue that are held: how, and by whom."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Amend, Ask, Cancel, Predict, Wake
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.stage import StageState
from asa.core.view import StageView
from asa.strategies.auto import Auto
from asa.strategies.hold import Hold
from asa.strategies.perstage import PerStage
from asa.strategies.places import (
    PARKED_MOST_S,
    SETTLE_S,
    SETTLED_S,
    AfterOk,
    AgedAfterOk,
    Parked,
    Throttled,
    chains,
    check_technique,
    technique_for,
)
from asa.strategies.staggered import Staggered
from tests.strategies.views import allocation, stage, view

ONE = Resources(1)
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("regime", "name"),
    [
        (QueueRegime.FIFO, "afterok"),
        (QueueRegime.ACCRUE_ALWAYS, "afterok"),
        (QueueRegime.MULTIFACTOR, "aged-afterok"),
        (QueueRegime.LIMITS, "array"),
    ],
)
def test_the_regime_decides(regime: QueueRegime, name: str) -> None:
    found = technique_for(view(regime=regime, arrays=True))
    assert found is not None and found.name == name


def test_a_technique_that_the_site_lacks_is_not_used() -> None:
    assert technique_for(view(regime=QueueRegime.LIMITS, parks=True)) is None, "parking is only for those who ask"
    assert technique_for(view(regime=QueueRegime.FIFO, dependencies=False)) is None
    assert technique_for(view(), "parked") is None
    parked = technique_for(view(parks=True), "parked")
    assert parked is not None and parked.name == "parked"


def test_a_misspelt_technique_is_named() -> None:
    with pytest.raises(UnknownName, match="did you mean 'array'"):
        check_technique("arrays")


# ---------------------------------------------------------------------------------------------- dependencies


def test_afterok_asks_for_a_stage_once_those_before_it_are_queued() -> None:
    a, b = stage("a", state=StageState.READY), stage("b", "a")
    assert AfterOk().ask([a, b], view(a, b)) == [Ask(("a",), ONE, 600.0)]
    a = stage("a", state=StageState.READY, allocations=(allocation("x", "a"),))
    assert AfterOk().ask([b], view(a, b)) == [Ask(("b",), ONE, 600.0, ("x",))]


def test_aged_afterok_gives_dependent_jobs_a_begin_time_at_hand() -> None:
    a, b = stage("a", state=StageState.READY), stage("b", "a")
    assert AgedAfterOk().ask([a, b], view(a, b)) == [Ask(("a",), ONE, 600.0)]
    a = stage("a", state=StageState.READY, allocations=(allocation("x", "a"),))
    assert AgedAfterOk().ask([b], view(a, b)) == [Ask(("b",), ONE, 600.0, ("x",), delay_s=SETTLE_S)]


def test_a_change_that_is_on_its_way_or_made_is_not_made_again() -> None:
    a = stage("a", state=StageState.READY, allocations=(allocation("x", "a"),))
    for more in ({"amending": True}, {"after": ()}, {"queued": False}, {"started": 5.0}):
        b = stage("b", "a", allocations=(allocation("y", "b", **{"after": ("x",), **more}),))
        assert AfterOk().tend(view(a, b), frozenset({"b"})) == [], more


def test_a_dependency_is_taken_off_a_stage_that_is_wanted_early() -> None:
    a = stage("a", state=StageState.RUNNING, allocations=(allocation("x", "a", started=1.0, busy=True),))
    b = stage("b", "a", allocations=(allocation("y", "b", after=("x",)),))
    for technique in (AfterOk(), AgedAfterOk()):
        assert technique.tend(view(a, b), NONE) == []
        assert technique.tend(view(a, b), frozenset({"b"})) == [Amend("y", after=())]


# ------------------------------------------------------------------------------------------------------ array


def test_all_stages_are_elements_of_one_array() -> None:
    a, b, c = stage("a", state=StageState.READY), stage("b", "a"), stage("c", "b")
    assert [ask.array for ask in Throttled().ask([a, b, c], view(a, b, c))] == ["a+2"] * 3
    ready = stage("c", "b", state=StageState.READY)
    assert Throttled().ask([ready], view(a, b, ready)) == [Ask(("c",), ONE, 600.0)], "one alone needs no array"
    assert Throttled().ask([c], view(a, b, c)) == [], "and nothing would keep it from starting"


def test_an_array_ends_where_another_partition_begins() -> None:
    gpu = (("partition", "gpu"),)
    stages = [stage("a"), stage("b", "a"), stage("c", "b", options=gpu), stage("d", "c", options=gpu)]
    assert [[item.spec.name for item in chain] for chain in chains(stages)] == [["a", "b"], ["c", "d"]]


def test_branches_are_arrays_of_their_own_and_the_other_s_begins_when_it_may() -> None:
    """In one array, the one branch would wait for the other's nodes."""
    a, wide = stage("a", state=StageState.READY), stage("wide", "a", cores=8)
    narrow, fine, join = stage("narrow", "a"), stage("fine", "narrow", run_time_s=9.0), stage("join", "wide", "fine")
    stages = view(a, wide, narrow, fine, join)
    assert [(ask.stages[0], ask.array) for ask in Throttled().ask([*stages.stages], stages)] == [
        ("a", "a+1"),
        ("wide", "a+1"),
    ], "join follows fine, which ends last"
    ready = view(stage("a", state=StageState.DONE), wide, stage("narrow", "a", state=StageState.READY), fine, join)
    asked = Throttled().ask([item for item in ready.stages if item.spec.name not in ("a", "wide")], ready)
    assert [(ask.stages[0], ask.array) for ask in asked] == [
        ("narrow", "narrow+2"),
        ("fine", "narrow+2"),
        ("join", "narrow+2"),
    ]


def test_none_is_smaller_or_shorter_than_those_in_front_of_it() -> None:
    """Else it would find room where they do not, and start before them."""
    a = stage("a", cores=4, walltime_s=100.0, state=StageState.READY)
    b, c = stage("b", "a", cores=8, walltime_s=50.0), stage("c", "b", walltime_s=900.0)
    found = Throttled().ask([a, b, c], view(a, b, c))
    assert [(ask.resources.cores, ask.walltime_s) for ask in found] == [(4, 100.0), (8, 100.0), (8, 900.0)]


def test_the_first_that_waits_has_its_own_size() -> None:
    a = stage("a", cores=4, state=StageState.RUNNING, allocations=(element("x", "a", started=1.0, cores=4),))
    b = stage("b", "a", cores=2, walltime_s=50.0, allocations=(element("y", "b", cores=4, walltime_s=100.0),))
    c = stage("c", "b", cores=2, allocations=(element("z", "c", cores=4),))
    assert throttle(a, b, c) == [Amend("y", resources=Resources(2), walltime_s=50.0)]
    for more in ({"amending": True}, {"queued": False}, {"cores": 2, "walltime_s": 50.0}):
        b = stage("b", "a", cores=2, walltime_s=50.0, allocations=(element("y", "b", **{"cores": 4, **more}),))
        assert throttle(a, b, c) == [], more


def test_those_behind_it_are_made_wider_before_it_grows() -> None:
    """A stage may need more when its turn has come, as where tasks have added others."""
    a = stage("a", state=StageState.DONE)
    b = stage("b", "a", cores=8, walltime_s=500.0, allocations=(element("y", "b", cores=4, walltime_s=500.0),))
    c = stage("c", "b", cores=2, allocations=(element("z", "c", cores=4, walltime_s=900.0),))
    assert throttle(a, b, c) == [Amend("z", resources=Resources(8))]
    c = stage("c", "b", cores=2, allocations=(element("z", "c", cores=4, walltime_s=900.0, amending=True),))
    assert throttle(a, b, c) == [], "it may start before it is wider"
    for more in ({"cores": 8}, {"cores": 4, "refused": "no"}):
        c = stage("c", "b", cores=2, allocations=(element("z", "c", walltime_s=900.0, **more),))
        assert throttle(a, b, c) == [Amend("y", resources=Resources(8))], more


def element(key: str, name: str, **more: object) -> object:
    return allocation(key, name, array="a+2", submitted=10.0, **more)


def throttle(a: StageView, b: StageView, c: StageView, *wanted: str) -> list[Amend]:
    return list(Throttled().tend(view(a, b, c), frozenset(wanted)))


def test_the_array_is_throttled_wider_while_the_next_one_is_wanted() -> None:
    a = stage("a", state=StageState.RUNNING, allocations=(element("x", "a", started=1.0),))
    b = stage("b", "a", allocations=(element("y", "b"),))
    c = stage("c", "b", allocations=(element("z", "c"),))
    assert throttle(a, b, c) == []
    assert throttle(a, b, c, "b") == [Amend("x", throttle=2)]
    assert throttle(a, b, c, "c") == [], "the one before it would go first"
    assert throttle(a, b, c, "b", "c") == [Amend("x", throttle=2)], "one after the other"


def test_the_throttle_is_narrow_again_as_soon_as_the_next_element_runs() -> None:
    a = stage("a", state=StageState.RUNNING, allocations=(element("x", "a", started=1.0, throttle=2),))
    b = stage("b", "a", allocations=(element("y", "b", started=2.0, throttle=2),))
    c = stage("c", "b", allocations=(element("z", "c", throttle=2),))
    assert throttle(a, b, c, "b") == [Amend("x", throttle=1)]


def test_an_element_that_is_about_to_end_needs_no_room() -> None:
    """Its stage is done, so the next one may go by itself: throttling wider would let two go."""
    a = stage("a", state=StageState.DONE, allocations=(element("x", "a", started=1.0),))
    b = stage("b", "a", state=StageState.READY, allocations=(element("y", "b"),))
    c = stage("c", "b", allocations=(element("z", "c"),))
    assert throttle(a, b, c, "b") == []


# ----------------------------------------------------------------------------------------------------- parked


def test_a_job_that_is_to_be_parked_does_not_stay_for_ever() -> None:
    a, b = stage("a", state=StageState.READY), stage("b", "a")
    assert [(ask.delay_s, ask.lives_s) for ask in Parked().ask([a, b], view(a, b))] == [
        (0.0, None),
        (SETTLE_S, PARKED_MOST_S),
    ]


def test_a_job_is_parked_until_it_is_wanted() -> None:
    a = stage("a", state=StageState.READY, allocations=(allocation("x", "a"),))
    b = stage("b", "a", allocations=(allocation("y", "b"),))
    assert Parked().tend(view(a, b), frozenset({"a"})) == [Amend("y", parked=True)]
    parked = stage("b", "a", allocations=(allocation("y", "b", parked=True),))
    assert Parked().tend(view(a, parked), frozenset({"a"})) == []
    assert Parked().tend(view(a, parked), frozenset({"a", "b"})) == [Amend("y", parked=False)]
    # it came in the place of a lost one, and waits for a job that may be parked, too
    behind = stage("b", "a", allocations=(allocation("y", "b", parked=True, after=("x",)),))
    assert Parked().tend(view(a, behind), frozenset({"a", "b"})) == [Amend("y", after=(), parked=False)]


# ------------------------------------------------------------------------------------------------------- kept


@pytest.mark.parametrize(
    ("technique", "reason"),
    [(AgedAfterOk(), "Dependency"), (Throttled(), "JobArrayTaskLimit")],
)
def test_a_place_is_lost_when_the_job_does_not_age(technique: AgedAfterOk | Throttled, reason: str) -> None:
    now = view(now=SETTLED_S)

    def kept(**more: object) -> bool:
        return technique.kept(allocation("y", "b", reason=reason, **more), now)

    assert not kept()
    assert kept(ages_since=3.0)
    assert kept(submitted=1.0), "it has a while to begin"
    assert technique.kept(allocation("y", "b", reason="Priority"), now), "nothing holds it back"
    assert technique.kept(allocation("y", "b"), now), "nothing is known yet"


def test_a_change_that_is_refused_costs_the_place() -> None:
    for technique in (AgedAfterOk(), Parked()):
        assert not technique.kept(allocation("y", "b", refused="no"), view())


def test_first_come_first_served_knows_no_age() -> None:
    item = allocation("y", "b", reason="Dependency")
    assert AfterOk().kept(item, view(regime=QueueRegime.FIFO))
    assert not AfterOk().kept(item, view(regime=QueueRegime.ACCRUE_ALWAYS))


def names(stages: list[StageView]) -> list[list[str]]:
    return [[item.spec.name for item in chain] for chain in chains(stages)]


def test_a_chain_is_one() -> None:
    assert names([stage("a"), stage("b", "a"), stage("c", "b")]) == [["a", "b", "c"]]


def test_the_widest_of_a_fork_goes_on_and_a_join_follows_what_ends_last() -> None:
    fork = [
        stage("a"),
        stage("wide", "a", cores=8, run_time_s=10.0),
        stage("narrow", "a", run_time_s=300.0),
        stage("join", "wide", "narrow"),
    ]
    assert names(fork) == [["a", "wide"], ["narrow", "join"]]


@st.composite
def graphs(draw: st.DrawFn) -> list[StageView]:
    found: list[StageView] = []
    for number in range(draw(st.integers(0, 8))):
        before = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        cores = draw(st.integers(1, 4))
        found.append(stage(str(number), *map(str, before), cores=cores, run_time_s=draw(st.floats(1.0, 600.0))))
    return found


@given(graphs())
def test_every_stage_is_in_one_chain_right_behind_one_of_its_predecessors(graph: list[StageView]) -> None:
    found = names(graph)
    assert sorted(name for chain in found for name in chain) == sorted(item.spec.name for item in graph)
    of = {item.spec.name: item.spec for item in graph}
    assert all(front in of[name].predecessors for chain in found for front, name in pairwise(chain))


# The strategy that holds them.


LOST = {"array": "a+2", "reason": "JobArrayTaskLimit", "submitted": 0.0}
KEPT = LOST | {"ages_since": 1.0}


def running(**more: object) -> object:
    held = allocation("x", "a", started=900.0, busy=True, array="a+2")
    return stage("a", state=StageState.RUNNING, unlaunched=False, attempts=1, allocations=(held,), **more)


def test_every_stage_is_in_the_queue_from_the_start() -> None:
    stages = view(stage("a", state=StageState.READY), stage("b", "a"), stage("c", "b"), arrays=True)
    assert [item.stages for item in Hold().decide(stages) if isinstance(item, Ask)] == [("a",), ("b",), ("c",)]


def test_a_stage_that_may_begin_and_whose_job_is_gone_is_asked_for_plainly() -> None:
    stages = view(stage("a", state=StageState.READY, attempts=1), stage("b", "a", attempts=1), arrays=True)
    assert Ask(("a",), ONE, 600.0) in Hold().decide(stages)


def test_a_lost_place_is_given_up_with_those_behind_it_in_the_array() -> None:
    stages = view(
        running(),
        stage("b", "a", attempts=1, allocations=(allocation("y", "b", **LOST),)),
        stage("c", "b", attempts=1, allocations=(allocation("z", "c", **KEPT),)),
        arrays=True,
        now=2000.0,
    )
    found = Hold().decide(stages)
    assert [(item.allocation, item.displaced) for item in found if isinstance(item, Cancel)] == [
        ("y", True),
        ("z", True),
    ]
    assert len(found) == 2


def test_a_held_place_is_checked_when_ageing_is_known() -> None:
    late = allocation("y", "b", **LOST | {"submitted": 990.0})
    stages = view(running(), stage("b", "a", attempts=1, allocations=(late,)), arrays=True)
    assert Hold().decide(stages) == [Wake(990.0 + SETTLED_S)]


def test_a_stage_whose_place_was_lost_is_left_to_the_other_strategy() -> None:
    lost = stage("b", "a", attempts=1, displaced=1)
    stages = view(running(expected_end=1500.0), lost, arrays=True)
    assert Hold().decide(stages) == [Predict("b")]
    later = Hold(otherwise=PerStage())
    assert later.decide(stages) == [], "which may be any"


def test_where_no_place_can_be_held_the_other_strategy_does_it_all() -> None:
    stages = view(stage("a", state=StageState.READY), stage("b", "a"), arrays=False)
    assert Hold(otherwise=PerStage()).decide(stages) == [Ask(("a",), ONE, 600.0)]


def test_why_none_can_be_held_is_explained() -> None:
    by_size = view(stage("a"), unordered="PriorityWeightJobSize=100")
    said = Hold(otherwise=PerStage()).explain(by_size)
    assert "(limits: PriorityWeightJobSize=100: the largest element of a job array would start first)" in said


def test_with_a_lead_the_next_stage_may_start_before_it_is_ready() -> None:
    def decide(now: float) -> list[object]:
        held = allocation("y", "b", after=("x",), reason="Dependency", ages_since=1.0)
        before = allocation("x", "a", started=900.0, busy=True)
        first = stage("a", state=StageState.RUNNING, unlaunched=False, allocations=(before,), expected_end=1500.0)
        stages = view(first, stage("b", "a", attempts=1, allocations=(held,)), regime=QueueRegime.FIFO, now=now)
        return list(Hold(lead_s=100.0).decide(stages))

    assert decide(1000.0) == [Wake(1400.0)]
    assert [type(item).__name__ for item in decide(1400.0)] == ["Amend"]


def test_an_early_allocation_is_cancelled_after_its_grace() -> None:
    early = stage("b", "a", attempts=1, allocations=(allocation("y", "b", started=1000.0),))
    found = Hold(grace_s=60.0).decide(view(running(), early, arrays=True, now=1060.0))
    assert [item.allocation for item in found if isinstance(item, Cancel)] == ["y"]


def test_hold_and_auto_explain_themselves() -> None:
    lost = stage("b", "a", attempts=1, displaced=1)
    assert Hold().explain(view(running(), lost, arrays=True)) == (
        "places in the queue (limits) are held by the technique 'array'; lost by b"
    )
    said = Auto().explain(view(running(), lost))
    assert said.startswith("no place can be held in this queue (limits): up to 3 requests a stage")


def test_options() -> None:
    auto = STRATEGIES.create("auto:technique=parked,outstanding=2,estimator=median,window=5")
    assert (auto.technique, auto.estimator) == ("parked", "median:window=5")
    assert isinstance(auto.otherwise, Staggered) and auto.otherwise.outstanding == 2
    for lead_s in (-1.0, 301.0):
        with pytest.raises(InvalidInput, match="at most the grace expected"):
            Hold(lead_s=lead_s)
