"""Containers: how they run and end, their limits, without their agent or shim, and the directories they run in."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.cgroup import probe
from executors.cgroup.group import Group, Quotas
from executors.cgroup.kernel import V1
from executors.mesos.agent.containers import NodeContainers, SessionGroup, Unlimited
from executors.mesos.agent.shim import ForkedShim, advice, birth_of, process_file, status_file
from executors.mesos.agent.state import OUT_OF_MEMORY, ContainerSpec
from executors.mesos.agent.storage import WorkDirectory, own_place, remove_abandoned
from tests.executors.mesos.agent.contained import PATIENCE_S, Heard, Place, Victims, alive, play, shim_of
from tests.waiting import until


@alive
async def test_it_runs_in_its_sandbox_with_its_own_environment_and_session(
    place: Place, containers: NodeContainers, heard: Heard
) -> None:
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


@alive
async def test_signals_are_as_a_program_expects_them(place: Place, containers: NodeContainers, heard: Heard) -> None:
    containers.start(place.container("c1", "/bin/sh", "-c", "yes | head -n 1; grep Sig[IB] /proc/self/status"))
    assert await heard.end_of("c1") == (0, "")
    yes, blocked, ignored = place.output("c1").splitlines()
    assert yes == "y" and int(blocked.split()[1], 16) == 0
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF == 0  # two more are the C library's own


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda place: place.container("c1", "/no/such/program"), ["/no/such/program", "No such file"]),
        (lambda place: place.container("c1", "/bin/true", A="null\0byte"), ["null byte"]),
        (lambda place: place.container("c1", "/bin/true", A="x" * (1 << 18)), ["Argument list too long"]),
        (lambda place: place.container("c1", "/bin/true")._replace(sandbox="/proc/nowhere/x"), ["/proc/nowhere"]),
    ],
)
def test_the_reason_why_a_container_cannot_be_started_is_reported(
    place: Place, make: Callable[[Place], ContainerSpec], words: list[str]
) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(make(place))
        code, reason = await heard.end_of("c1")
        assert code is None and all(word in reason for word in words), reason
        containers.start(place.container("c2", "/bin/true"))
        assert await heard.end_of("c2") == (0, ""), "the others live on"

    play(place, story)


@pytest.mark.parametrize(
    ("trap", "grace_s", "code", "output"),
    [("echo bye; exit 7", PATIENCE_S, 7, ["ready", "bye"]), ("", 0.05, -9, ["ready"])],
    ids=["asks first", "ends those that do not heed that"],
)
def test_stop(place: Place, trap: str, grace_s: float, code: int, output: list[str]) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        script = f"trap '{trap}' TERM; echo ready; while :; do sleep .01; done"
        containers.start(place.container("c1", "/bin/sh", "-c", script))
        await heard.pid_of("c1")
        await asyncio.to_thread(until, lambda: "ready" in place.output("c1"))
        containers.stop("c1", grace_s)
        assert (await heard.end_of("c1"))[0] == code
        assert place.output("c1").splitlines() == output

    play(place, story)


@alive
async def test_stop_before_it_has_started(place: Place, containers: NodeContainers, heard: Heard) -> None:
    containers.start(place.container("c1", "/bin/sleep", "1000"))
    containers.stop("c1", 0.0)
    containers.limit("c1", 0.5)
    containers.limit("c9", 1.0)  # one that is not known
    assert (await heard.end_of("c1"))[0] == -9


@alive
async def test_when_its_first_process_ends_so_do_the_others(
    place: Place, containers: NodeContainers, heard: Heard
) -> None:
    containers.start(place.container("c1", "/bin/sh", "-c", "sleep 1000 & echo $!"))
    assert await heard.end_of("c1") == (0, "")
    assert birth_of(int(place.output("c1"))) is None


@alive
async def test_many_at_once(place: Place, containers: NodeContainers, heard: Heard) -> None:
    names = [f"c{k}" for k in range(60)]
    for name in names:
        containers.start(place.container(name, "/bin/sh", "-c", f"exit {int(name[1:]) % 7}"))
    for name in names:
        assert await heard.end_of(name) == (int(name[1:]) % 7, "")


@alive
async def test_usage_is_of_those_that_run(place: Place, containers: NodeContainers, heard: Heard) -> None:
    containers.start(place.container("c1", "/bin/sh", "-c", "while :; do :; done"))
    containers.start(place.container("c2", "/bin/true"))
    await heard.end_of("c2")
    await heard.pid_of("c1")
    await asyncio.to_thread(until, lambda: containers.usage()["c1"].user_s > 0)
    usage = containers.usage()
    assert set(usage) == {"c1"} and usage["c1"].processes == 1 and (usage["c1"].memory or 0) > 0


# ------------------------------------------------------- forked rather than started

LOOK = """
import json, os, signal, sys, time
ends = []
for name in os.listdir("/proc/self/fd"):
    try:
        ends.append(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        pass
print(json.dumps({
    "leads": os.getpid() == os.getsid(0) == os.getpgrp(), "cwd": os.getcwd(), "environment": dict(os.environ),
    "zone": time.tzname, "signals": {n: str(signal.getsignal(n)) for n in signal.valid_signals()},
    "blocked": [*signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "opened": sorted(end for end in ends if not end.startswith(("/proc", "/dev/null"))),
    "input": os.read(0, 1).decode(), "words": sys.argv[1:],
}))
print("on error", file=sys.stderr)
"""
LIKE_OURS = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "L"))}


def life_of(place: Place, code: str, *words: str, forked: bool, **environment: str) -> tuple[int | None, str, str]:
    """How a Python program ended as a container, and what it wrote."""
    variables = json.dumps(LIKE_OURS | environment)
    argv = [sys.executable, "-m", "tests.executors.mesos.agent.contained", str(place.path), str(int(forked)), variables]
    ended = subprocess.run([*argv, code, *words], capture_output=True, check=True, text=True)
    sandbox = place.path / "sandboxes" / "c1"
    found = int(ended.stdout), (sandbox / "stdout").read_text(), (sandbox / "stderr").read_text()
    shutil.rmtree(sandbox)
    return found


def test_a_forked_program_finds_what_a_started_one_finds(place: Place) -> None:
    (code, out, err), started = (
        life_of(place, LOOK, "a", "b c", forked=forked, TZ="Asia/Tokyo", OWN="x") for forked in (True, False)
    )
    assert (code, json.loads(out), err) == (started[0], json.loads(started[1]), started[2])
    assert code == 0 and json.loads(out)["leads"] and json.loads(out)["words"] == ["a", "b c"]


@pytest.mark.parametrize("code", ["raise SystemExit(7)", "raise SystemExit", "raise SystemExit('why')", "1 / 0", ""])
def test_a_forked_program_ends_like_a_started_one(place: Place, code: str) -> None:
    assert life_of(place, code, forked=True)[0] == life_of(place, code, forked=False)[0]


def test_with_another_python_it_is_started(place: Place) -> None:
    """With a variable that Python reads when it starts."""
    code = "import sys; print(sys.flags.optimize, 'asyncio' in sys.modules)"
    assert life_of(place, code, forked=True)[1] == "0 True\n", "forked from a process that has loaded more"
    assert life_of(place, code, forked=True, PYTHONOPTIMIZE="1")[1] == "1 False\n"


def test_a_forked_shim_that_is_not_needed_ends_with_its_agent() -> None:
    shim = ForkedShim({})
    shim.socket.close()
    shim.wait(PATIENCE_S)
    assert birth_of(shim.pid) is None


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
        async with next_life(place, *((name, *born) for name, born in heard.began.items())) as (containers, later):
            assert await later.end_of("c1") == (4, "")
            assert "c2" not in later.ends
            assert containers.usage()["c2"].processes >= 1
            (place.path / "sandboxes" / "c2" / "go").touch()
            assert await later.end_of("c2") == (5, "")
            containers.remove("c1")
            assert not status_file(place.run, "c1").exists()

    asyncio.run(second())


@contextlib.asynccontextmanager
async def next_life(place: Place, *earlier: tuple[str, int, int]) -> AsyncIterator[tuple[NodeContainers, Heard]]:
    """Another agent, that takes over what runs."""
    heard, lock = Heard(), place.hold()
    containers = place.containers(heard)
    await containers.open(earlier)
    try:
        yield containers, heard
    finally:
        await containers.close()
        os.close(lock)


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
    born = leave(place, victims).began["c1"]

    async def second() -> None:
        async with next_life(place, ("c1", *born)) as (containers, heard):
            containers.stop("c1", PATIENCE_S)
            assert (await heard.end_of("c1"))[0] == -15

    asyncio.run(second())


def test_without_an_agent_the_shim_ends_them(place: Place, victims: Victims) -> None:
    place.grace_s = 0.2
    leave(place, victims)
    until(lambda: status_file(place.run, "c1").exists())
    assert birth_of(victims.pids[0]) is None


def test_another_process_with_the_number_of_one_that_has_ended_goes_on(place: Place) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True) as bystander:
        birth = birth_of(bystander.pid)
        assert birth is not None

        async def life() -> None:
            async with next_life(place, ("c1", bystander.pid, birth - 1)) as (_, heard):
                code, reason = await heard.end_of("c1")
                assert code is None and reason

        asyncio.run(life())
        assert bystander.poll() is None
        bystander.kill()


def test_containers_that_no_journal_knows_are_ended(place: Place, victims: Victims) -> None:
    leave(place, victims)

    async def second() -> None:
        async with next_life(place):
            pass

    asyncio.run(second())
    assert birth_of(victims.pids[0]) is None


# ------------------------------------------------------- containers limits


def by_groups(space: str) -> Quotas:
    """Quotas of version 1 that limit memory."""
    quotas = probe.best(space, V1.name)
    if "memory" not in quotas.why:
        raise StateError("no memory controller of version 1 is ours")
    return quotas


class Noting(SessionGroup):
    """A group that notes its limits and weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[tuple[str, float | None]] = []

    def limit(self, cores: float | None) -> None:
        self.words.append(("limit", cores))

    def weigh(self, weight: float) -> None:
        self.words.append(("weigh", weight))

    def hold_memory(self, memory: int | None) -> None:
        self.words.append(("memory", memory))


class NotingQuotas(Unlimited):
    def __init__(self) -> None:
        self.made: list[Noting] = []

    def group(self, name: str, *, weight: float, cores: float | None, memory: int | None) -> Group:
        self.made.append(Noting())
        return self.made[-1]


def test_the_last_of_several_limits_and_weights_counts(place: Place) -> None:
    place.quotas = quotas = NotingQuotas()

    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sleep", "1000"))
        await heard.pid_of("c1")
        (group,) = quotas.made
        containers.weigh("c1", 0.5)
        containers.weigh("c1", 0.001)
        await asyncio.to_thread(until, lambda: group.words != [])
        assert group.words == [("weigh", 0.01)], "its limit was not changed"
        for cores in (0.5, 1.0, None):
            containers.limit("c1", cores)
            containers.weigh("c1", 2.0)
        await asyncio.to_thread(until, lambda: len(group.words) > 2)
        containers.weigh("c1", 2.0)
        containers.limit("c1", None)
        containers.limit("c1", 0.25)
        await asyncio.to_thread(until, lambda: len(group.words) > 3)
        assert group.words[1:] == [("limit", None), ("weigh", 2.0), ("limit", 0.25)]
        containers.weigh("c9", 1.0)

    play(place, story)


def test_all_processes_of_a_container_get_a_signal(place: Place) -> None:
    place.quotas = quotas = NotingQuotas()

    async def story(containers: NodeContainers, heard: Heard) -> None:
        child = "sh -c 'trap \"echo child >>told; exit\" USR1; echo >>ready; while :; do sleep 0.01; done'"
        script = f"cd {place.run.parent}; trap 'echo parent >>told' USR1; {child} & wait; wait; exit 5"
        containers.start(place.container("c1", "/bin/sh", "-c", script))
        await asyncio.to_thread(until, (place.run.parent / "ready").exists)
        containers.hold_memory("c1", 1 << 20)
        containers.signal("c1", signal.SIGUSR1)
        assert await heard.end_of("c1") == (5, "")
        assert sorted((place.run.parent / "told").read_text().split()) == ["child", "parent"]
        assert quotas.made[0].words == [("memory", 1 << 20)]
        for name in ("c1", "c9"):
            containers.hold_memory(name, None)
            containers.signal(name, signal.SIGUSR1)

    play(place, story)


@pytest.mark.root
def test_a_container_beyond_its_memory_limit_is_killed(place: Place) -> None:
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
    """A group whose directory is gone."""

    def starved(self) -> bool:
        raise StateError("its directory is gone")


def test_an_end_is_reported_where_its_cause_cannot_be_found_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unlimited, "group", lambda self, name, **limits: Gone())

    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "exit 7"))
        assert await heard.end_of("c1") == (7, "")

    play(place, story)


# ------------------------------------------------------- directories


PREFIX = f"asa-agent-{os.geteuid()}-"


def test_a_lock_that_leads_elsewhere_is_not_taken(tmp_path: Path) -> None:
    directory = WorkDirectory(tmp_path / "work")
    (tmp_path / "work").mkdir(0o700)
    directory.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=f"cannot lock {directory.lock}"):
        directory.hold()
    assert not (tmp_path / "elsewhere").exists()


def test_a_directory_that_is_removed_while_it_is_waited_for_is_made_again(tmp_path: Path) -> None:
    first, second = WorkDirectory(tmp_path / "work"), WorkDirectory(tmp_path / "work")
    first.hold()
    waiting = threading.Thread(target=second.hold)
    waiting.start()
    shutil.rmtree(first.path)
    first.release()
    waiting.join(10)
    assert second.lock.exists()
    with pytest.raises(StateError, match="another agent works in"):
        WorkDirectory(tmp_path / "work").hold()
    second.release()


def killed(path: Path) -> None:
    """An agent that holds this directory is killed."""
    script = "import os, signal; from pathlib import Path; from executors.mesos.agent.storage import WorkDirectory\n"
    script += f"WorkDirectory(Path({str(path)!r})).hold(); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", script], check=False)
    (path / "run").mkdir(0o700)


def test_what_killed_agents_have_left_is_removed(tmp_path: Path) -> None:
    abandoned, busy, held = (tmp_path / f"{PREFIX}{name}" for name in ("abandoned", "busy", "held"))
    killed(abandoned)
    process_file(abandoned / "run", "c1").write_text(f"{os.getpid()} 1")  # a number that is another process's by now
    killed(busy)
    with subprocess.Popen(["/bin/sleep", "1000"]) as container:
        process_file(busy / "run", "c1").write_text(f"{container.pid} {birth_of(container.pid)}")
        directory = WorkDirectory(held)
        directory.hold()
        assert remove_abandoned(tmp_path, PREFIX) == [abandoned]
        assert sorted(path.name for path in tmp_path.iterdir()) == [busy.name, held.name]
        container.kill()
    until(lambda: remove_abandoned(tmp_path, PREFIX) == [busy])
    directory.release()


@pytest.mark.parametrize(("age_s", "swept"), [(3500.0, False), (3700.0, True)])
def test_what_an_agent_left_that_died_before_it_had_its_lock_is_removed_when_it_is_old(
    tmp_path: Path, age_s: float, swept: bool
) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir(0o700)
    (left / "half").touch()
    os.utime(left, (time.time() - age_s,) * 2)
    assert remove_abandoned(tmp_path, PREFIX) == ([left] if swept else [])
    assert left.exists() is not swept and not (left / "lock").exists()


def test_what_only_looks_like_an_agents_directory_is_left_alone(tmp_path: Path) -> None:
    killed(tmp_path / "target")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "target")
    (tmp_path / f"{PREFIX}file").touch()
    (tmp_path / f"{PREFIX}empty").mkdir()
    (tmp_path / "others").mkdir()
    assert remove_abandoned(tmp_path, PREFIX) == []
    assert len(list(tmp_path.iterdir())) == 5 and (tmp_path / "target" / "lock").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_directories_of_others_are_left_alone(tmp_path: Path) -> None:
    killed(tmp_path / f"{PREFIX}theirs")
    os.chown(tmp_path / f"{PREFIX}theirs", 54321, -1)
    assert remove_abandoned(tmp_path, PREFIX) == []


def test_another_user_cannot_take_the_name_of_a_work_directory(tmp_path: Path) -> None:
    plain = tmp_path / f"{PREFIX}key"
    assert own_place(plain) == plain
    plain.mkdir(0o700)
    assert own_place(plain) == plain
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user")
    os.chown(plain, 54321, -1)
    place = own_place(plain)
    assert place.parent == tmp_path and place != plain and place.name.startswith(PREFIX)
    for taken in (f"{plain}.", f"{plain}.zzz"):
        os.mkdir(taken)
        os.chown(taken, 54321, -1)
    assert own_place(plain) == place, "started again, it finds its containers"
    directory = WorkDirectory(place)
    directory.hold()
    directory.release()


@pytest.mark.parametrize(("number", "says"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.ENOENT, False)])
def test_what_to_do_where_nothing_can_be_written(number: int, says: bool) -> None:
    assert ("free some space" in advice(OSError(number, "x"))) is says
