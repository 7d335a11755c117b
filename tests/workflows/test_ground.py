from __future__ import annotations

import pytest

from asa.core.job import Capabilities, QueueRegime
from asa.workflows import ground


@pytest.mark.parametrize(
    ("regime", "installed", "pool", "expected"),
    [
        (QueueRegime.IMMEDIATE, True, None, "local"),
        (QueueRegime.IMMEDIATE, False, None, "local"),
        (QueueRegime.IMMEDIATE, True, "ours", "mesos:tasks=dask"),
        (QueueRegime.IMMEDIATE, False, "ours", "mesos"),
        (QueueRegime.FIFO, True, None, "mesos:tasks=dask"),
        (QueueRegime.LIMITS, True, None, "mesos:tasks=dask"),
        (QueueRegime.FIFO, False, None, "mesos"),
        (QueueRegime.FIFO, False, "ours", "mesos"),
    ],
)
def test_agents_where_there_is_a_queue_or_a_pool_with_dask_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, regime: QueueRegime, installed: bool, pool: str | None, expected: str
) -> None:
    monkeypatch.setattr(ground, "find_spec", lambda name: object() if installed and name == "distributed" else None)
    assert ground.default_executor(Capabilities(site="s", regime=regime), pool) == expected
