"""Containers whose agent, or whose shim, is gone."""

import asyncio
import os
import signal
import subprocess
import sys

from executors.mesos.agent.containers import NodeContainers
from executors.mesos.agent.shim import birth_of, status_file
from tests.executors.mesos.agent.contained import PATIENCE_S, Heard, Place, Victims, play, shim_of
from tests.waiting import until


def test_a_shim_that_was_killed_is_replaced_and_its_containers_are_watched(place: Place) -> None:
    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", "/bin/sh", "-c", "while [ ! -e go ]; do sleep .01; done"))
        pid = await heard.pid_of("c1")
        os.kill(shim_of(pid), signal.SIGKILL)
        await asyncio.to_thread(until, lambda: _start_works(containers))
        containers.start(place.container("c2", "/bin/true"))
        assert await heard.end_of("c2") == (0, "")
        assert "c1" not in heard.ends
        (place.path / "sandboxes" / "c1" / "go").touch()
        code, reason = await heard.end_of("c1")
        assert code is None and "not seen" in reason

    def _start_works(containers: NodeContainers) -> bool:
        return containers._launcher._writer is None

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
