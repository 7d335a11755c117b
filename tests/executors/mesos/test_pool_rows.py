from __future__ import annotations

import pytest

from executors.mesos import pool_rows
from executors.mesos.codec import Message
from executors.mesos.resources import scalars, to_json


class Operator:
    """A master with one agent."""

    def __init__(self, **agent: object) -> None:
        own = {"agent_info": {"id": {"value": "S1"}, "hostname": "n1"}, "total_resources": to_json(scalars(cpus=2))}
        self._agent = own | agent

    def get_agents(self) -> list[Message]:
        return [self._agent]

    def ends(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("agent", "state"),
    [
        ({"active": True}, "active"),
        ({"active": False}, "disconnected"),
        ({"active": False, "deactivated": True}, "deactivated"),
        ({"deactivated": True, "drain_info": {"state": "DRAINING"}}, "draining"),
    ],
)
def test_how_a_node_stands(agent: Message, state: str) -> None:
    [row] = pool_rows.nodes(Operator(**agent))  # type: ignore[arg-type]
    assert (row["node"], row["agent"], row["cores"], row["state"]) == ("n1", "S1", 2.0, state)
    assert row["ends_in_s"] is None
