"""Strategies: a view in, decisions out."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import Ask, Cancel, Predict, Wake
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.stage import StageState
from asa.core.view import StageView, WorkflowView
from asa.strategies.ahead import arrival, ask_after, holders, outlook, queued, retreat
from asa.strategies.asking import ask_for, lacks_allocation
from asa.strategies.bigjob import BigJob
from asa.strategies.budget import check_patience, lead_quantile, within_budget
from asa.strategies.perstage import PerStage
from asa.strategies.proactive import RETREATS, Cascade, Naive, Proactive
from asa.strategies.staggered import TRIES, Staggered
from tests.strategies.views import allocation, stage, view

# Big Job and Per-Stage.


@pytest.mark.parametrize(
    ("stages", "size", "walltime_s"),
    [
        # the paper's equation 1: the peak size, the sum of wall times
        (
            view(stage("a", cores=4, walltime_s=100.0), stage("b", "a", cores=16, walltime_s=50.0), stage("c", "b")),
            Resources(16),
            750.0,
        ),
        # the most memory and GPUs that any stage needs
        (view(stage("a", memory=10, gpus=1), stage("b", memory=30)), Resources(1, memory=30, gpus=1), 1200.0),
        # every node holds the largest share of a stage: 100 cores on 4 nodes and 28 on one do not fit on 4 nodes of 25
        (view(stage("a", cores=100, nodes=4), stage("b", cores=28, nodes=1)), Resources(112, nodes=4), 1200.0),
        # so it does of memory and GPUs: a task of 100 bytes does not fit on a node of 25
        (
            view(stage("a", cores=4, nodes=1, memory=100, gpus=2), stage("b", cores=16, nodes=4, memory=80)),
            Resources(16, nodes=4, memory=400, gpus=8),
            1200.0,
        ),
        # cores divide over the nodes also when a stage leaves the nodes open
        (view(stage("a", cores=3, nodes=3), stage("b", cores=10)), Resources(12, nodes=3), 1200.0),
        # one that states no memory beside others that do needs what goes with its cores on the machine
        (
            view(stage("a", memory=30), stage("b", cores=4), largest=Resources(8, memory=1000)),
            Resources(4, memory=500),
            1200.0,
        ),
        (view(stage("a"), stage("b", cores=4), largest=Resources(8, memory=1000)), Resources(4), 1200.0),
        # the wall time is what the site allows
        (view(stage("a"), stage("b"), longest_s=700.0), Resources(1), 700.0),
    ],
)
def test_size_and_wall_time_of_the_big_job(stages: WorkflowView, size: Resources, walltime_s: float) -> None:
    assert BigJob().decide(stages) == [Ask(tuple(item.spec.name for item in stages.stages), size, walltime_s)]


@pytest.mark.parametrize(
    ("stages", "size"),
    [
        ([stage("a"), stage("b", cores=2), stage("c", "a", "b")], Resources(3)),
        ([stage("a"), *(stage(f"b{number}", "a") for number in range(99))], Resources(8)),
        ([stage("a", memory=3), stage("b", cores=2, memory=4), stage("c", memory=4)], Resources(4, memory=10)),
        ([stage("a", memory=3), stage("b", cores=4)], Resources(5, memory=8)),  # half of the cores go with half of it
        ([stage("a", gpus=1), stage("b", gpus=1), stage("c", gpus=1)], Resources(3, gpus=2)),
        ([stage("a"), stage("b", "a"), stage("c", "b")], Resources(1)),
        ([stage("a", cores=2, nodes=2), stage("b")], Resources(2, nodes=2)),
    ],
)
def test_without_a_queue_the_big_job_holds_what_may_run_side_by_side(stages: list[Any], size: Resources) -> None:
    machine = {"regime": QueueRegime.IMMEDIATE, "largest": Resources(8, memory=10, gpus=2), "cores_per_node": 8}
    (ask,) = BigJob().decide(view(*stages, **machine))
    assert isinstance(ask, Ask) and ask.resources == size
    adding = replace(stages[0], spec=replace(stages[0].spec, expands=True))
    (ask,) = BigJob().decide(view(adding, **machine))
    assert isinstance(ask, Ask) and (adding.spec.resources.nodes or ask.resources.cores == 8), "who knows what it adds"


def test_a_big_job_for_each_partition() -> None:
    gpu = (("partition", "gpu"),)
    stages = view(stage("a", cores=4), stage("b", "a", options=gpu), stage("c", "b", cores=8))
    asked = [Ask(("a", "c"), Resources(8), 1200.0), Ask(("b",), Resources(1, options=gpu), 600.0)]
    assert BigJob().decide(stages) == asked
    held = stage("b", "a", options=gpu, allocations=(allocation("x", "b"),))
    assert BigJob().decide(view(stage("a", cores=4), held, stage("c", "b", cores=8))) == asked[:1]


def test_a_done_stage_is_not_asked_for_again() -> None:
    stages = view(
        stage("a", state=StageState.DONE, cores=64, unlaunched=False),
        stage("b", "a", state=StageState.READY, allocations=(allocation("x", "a", "b", leaving=True),)),
    )
    assert BigJob().decide(stages) == [Ask(("b",), Resources(1), 600.0)]


def test_nothing_is_asked_while_there_is_an_allocation_or_nothing_is_left() -> None:
    held = (allocation("x", "a"),)
    assert BigJob().decide(view(stage("a", state=StageState.RUNNING, allocations=held))) == []
    last = stage("a", state=StageState.RUNNING, unlaunched=False, allocations=(allocation("x", "a", leaving=True),))
    assert BigJob().decide(view(last)) == []
    assert BigJob().decide(view(stage("a", state=StageState.DONE, unlaunched=False))) == []


def test_a_job_for_each_stage_that_may_start() -> None:
    """The paper's equation 2: exactly the size that the stage declares."""
    stages = view(
        stage("a", state=StageState.DONE, unlaunched=False),
        stage("b", "a", state=StageState.READY, cores=8, walltime_s=50.0),
        stage("c", "a", state=StageState.RUNNING, allocations=(allocation("x", "c", leaving=True),)),
        stage("d", "b"),
    )
    assert PerStage().decide(stages) == [
        Ask(("b",), Resources(8), 50.0),
        Ask(("c",), Resources(1), 600.0),
    ]


# What is asked, and when it is expected.


@pytest.mark.parametrize(
    ("lacks", "found"),
    [
        (True, stage("a", state=StageState.READY)),
        (True, stage("a", state=StageState.READY, allocations=(allocation("x", "a", leaving=True),))),
        (False, stage("a", state=StageState.READY, allocations=(allocation("x", "a", queued=False),))),
        (False, stage("a", state=StageState.RUNNING, unlaunched=False)),
        (False, stage("a", state=StageState.FAILED)),
    ],
)
def test_which_stages_lack_an_allocation(lacks: bool, found: object) -> None:
    assert lacks_allocation(found) is lacks


def test_a_prediction_goes_with_the_job_it_was_made_for() -> None:
    assert ask_for(stage("a", predicted_wait_s=7.0), after=("x",)) == Ask(("a",), Resources(1), 600.0, ("x",), 7.0)


def test_a_chain_is_expected_to_run_one_after_the_other() -> None:
    running = stage("a", state=StageState.RUNNING, expected_end=1500.0)
    found = outlook(view(running, stage("b", "a", walltime_s=100.0), stage("c", "b", walltime_s=50.0)))
    assert found["a"] == (1000.0, 1500.0, 0.0, "")
    assert found["b"] == (1500.0, 1600.0, 1.0, "a")
    assert found["c"] == (1600.0, 1650.0, 2.0, "b")


def test_a_stage_begins_when_its_allocation_is_there() -> None:
    waits = allocation("y", "b", submitted=900.0, predicted_wait_s=700.0)
    stages = view(stage("a", state=StageState.DONE), stage("b", "a", walltime_s=100.0, allocations=(waits,)))
    assert outlook(stages)["b"].end == 900.0 + 700.0 + 100.0
    assert arrival(allocation("y", "b", submitted=0.0, predicted_wait_s=7.0), 1000.0) == 1000.0, "not in the past"
    assert arrival(allocation("y", "b", started=3.0, predicted_wait_s=7.0), 1000.0) == 3.0


def test_an_arrival_not_asked_for_is_a_predicted_wait_from_now() -> None:
    stages = view(stage("a", state=StageState.READY, predicted_wait_s=700.0, walltime_s=100.0), stage("b", "a"))
    assert outlook(stages)["a"].end == 1000.0 + 700.0 + 100.0


def test_an_arrival_is_expected_at_the_soonest_wait() -> None:
    item = allocation("y", "b", submitted=900.0, predicted_wait_s=700.0, soon_wait_s=200.0)
    assert arrival(item, 1000.0) == 1100.0


def test_an_idle_allocation_is_cancelled_after_its_grace() -> None:
    early = stage("b", "a", allocations=(allocation("y", "b", started=1000.0),))
    assert retreat(early, 1100.0, 300.0) == [Wake(1300.0)]
    assert retreat(early, 1300.0, 300.0) == [Cancel("y", "it came before its stage and idled for 300 s")]
    assert retreat(early, 1e9, math.inf) == []
    busy = stage("b", "a", allocations=(allocation("y", "b", started=1000.0, busy=True),))
    assert retreat(busy, 1e9, 300.0) == []


def test_a_job_waits_for_those_in_the_queue_that_are_not_done() -> None:
    a = stage("a", allocations=(allocation("x", "a"), allocation("w", "a", leaving=True)))
    b = stage("b", state=StageState.DONE, allocations=(allocation("y", "b"),))
    assert holders([a, b]) == ("x",)
    assert queued(a) and not queued(stage("c", allocations=(allocation("z", "c", queued=False),)))
    c = stage("c", "a", "b")
    assert ask_after(view(a, b, c), {"c"}) == [Ask(("c",), Resources(1), 600.0, ("x",))]
    assert ask_after(view(stage("a"), b, c), {"c"}) == [], "a has no job yet"


# ASA.


ONE = Resources(1)


def running(name: str, *after: str, expected_end: float = 1500.0, key: str = "x") -> StageView:
    return stage(
        name,
        *after,
        state=StageState.RUNNING,
        unlaunched=False,
        started=900.0,
        expected_end=expected_end,
        allocations=(allocation(key, name, started=900.0, busy=True),),
    )


# ------------------------------------------------------------------------------------------------ predicted


def test_a_prediction_is_asked_first() -> None:
    assert Proactive(dependency="predicted").decide(view(running("a"), stage("b", "a"))) == [Predict("b")]


def test_the_job_goes_in_at_the_expected_end_less_the_predicted_wait() -> None:
    early, due = (view(running("a"), stage("b", "a", predicted_wait_s=200.0), now=now) for now in (1299.0, 1300.0))
    strategy = Proactive(dependency="predicted")
    assert strategy.decide(early) == [Wake(1300.0)]
    assert strategy.decide(due) == [Ask(("b",), ONE, 600.0, ("x",), 200.0)]


def test_wake_ups_are_at_least_a_second_apart() -> None:
    """An expected end may move on with the time; chasing it must not keep the driver busy."""
    stages = view(running("a", expected_end=1200.0001), stage("b", "a", predicted_wait_s=200.0))
    assert Proactive(dependency="predicted").decide(stages) == [Wake(1001.0)]


def test_a_wait_longer_than_what_is_left_asks_at_once() -> None:
    stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0))
    assert [type(item) for item in Proactive(dependency="predicted").decide(stages)] == [Ask]


def test_a_budget_keeps_jobs_from_coming_early() -> None:
    """Its worst case is 100 s of idling: a twelfth of 1200 core-seconds."""
    stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0))
    free, bound = (
        Proactive(dependency="none", grace_s=100.0, max_overhead=most).decide(stages) for most in ("9%", "8%")
    )
    assert [type(item) for item in free] == [Ask]
    assert not any(isinstance(item, Ask) for item in bound)


def test_lookahead_is_one_stage() -> None:
    stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0), stage("c", "b", predicted_wait_s=9000.0))
    assert [item.stages for item in Proactive(dependency="predicted").decide(stages) if isinstance(item, Ask)] == [
        ("b",)
    ]


def test_without_lookahead_it_is_per_stage() -> None:
    ready = stage("c", state=StageState.READY, predicted_wait_s=5.0)
    stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0), ready)
    assert Proactive(dependency="predicted", lookahead=0).decide(stages) == [Ask(("c",), ONE, 600.0, (), 5.0)]


def test_a_stage_is_asked_for_by_the_later_of_two_predecessors() -> None:
    stages = view(
        running("a", key="x", expected_end=1100.0),
        running("b", key="y", expected_end=1800.0),
        stage("c", "a", "b", predicted_wait_s=100.0),
    )
    assert Proactive(dependency="predicted").decide(stages) == [Wake(1700.0)]
    late = view(*stages.stages, now=1700.0)
    assert Proactive(dependency="predicted").decide(late) == [Ask(("c",), ONE, 600.0, ("x", "y"), 100.0)]


def test_a_dependent_job_waits_until_its_predecessor_is_submitted() -> None:
    before = stage("a", state=StageState.RUNNING, allocations=(allocation("x", "a", queued=False),), unlaunched=False)
    stages = view(before, stage("b", "a", predicted_wait_s=9000.0))
    assert Proactive(dependency="predicted").decide(stages) == []


def test_a_job_depends_on_no_job_that_is_over_or_that_jobs_cannot_wait_for() -> None:
    before = running("a")
    gone = (*before.allocations, allocation("y", "a", leaving=True), allocation("z", "a", queued=False))
    before = stage("a", state=StageState.RUNNING, allocations=gone, unlaunched=False, expected_end=1100.0)
    (ask,) = Proactive(dependency="predicted").decide(view(before, stage("b", "a", predicted_wait_s=9000.0)))
    assert isinstance(ask, Ask)
    assert ask.after == ("x",)


def test_a_stage_that_may_start_is_asked_for_whatever_was_predicted() -> None:
    ready = stage("b", "a", state=StageState.READY, predicted_wait_s=50.0)
    done = stage("a", state=StageState.DONE, unlaunched=False, allocations=(allocation("x", "a", started=1.0),))
    assert Proactive(dependency="predicted").decide(view(done, ready)) == [Ask(("b",), ONE, 600.0, (), 50.0)]


# -------------------------------------------------------------------------------------------------- upfront


def test_upfront_asks_for_a_stage_once_those_before_it_are_queued() -> None:
    strategy = Proactive(dependency="upfront")
    a, b, c = stage("a", state=StageState.READY), stage("b", "a"), stage("c", "a", "b")
    assert strategy.decide(view(a, b, c)) == [Ask(("a",), ONE, 600.0)]
    a = stage("a", state=StageState.READY, allocations=(allocation("x", "a"),))
    assert strategy.decide(view(a, b, c)) == [Ask(("b",), ONE, 600.0, ("x",))]
    b = stage("b", "a", allocations=(allocation("y", "b"),))
    assert strategy.decide(view(a, b, c)) == [Ask(("c",), ONE, 600.0, ("x", "y"))]
    c = stage("c", "a", "b", allocations=(allocation("z", "c"),))
    assert strategy.decide(view(a, b, c)) == []


@pytest.mark.parametrize("regime", list(QueueRegime))
def test_auto_is_upfront_where_dependent_jobs_keep_their_place(regime: QueueRegime) -> None:
    a = stage("a", state=StageState.READY, allocations=(allocation("x", "a"),))
    found = Proactive().decide(view(a, stage("b", "a", predicted_wait_s=9000.0), regime=regime))
    assert bool(found) is regime.dependents_age


def test_without_job_dependencies_at_the_site_there_are_none() -> None:
    for dependency in ("auto", "upfront", "predicted", "none"):
        stages = view(
            running("a"), stage("b", "a", predicted_wait_s=9000.0), dependencies=False, regime=QueueRegime.FIFO
        )
        assert Proactive(dependency=dependency).decide(stages) == [Ask(("b",), ONE, 600.0, (), 9000.0)]


# ---------------------------------------------------------------------------------------------------- naive


def early(now: float, *, busy: bool = False, attempts: int = 1) -> list[object]:
    held = (allocation("y", "b", started=1000.0, busy=busy),)
    stages = view(running("a", expected_end=5000.0), stage("b", "a", allocations=held, attempts=attempts), now=now)
    return list(Naive(grace_s=300.0).decide(stages))


def test_an_allocation_that_came_too_early_is_cancelled_after_its_grace() -> None:
    assert early(1100.0) == [Wake(1300.0)]
    assert early(1300.0) == [Cancel("y", "it came before its stage and idled for 300 s")]
    assert early(1300.0, busy=True) == []


def test_an_early_job_is_asked_for_again_a_few_times() -> None:
    def decide(attempts: int) -> list[object]:
        stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0, attempts=attempts))
        return list(Naive().decide(stages))

    assert decide(RETREATS - 1) == [Ask(("b",), ONE, 600.0, (), 9000.0)]
    assert decide(RETREATS) == []


def test_an_infinite_grace_keeps_it() -> None:
    held = (allocation("y", "b", started=1.0),)
    stages = view(running("a"), stage("b", "a", allocations=held, attempts=9))
    assert Proactive(dependency="none").decide(stages) == []


# -------------------------------------------------------------------------------------------------- cascade


def test_cascade_looks_ahead_over_all_stages() -> None:
    stages = view(
        running("a", expected_end=1500.0),
        stage("b", "a", predicted_wait_s=100.0, walltime_s=400.0),
        stage("c", "b", predicted_wait_s=800.0, walltime_s=400.0),
    )
    found = Cascade(dependency="none").decide(stages)
    assert found == [Wake(1400.0), Wake(1100.0)], "c would start at 1500 + 400"


def test_cascade_counts_the_start_of_an_allocation_that_is_held() -> None:
    held = (allocation("y", "b", started=950.0),)
    stages = view(
        running("a", expected_end=1500.0),
        stage("b", "a", walltime_s=400.0, allocations=held),
        stage("c", "b", predicted_wait_s=100.0),
    )
    assert Cascade(dependency="none").decide(stages) == [Wake(1800.0)]


# -------------------------------------------------------------------------------------------------- options


def test_options() -> None:
    assert STRATEGIES.create("asa").estimator == "fixed-share"
    assert STRATEGIES.create("asa:sampling=tuned").estimator == "algorithm1:sampling=tuned"
    assert STRATEGIES.create("asa:estimator=algorithm1,sampling=tuned").estimator == "algorithm1:sampling=tuned"
    naive = STRATEGIES.create("asa-naive")
    assert (naive.dependency, naive.grace_s, naive.own_pools) == ("none", 300.0, True)
    cascade = STRATEGIES.create("cascade:dependency=upfront")
    assert (cascade.dependency, cascade.lookahead, cascade.own_pools) == ("upfront", math.inf, False)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("asa:dependency=upfrnt", "unknown value of dependency 'upfrnt': did you mean 'upfront'?"),
        ("asa:sampling=tuned,gamam=1", "unknown option of strategy 'asa': 'gamam': did you mean 'gamma'?"),
        ("asa:estimator=fixedshare", "unknown estimator 'fixedshare': did you mean 'fixed-share'?"),
    ],
)
def test_an_option_that_does_not_exist_is_named(spec: str, said: str) -> None:
    with pytest.raises(UnknownName, match="unknown") as caught:
        STRATEGIES.create(spec)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("option", ["lookahead=-1", "grace_s=-0.5"])
def test_an_option_below_zero_is_refused(option: str) -> None:
    with pytest.raises(InvalidInput, match="lookahead and grace_s must not be negative"):
        STRATEGIES.create(f"asa:{option}")


# Budgets.


WIDE = Resources(100)


def afford(asks: list[object], stages: WorkflowView, grace_s: float, share: float) -> list[object]:
    return list(within_budget(asks, stages, lambda _cores: grace_s, share))


def two(**more: object) -> WorkflowView:
    """A stage of 1,000 s on 100 cores that runs, and another that waits for it: 200,000 core-seconds in all."""
    return view(
        stage("a", cores=100, walltime_s=1000.0, state=StageState.RUNNING, expected_end=1500.0),
        stage("b", "a", cores=100, walltime_s=1000.0, **more),
    )


def requested(after: tuple[str, ...] = (), array: str = "") -> Ask:
    return Ask(("b",), WIDE, 1000.0, after, array=array)


def test_an_early_request_is_sent_if_its_worst_case_is_within_the_budget() -> None:
    """300 s on 100 cores are 15 % of 200,000 core-seconds."""
    assert afford([requested(), Wake(5.0)], two(), 300.0, 0.15) == [requested(), Wake(5.0)]
    assert afford([requested(), Wake(5.0)], two(), 300.0, 0.149) == [Wake(5.0)]


def test_a_request_that_cannot_come_early_costs_nothing() -> None:
    asks = [requested(after=("x",)), requested(array="b+1"), Ask(("a",), WIDE, 1000.0)]
    assert afford(asks, two(), 300.0, 0.0) == asks


@pytest.mark.parametrize("there", [{"after": ("x",)}, {"array": "b+1"}, {"leaving": True}])
def test_an_allocation_that_cannot_come_early_costs_nothing(there: dict[str, object]) -> None:
    held = allocation("y", "b", cores=100, **there)
    assert afford([requested()], two(allocations=(held,)), 300.0, 0.15) == [requested()]


def test_requests_and_waiting_idling_or_lost_allocations_count() -> None:
    assert afford([requested(), requested()], two(), 300.0, 0.2) == [requested()]
    waits, idles = allocation("y", "b", cores=100), allocation("y", "b", cores=100, started=800.0)
    assert afford([requested()], two(allocations=(waits,)), 300.0, 0.29) == []
    assert afford([requested()], two(allocations=(waits,)), 300.0, 0.31) == [requested()]
    assert afford([requested()], two(allocations=(idles,)), 300.0, 0.19) == [], "it has 100 s left to idle"
    assert afford([requested()], two(allocations=(idles,)), 300.0, 0.21) == [requested()]
    lost = view(*two().stages, idle_core_s=lambda: 10_000.0)
    assert afford([requested()], lost, 300.0, 0.19) == []
    assert afford([requested()], lost, 300.0, 0.21) == [requested()]


def test_cores_count_as_they_are_charged() -> None:
    """Of two stages the narrow one is charged a whole node, too."""
    wide, narrow = stage("a", cores=100, state=StageState.RUNNING), stage("b", "a", cores=1)
    early = Ask(("b",), Resources(1), 600.0)
    site = Capabilities("here", cores_per_node=100, whole_nodes=True)
    assert afford([early], view(wide, narrow), 300.0, 0.24) == [early]
    assert afford([early], view(wide, narrow, charged=site.charged), 300.0, 0.24) == []
    assert afford([early], view(wide, narrow, charged=site.charged), 300.0, 0.26) == [early]


def test_the_poll_interval_counts_as_idle_time() -> None:
    slow = view(*two().stages, poll_s=15.0)
    assert afford([requested()], slow, 300.0, 0.15) == []
    assert afford([requested()], slow, 300.0, 0.16) == [requested()]


@given(st.floats(0.1, 1e4), st.integers(1, 5000), st.lists(st.floats(0, 1e5), min_size=1, max_size=30))
def test_the_quantile_of_any_waits_costs_least(patience: float, cores: int, waits: list[float]) -> None:
    """Brute force over all leads; and estimators pay the same price, in proportion."""
    tau = lead_quantile(patience, cores)

    def cost(lead: float) -> float:
        return sum(patience * max(wait - lead, 0.0) + cores * max(lead - wait, 0.0) for wait in waits)

    chosen = sorted(waits)[min(math.floor(tau * len(waits)), len(waits) - 1)]
    assert cost(chosen) <= min(map(cost, waits)) * (1 + 1e-9) + 1e-6
    priced = sum(max(tau * (wait - chosen), (1 - tau) * (chosen - wait)) for wait in waits) * (patience + cores)
    assert priced == pytest.approx(cost(chosen), abs=1e-3)


@given(patience=st.floats(0.1, 1e4), cores=st.integers(1, 10_000))
def test_the_quantile_makes_the_mean_cost_least(patience: float, cores: int) -> None:
    """Where waits are uniform on [0, 1] the cost of a lead q is known, and no other lead is cheaper."""

    def cost(lead: float) -> float:
        return cores * lead**2 / 2 + patience * (1 - lead) ** 2 / 2

    best = lead_quantile(patience, cores)
    assert all(cost(best) <= cost(other / 50) * (1 + 1e-9) for other in range(51))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_no_patience_is_below_zero(value: float) -> None:
    with pytest.raises(InvalidInput, match="core-hours that an hour of your time is worth"):
        check_patience(value)


# Staggered requests.


LARGE = Resources(100)


def first(expected_end: float = 5000.0) -> StageView:
    held = allocation("x", "a", started=900.0, busy=True)
    return stage("a", state=StageState.RUNNING, unlaunched=False, expected_end=expected_end, allocations=(held,))


def after_a(*allocations: object, **more: object) -> StageView:
    """A stage of 1,000 s on 100 cores, which asks for 2,000 s."""
    needs = {"cores": 100, "walltime_s": 2000.0, "run_time_s": 1000.0, "predicted_wait_s": 2500.0}
    return stage("b", "a", allocations=allocations, **(needs | more))


def decide(b: StageView, *, now: float = 1000.0, **options: object) -> list[object]:
    return list(Staggered(**options).decide(view(first(), b, now=now)))


def waiting(key: str, submitted: float) -> object:
    return allocation(key, "b", submitted=submitted, predicted_wait_s=2500.0, cores=100)


def test_the_first_request_is_to_come_when_the_stage_is_ready() -> None:
    assert decide(after_a(predicted_wait_s=None)) == [Predict("b")]
    assert decide(after_a()) == [Wake(2500.0)]
    assert decide(after_a(), now=2500.0) == [Ask(("b",), LARGE, 2000.0, (), 2500.0)]


def test_a_prediction_is_made_anew_when_it_is_old() -> None:
    assert decide(after_a(predicted_at=1000.0), now=1500.0) == [Wake(1600.0)]
    assert decide(after_a(predicted_at=1000.0), now=1600.0) == [Predict("b")]


def test_further_ones_are_to_come_later_up_to_as_many_as_may_be_outstanding() -> None:
    one = after_a(waiting("y", 2500.0))
    assert decide(one, now=3000.0, spacing_s=1800.0) == [Wake(4300.0)]
    assert decide(one, now=4300.0, spacing_s=1800.0) == [Ask(("b",), LARGE, 2000.0, (), 2500.0)]
    assert decide(one, now=4300.0, outstanding=1) == []


def test_a_stage_that_is_ready_waits_for_what_is_in_the_queue() -> None:
    ready = after_a(waiting("y", 2500.0), state=StageState.READY)
    assert decide(ready, now=9000.0) == []
    assert decide(after_a(state=StageState.READY), now=9000.0) == [Ask(("b",), LARGE, 2000.0, (), 2500.0)]


def test_an_allocation_much_too_early_is_cancelled_at_once() -> None:
    there = allocation("y", "b", started=1000.0, cores=100)
    (found,) = decide(after_a(there))
    assert isinstance(found, Cancel) and found.allocation == "y"


def test_an_allocation_a_little_early_is_kept_and_the_other_requests_are_cancelled() -> None:
    there = allocation("y", "b", started=4997.0, cores=100)
    found = decide(after_a(there, waiting("z", 4000.0)), now=4997.0, grace_s=5.0)
    assert found == [Wake(5002.0), Cancel("z", "its stage has an allocation already")]
    late = list(Staggered(grace_s=5.0).decide(view(first(5002.0), after_a(there), now=5002.0)))
    assert [type(item) for item in late] == [Cancel], "its grace is over"


def test_none_costs_more_than_a_hundredth_of_the_plan() -> None:
    """1,006 core-seconds, which 100 cores idle away in 10 s."""
    there = allocation("y", "b", started=4997.0, cores=100)
    assert decide(after_a(there), now=4997.0, grace_s=300.0) == [Wake(4997.0 + 10.06)]
    assert decide(after_a(there), now=4997.0, patience=1e4) == [Wake(4997.0 + 970.0)], (
        "as long as its wall time lets it"
    )


def test_with_patience_it_is_kept_while_another_wait_would_cost_more() -> None:
    """Three tenths of the wait that it was planned with, at 30 core-hours an hour for 100 cores."""
    there = allocation("y", "b", started=4997.0, cores=100, predicted_wait_s=50.0)
    assert decide(after_a(there), now=4997.0, patience=30.0) == [Wake(4997.0 + 15.0)]


def test_a_stage_that_runs_late_does_not_cost_the_allocation_that_waits_for_it() -> None:
    there = allocation("y", "b", started=4800.0, cores=100)
    found = Staggered(grace_s=5.0).decide(view(first(4800.0), after_a(there), now=4802.0))
    assert list(found) == [Wake(4805.0)]


def test_narrow_allocations_may_idle_longer() -> None:
    """As many core-seconds as the widest stage's, within their wall time."""
    narrow = stage("b", "a", walltime_s=20_000.0, run_time_s=100.0, allocations=(allocation("y", "b", started=1000.0),))
    wide = stage("c", "b", cores=100, predicted_wait_s=0.0)
    found = list(Staggered(grace_s=5.0).decide(view(first(1400.0), narrow, wide)))
    assert Wake(1500.0) in found and not any(isinstance(item, Cancel) for item in found)


def test_with_patience_wide_jobs_are_planned_to_come_late_and_narrow_ones_early() -> None:
    assert decide(after_a(predicted_wait_s=None), patience=100.0) == [Predict("b", 0.5)]
    narrow = stage("b", "a")
    assert decide(narrow, patience=99.0) == [Predict("b", 0.99)]


def test_a_request_beyond_the_budget_is_not_sent() -> None:
    """100 cores are noticed after 15 s: 1.5 % of the 100,600 core-seconds that the stages take, and there are two."""
    one = after_a(waiting("y", 2500.0))
    assert decide(one, now=4300.0, max_overhead="1%") != [], "each may idle for a quarter of the budget"
    slow = view(first(), one, now=4300.0, poll_s=60.0)
    assert list(Staggered(max_overhead=0.03).decide(slow)) == []
    assert list(Staggered(max_overhead="6%").decide(slow)) != []


def test_early_requests_end_after_some_attempts() -> None:
    assert decide(after_a(attempts=TRIES), now=4000.0) == []


def test_nothing_is_left_in_the_queue_for_a_stage_that_has_all_it_needs() -> None:
    busy = allocation("y", "b", started=6000.0, busy=True)
    b = after_a(busy, waiting("z", 4000.0), state=StageState.RUNNING, unlaunched=False)
    assert decide(b, now=6500.0) == [Cancel("z", "its stage has an allocation already")]


@pytest.mark.parametrize("strategy", ["stagger", "auto"])
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("outstanding=0", "outstanding=0: a whole number of at least 1 expected"),
        ("spacing_s=-1", "spacing_s=-1: a finite number of at least 0 expected"),
        ("grace_s=-1", "grace_s=-1: a time of at least 0 s expected"),
        ("late=3", "late=3: a quantile of the wait expected, above 0 and below 1"),
        ("soon=0", "soon=0: a quantile of the wait expected"),
        ("patience=-1", "patience is -1: core-hours that an hour of your time is worth expected"),
        ("estimator=3", "unknown estimator '3'"),
    ],
)
def test_options_out_of_bounds_are_refused(strategy: str, option: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(expected)):
        STRATEGIES.create(f"{strategy}:{option}")


@pytest.mark.parametrize("option", ["late=-1", "soon=1.5", "grace_s=nan", "lookahead=nan"])
def test_options_of_asa_out_of_bounds_are_refused(option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option}: a (quantile of the wait|finite number below)"):
        STRATEGIES.create(f"asa:{option}")


@pytest.mark.parametrize("option", ["patience", "late"])
def test_options_that_auto_passes_on_are_numbers(option: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{option}=much is no number"):
        STRATEGIES.create(f"auto:{option}=much")


def test_a_grace_without_end_is_one() -> None:
    assert STRATEGIES.create("auto:grace_s=inf").otherwise.grace_s == math.inf
