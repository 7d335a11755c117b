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
    assert dict(start_order.documented(DOCUMENT.read_text())) == start_order.EXPECTED


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
