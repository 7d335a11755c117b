import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos.agent.containers import NodeContainers
from executors.mesos.agent.shim import birth_of
from executors.mesos.agent.state import ContainerSpec
from tests.executors.mesos.agent.contained import PATIENCE_S, Heard, Place, play
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
