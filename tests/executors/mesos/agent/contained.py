"""An agent's containers without the agent: their directories and their callbacks."""

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from asa.log import proc
from executors.cgroup.group import Quotas
from executors.mesos.agent.containers import NodeContainers, OrphanPolicy, Unlimited
from executors.mesos.agent.shim import ForkedShim, birth_of
from executors.mesos.agent.state import ContainerSpec

PATIENCE_S = 20.0


class Heard:
    """The callbacks of containers."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[int, int]] = {}
        self.ends: dict[str, tuple[int | None, str]] = {}
        self.news = asyncio.Event()

    def started(self, container: str, pid: int, birth: int) -> None:
        self.began[container] = pid, birth
        self.news.set()

    def exited(self, container: str, code: int | None, reason: str) -> None:
        assert container not in self.ends, "reported twice"
        self.ends[container] = code, reason
        self.news.set()

    async def until(self, found: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not found():
                self.news.clear()
                await self.news.wait()

    async def end_of(self, container: str) -> tuple[int | None, str]:
        await self.until(lambda: container in self.ends)
        return self.ends[container]

    async def pid_of(self, container: str) -> int:
        await self.until(lambda: container in self.began)
        return self.began[container][0]


class Place:
    """An agent's directories."""

    def __init__(self, path: Path, forked: ForkedShim | None = None) -> None:
        self.path, self.run, self.lock = path, path / "run", path / "lock"
        self.forked = forked
        self.run.mkdir(0o700, exist_ok=True)
        self.lock.touch(0o600)
        self.grace_s = 900.0
        self.quotas: Quotas = Unlimited()

    def hold(self) -> int:
        """Lock, as a living agent does."""
        descriptor = os.open(self.lock, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def container(self, name: str, *argv: str, **environment: str) -> ContainerSpec:
        sandbox = str(self.path / "sandboxes" / name)
        variables = {"PATH": os.environ["PATH"]} | environment
        return ContainerSpec(name, "F", name, argv, variables, sandbox, 1.0, None, None)

    def output(self, name: str) -> str:
        return (self.path / "sandboxes" / name / "stdout").read_text()

    def containers(self, heard: Heard) -> NodeContainers:
        policy = OrphanPolicy(self.grace_s, forked=self.forked)
        return NodeContainers(self.quotas, self.run, self.lock, policy, started=heard.started, exited=heard.exited)


def play(place: Place, story: Callable[[NodeContainers, Heard], Awaitable[None]]) -> None:
    """One agent's life, at the end of which nothing runs any more."""

    async def life() -> None:
        heard = Heard()
        containers = place.containers(heard)
        lock = place.hold()
        await containers.open()
        try:
            await asyncio.wait_for(story(containers, heard), 2 * PATIENCE_S)
        finally:
            await containers.close()
            os.close(lock)
        assert not any(birth_of(pid) == birth for pid, birth in heard.began.values())

    asyncio.run(life())


def alive(story: Callable[[Place, NodeContainers, Heard], Awaitable[None]]) -> Callable[[Place], None]:
    """A test of one agent's life."""

    def test(place: Place) -> None:
        play(place, partial(story, place))

    return test


class Victims:
    """Containers that are to be ended whatever happens, and their shims, which would wait for another agent."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self._all: set[tuple[int, int | None]] = set()

    def add(self, pid: int) -> None:
        self.pids.append(pid)
        self._all |= {(one, birth_of(one)) for one in (pid, shim_of(pid))}

    def end(self) -> None:
        for pid, birth in self._all:
            if birth_of(pid) == birth:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)


def shim_of(pid: int) -> int:
    found = proc.stat(pid)
    assert found, "it runs"
    return found.parent


def called(words: Sequence[str]) -> int:
    """As ``python -c`` does it."""
    sys.argv = ["-c", *words[1:]]
    exec(words[0], {"__name__": "__main__"})
    return 0


def main(path: str, forked: str, variables: str, *words: str) -> None:
    """Run a Python program as a container, forked if it can be, and print its exit code."""
    place = Place(Path(path), forked=ForkedShim({(sys.executable, "-c"): called}) if forked == "1" else None)

    async def story(containers: NodeContainers, heard: Heard) -> None:
        containers.start(place.container("c1", sys.executable, "-c", *words, **json.loads(variables)))
        print((await heard.end_of("c1"))[0])

    play(place, story)


if __name__ == "__main__":
    main(*sys.argv[1:])
