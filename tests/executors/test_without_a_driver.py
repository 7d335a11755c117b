"""What supervisors keep when their driver is gone, and what the next driver makes of it."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from asa.core.errors import StateError
from asa.core.event import Event, TaskDone, TaskFailed
from asa.core.ports import RunContext
from asa.core.task import Task
from asa.testing import tasks
from asa.testing.executors import PATIENCE_S, Bench, ExecutorDriver, is_gone, value_of, wait_for
from executors.hub import local
from executors.kept import KEPT_VERSION, OWED, OrderState, OutcomeFile, Owed, recovered
from executors.wire import KeptOrder, OrderOutcome, TaskOrder
from tests.waiting import until


def order(ticket: int, identity: str = "i", **more: object) -> TaskOrder:
    return TaskOrder(ticket, "s", ticket, "f", b"", (), cores=1, memory=0, gpus=0, nodes=1, identity=identity)


def outcome(ticket: int, value: bytes = b"v") -> OrderOutcome:
    return OrderOutcome(ticket, 1.0, 2.0, value)


class TestOwed:
    def test_an_outcome_is_owed_until_it_is_logged(self) -> None:
        owed = Owed()
        owed.given([order(1), order(2)])
        assert owed.ended([outcome(1)]) == [outcome(1)]
        assert (owed.state(1), owed.state(2)) == (OrderState.ENDED, OrderState.RUNNING)
        assert owed.move([1, 2], "logged") == [1], "what runs cannot be logged"
        assert (owed.state(1), owed.state(2), len(owed)) == (OrderState.UNKNOWN, OrderState.RUNNING, 1)

    def test_what_nobody_asks_for_is_not_owed(self) -> None:
        owed = Owed()
        owed.given([order(1), order(2), order(3)])
        owed.ended([outcome(1)])
        assert owed.move([1, 2], "disowned") == [1, 2] and owed.move([3], "returned") == [3]
        assert owed.ended([outcome(1), outcome(2), outcome(3)]) == [] and not owed.unsaved

    def test_an_order_ends_once(self) -> None:
        owed = Owed()
        owed.given([order(1)])
        assert owed.ended([outcome(1), outcome(1, b"other")]) == [outcome(1)]
        owed.given([order(1)])
        assert owed.outcomes == {1: outcome(1)}

    def test_every_state_can_be_left(self) -> None:
        assert {state for state, _ in OWED} == set(OrderState) == set(OWED.values())


class TestFile:
    @pytest.fixture
    def file(self, tmp_path: Path) -> OutcomeFile:
        (tmp_path / "run").mkdir(mode=0o700)
        return OutcomeFile(str(tmp_path / "run"), "a", "n1")

    def read(self, file: OutcomeFile) -> list[OrderOutcome]:
        return [found for _, _, found in recovered(Path(file.path).parents[2], "a")]

    def test_what_is_saved_is_recovered(self, file: OutcomeFile) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1))])
        file.save([(KeptOrder(2, "s", 1, "j"), outcome(2))])
        assert oct(os.stat(file.path).st_mode & 0o777) == "0o600"
        found = [(kept.identity, node) for kept, node, _ in recovered(Path(file.path).parents[2], "a")]
        assert found == [("i", "n1"), ("j", "n1")] and self.read(file) == [outcome(1), outcome(2)]
        assert list(recovered(Path(file.path).parents[2], "another")) == []
        file.remove()
        assert self.read(file) == []

    @pytest.mark.parametrize("lost", [1, 60])
    def test_of_a_torn_file_the_whole_part_counts(self, file: OutcomeFile, lost: int) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1)), (KeptOrder(2, "s", 1, "j"), outcome(2))])
        os.truncate(file.path, os.stat(file.path).st_size - lost)
        assert self.read(file) == [outcome(1)]

    def test_those_of_another_version_are_refused_by_name(
        self, file: OutcomeFile, caplog: pytest.LogCaptureFixture
    ) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1))])
        path = Path(file.path)
        data = path.read_bytes()
        path.write_bytes(data[:3] + bytes([KEPT_VERSION - 1]) + data[4:])
        assert self.read(file) == []
        assert f"another version of ASA wrote it, this one reads {KEPT_VERSION}" in caplog.text

    def test_bytes_that_have_changed_are_not_believed(self, file: OutcomeFile) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1, b"x" * 100))])
        data = Path(file.path).read_bytes()
        Path(file.path).write_bytes(data.replace(b"xxx", b"xyx", 1))
        assert self.read(file) == []

    def test_a_file_that_others_can_write_is_not_used(self, file: OutcomeFile) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1))])
        os.chmod(file.path, 0o622)
        assert self.read(file) == []

    def test_a_link_is_not_followed(self, file: OutcomeFile, tmp_path: Path) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1))])
        Path(file.path).rename(tmp_path / "elsewhere")
        Path(file.path).symlink_to(tmp_path / "elsewhere")
        assert self.read(file) == []

    def test_a_full_disk_is_named_and_what_is_there_stays(
        self, file: OutcomeFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.save([(KeptOrder(1, "s", 0, "i"), outcome(1))])
        write, sizes = os.write, iter([10, None])

        def full(descriptor: int, data: memoryview) -> int:
            size = next(sizes)
            if size is None:
                raise OSError(28, "No space left on device")
            return write(descriptor, data[:size])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(StateError, match=r"cannot write .*n1-\w+: No space left on device"):
            file.save([(KeptOrder(2, "s", 1, "j"), outcome(2))])
        monkeypatch.undo()
        file.save([(KeptOrder(3, "s", 2, "k"), outcome(3))])
        assert self.read(file) == [outcome(1), outcome(3)]


class Held:
    """A task that waits for a word, on a node whose driver is gone."""

    def __init__(self, bench: Bench, grace_s: float | None = None) -> None:
        self.bench, self.driver = bench, bench.driver()
        self.program = bench.node(grace_s=grace_s)
        self._files = [Path(bench.context.workdir, name) for name in ("pid", "go")]
        self.driver.launch(tasks.await_file, [tuple(map(str, self._files))])
        self.pid = wait_for(self._files[0])
        self.driver.executor.close()

    @property
    def task(self) -> Task:
        return self.driver.given[0]

    def end(self) -> None:
        """Let the task end, and wait until its outcome is in a file."""
        self._files[1].touch()
        kept = self.bench.context.directory / "kept"
        until(lambda: any(path.stat().st_size for path in kept.glob("a/*")), "its outcome")

    def ends_with(self, driver: ExecutorDriver) -> list[Event]:
        self._files[1].touch()
        assert driver.values(1) == [self.pid]
        return [event for event in driver.events if isinstance(event, TaskDone | TaskFailed)]


@pytest.mark.slow
class TestSupervisor:
    def test_a_task_goes_on_under_the_next_driver(self, bench: Bench) -> None:
        held = Held(bench)
        second = bench.driver([held.task])
        assert second.kept() == (("s", 0),)
        assert len(held.ends_with(second)) == 1
        second.launch(tasks.where, [()], stage="next")
        ((_, pid),) = second.values(1, "next")
        assert pid != held.pid, "what begins for another driver begins in a fresh worker"
        assert is_gone(held.pid)

    def test_the_third_driver_has_it_too(self, bench: Bench) -> None:
        held = Held(bench)
        second = bench.driver([held.task])
        second.kept()
        second.executor.close()
        third = bench.driver([held.task])
        assert third.kept() == (("s", 0),)
        assert len(held.ends_with(third)) == 1

    def test_an_outcome_waits_for_the_next_driver(self, bench: Bench) -> None:
        held = Held(bench)
        held.end()
        second = bench.driver([held.task])
        assert [value_of(event) for event in second.events if isinstance(event, TaskDone)] == [held.pid]
        assert held.program.poll() is None

    def test_an_outcome_that_no_driver_logged_is_reported_again(self, bench: Bench) -> None:
        class Forgetful(ExecutorDriver):
            def _post(self, events: object, logged: object = None, /) -> None:  # type: ignore[override]
                super()._post(events)  # type: ignore[arg-type]

        first = Forgetful(bench.make(), bench.context)
        bench.drivers.append(first)
        bench.node()
        first.launch(tasks.echo, [("once",)])
        assert first.values(1) == ["once"]
        first.executor.close()
        assert bench.driver(first.given).values(1) == ["once"]

    def test_a_task_with_other_input_ends(self, bench: Bench) -> None:
        held = Held(bench)
        other = Task("s", 0, held.task.function, held.task.arguments, (), held.task.resources, None, "other")
        assert bench.driver([other]).kept() == ()
        assert is_gone(held.pid)

    def test_after_the_grace_what_has_ended_is_kept_and_what_runs_ends(self, bench: Bench) -> None:
        held = Held(bench, grace_s=1.0)
        assert held.program.wait(PATIENCE_S) == 75
        assert is_gone(held.pid)
        assert bench.make().recover([held.task], "a", bench.context) == []

    def test_an_outcome_outlives_its_supervisor(self, bench: Bench) -> None:
        held = Held(bench)
        held.end()
        held.program.kill()
        (event,) = bench.make().recover([held.task], "a", bench.context)
        assert value_of(event) == held.pid
        other = Task("s", 0, held.task.function, held.task.arguments, (), held.task.resources, None, "other")
        assert bench.make().recover([other], "a", bench.context) == []

    def test_the_file_goes_when_nothing_is_owed(self, bench: Bench) -> None:
        held = Held(bench)
        held.end()
        second = bench.driver([])
        second.joined()
        second.executor.release("a")
        assert held.program.wait(PATIENCE_S) == 0
        assert not list((bench.context.directory / "kept").glob("a/*"))

    def test_an_outcome_that_cannot_be_kept_is_a_failure_that_says_why(self, context: RunContext) -> None:
        output = Path(context.workdir, "output")

        def start(argv: Sequence[str], node: str, workdir: str) -> subprocess.Popen[bytes]:
            with open(output, "ab") as sink:
                return subprocess.Popen(argv, cwd=workdir, stderr=sink)

        context.directory.mkdir(mode=0o700)
        (context.directory / "kept").write_text("in the way")
        with Bench(local, context, start) as bench:
            held = Held(bench)
            Path(context.workdir, "go").touch()
            until(lambda: "could not be kept" in output.read_text())
            failed = bench.driver([held.task]).failure()
        assert failed.infrastructure and "could not be kept while there was no driver: " in failed.error
        assert str(context.directory / "kept") in failed.error

    def test_a_signal_ends_what_runs_without_a_driver(self, bench: Bench) -> None:
        held = Held(bench)
        assert isinstance(held.program, subprocess.Popen)
        family = psutil.Process(held.program.pid).children(recursive=True)
        held.program.terminate()
        assert held.program.wait(PATIENCE_S) == 143
        assert all(is_gone(process.pid) for process in family)


@pytest.fixture
def threads(context: RunContext) -> Iterator[Bench]:
    with Bench(lambda: local("threads"), context) as bench:
        yield bench


@pytest.mark.slow
def test_a_task_in_a_thread_goes_on_too(threads: Bench) -> None:
    held = Held(threads)
    second = threads.driver([held.task])
    assert len(held.ends_with(second)) == 1
    second.launch(tasks.echo, [("more",)], stage="next")
    assert second.values(1, "next") == ["more"]
