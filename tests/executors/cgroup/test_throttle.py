from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import StateError
from asa.log import proc
from executors.cgroup import dutycycle, throttle
from executors.cgroup.dutycycle import DutyCycle
from executors.cgroup.group import Group
from executors.cgroup.throttle import (
    PERIOD_S,
    ContainerProcesses,
    ProcessTable,
    Throttle,
    ThrottledContainer,
    TrackedProcess,
)
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
    monkeypatch.setattr(dutycycle, "PATIENCE_S", 0.05)
    monkeypatch.setattr(dutycycle, "ANSWER_S", 0.5)
    with running(quotas, "exec sleep 1000", None) as (group, process):
        first = quotas.program.process
        assert first is not None
        first.send_signal(signal.SIGSTOP)
        assert process.pid in group.pids()
        assert first.wait() == -signal.SIGKILL


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


@contextmanager
def sleeper(environment: Mapping[str, str] | None = None, *, mark: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps until the test has ended; one with a mark once its program is loaded."""
    environment = {"ASA_GROUP": mark} if mark else environment
    with subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True) as process:
        try:
            if mark:
                until(lambda: throttle.mark(process.pid) == mark, "its program is loaded")
            yield process
        finally:
            process.kill()


@contextmanager
def running(quotas: DutyCycle, script: str, cores: float | None) -> Iterator[tuple[Group, subprocess.Popen[bytes]]]:
    group, process = start(quotas, script, cores)
    try:
        yield group, process
    finally:
        end(group, process)


def is_stopped(pid: int) -> bool:
    now = proc.stat(pid)
    return now is not None and now.state == "T"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_throttle_that_was_killed_is_replaced_and_no_process_stays_stopped(
    number: signal.Signals, quotas: DutyCycle
) -> None:
    with running(quotas, BURN, 0.02) as (group, process):
        for _ in range(2):
            until(lambda: is_stopped(process.pid), "held")
            assert replaced(quotas, number) in (0, -number)
            goes_on(process.pid)
        assert group.pids() == [process.pid]


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


def test_a_process_that_was_held_before_its_program_was_loaded_goes_on_under_another_throttle(
    quotas: DutyCycle,
) -> None:
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
    group.limit(0.5)  # no throttle is left


def test_what_an_earlier_throttle_held_is_let_go_and_can_be_held_at_once() -> None:
    mark = f"earlier-{os.getpid()}/one"
    with sleeper(mark=mark) as process:
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


def test_processes_that_others_have_stopped_stay_stopped(quotas: DutyCycle) -> None:
    with running(quotas, f"sleep 1000 & {BURN}", None) as (group, process):
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


def test_a_process_that_others_continue_is_stopped_again(quotas: DutyCycle) -> None:
    with running(quotas, BURN, 0.01) as (_, process):
        until(lambda: is_stopped(process.pid), "held")
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: is_stopped(process.pid), "held again")


def test_a_throttle_that_does_not_start_is_named(quotas: DutyCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executors.cgroup.dutycycle.PROGRAM", "raise SystemExit(3)")
    with pytest.raises(StateError, match=r"does not answer .* no limits until"):
        quotas.group("one", weight=1.0, cores=None, memory=None)
    monkeypatch.undo()
    group, process = start(quotas, "sleep 1000", None)
    end(group, process)


# ------------------------------------------------------- which processes there are


PARENT = """
import os, signal, time
if {ignore}:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range({children}):
    if os.fork() == 0:
        while time.process_time() < {each}:
            pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
"""
CHILDREN, EACH_S = 10, 0.08


def birth(pid: int) -> int:
    seen = proc.stat(pid)
    assert seen is not None
    return seen.birth


def counted(pause_s: float, *, ignore: bool) -> tuple[float, ContainerProcesses]:
    """CPU time that is seen of a parent whose children end one after the other [s], beyond its own."""
    families = {"a": ContainerProcesses("none/a")}
    watch = ProcessTable(families)
    code = PARENT.format(ignore=ignore, children=CHILDREN, each=EACH_S)
    total = 0.0
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as process:
        watch.adopt("a", process.pid, birth(process.pid))
        while process.poll() is None:  # reaps it only here: its last words are read before
            total += watch.scan()["a"]
            time.sleep(pause_s)
    return total, families["a"]


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.002, 0.03, 0.3])
def test_time_of_ended_children_is_counted_once(pause_s: float) -> None:
    total, family = counted(pause_s, ignore=False)
    ideal = CHILDREN * EACH_S
    assert ideal * 0.5 < total < ideal * 1.3 + 0.3, "the interpreter's own start is in it as well"
    assert ideal * 0.5 < (family.user + family.system) / throttle.TICKS < ideal * 1.3 + 0.3


def test_a_parent_that_ignores_the_death_of_its_children_gains_nothing() -> None:
    total, _ = counted(0.005, ignore=True)
    assert total > CHILDREN * EACH_S * 0.6


def test_what_children_used_goes_to_the_nearest_ancestor_that_is_left() -> None:
    mine = proc.stat(os.getpid())
    assert mine is not None
    family, me = ContainerProcesses("s/n"), os.getpid()
    family.members[me] = TrackedProcess(me, mine, 0.0)
    for pid, parent, own in ((4_194_305, me, 3), (4_194_306, 4_194_305, 5)):  # a child, and a child of that
        seen = mine._replace(parent=parent, user=own, system=0, children_user=0, children_system=0)
        family.members[pid] = TrackedProcess(pid, seen, 0.0)
    family.members[me].stat = mine._replace(children_user=mine.children_user + 100)  # so that none of it is taken yet
    family.update({me})
    assert family.members.keys() == {me}
    assert family.members[me].credit == 8


def test_a_clock_is_that_of_the_process() -> None:
    mine = throttle.clock(os.getpid())
    assert mine is not None
    assert 0 < mine <= time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)
    assert throttle.clock(4_194_305) is None  # beyond the largest process number


@pytest.mark.parametrize("environment", [{}, {"X": "ASA_GROUP=no/no"}, {"ASA_GROUPS": "no/no"}])
def test_a_mark_is_found_only_where_it_is(environment: dict[str, str]) -> None:
    space = f"census-{os.getpid()}"
    without = subprocess.Popen(["sleep", "1000"], env=environment)
    marked = subprocess.Popen(["sleep", "1000"], env=environment | {"ASA_GROUP": f"{space}/a.b"})
    try:
        until(lambda: throttle.mark(marked.pid) == f"{space}/a.b", "its program is loaded")
        if environment:
            until(lambda: throttle.mark(without.pid) == "", "its program is loaded")
        assert throttle.marked(space) == {"a.b": [marked.pid]}
        assert throttle.marked(space[:-1]) == {}
    finally:
        for process in (without, marked):
            process.kill()
            process.wait()
    assert not throttle.mark(marked.pid)


def test_a_number_that_belongs_to_another_process_by_now_is_left_alone() -> None:
    with sleeper() as process:
        seen = proc.stat(process.pid)
        assert seen is not None
        throttle.TrackedProcess(process.pid, seen._replace(birth=seen.birth - 1), 0.0).signal(signal.SIGUSR1)
        throttle.TrackedProcess(process.pid, seen, 0.0).signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM, "the first of them did not arrive"


def test_a_first_process_whose_number_belongs_to_another_is_not_adopted() -> None:
    families = {"a": ContainerProcesses("none/a")}
    watch = ProcessTable(families)
    with sleeper() as process:
        watch.adopt("a", process.pid, birth(process.pid) - 1)
        assert not families["a"].members
        watch.adopt("a", process.pid, birth(process.pid))
        assert set(families["a"].members) == {process.pid}


def test_a_session_is_forgotten_with_its_last_member() -> None:
    """Its number may be another's after that."""
    family = ContainerProcesses("none/a")
    watch = ProcessTable({"a": family})
    with subprocess.Popen(
        ["sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        try:
            assert leader.stdout
            child = int(leader.stdout.readline())
            watch.adopt("a", leader.pid, birth(leader.pid))
            watch.scan()
            leader.kill()
            leader.wait()
            watch.scan()
            assert (set(family.members), family.sessions) == ({child}, {leader.pid})
            os.kill(child, signal.SIGKILL)
            until(lambda: watch.scan() and not family.members, "its end")
            assert not family.sessions
        finally:
            leader.kill()


def test_a_stranger_is_asked_once_and_again_when_there_is_a_new_family() -> None:
    families: dict[str, ContainerProcesses] = {}
    watch = ProcessTable(families)
    with sleeper(mark="space/late") as process:
        watch.scan()
        families["late"] = ContainerProcesses("space/late")
        watch.scan()
        assert process.pid not in families["late"].members
        watch.forget()
        watch.scan()
        assert process.pid in families["late"].members


def test_cpu_time_before_it_was_found_is_not_charged() -> None:
    families = {"a": ContainerProcesses("none/a")}
    watch = ProcessTable(families)
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as process:
        try:
            while (throttle.clock(process.pid) or 0.0) < 0.2:
                time.sleep(0.01)
            watch.scan()
            watch.adopt("a", process.pid, birth(process.pid))
            began = time.monotonic()
            charged = watch.scan()["a"]
            assert charged <= time.monotonic() - began + 0.1
        finally:
            process.kill()


def test_a_daemon_that_is_met_while_its_program_is_loaded_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    families = {"late": ContainerProcesses("space/late")}
    watch = ProcessTable(families)
    with sleeper(mark="space/late") as process:
        with monkeypatch.context() as patch:
            patch.setattr(throttle, "environment", lambda pid: b"")
            watch.scan()
        assert process.pid not in families["late"].members
        watch.scan()
        assert process.pid in families["late"].members
