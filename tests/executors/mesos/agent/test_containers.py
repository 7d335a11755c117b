"""Containers: how they run, what they may use, and what becomes of them without their agent or shim."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.cgroup import probe
from executors.cgroup.group import Group, Quotas
from executors.cgroup.kernel import V1
from executors.mesos.agent.containers import NodeContainers, SessionGroup, Unlimited
from executors.mesos.agent.shim import birth_of, status_file
from executors.mesos.agent.state import OUT_OF_MEMORY, ContainerSpec
from tests.executors.mesos.agent.contained import PATIENCE_S, Heard, Place, Victims, play, shim_of
from tests.waiting import until


def test_it_runs_in_its_sandbox_with_its_own_environment_and_session(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        script = 'pwd; echo "$A"; ps -o sid= -p $$; cat; echo oops >&2; exit 3'
        containers.start(place.container("c1", "/bin/sh", "-c", script, A="b c"))
        assert await heard.end_of("c1") == (3, "")
        sandbox = place.path / "sandboxes" / "c1"
        directory, variable, session = place.output("c1").split("\n")[:3]
        assert (directory, variable) == (str(sandbox), "b c")
        assert int(session) == heard.began["c1"][0]
        assert (sandbox / "stderr").read_text() == "oops\n"
        assert stat.S_IMODE(sandbox.stat().st_mode) == 0o700
        assert stat.S_IMODE((sandbox / "stdout").stat().st_mode) == 0o600
        assert "SECRET" not in place.output("c1")

    play(place, story)


def test_a_program_is_found_on_its_own_path(place: Place, tmp_path: Path) -> None:
    (tmp_path / "hello").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "hello").chmod(0o700)

    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "hello", PATH=f"/nowhere:{tmp_path}"))
        containers.start(place.container("c2", "hello"))
        assert await heard.end_of("c1") == (0, "")
        code, reason = await heard.end_of("c2")
        assert code is None and "hello" in reason and "PATH" in reason
        assert place.output("c1") == "found\n"

    play(place, story)


def test_without_its_directory_no_agent_starts(place: Place) -> None:
    place.run.rmdir()

    async def story() -> None:
        containers = place.containers(Heard())
        with pytest.raises(StateError, match=r"cannot start the process that starts containers: .*shim\.log"):
            await containers.open()
        await containers.close()

    asyncio.run(story())


def test_what_is_told_of_containers_that_nobody_knows_is_passed_over(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.limit("c9", 1.0)
        containers.start(place.container("c1", "/bin/true"))
        assert await heard.end_of("c1") == (0, "")

    play(place, story)


def test_signals_are_as_a_program_expects_them(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "yes | head -n 1; grep Sig[IB] /proc/self/status"))
        assert await heard.end_of("c1") == (0, "")
        yes, blocked, ignored = place.output("c1").splitlines()
        assert yes == "y" and int(blocked.split()[1], 16) == 0
        assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0  # two more are the C library's own

    play(place, story)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: place.container("c1", "/no/such/program"), ["/no/such/program", "No such file"]),
        (lambda place: place.container("c1", "/bin/true", A="null\0byte"), ["null byte"]),
        (lambda place: place.container("c1", "/bin/true", A="x" * (1 << 18)), ["Argument list too long"]),
        (lambda place: place.container("c1", "/bin/true")._replace(sandbox="/proc/nowhere/x"), ["/proc/nowhere"]),
    ],
)
def test_what_cannot_be_started_says_why(
    place: Place, make: Callable[[Place], ContainerSpec], words: list[str]
) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(make(place))
        code, reason = await heard.end_of("c1")
        assert code is None and all(word in reason for word in words), reason
        containers.start(place.container("c2", "/bin/true"))
        assert await heard.end_of("c2") == (0, ""), "the others live on"

    play(place, story)


def test_a_signal_is_told_as_a_negative_number(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "kill -9 $$"))
        assert await heard.end_of("c1") == (-9, "")

    play(place, story)


def test_stop_asks_first(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        script = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep .01; done"
        containers.start(place.container("c1", "/bin/sh", "-c", script))
        await heard.pid_of("c1")
        await asyncio.to_thread(until, lambda: "ready" in place.output("c1"))
        containers.stop("c1", PATIENCE_S)
        assert await heard.end_of("c1") == (7, "")
        assert place.output("c1").splitlines() == ["ready", "bye"]

    play(place, story)


def test_stop_ends_the_deaf(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        script = "trap '' TERM; echo ready; while :; do sleep 1; done"
        containers.start(place.container("c1", "/bin/sh", "-c", script))
        await heard.pid_of("c1")
        await asyncio.to_thread(until, lambda: "ready" in place.output("c1"))
        containers.stop("c1", 0.05)
        assert (await heard.end_of("c1"))[0] == -9

    play(place, story)


def test_stop_before_it_has_started(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sleep", "1000"))
        containers.stop("c1", 0.0)
        containers.limit("c1", 0.5)
        assert (await heard.end_of("c1"))[0] == -9

    play(place, story)


def test_when_its_first_process_ends_so_do_the_others(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "sleep 1000 & echo $!"))
        assert await heard.end_of("c1") == (0, "")
        assert birth_of(int(place.output("c1"))) is None

    play(place, story)


def test_many_at_once(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        names = [f"c{k}" for k in range(60)]
        for name in names:
            containers.start(place.container(name, "/bin/sh", "-c", f"exit {int(name[1:]) % 7}"))
        for name in names:
            assert await heard.end_of(name) == (int(name[1:]) % 7, "")

    play(place, story)


def test_usage_is_of_those_that_run(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "while :; do :; done"))
        containers.start(place.container("c2", "/bin/true"))
        await heard.end_of("c2")
        await heard.pid_of("c1")
        await asyncio.to_thread(until, lambda: containers.usage()["c1"].user_s > 0)
        usage = containers.usage()
        assert set(usage) == {"c1"} and usage["c1"].processes == 1 and (usage["c1"].memory or 0) > 0

    play(place, story)


# ------------------------------------------------------- containers left


def test_a_shim_that_was_killed_is_replaced_and_its_containers_are_watched(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "while [ ! -e go ]; do sleep .01; done"))
        pid = await heard.pid_of("c1")
        os.kill(shim_of(pid), signal.SIGKILL)
        await asyncio.to_thread(until, lambda: "another takes its place" in caplog.text)
        containers.start(place.container("c2", "/bin/true"))
        assert await heard.end_of("c2") == (0, "")
        assert "c1" not in heard.ends
        (place.path / "sandboxes" / "c1" / "go").touch()
        code, reason = await heard.end_of("c1")
        assert code is None and "not known" in reason

    play(place, story)


def test_what_runs_goes_on_without_an_agent_and_is_taken_over(place: Place, victims: Victims) -> None:
    heard = Heard()

    async def first() -> None:
        containers = place.containers(heard)
        await containers.open()
        for name, code in (("c1", 4), ("c2", 5)):
            script = f"while [ ! -e go ]; do sleep .01; done; exit {code}"
            containers.start(place.container(name, "/bin/sh", "-c", script))
            victims.add(await heard.pid_of(name))
        containers.abandon()

    asyncio.run(first())
    (place.path / "sandboxes" / "c1" / "go").touch()
    until(lambda: status_file(place.run, "c1").exists())
    assert birth_of(heard.began["c2"][0]) == heard.began["c2"][1]

    async def second() -> None:
        heard = Heard()
        containers = place.containers(heard)
        lock = place.hold()
        await containers.open([(name, *born) for name, born in began.items()])
        try:
            assert await heard.end_of("c1") == (4, "")
            assert "c2" not in heard.ends
            assert containers.usage()["c2"].processes >= 1
            (place.path / "sandboxes" / "c2" / "go").touch()
            assert await heard.end_of("c2") == (5, "")
            containers.remove("c1")
            assert not status_file(place.run, "c1").exists()
        finally:
            await containers.close()
            os.close(lock)

    began = heard.began
    asyncio.run(second())


def leave(place: Place, victims: Victims) -> Heard:
    """An agent dies, and leaves a container behind."""
    heard = Heard()

    async def life() -> None:
        containers = place.containers(heard)
        await containers.open()
        containers.start(place.container("c1", "/bin/sh", "-c", "sleep 1000 & sleep 1000"))
        victims.add(await heard.pid_of("c1"))
        containers.abandon()

    asyncio.run(life())
    return heard


def test_an_adopted_container_can_be_stopped(place: Place, victims: Victims) -> None:
    heard = leave(place, victims)

    async def second() -> None:
        later = Heard()
        containers = place.containers(later)
        await containers.open([("c1", *heard.began["c1"])])
        try:
            containers.stop("c1", PATIENCE_S)
            assert (await later.end_of("c1"))[0] == -15
        finally:
            await containers.close()

    asyncio.run(second())


def test_without_an_agent_the_shim_ends_them(place: Place, victims: Victims) -> None:
    place.grace_s = 0.2
    leave(place, victims)
    until(lambda: status_file(place.run, "c1").exists())
    assert birth_of(victims.pids[0]) is None


def test_a_process_that_others_took_the_number_of_is_let_be(place: Place) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    try:
        birth = birth_of(bystander.pid)
        assert birth is not None

        async def life() -> None:
            heard = Heard()
            containers = place.containers(heard)
            await containers.open([("c1", bystander.pid, birth - 1)])
            try:
                code, reason = await heard.end_of("c1")
                assert code is None and reason
            finally:
                await containers.close()

        asyncio.run(life())
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_no_agent_has_noted_is_ended(place: Place, victims: Victims) -> None:
    leave(place, victims)

    async def second() -> None:
        containers = place.containers(Heard())
        await containers.open()
        await containers.close()

    asyncio.run(second())
    assert birth_of(victims.pids[0]) is None


# ------------------------------------------------------- containers limits


def by_groups(space: str) -> Quotas:
    """Quotas of version 1 that limit memory."""
    quotas = probe.best(space, V1.name)
    if "memory" not in quotas.why:
        raise StateError("no memory controller of version 1 is ours")
    return quotas


class Told(SessionGroup):
    """A group that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[tuple[str, float | None]] = []

    def limit(self, cores: float | None) -> None:
        self.words.append(("limit", cores))

    def weigh(self, weight: float) -> None:
        self.words.append(("weigh", weight))


class Telling(Unlimited):
    def __init__(self) -> None:
        self.made: list[Told] = []

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Group:
        self.made.append(Told())
        return self.made[-1]


def test_the_last_of_several_limits_and_weights_counts(place: Place) -> None:
    place.quotas = quotas = Telling()

    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sleep", "1000"))
        await heard.pid_of("c1")
        (told,) = quotas.made
        containers.weigh("c1", 0.5)
        containers.weigh("c1", 0.001)
        await asyncio.to_thread(until, lambda: told.words != [])
        assert told.words == [("weigh", 0.01)], "its limit was not spoken of"
        for cores in (0.5, 1.0, None):
            containers.limit("c1", cores)
            containers.weigh("c1", 2.0)
        await asyncio.to_thread(until, lambda: len(told.words) > 2)
        containers.weigh("c1", 2.0)
        containers.limit("c1", None)
        containers.limit("c1", 0.25)
        await asyncio.to_thread(until, lambda: len(told.words) > 3)
        assert told.words[1:] == [("limit", None), ("weigh", 2.0), ("limit", 0.25)]
        containers.weigh("nobody", 1.0)

    play(place, story)


@pytest.mark.root
def test_a_container_that_wants_too_much_memory(place: Place) -> None:
    try:
        place.quotas = by_groups(f"memory-{os.getpid()}")
    except StateError as error:
        pytest.skip(f"memory cannot be limited here: {error}")

    async def story(containers: NodeContainers, heard: Heard) -> None:
        grow = f"""{sys.executable} -S -c 'b"x" * (200 << 20)'"""
        for name, script in {
            "alone": f"exec {grow}",
            "child": f"{grow}; exit 3",
            "borne": f"{grow}; exit 0",
            "other": "kill -KILL $$",
        }.items():
            containers.start(place.container(name, "/bin/sh", "-c", script)._replace(memory=32 << 20))
        assert await heard.end_of("alone") == (-9, OUT_OF_MEMORY)
        assert await heard.end_of("child") == (3, OUT_OF_MEMORY)
        assert await heard.end_of("borne") == (0, "")
        assert await heard.end_of("other") == (-9, "")

    play(place, story)


class Gone(SessionGroup):
    """A group of which nothing can be learned any more."""

    def starved(self) -> bool:
        raise StateError("its directory is gone")


def test_an_end_is_told_even_where_its_cause_cannot_be_found_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "quotas", Unlimited())
    monkeypatch.setattr(Unlimited, "group", lambda self, name, **limits: Gone())

    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "exit 7"))
        assert await heard.end_of("c1") == (7, "")

    play(place, story)
