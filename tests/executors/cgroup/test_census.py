from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from asa.log import proc
from executors.cgroup import throttle
from executors.cgroup.throttle import ContainerProcesses, ProcessTable, TrackedProcess
from tests.waiting import until

pytestmark = pytest.mark.slow

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
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            seen = proc.stat(process.pid)
            assert seen is not None
            throttle.TrackedProcess(process.pid, seen._replace(birth=seen.birth - 1), 0.0).signal(signal.SIGUSR1)
            throttle.TrackedProcess(process.pid, seen, 0.0).signal(signal.SIGTERM)
            assert process.wait() == -signal.SIGTERM, "the first of them did not arrive"
        finally:
            process.kill()


def test_a_first_process_whose_number_belongs_to_another_is_not_adopted() -> None:
    families = {"a": ContainerProcesses("none/a")}
    watch = ProcessTable(families)
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            watch.adopt("a", process.pid, birth(process.pid) - 1)
            assert not families["a"].members
            watch.adopt("a", process.pid, birth(process.pid))
            assert set(families["a"].members) == {process.pid}
        finally:
            process.kill()


def test_a_session_is_forgotten_with_its_last_member() -> None:
    """Its number may be given to anybody after that."""
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
    with subprocess.Popen(["sleep", "1000"], env={"ASA_GROUP": "space/late"}) as process:
        try:
            until(lambda: throttle.mark(process.pid) == "space/late", "its program is loaded")
            watch.scan()
            families["late"] = ContainerProcesses("space/late")
            watch.scan()
            assert process.pid not in families["late"].members
            watch.forget()
            watch.scan()
            assert process.pid in families["late"].members
        finally:
            process.kill()


def test_a_history_is_not_charged_to_who_is_found_late() -> None:
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
    with subprocess.Popen(["sleep", "1000"], env={"ASA_GROUP": "space/late"}, start_new_session=True) as process:
        try:
            until(lambda: throttle.mark(process.pid) == "space/late", "its program is loaded")
            with monkeypatch.context() as patch:
                patch.setattr(throttle, "environment", lambda pid: b"")
                watch.scan()
            assert process.pid not in families["late"].members
            watch.scan()
            assert process.pid in families["late"].members
        finally:
            process.kill()
