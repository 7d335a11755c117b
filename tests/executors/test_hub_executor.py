from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput, StateError
from asa.core.job import Resources
from asa.core.ports import Executor, RunContext
from asa.core.registry import EXECUTORS
from asa.core.task import Task
from executors.hub import HubExecutor, listen, local, node_resources, task_order
from executors.wire import RENDEZVOUS, ChannelListener


class FakeProxy:
    """Stands proxy, and has tasks launched while it gets ready."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.station, self.closed = error, HubExecutor("m:C"), 0
        self.published = False

    def __call__(self, context: RunContext, listener: ChannelListener) -> FakeProxy:
        self.file: Path = context.directory / RENDEZVOUS
        return self

    def front(self, listener: ChannelListener) -> ChannelListener:
        return listener

    def wait(self) -> None:
        self.published = self.file.exists()
        self.station.launch([], "a")
        if self.error:
            raise self.error

    def close(self) -> None:
        self.closed += 1


def station(proxy: FakeProxy) -> HubExecutor:
    proxy.station = HubExecutor("m:C", proxy=lambda context, listener: proxy(context, listener))
    return proxy.station


def test_nodes_may_come_and_be_given_tasks_while_a_proxy_gets_ready(context: RunContext) -> None:
    proxy = FakeProxy()
    made = station(proxy)
    made.start(context, lambda events: None)
    assert proxy.published and not proxy.closed
    made.close()
    made.close()
    assert proxy.closed == 1 and not proxy.file.exists()


def test_when_it_does_not_get_ready_nothing_is_left(context: RunContext) -> None:
    proxy = FakeProxy(ValueError("no port"))
    made = station(proxy)
    with pytest.raises(ValueError, match="no port"):
        made.start(context, lambda events: None)
    assert proxy.closed == 1 and not proxy.file.exists()
    with pytest.raises(InvalidInput, match="start"):
        made.launch([], "a")


def test_a_new_drivers_address_stays(context: RunContext) -> None:
    first, second = HubExecutor("m:C"), HubExecutor("m:C")
    first.start(context, lambda events: None)
    second.start(context, lambda events: None)
    address = (context.directory / RENDEZVOUS).read_bytes()
    first.close()
    assert (context.directory / RENDEZVOUS).read_bytes() == address
    second.close()
    assert not (context.directory / RENDEZVOUS).exists()


def test_a_directory_that_takes_no_socket_is_named(context: RunContext, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(StateError, match=rf"cannot make a socket in {gone}: No such file .* Set ASA_STATE_DIR"):
        listen(replace(context, directory=gone))
    (tmp_path / "hub-1.sock").mkdir()
    with pytest.raises(StateError, match=rf"cannot make a socket in {tmp_path}: Is a directory"):
        listen(replace(context, directory=tmp_path))


SECRETIVE = RunContext("r", Path("/state/r"), "/home/u", ("/lib",), orphan_grace_s=60.0)


def test_it_is_an_executor_by_name() -> None:
    executor: Executor = EXECUTORS.create("local:workers=threads,heartbeat-s=5")
    assert isinstance(executor, HubExecutor)


def test_the_program_of_each_node() -> None:
    allocation = Allocation("key", Resources(cores=8, nodes=2, memory=100, gpus=3), 60.0)
    argv = local().bootstrap(allocation, SECRETIVE)
    assert argv[:4] == (sys.executable, "-P", "-m", "executors.supervisor")
    words = "--directory /state/r --allocation key --grace 60.0 --cores 4 --memory 50 --gpus 2"
    assert argv[4:] == tuple(words.split())


def test_on_one_machine_all_nodes_are_that_machine() -> None:
    argv = local().bootstrap(Allocation("key", Resources(cores=8, nodes=2), 60.0), replace(SECRETIVE, local=True))
    assert argv[argv.index("--cores") + 1] == "8"


@pytest.mark.parametrize("options", [{"workers": "greenlets"}, {"heartbeat_s": 0.0}, {"heartbeat_s": -1.0}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        local(**options)


def test_use_before_start() -> None:
    with pytest.raises(InvalidInput, match="start"):
        local().launch([], "a")
    local().close()


def test_a_directory_that_is_open_to_others(context: RunContext) -> None:
    context.directory.mkdir()
    context.directory.chmod(0o755)
    with pytest.raises(StateError, match="chmod"):
        local().start(context, lambda events: None)


def test_closing_twice(context: RunContext) -> None:
    executor = local()
    executor.start(context, lambda events: None)
    executor.close()
    executor.close()


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
