import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput, StateError
from asa.core.job import Resources
from asa.core.ports import Executor, RunContext
from asa.core.registry import EXECUTORS
from executors.hub import HubExecutor, local

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
