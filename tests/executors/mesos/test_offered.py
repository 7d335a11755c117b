from __future__ import annotations

import pytest

from executors.mesos.framework import CAPACITY, parse_offer
from executors.mesos.messages import identity
from executors.mesos.resources import scalars, to_json


@pytest.mark.parametrize(("text", "cores"), [("2.5", 2.5), ("many", None), ("-1", None), ("inf", None), ("nan", None)])
def test_the_capacity_of_an_agent(text: str, cores: float | None) -> None:
    found = parse_offer(
        {
            "id": identity("o"),
            "agent_id": identity("a"),
            "hostname": "n1",
            "allocation_info": {"role": "asa"},
            "resources": to_json(scalars(cpus=2), "asa"),
            "attributes": [
                {"name": CAPACITY, "type": "TEXT", "text": {"value": text}},
                {"name": "racks", "type": "SET", "set": {"item": ["a"]}},
            ],
        },
        0.0,
    )
    assert found.capacity == cores
    assert found.attributes["racks"] == ""  # of types that say nothing to us
