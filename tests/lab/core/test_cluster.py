from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster

BOTH = {"capacity": [[4, 8], [2, 8]], "resources": ("cores", "memory")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"capacity": [4, 8]},
            r"one row per node and one column for each of \('cores', 'memory'\), not the shape \(2,\)",
        ),
        ({"capacity": [[4], [2]]}, r"one column for each of \('cores', 'memory'\), not the shape \(2, 1\)"),
        ({"capacity": np.zeros((0, 2))}, r"not the shape \(0, 2\)"),
        ({"resources": ("memory", "cores")}, r"'cores' first, not \('memory', 'cores'\)"),
        ({"resources": ("cores", "cores")}, r"distinct names, .* not \('cores', 'cores'\)"),
        ({"capacity": [[4, 8], [2, -1]]}, "node 1 has a negative amount: expected >= 0"),
        ({"partitions": {"long": (0, 2)}}, "partition 'long' must name nodes between 0 and 1"),
        ({"partitions": {"long": (-1,)}}, "partition 'long' must name nodes between 0 and 1"),
        ({"partitions": {"none": ()}}, "partition 'none' must name nodes between 0 and 1"),
        ({"shareable": frozenset({"cores", "gpus"})}, "'gpus' cannot be shareable.*expected some of cores, memory"),
        ({"names": ("a",)}, "1 names for 2 nodes: give one for each, or none"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    Cluster(**BOTH)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        Cluster(**{**BOTH, **changes})


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"cores": 0}, {"memory": -1}, {"gpus": -1}])
def test_so_are_such_nodes(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidInput, match=f"a cluster of {value} {name}: expected at least {value + 1}"):
        Cluster.of(**{"nodes": 1, **wrong})


def test_the_machine_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Cluster.of(nodes=2).capacity[0] = 7
