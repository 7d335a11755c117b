import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.testing import tasks
from asa.testing.executors import ExecutorDriver, Ground, value_of
from executors.hub import local


@pytest.fixture
def driver(ground: Ground) -> ExecutorDriver:
    """A driver with one node of two cores."""
    driver = ground.driver()
    ground.node()
    return driver


def kill_me(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def test_a_segmentation_fault_is_named_and_located(driver: ExecutorDriver) -> None:
    driver.launch(kill_me, [(signal.SIGSEGV,)])
    failed = driver.failure()
    assert "signal 11 (Segmentation fault)" in failed.error and not failed.infrastructure
    assert "kill_me" in failed.stderr, "the worker's own last words"


def test_a_worker_that_ran_out_of_memory_is_suspected(driver: ExecutorDriver) -> None:
    driver.launch(kill_me, [(signal.SIGKILL,)])
    failed = driver.failure()
    assert "signal 9 (Killed)" in failed.error and "memory" in failed.error and not failed.infrastructure


def test_a_worker_told_to_end_from_outside_is_not_blamed(driver: ExecutorDriver) -> None:
    driver.launch(kill_me, [(signal.SIGTERM,)])
    failed = driver.failure()
    assert "signal 15" in failed.error and failed.infrastructure


def test_standard_error_is_that_tasks_own(driver: ExecutorDriver) -> None:
    def speak_and_fail(number: int) -> None:
        os.write(2, b"I am %d\n" % number)
        if number % 2:
            raise ValueError(number)

    driver.launch(speak_and_fail, [(number,) for number in range(200)])
    for index, event in driver.ended(200).items():
        if index % 2:
            assert isinstance(event, TaskFailed) and event.stderr == f"I am {index}\n"


def test_of_several_tasks_in_a_worker_only_the_guilty_one_fails(driver: ExecutorDriver) -> None:
    def return_or_die(number: int) -> int:
        if number == 150:
            os._exit(9)
        return number

    driver.launch(tasks.echo, [(number,) for number in range(300)], stage="learn")
    driver.ended(300, "learn")
    driver.launch(return_or_die, [(number,) for number in range(300)])
    ended = driver.ended(300)
    assert [index for index, event in ended.items() if isinstance(event, TaskFailed)] == [150]
    assert isinstance(ended[150], TaskFailed) and "exit code 9" in ended[150].error
    assert sum(isinstance(event, TaskDone | TaskFailed) for event in driver.events) == 600


def test_short_tasks_do_not_stay_behind_a_long_one(driver: ExecutorDriver, ground: Ground) -> None:
    place = ground.directory("meeting")
    # number 150 waits for all others, those included that were given to the same worker behind it
    driver.launch(tasks.meet, [(place, number, 300 if number == 150 else 0) for number in range(300)])
    assert driver.values(300) == [True] * 300


def test_what_was_sent_ahead_in_error_goes_to_another_node(ground: Ground) -> None:
    driver, place = ground.driver(), ground.directory("meeting")
    one = Resources(cores=1)
    ground.node("a", one, "n1")
    driver.launch(tasks.meet, [(place, -1, 0)] * 200)
    driver.ended(200)
    driver.launch(tasks.meet, [(place, number, 41 if number == 0 else 0) for number in range(40)], stage="mixed")
    ground.node("a", one, "n2")
    assert driver.values(40, "mixed") == [True] * 40
    assert {event.node for event in driver.ended(40, "mixed").values()} == {"n1", "n2"}


def test_workers_are_kept(driver: ExecutorDriver) -> None:
    driver.launch(tasks.where, [()] * 50)
    assert len({pid for _, pid in driver.values(50)}) <= 2


def test_a_worker_holds_no_descriptor_of_its_supervisor(driver: ExecutorDriver) -> None:
    def held() -> list[str]:
        found = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)]
        return [target.split(":")[0] for target in found]

    def _is_open(name: str) -> bool:
        return os.path.lexists(f"/proc/self/fd/{name}")

    driver.launch(held, [()] * 4)
    for targets in driver.values(4):
        assert targets.count("socket") == 1 and "pipe" not in targets and "anon_inode:[eventpoll]" not in targets


def test_libraries_keep_to_the_tasks_cores(driver: ExecutorDriver) -> None:
    def threads() -> str | None:
        return os.environ.get("OMP_NUM_THREADS")

    driver.launch(threads, [()], stage="one")
    driver.launch(threads, [()], stage="two", resources=Resources(cores=2))
    assert driver.values(1, "one") + driver.values(1, "two") == ["1", "2"]


def test_each_task_has_its_own_gpus(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    place = ground.directory("meeting")

    def visible(number: int) -> tuple[bool, str]:
        return tasks.meet(place, number, 2), os.environ["CUDA_VISIBLE_DEVICES"]

    def none_visible() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    driver = ground.driver()
    ground.node("a", Resources(cores=2, gpus=2))
    driver.launch(visible, [(0,), (1,)], resources=Resources(gpus=1), stage="each")
    assert sorted(driver.values(2, "each")) == [(True, "3"), (True, "5")]
    driver.launch(none_visible, [()], resources=Resources(gpus=2), stage="both")
    assert driver.values(1, "both") == ["3,5"]
    driver.launch(none_visible, [()], stage="none")
    assert driver.values(1, "none") == [""]
    driver.launch(none_visible, [()], resources=Resources(gpus=3), stage="more")
    assert "needs 3 GPUs" in driver.failure("more").error


def test_a_working_directory_that_is_not_there_is_named(context: RunContext, tmp_path: Path) -> None:
    with Ground(local, replace(context, workdir=str(tmp_path / "gone"))) as ground:
        (tmp_path / "gone").mkdir()
        driver = ground.driver()
        ground.node()
        driver.joined()
        (tmp_path / "gone").rmdir()
        driver.launch(tasks.echo, [(1,)])
        failed = driver.failure()
        assert "exit code 1" in failed.error and "FileNotFoundError" in failed.stderr and "gone" in failed.stderr


def test_memory_limits_how_many_run(ground: Ground) -> None:
    driver, place = ground.driver(), ground.directory("room")
    ground.node("a", Resources(cores=2, memory=1000))
    driver.launch(tasks.alone, [(place, 0.03)] * 3, resources=Resources(memory=600))
    assert driver.values(3) == [True] * 3


def test_long_standard_error_does_not_fill_the_disk(driver: ExecutorDriver) -> None:
    def shout() -> int:
        before = os.fstat(2).st_size
        os.write(2, b"x" * 1_500_000)
        return before

    for stage in ("one", "two", "three"):
        driver.launch(shout, [()], stage=stage)
        assert driver.values(1, stage) == [0]


class TestThreads:
    @pytest.fixture
    def ground(self, context: RunContext) -> Iterator[Ground]:
        with Ground(lambda: local(workers="threads"), context) as ground:
            yield ground

    def test_all_tasks_are_in_one_process(self, ground: Ground) -> None:
        driver, place = ground.driver(), ground.directory("meeting")
        ground.node()

        def meet(number: int) -> Any:
            return tasks.meet(place, number, 2), os.getpid()

        driver.launch(meet, [(0,), (1,)])
        (first, one), (second, other) = driver.values(2)
        assert first and second and one == other

    def test_a_dead_process_fails_what_ran_in_it(self, ground: Ground) -> None:
        driver, place = ground.driver(), ground.directory("meeting")
        ground.node()

        def die_together(number: int) -> None:
            tasks.meet(place, number, 2)
            time.sleep(0.05)
            os._exit(4)

        driver.launch(die_together, [(0,), (1,)])
        driver.launch(tasks.echo, [(1,)], stage="after")
        assert all("exit code 4" in event.error for event in driver.ended(2).values() if isinstance(event, TaskFailed))
        assert value_of(driver.ended(1, "after")[0]) == 1
