from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import StateError
from asa.log import proc
from executors.cgroup import dutycycle, throttle
from executors.cgroup.dutycycle import DutyCycle
from executors.cgroup.group import Group
from executors.cgroup.throttle import PERIOD_S, ContainerProcesses, Throttle, ThrottledContainer
from tests.executors.cgroup.conformance import BURN
from tests.executors.cgroup.measured import described
from tests.waiting import until


@given(
    cores=st.floats(0.01, 3.0),
    busy=st.integers(1, 4),
    late=st.lists(st.floats(0.0, 0.05), min_size=1, max_size=20),
)
def test_the_mean_is_kept_however_late_it_looks(cores: float, busy: int, late: list[float]) -> None:
    """Processes that always want CPU: what was used too much in one turn is owed in the next."""
    container = ThrottledContainer(ContainerProcesses("s/n"), cores)
    now = used = 0.0
    wait, turn = 0.0, 0
    while now < 20.0:
        elapsed = max(0.001, wait) + late[turn % len(late)]
        turn += 1
        spent = 0.0 if container.is_held else busy * elapsed
        now, used = now + elapsed, used + spent
        container.charge(spent, elapsed)
        wait = min(container.decide(), 0.05)
    assert used <= cores * now + 2 * container.slot() + busy * 0.11
    if cores < busy and max(late) <= 0.02:
        assert used >= 0.9 * cores * now - busy * 0.11, "and what is allowed is given"
    assert container.throttled <= container.periods + 1e-6 <= now / PERIOD_S + 1e-3


def test_what_was_not_used_is_not_saved_up() -> None:
    container = ThrottledContainer(ContainerProcesses("s/n"), 0.5)
    for _ in range(100):
        container.charge(0.0, 1.0)
    assert container.budget == container.slot()


def test_without_a_limit_nothing_is_held_or_counted() -> None:
    container = ThrottledContainer(ContainerProcesses("s/n"), 0.5)
    container.charge(1.0, 0.1)
    container.decide()
    assert container.is_held
    container.cores = None
    container.charge(5.0, 1.0)
    container.decide()
    assert not container.is_held
    assert container.periods == pytest.approx(1.0)


def test_one_that_is_about_to_be_killed_is_not_let_go_on_or_held() -> None:
    container = ThrottledContainer(ContainerProcesses("s/n"), 0.5, budget=-1.0, is_doomed=True)
    assert container.decide() > 0
    assert not container.is_held


def test_it_answers_as_it_is_asked() -> None:
    keeper, name = Throttle(), "one"
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        process.send_signal(signal.SIGSTOP)  # as by an earlier throttle
        now = proc.stat(process.pid)
        assert now is not None
        first = [process.pid, now.birth]
        add = {"do": "add", "mark": f"answers-{os.getpid()}/one", "cores": None, "first": first, "old": True}
        assert keeper.answer(add | {"name": name}) == {}
        until(lambda: not is_stopped(process.pid), "it to go on")
        assert keeper.answer({"do": "adopt", "name": name, "first": first}) == {}
        assert keeper.answer({"do": "limit", "name": name, "cores": 0.5}) == {}
        found = keeper.answer({"do": "look", "name": name})
        assert (found["pids"], found["threads"]) == ([process.pid], 1)
        until(lambda: keeper.answer({"do": "look", "name": name})["memory"] > 0, "its program to be loaded")
        assert keeper.answer({"do": "usage", "name": name})["pids"] == [process.pid]
        assert keeper.step() > 0
        until(lambda: keeper.answer({"do": "kill", "name": name})["alive"] == 0, "its end")
        assert process.wait() == -signal.SIGKILL
    assert keeper.answer({"do": "drop", "name": name}) == {}
    with pytest.raises(KeyError):
        keeper.answer({"do": "look", "name": name})


def test_a_throttle_that_is_silent_is_replaced(quotas: DutyCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    group, process = start(quotas, "exec sleep 1000", None)
    monkeypatch.setattr(dutycycle, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(dutycycle, "_ANSWER_S", 0.5)
    try:
        first = quotas.program.process
        assert first is not None
        first.send_signal(signal.SIGSTOP)
        assert process.pid in group.pids()
        assert first.wait() == -signal.SIGKILL
    finally:
        end(group, process)


def test_an_unknown_name_is_an_error_of_the_one_who_asks() -> None:
    with pytest.raises(KeyError):
        Throttle().answer({"do": "look", "name": "nobody"})


@pytest.fixture
def quotas() -> Iterator[DutyCycle]:
    duty = DutyCycle(f"throttle-{os.getpid()}")
    yield duty
    duty.sweep(())


def start(quotas: DutyCycle, script: str, cores: float | None) -> tuple[Group, subprocess.Popen[bytes]]:
    group = quotas.group("one", weight=1.0, cores=cores, memory=None)
    process = subprocess.Popen(group.wrap(["/bin/sh", "-c", script]), start_new_session=True)
    group.adopt(process.pid)
    return group, process


def end(group: Group, process: subprocess.Popen[bytes]) -> None:
    group.kill()
    process.wait()
    group.close()


def is_stopped(pid: int) -> bool:
    now = proc.stat(pid)
    return now is not None and now.state == "T"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_throttle_that_was_killed_is_replaced_and_nobody_stays_stopped(
    number: signal.Signals, quotas: DutyCycle
) -> None:
    group, process = start(quotas, BURN, 0.02)
    try:
        for _ in range(2):
            until(lambda: is_stopped(process.pid), "held")
            assert replaced(quotas, number) in (0, -number)
            goes_on(process.pid)
        assert group.pids() == [process.pid]
    finally:
        end(group, process)


def replaced(quotas: DutyCycle, number: signal.Signals) -> int:
    """Send the throttle a signal, and wait for another one: how the first has ended."""
    first = quotas.program.process
    assert first is not None
    first.send_signal(number)
    code = first.wait()
    until(lambda: quotas.program.process not in (None, first), "another throttle")
    return code


def goes_on(pid: int) -> None:
    before = throttle.clock(pid) or 0.0
    until(lambda: (throttle.clock(pid) or 0.0) > before, lambda: f"process {pid} to go on: {described(pid)}")


def test_who_was_held_before_its_program_was_loaded_goes_on_under_another_throttle(quotas: DutyCycle) -> None:
    """Its environment is still that of whoever has started it, and does not say whose it is."""
    group = quotas.group("one", weight=1.0, cores=0.02, memory=None)
    process = subprocess.Popen(["/bin/sh", "-c", BURN], start_new_session=True)
    try:
        group.adopt(process.pid)
        until(lambda: is_stopped(process.pid), "held")
        assert not throttle.mark(process.pid)
        replaced(quotas, signal.SIGKILL)
        goes_on(process.pid)
    finally:
        end(group, process)


def test_a_number_that_was_given_to_another_process_is_not_taken_over(quotas: DutyCycle) -> None:
    group, process = start(quotas, "sleep 1000", 0.02)
    with subprocess.Popen(["sleep", "1000"]) as another:
        try:
            until(lambda: throttle.mark(process.pid), "its mark, by which alone it is known from now on")
            cores, first = quotas.program.groups["one"]
            assert first is not None
            quotas.program.groups["one"] = cores, (another.pid, first[1] - 1)  # as if its first had had this number
            replaced(quotas, signal.SIGKILL)
            members = group.pids()
            assert process.pid in members and another.pid not in members
        finally:
            another.kill()
            end(group, process)


def test_a_throttle_ends_with_the_last_group(quotas: DutyCycle) -> None:
    group, process = start(quotas, "sleep 1000", None)
    keeper = quotas.program.process
    assert keeper is not None
    end(group, process)
    assert keeper.poll() == 0
    assert group.pids() == []
    assert group.usage().processes == 0
    group.limit(0.5)  # nobody is there to hear of it


def test_what_an_earlier_throttle_held_is_let_go_and_can_be_held_at_once() -> None:
    mark = f"earlier-{os.getpid()}/one"
    with subprocess.Popen(["sleep", "1000"], env={"ASA_GROUP": mark}) as process:
        try:
            until(lambda: throttle.mark(process.pid) == mark, "its program is loaded")
            process.send_signal(signal.SIGSTOP)
            until(lambda: is_stopped(process.pid), "stopped")
            keeper = Throttle()
            keeper.answer({"do": "add", "name": "one", "mark": mark, "cores": 0.01, "first": None, "old": True})
            until(lambda: not is_stopped(process.pid), "let go")
            keeper.containers["one"].budget = -1.0
            keeper.step()
            until(lambda: is_stopped(process.pid), "held, for what it owes")
            keeper.close()
            until(lambda: not is_stopped(process.pid), "let go")
        finally:
            process.kill()


def test_what_others_have_stopped_stays_stopped(quotas: DutyCycle) -> None:
    group, process = start(quotas, f"sleep 1000 & {BURN}", None)
    try:
        until(lambda: len(group.pids()) == 2, "both")
        (sleeper,) = set(group.pids()) - {process.pid}
        os.kill(sleeper, signal.SIGSTOP)
        until(lambda: is_stopped(sleeper), "stopped")
        group.pids()  # looks at everybody
        group.limit(0.1)
        before = group.usage().throttled or 0
        while (group.usage().throttled or 0) < before + 5:
            assert is_stopped(sleeper)
            time.sleep(0.01)
    finally:
        end(group, process)


def test_who_is_continued_by_somebody_else_is_stopped_again(quotas: DutyCycle) -> None:
    group, process = start(quotas, BURN, 0.01)
    try:
        until(lambda: is_stopped(process.pid), "held")
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: is_stopped(process.pid), "held again")
    finally:
        end(group, process)


def test_a_throttle_that_does_not_start_is_told(quotas: DutyCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executors.cgroup.dutycycle._PROGRAM", "raise SystemExit(3)")
    with pytest.raises(StateError, match=r"does not answer .* no limits until"):
        quotas.group("one", weight=1.0, cores=None, memory=None)
    monkeypatch.undo()
    group, process = start(quotas, "sleep 1000", None)
    end(group, process)
