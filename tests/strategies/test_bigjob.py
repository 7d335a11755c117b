from __future__ import annotations

from asa.core.decision import Ask
from asa.core.job import Resources
from asa.core.stage import StageState
from asa.strategies.bigjob import BigJob
from tests.strategies.views import allocation, stage, view


def test_one_job_of_the_peak_size_and_the_sum_of_wall_times() -> None:
    """The paper's equation 1."""
    stages = view(stage("a", cores=4, walltime_s=100.0), stage("b", "a", cores=16, walltime_s=50.0), stage("c", "b"))
    assert BigJob().decide(stages) == [Ask(("a", "b", "c"), Resources(16), 750.0)]


def test_memory_and_gpus_are_the_largest_any_stage_needs() -> None:
    stages = view(stage("a", memory=10, gpus=1), stage("b", memory=30), stage("c", cores=2))
    (ask,) = BigJob().decide(stages)
    assert isinstance(ask, Ask)
    assert ask.resources == Resources(2, memory=30, gpus=1)


def test_every_node_of_the_peak_holds_the_largest_share_of_a_stage() -> None:
    """100 cores on four nodes and 28 on one do not fit on four nodes of 25."""
    (ask,) = BigJob().decide(view(stage("a", cores=100, nodes=4), stage("b", cores=28, nodes=1)))
    assert isinstance(ask, Ask)
    assert ask.resources == Resources(112, nodes=4)


def test_cores_divide_over_the_nodes_also_when_a_stage_leaves_the_nodes_open() -> None:
    (ask,) = BigJob().decide(view(stage("a", cores=3, nodes=3), stage("b", cores=10)))
    assert isinstance(ask, Ask)
    assert ask.resources == Resources(12, nodes=3)


def test_the_wall_time_is_what_the_site_allows() -> None:
    (ask,) = BigJob().decide(view(stage("a"), stage("b"), longest_s=700.0))
    assert isinstance(ask, Ask)
    assert ask.walltime_s == 700.0


def test_what_is_done_is_not_asked_for_again() -> None:
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
