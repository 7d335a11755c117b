from __future__ import annotations

import math

import pytest

from asa.core.decision import Ask, Predict, Wake, Withdraw
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import QueueRegime, Resources
from asa.core.registry import STRATEGIES
from asa.core.stage import StageState
from asa.core.view import StageView
from asa.strategies.proactive import RETREATS, Cascade, Naive, Proactive
from tests.strategies.views import allocation, stage, view

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


def test_it_does_not_wake_again_and_again_for_fractions_of_a_second() -> None:
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


def test_it_looks_one_stage_ahead() -> None:
    stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0), stage("c", "b", predicted_wait_s=9000.0))
    assert [item.stages for item in Proactive(dependency="predicted").decide(stages) if isinstance(item, Ask)] == [
        ("b",)
    ]


def test_without_lookahead_it_is_per_stage() -> None:
    ready = stage("c", state=StageState.READY, predicted_wait_s=5.0)
    stages = view(running("a"), stage("b", "a", predicted_wait_s=9000.0), ready)
    assert Proactive(dependency="predicted", lookahead=0).decide(stages) == [Ask(("c",), ONE, 600.0, (), 5.0)]


def test_it_waits_for_the_later_of_two_predecessors() -> None:
    stages = view(
        running("a", key="x", expected_end=1100.0),
        running("b", key="y", expected_end=1800.0),
        stage("c", "a", "b", predicted_wait_s=100.0),
    )
    assert Proactive(dependency="predicted").decide(stages) == [Wake(1700.0)]
    late = view(*stages.stages, now=1700.0)
    assert Proactive(dependency="predicted").decide(late) == [Ask(("c",), ONE, 600.0, ("x", "y"), 100.0)]


def test_it_waits_until_the_batch_system_has_the_job_that_it_is_to_depend_on() -> None:
    before = stage("a", state=StageState.RUNNING, allocations=(allocation("x", "a", queued=False),), unlaunched=False)
    stages = view(before, stage("b", "a", predicted_wait_s=9000.0))
    assert Proactive(dependency="predicted").decide(stages) == []


def test_it_depends_on_no_job_that_is_over_or_that_jobs_cannot_wait_for() -> None:
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


def test_an_allocation_that_came_too_early_is_withdrawn_after_its_grace() -> None:
    assert early(1100.0) == [Wake(1300.0)]
    assert early(1300.0) == [Withdraw("y", "it came before its stage and idled for 300 s")]
    assert early(1300.0, busy=True) == []


def test_it_is_asked_for_again_but_not_for_ever() -> None:
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
