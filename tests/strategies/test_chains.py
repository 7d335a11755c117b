from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from asa.core.view import StageView
from asa.strategies.chains import chains
from tests.strategies.views import stage


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
