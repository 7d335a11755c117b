from __future__ import annotations

import pytest

from asa.core.job import Capabilities, QueueRegime
from asa.workflows.assemble import default_executor


@pytest.mark.parametrize(
    ("regime", "pool", "expected"),
    [
        (QueueRegime.IMMEDIATE, None, "local"),
        (QueueRegime.IMMEDIATE, "ours", "mesos"),
        (QueueRegime.FIFO, None, "mesos"),
        (QueueRegime.LIMITS, None, "mesos"),
        (QueueRegime.FIFO, "ours", "mesos"),
    ],
)
def test_agents_where_there_is_a_queue_or_a_pool_whatever_is_installed(
    regime: QueueRegime, pool: str | None, expected: str
) -> None:
    assert default_executor(Capabilities(site="s", regime=regime), pool) == expected
