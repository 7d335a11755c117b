from __future__ import annotations

import pytest

from tests.strategies.views import allocation, stage, view


def test_stages_go_by_their_names() -> None:
    stages = view(stage("a"), stage("b", "a"))
    assert stages["b"].spec.predecessors == ("a",)
    with pytest.raises(KeyError, match="c"):
        stages["c"]


def test_an_allocation_of_two_stages_is_one() -> None:
    both, later = allocation("x", "a", "b", submitted=5.0), allocation("y", "b", submitted=9.0)
    stages = view(stage("a", allocations=(both,)), stage("b", "a", allocations=(later, both)))
    assert stages.allocations == (both, later)
