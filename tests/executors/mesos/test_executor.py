"""The `mesos` executor passes what every executor passes, and what agents add to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import asa
from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.event import ContainersSeen
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.testing import tasks
from asa.testing.executors import Bench, ExecutorConformance
from executors.hub import local
from executors.mesos.driver_side import DriverSide
from executors.mesos.executor import Mesos
from executors.mesos.framework import FrameworkOutcome
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import READER, WRITER, PoolDirectory

pytestmark = pytest.mark.slow


class TestConformance(ExecutorConformance):
    @pytest.fixture
    def bench(self, context: RunContext) -> Iterator[Bench]:
        with Bench(Mesos, context) as bench:
            yield bench


class TestAcrossMachines(ExecutorConformance):
    """The hub listens for TLS, too."""

    @pytest.fixture
    def bench(self, context: RunContext) -> Iterator[Bench]:
        with Bench(Mesos, replace(context, local=False)) as bench:
            yield bench


class TestDaskWorkers(ExecutorConformance):
    @pytest.fixture
    def bench(self, context: RunContext) -> Iterator[Bench]:
        with Bench(lambda: Mesos("dask"), context) as bench:
            yield bench


def test_a_new_driver_leaves_the_supervisors_alone(context: RunContext) -> None:
    def running() -> list[str]:
        with Operator(PoolDirectory(context.directory / "pool"), READER) as operator:
            found = operator.call("GET_TASKS").get("tasks", [])
        return [task["task_id"]["value"] for task in found]

    with Bench(Mesos, context) as bench:
        first = bench.driver()
        bench.node()
        first.joined()
        before = running()
        first.executor.close()
        second = bench.driver()
        second.launch(tasks.echo, [("again",)])
        assert second.values(1) == ["again"]
        assert running() == before and len(before) == 1
        second.until(lambda events: any(isinstance(event, ContainersSeen) for event in events))


def test_a_run_whose_framework_was_removed_goes_on_as_another_one(
    context: RunContext, caplog: pytest.LogCaptureFixture
) -> None:
    executor = Mesos()
    executor.start(context, lambda event: None)
    with Operator(PoolDirectory(context.directory / "pool"), WRITER) as operator:
        [framework] = operator.call("GET_FRAMEWORKS")["frameworks"]
        before = framework["framework_info"]["id"]
        operator.call("TEARDOWN", framework_id=before)
    executor.close()
    caplog.clear()
    executor = Mesos()
    executor.start(context, lambda event: None)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "our framework: Framework has been removed",
        "the run goes on as another framework of its pool",
    ]
    with Operator(PoolDirectory(context.directory / "pool"), READER) as operator:
        [framework] = operator.call("GET_FRAMEWORKS")["frameworks"]
    assert framework["framework_info"]["id"] != before
    executor.close()


def test_the_program_of_each_node_is_an_agent_that_holds_no_secret(context: RunContext) -> None:
    allocation = Allocation("key", Resources(cores=8, nodes=2, memory=100, gpus=3), 60.0)
    argv = Mesos().bootstrap(allocation, replace(context, local=False))
    given = dict(zip(argv[4::2], argv[5::2], strict=True))
    assert argv[1:4] == ("-P", "-m", "executors.mesos.agent")
    assert (given["--cores"], given["--memory"], given["--gpus"]) == ("4", "50", "2")
    attributes = {argv[place + 1] for place, word in enumerate(argv) if word == "--attribute"}
    assert attributes == {"allocation=key", "run=r1", "grace=60"}
    assert given["--lasts"] == "60.0"
    assert given["--directory"] == str(context.directory / "pool")


def test_a_run_that_went_well_ends_without_a_word(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its agents are sent away, and what ran on them is gone with them: that is no news."""
    node = asa.stage(cores=1)(len)("word")
    run = asa.run(node, backend="local:cores=1", executor="mesos", state=tmp_path / "state", workdir=tmp_path)
    assert run.result() == 4 and run.wait(60)
    assert capfd.readouterr().err == ""


def test_options_are_checked() -> None:
    with pytest.raises(InvalidInput, match="choose 'local' or 'dask'"):
        Mesos("threads")
    with pytest.raises(InvalidInput, match="tasks='local'"):
        Mesos(dashboard=True)
    with pytest.raises(InvalidInput, match="heartbeat_s"):
        Mesos(heartbeat_s=0)


def test_why_a_supervisor_does_not_run_is_in_the_log(context: RunContext, caplog: pytest.LogCaptureFixture) -> None:
    side = DriverSide(context.directory / "pool", context, local(), set(), lambda events: None)
    side.report(
        [FrameworkOutcome("nodes", "failed", "no disk", "S1"), FrameworkOutcome("lease", "failed", "too late", "")]
    )
    side.close()
    assert caplog.messages == ["agent S1: no disk", "our lease: too late"]
