"""What every means of keeping quotas must do. Needs nothing but Python, so that it runs in a bare machine as well."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from asa.core.errors import StateError
from asa.log import proc
from executors.cgroup import probe, throttle
from executors.cgroup.group import Group, Quotas
from tests.executors.cgroup import measured
from tests.waiting import until

POINTS = 0.03
PATIENCE_S = 40.0
ROOT = Path(__file__).parents[3]

BURN = "while :; do :; done"
# a daemon: its parent has ended, its session is its own; then a child that does not listen to SIGTERM
FAMILY = """
(setsid sh -c 'sleep 1000 & while :; do sleep 0.05; done' & exit 0)
sh -c 'trap "" TERM; while :; do sleep 0.01; done' &
echo ready; wait
"""
AGENT = """
import subprocess, sys, threading
sys.path.insert(0, {root!r})
from executors.cgroup import probe
quotas = probe.best({space!r}, only={only!r})
for name, script in (("burner", {burn!r}), ("family", {family!r})):
    group = quotas.group(name, weight=1.0, cores=0.05, memory=None)
    process = subprocess.Popen(group.wrap(["/bin/sh", "-c", script]), stdout=subprocess.PIPE, start_new_session=True)
    group.adopt(process.pid)
    if name == "family":
        process.stdout.readline()
    print(process.pid, flush=True)
threading.Event().wait()
"""
_COUNT = itertools.count()


def is_alive(pid: int) -> bool:
    now = proc.stat(pid)
    return now is not None and not now.ended


class Conformance:
    """Run by pytest, and by `tests/vm/inside.py`, which knows no fixtures."""

    only: str

    def setup_method(self) -> None:
        self.earlier = measured.throttles()
        self.space = f"t{os.getpid()}-{next(_COUNT)}"
        self.quotas: Quotas = probe.best(self.space, only=self.only)
        self.children: list[subprocess.Popen[bytes]] = []
        self.groups: list[Group] = []

    def teardown_method(self) -> None:
        """Whatever a test did: nothing is left behind."""
        for group in self.groups:
            group.kill()
        for child in self.children:
            child.wait(PATIENCE_S)
            if child.stdout:
                child.stdout.close()
        for group in self.groups:
            group.close()
            group.close()  # it is gone already
        self.quotas.sweep(())
        until(lambda: not measured.groups_of(self.space), f"no group is left: {measured.groups_of(self.space)}")
        assert not throttle.marked(self.space)
        until(lambda: not measured.throttles() - self.earlier, "no throttle's process is left")

    def start(
        self,
        script: str,
        cores: float | None = None,
        *,
        name: str = "",
        weight: float = 1.0,
        memory: int | None = None,
        ready: bool = False,
    ) -> tuple[Group, int]:
        """A container that runs this shell script."""
        group = self.quotas.group(name or f"c.{len(self.groups)}", weight=weight, cores=cores, memory=memory)
        self.groups.append(group)
        child = subprocess.Popen(group.wrap(["/bin/sh", "-c", script]), stdout=subprocess.PIPE, start_new_session=True)
        self.children.append(child)
        group.adopt(child.pid)
        if ready:
            assert child.stdout
            assert child.stdout.readline() == b"ready\n"
        return group, child.pid

    def burn(self, cores: float | None, processes: int, weight: float = 1.0) -> Group:
        """A container whose processes want a core each, once they are there."""
        script = BURN if processes == 1 else f"sh -c '{BURN}' & " * processes + "wait"
        group, _ = self.start(script, cores, weight=weight)
        wanted = processes + (processes > 1)
        until(lambda: len(group.pids()) == wanted and measured.used(group.pids()) > 0, "all processes run")
        return group

    def keeps(self, limits: Sequence[float], processes: int) -> None:
        """All at once: none uses more than its quota over the window; and what they report is what they used."""
        groups = [self.burn(cores, processes) for cores in limits]
        members = [group.pids() for group in groups]
        reported = [measured.reported(group) for group in groups]
        began, before = measured.readings(members)
        time.sleep(measured.WINDOW_S)  # the window itself
        ended, after = measured.readings(members)
        for cores, group, start, end, (told, seen) in zip(limits, groups, before, after, reported, strict=True):
            share = (end - start) / (ended - began)
            assert share <= cores + POINTS, f"{share:.3f} of a core used, {cores} allowed, {processes} processes"
            assert share > 0.01, "it does not run at all"
            told_now, seen_now = measured.reported(group)
            told, seen = told_now - told, seen_now - seen
            assert abs(told - seen) < 0.1 + 0.1 * seen, f"{told:.3f} s reported, {seen:.3f} s used"

    def test_parts_of_one_core_for_one_process(self) -> None:
        self.keeps([0.25, 0.5, 0.75], 1)

    def test_parts_of_one_core_for_several_processes(self) -> None:
        self.keeps([0.25, 0.5, 0.75], 3)

    def test_parts_of_two_cores(self) -> None:
        if (os.cpu_count() or 1) >= 2:
            self.keeps([0.5, 1.0], 3)

    def test_most_of_two_cores(self) -> None:
        if (os.cpu_count() or 1) >= 2:
            self.keeps([1.5], 4)

    def test_a_lower_limit_is_seen(self) -> None:
        group = self.burn(None, 2)
        group.limit(0.25)
        began, before = measured.readings([group.pids()])
        time.sleep(measured.WINDOW_S)
        ended, after = measured.readings([group.pids()])
        assert (after[0] - before[0]) / (ended - began) <= 0.25 + POINTS

    def test_a_higher_limit_is_seen(self) -> None:
        group = self.burn(0.02, 1)
        for cores in (0.9, None):
            group.limit(cores)
            until(lambda: measured.share(group, 0.3) > 0.1, f"a limit of {cores} after one of 0.02")
            group.limit(0.02)
            until(lambda: measured.share(group, 0.3) < 0.06, f"a limit of 0.02 after one of {cores}")

    def test_weights_are_seen_when_they_change(self) -> None:
        first, second = self.burn(None, 1, 0.5), self.burn(None, 1, 0.5)
        one_core = {min(os.sched_getaffinity(0))}
        for pid in (*first.pids(), *second.pids()):
            os.sched_setaffinity(pid, one_core)
        if self.only == "duty cycle":  # it has none: they share as the kernel sees fit
            first.weigh(0.9)
            assert first.pids() and second.pids()
            return
        assert 0.35 <= measured.part(first, second) <= 0.65, "of 0.5 and 0.5"
        first.weigh(0.9)
        second.weigh(0.1)
        assert 0.8 <= measured.part(first, second) <= 0.97, "of 0.9 and 0.1"
        first.weigh(0.1)
        second.weigh(0.9)
        assert 0.03 <= measured.part(first, second) <= 0.2, "of 0.1 and 0.9"

    def test_a_weight_leaves_the_limit_alone(self) -> None:
        group = self.burn(0.2, 1)
        group.weigh(4.0)
        assert measured.share(group, measured.WINDOW_S) <= 0.2 + POINTS

    def test_all_together_are_kept_to_a_fraction(self) -> None:
        if not self.only.startswith("cgroup"):
            with _raises(StateError):
                self.quotas.bound(0.3)
            return
        self.quotas.bound(0.3)
        for cores in (None, 0.5):  # more than there is for all, which is no reason to be refused
            both = [self.burn(cores, 1), self.burn(0.25, 1)]
            assert 0.15 < measured.together(both) <= 0.3 + POINTS
            for group in both:  # what is around them goes with the last
                group.kill()
                group.close()

    def test_all_together_are_kept_to_another_fraction_while_they_run(self) -> None:
        if not self.only.startswith("cgroup"):
            return
        both = [self.burn(None, 1), self.burn(0.6, 2)]
        until(lambda: measured.together(both, 1.0) > 0.4, "without it")  # others want the machine, too
        for cores in (0.3, 0.2):
            self.quotas.bound(cores)
            assert 0.5 * cores < measured.together(both) <= cores + POINTS
        self.quotas.bound(0.4)
        both[1].limit(0.1)
        assert measured.share(both[1], measured.WINDOW_S) <= 0.1 + POINTS
        until(lambda: measured.together(both, 0.5) > 0.25, "a higher bound is seen")

    def test_usage(self) -> None:
        group = self.burn(0.1, 2)

        def is_throttled() -> bool:
            now = group.usage()
            return (now.throttled or 0) > 2 and (now.throttled_s or 0) > 0

        until(is_throttled, "throttled")
        now = group.usage()
        assert now.periods is not None and now.throttled is not None
        assert 0 < now.throttled <= now.periods

        def has_used_time() -> bool:  # a process's first clock tick may take some periods at this limit
            nonlocal now
            now = group.usage()
            return now.user_s + now.system_s > 0

        until(has_used_time, "time that was used")
        assert (now.processes, now.threads) == (3, 3)
        assert now.memory is None or 0 < now.memory < 1 << 30
        group.limit(None)
        later = group.usage()
        assert later.user_s >= now.user_s
        assert later.system_s >= now.system_s
        assert not group.starved()

    def test_time_of_processes_that_have_ended_counts(self) -> None:
        group, _ = self.start(f"timeout 0.5 sh -c '{BURN}'; echo ready; sleep 1000", ready=True)
        now = group.usage()
        assert now.user_s + now.system_s > 0.05

    def test_a_memory_limit(self) -> None:
        grow = "head -c 400M /dev/zero | tail -c 400M >/dev/null"
        group, _ = self.start(f"{grow}; echo $?", memory=64 << 20)
        limit = group.usage().memory_limit
        if limit is None:
            return  # passed over where memory cannot be limited
        assert limit == 64 << 20
        out = self.children[0].stdout
        assert out
        line = out.readline()
        assert line in (b"137\n", b""), "killed, by itself or with all of its group"
        if line:  # a systemd scope goes with its last process, and what it has counted with it
            assert group.starved()

    def test_how_long_a_processor_is_others(self) -> None:
        """As long as it is not used: where that is measured, of two that want the same one."""
        both = [self.start(f"taskset -c 0 sh -c '{BURN}'", weight=weight)[0] for weight in (2.0, 1.0)]
        until(lambda: all(measured.used(group.pids()) > 0 for group in both), "both run")
        if both[0].usage().waited_s is None:
            return
        before, began = [group.usage() for group in both], time.monotonic()
        time.sleep(measured.WINDOW_S)
        over_s = time.monotonic() - began
        for group, was in zip(both, before, strict=True):
            now = group.usage()
            used = (now.user_s + now.system_s - was.user_s - was.system_s) / over_s
            assert abs(((now.waited_s or 0.0) - (was.waited_s or 0.0)) / over_s - (1 - used)) < 0.1

    def test_memory_that_is_held(self) -> None:
        """It stays about there, alive, while what it waits for is counted; and goes on once it is held no more."""
        grow = "import time; held = []; print('ready', flush=True)\n"
        grow += "while len(held) < 96: held.append(b'x' * (1 << 20)); time.sleep(0.01)\n"
        grow += "print('done', flush=True); time.sleep(1000)"
        group, pid = self.start(f'exec {sys.executable} -S -c "{grow}"', ready=True)
        group.hold_memory(32 << 20)
        if group.usage().stalled_s is not None:
            until(lambda: (group.usage().stalled_s or 0.0) > 0.1, "it waits for memory")
            assert (group.usage().memory or 0) < 90 << 20
        assert is_alive(pid) and not group.starved()
        group.hold_memory(None)
        out = self.children[0].stdout
        assert out
        assert out.readline() == b"done\n"

    def test_all_of_a_family_ends(self) -> None:
        group, _ = self.start(FAMILY, 0.5, ready=True)
        until(lambda: len(group.pids()) >= 5, "the daemon and its child")
        members = group.pids()
        group.kill()
        assert not group.pids()
        assert not [pid for pid in members if is_alive(pid)]
        group.kill()

    def test_processes_that_are_being_forked_end_too(self) -> None:
        group, _ = self.start(
            "n() { sleep 0.01; n & }; for i in 1 2 3 4 5 6; do n & done; echo ready; wait", ready=True
        )
        group.kill()
        assert not group.pids()

    def test_what_outlives_its_first_process_is_still_held_and_ends(self) -> None:
        group, pid = self.start(FAMILY, 0.5, ready=True)
        until(lambda: len(group.pids()) >= 5, "the daemon and its child")
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in group.pids(), "the first process has ended")
        members = group.pids()
        assert members
        group.kill()
        assert not [pid for pid in members if is_alive(pid)]

    def test_a_process_becomes_what_it_was_to_become(self) -> None:
        group = self.quotas.group("exact", weight=2.0, cores=None, memory=None)
        self.groups.append(group)
        strange = ["", " two  words ", 'quote\'s "$HOME" `x` \\', "--", "line\nline", "*"]
        show = "import os, sys; print(os.getpid(), sys.argv[1:], dict(os.environ)); sys.stdout.flush(); sys.exit(37)"
        environment = {"PATH": os.environ["PATH"], "BASH_ENV": "/nonexistent", "BASH_FUNC_module%%": "() { :; }"}
        environment |= {key: value for key, value in os.environ.items() if key in ("XDG_RUNTIME_DIR",)}
        argv = group.wrap([sys.executable, "-I", "-S", "-c", show, *strange])
        child = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, start_new_session=True)
        group.adopt(child.pid)
        said, _ = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 37
        pid, _, rest = said.decode().partition(" ")
        assert int(pid) == child.pid
        assert rest.startswith(repr(strange))
        for key, value in environment.items():
            assert f"{key!r}: {value!r}" in rest

    def test_two_groups_of_one_name(self) -> None:
        self.start("echo ready; sleep 1000", name="twice", ready=True)
        if self.only == "systemd scopes":
            return  # systemd itself refuses the second, when it starts
        with _raises(StateError):
            self.quotas.group("twice", weight=1.0, cores=None, memory=None)

    def test_names_that_are_none(self) -> None:
        for name in ("", ".", "..", "a/b", ".hidden", "a b", "a\n", "x" * 129):
            with _raises(StateError):
                self.quotas.group(name, weight=1.0, cores=None, memory=None)

    def test_another_agent_takes_over(self) -> None:
        with self.agent() as (agent, burner, family):
            agent.kill()
        until(lambda: not measured.throttles() - self.earlier, "what the agent's death leaves to its throttle")
        for pid in (burner, family):
            now = proc.stat(pid)
            assert now is not None and now.state not in "tTZX", "alive, and not stopped"
        assert self.quotas.recover("unknown", 1) is None
        group = self.quotas.recover("burner", burner)
        assert group is not None
        self.groups.append(group)
        group.limit(0.1)
        until(lambda: measured.share(group, 0.3) < 0.2, "the new agent's limit")
        assert burner in group.pids()
        self.quotas.sweep({"burner"})
        until(lambda: not is_alive(family), "swept")
        assert is_alive(burner)
        assert self.quotas.recover("family", family) is None
        group.kill()
        until(lambda: not is_alive(burner), "killed")

    def test_nothing_is_left_of_a_dead_agent(self) -> None:
        with self.agent() as (agent, burner, family):
            agent.kill()
        self.quotas.sweep(())
        until(lambda: not is_alive(burner) and not is_alive(family), "swept")
        assert not measured.groups_of(self.space)
        self.quotas.sweep(())

    @contextmanager
    def agent(self) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
        """Another program with two containers; their first processes."""
        code = AGENT.format(root=str(ROOT), space=self.space, only=self.only, burn=BURN, family=FAMILY)
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as agent:
            try:
                assert agent.stdout
                yield agent, int(agent.stdout.readline()), int(agent.stdout.readline())
            finally:
                agent.kill()


@contextmanager
def _raises(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
