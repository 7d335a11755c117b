from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from asa.core.allocation import Allocation
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.core.task import Task
from executors.hub import node_resources, task_order


@given(
    nodes=st.integers(1, 7), cores=st.integers(1, 4), memory=st.none() | st.integers(1, 10**12), gpus=st.integers(0, 9)
)
def test_a_task_of_all_an_allocation_has_fits_its_nodes(nodes: int, cores: int, memory: int | None, gpus: int) -> None:
    all_of_it = Resources(nodes * cores, nodes, memory, gpus)
    context = RunContext("r", Path("/state/r"), "/work", ())
    node = node_resources(Allocation("key", all_of_it, 60.0), context)
    asked = task_order(Task("s", 0, "", b"", (), all_of_it), 0, spanning=True)
    assert (asked.cores, asked.memory, asked.gpus) == (node["cores"], node.get("memory", 0), node.get("gpus", 0))
    alone = task_order(Task("s", 0, "", b"", (), all_of_it), 0, spanning=False)
    assert (alone.cores, alone.memory, alone.gpus) == (nodes * cores, memory or 0, gpus)
