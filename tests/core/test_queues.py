"""Which of several queues a job goes to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import Capabilities, JobRequest, Options, Resources, alternatives
from asa.core.queues import EQUAL_S, EQUAL_SHARE, QueueProspect, QueueTerms, choose, expect, misfit

NAMES = ("core", "long", "low", "gpu")


def queue(name: str) -> Options:
    return (("partition", name),)


@st.composite
def prospects(draw: st.DrawFn) -> list[QueueProspect]:
    return [
        QueueProspect(
            queue(name),
            misfit=draw(st.sampled_from(["", "", "it is too large"])),
            wait_s=draw(st.none() | st.floats(0, 1e6)),
            cores=draw(st.integers(1, 1000)),
            price=draw(st.floats(0, 10)),
            preempted=draw(st.just(0.0) | st.floats(0, 20)),
        )
        for name in NAMES[: draw(st.integers(1, 4))]
    ]


works = st.tuples(st.floats(1, 1e5), st.floats(0.001, 1)).map(lambda pair: (pair[0], pair[0] * pair[1]))
patiences = st.none() | st.floats(0.01, 1e4)


@given(prospects(), works, patiences)
def test_no_job_goes_to_a_queue_whose_limits_it_breaks(
    found: list[QueueProspect], work: tuple[float, float], patience: float | None
) -> None:
    choice = choose(found, *work, patience)
    assert sorted(choice.ranked) == sorted(each.options for each in found if not each.misfit)
    for each in found:
        assert (f"{each.name} is left out: {each.misfit}" in choice.why) == bool(each.misfit)


@given(prospects(), works, patiences, st.floats(0, 10), st.integers(0, 3))
def test_a_higher_price_never_makes_a_queue_the_best(
    found: list[QueueProspect], work: tuple[float, float], patience: float | None, more: float, at: int
) -> None:
    at %= len(found)
    dearer = [each._replace(price=each.price + more) if k == at else each for k, each in enumerate(found)]
    before, after = choose(found, *work, patience).ranked, choose(dearer, *work, patience).ranked
    if after and after[0] == found[at].options:
        assert before[0] == after[0]


@given(prospects(), works, st.floats(0, 1e6), st.integers(0, 3))
def test_a_longer_wait_never_makes_a_queue_end_sooner(
    found: list[QueueProspect], work: tuple[float, float], more: float, at: int
) -> None:
    each = found[at % len(found)]
    wait_s = each.wait_s or 0.0
    assert expect(each, wait_s + more, *work).end_s >= expect(each, wait_s, *work).end_s
    rougher = each._replace(preempted=each.preempted + 1.0)
    assert expect(rougher, wait_s, *work).end_s >= expect(each, wait_s, *work).end_s


@given(prospects(), works)
def test_without_a_patience_the_best_ends_about_as_soon_as_any(
    found: list[QueueProspect], work: tuple[float, float]
) -> None:
    found = [each._replace(wait_s=each.wait_s or 0.0, misfit="") for each in found]
    ends = {each.options: expect(each, each.wait_s or 0.0, *work).end_s for each in found}
    best, least = ends[choose(found, *work).ranked[0]], min(ends.values())
    assert best <= least + max(EQUAL_S, EQUAL_SHARE * least)


@given(prospects(), works, st.floats(0.01, 1e4))
def test_with_a_patience_the_best_costs_least(
    found: list[QueueProspect], work: tuple[float, float], patience: float
) -> None:
    found = [each._replace(wait_s=each.wait_s or 0.0, misfit="") for each in found]
    costs = {}
    for each in found:
        end_s, cost = expect(each, each.wait_s or 0.0, *work)
        costs[each.options] = patience * end_s / 3600 + cost
    assert costs[choose(found, *work, patience).ranked[0]] == min(costs.values())


def test_the_first_of_equal_queues_is_taken_and_all_are_named() -> None:
    found = [QueueProspect(queue(name)) for name in NAMES]
    choice = choose(found, 60.0, 60.0)
    assert choice.ranked[0] == queue("core")
    assert choice.why.startswith("queue core: an unknown wait") and all(name in choice.why for name in NAMES)


def test_an_unknown_wait_counts_as_the_shortest_known_one() -> None:
    known, other = QueueProspect(queue("core"), wait_s=3600.0), QueueProspect(queue("low"), price=0.5)
    assert choose([known, other], 60.0, 60.0).ranked[0] == queue("low")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, "cheap", True, None])
@pytest.mark.parametrize("what", ["price", "preempted"])
def test_numbers_that_are_none_are_refused_by_name(what: str, bad: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"{what}\['low'\]=.*finite number"):
        QueueTerms(**{what: {"core": 1.0, "low": bad}})
    with pytest.raises(InvalidInput, match="numbers by queue expected"):
        QueueTerms(**{what: 1.0})


def test_a_name_that_no_stage_asks_for_is_refused_with_those_that_there_are() -> None:
    terms = QueueTerms(price={"cores": 1.0})
    with pytest.raises(InvalidInput, match=r"'cores'.*core, low"):
        terms.check([queue("core"), queue("low")])
    both = (("partition", "core"), ("qos", "high"))
    QueueTerms(price={"core+high": 2.0, "core": 1.5}).check([both])
    assert QueueTerms(price={"core+high": 2.0, "core": 1.5}).price_in(both) == 2.0
    assert QueueTerms(price={"core": 1.5}).price_in(both) == 1.5 and QueueTerms().price_in(both) == 1.0


def test_how_often_jobs_are_preempted_is_learned_or_said() -> None:
    terms = QueueTerms()
    assert terms.preempted_in(queue("core"), False, 0, 1000.0) == 0.0
    unknown = terms.preempted_in(queue("low"), True, 0, 0.0)
    assert 0 < terms.preempted_in(queue("low"), True, 0, 100.0) < unknown
    assert terms.preempted_in(queue("low"), True, 100, 100.0) == pytest.approx(1.0, rel=0.05)
    assert QueueTerms(preempted={"low": 0.0}).preempted_in(queue("low"), True, 9, 1.0) == 0.0


def test_options_with_several_values_go_in_step() -> None:
    found = alternatives((("account", "bio"), ("partition", "core|gpu"), ("qos", "normal|low")))
    assert [dict(each) for each in found] == [
        {"account": "bio", "partition": "core", "qos": "normal"},
        {"account": "bio", "partition": "gpu", "qos": "low"},
    ]
    assert alternatives((("constraint", "a|b"),)) == ((("constraint", "a|b"),),), "Slurm's own"
    assert alternatives((("partition", "a|b|a"),)) == ((("partition", "a"),), (("partition", "b"),)), "each once"
    for wrong in ((("partition", "a|b"), ("qos", "x|y|z")), (("partition", "a||b"),)):
        with pytest.raises(InvalidInput):
            alternatives(wrong)


def test_a_site_for_several_queues_has_what_one_of_them_has() -> None:
    sizes = {
        "core": Capabilities("s", largest=Resources(64), cores_per_node=16, longest_s=3600.0),
        "long": Capabilities("s", largest=Resources(32, gpus=2), cores_per_node=8, longest_s=7200.0),
    }
    site = Capabilities("s", apart=lambda options: sizes[dict(options)["partition"]])
    found = site.for_jobs((("partition", "core|long"),))
    assert (found.cores_per_node, found.longest_s, found.largest) == (8, 7200.0, Resources(64, gpus=2))
    request = JobRequest("a", Resources(48), 5400.0, ())
    assert [bool(misfit(request, site, "queue", spreads=True)) for site in sizes.values()] == [True, True]
    assert not misfit(replace(request, walltime_s=60.0), sizes["core"], "queue", spreads=True)
