"""What can be seen, and limited, from outside while a workflow runs through the agents of several allocations."""

from __future__ import annotations

from typing import Any

import pytest

from asa.core.event import NodeJoined, TaskDone
from tests.cluster.processes import wait_until
from tests.integration.shell import FLOWS, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

BURN = ("run", f"{FLOWS}:burn", "--quiet", "--backend", "slurm:poll_s=1", "--strategy", "per-stage")


def looked(shell: Shell, what: str) -> list[dict[str, Any]]:
    """What ``asa pool`` shows of the run's pool."""
    outcome = shell.beside("pool", what, "--run", shell.run)
    assert outcome.code == 0, outcome.err
    rows: list[dict[str, Any]] = outcome.data["rows"]
    return rows


def test_two_allocations_are_one_pool_in_which_quotas_bite(shell: Shell) -> None:
    with shell.started(*BURN) as run:
        joined = shell.await_events(NodeJoined, 2)
        assert len({event.allocation for event in joined}) == 2
        assert {row["allocation"] for row in looked(shell, "nodes")} == {event.allocation for event in joined}
        held = looked(shell, "containers")[0]
        limit = ("pool", "limit", held["agent"], held["container"], 0.2, "--run", shell.run, "--lease")
        limited = shell.beside(*limit, 60)
        assert limited.code == 0, limited.err

        def bites() -> bool:
            (now,) = (row for row in looked(shell, "containers") if row["container"] == held["container"])
            return bool(now["limit_cores"] == pytest.approx(0.2) and now["throttled"] > held["throttled"])

        assert wait_until(bites, 60)
        lifted = shell.beside(*limit, 0)
        assert lifted.code == 0, lifted.err
        outcome = shell.ended(run, 200)
    assert outcome.code == 0, outcome.err
    assert len({event.allocation for event in shell.events(TaskDone)}) >= 2
