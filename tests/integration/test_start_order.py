"""Who keeps a place in the queue, on real clusters of each regime: a Slurm that behaves otherwise is noticed here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import host, layout
from tests.cluster.cluster import running
from tests.cluster.config import Regime
from tests.integration import start_order

DOCUMENT = Path(__file__).parents[2] / "docs" / "queue-age.md"
REPEATS = 2


def test_the_document_says_what_is_tested() -> None:
    orders = {name: tuple(found.values()) for name, found in start_order.ORDERS.items()}
    assert dict(start_order.documented(DOCUMENT.read_text())) == start_order.EXPECTED | orders


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("regime", start_order.REGIMES)
def test_start_order(regime: Regime) -> None:
    database = regime != "fifo"  # without accounting all ages count the same
    if (reason := host.obstacle(database=database)) is not None:
        pytest.skip(reason)
    names = list(start_order.EXPECTED) * REPEATS
    config = host.configure(
        None,  # every directory above has to let the users pass, which pytest's own do not
        nodes=len(names), cores_per_node=1, regime=regime, database=database, lanes=True,
        users=(start_order.OTHERS, start_order.OWN),
    )  # fmt: skip
    try:
        with running(config) as cluster:
            found = start_order.run(cluster, start_order.lanes(cluster, names))
    finally:
        layout.remove(config)
    at = start_order.REGIMES.index(regime)
    told = [f"{name}: {outcome}" for name, outcome in zip(names, found, strict=True)]
    print("", regime, *told, sep="\n")
    assert told == [f"{name}: {start_order.EXPECTED[name][at]}" for name in names]


@pytest.mark.slurm
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize("weights", start_order.WEIGHTS)
def test_elements_of_unlike_sizes(weights: str) -> None:
    if (reason := host.obstacle(database=True)) is not None:
        pytest.skip(reason)
    config = host.configure(
        None, nodes=len(start_order.SIZES), cores_per_node=4, regime="limits", database=True, lanes=True,
        users=(start_order.OTHERS, start_order.OWN), settings=tuple(start_order.WEIGHTS[weights].items()),
    )  # fmt: skip
    try:
        with running(config) as cluster:
            if "PriorityWeightPartition" in weights:
                cluster.run("scontrol", "update", "PartitionName=main", "PriorityJobFactor=1000")
            found = start_order.elements(cluster)
    finally:
        layout.remove(config)
    print("", weights, found, sep="\n")
    assert found == start_order.ORDERS[weights]
