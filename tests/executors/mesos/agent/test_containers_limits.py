"""What containers may use."""

import asyncio
import os
import sys

import pytest

from asa.core.errors import StateError
from executors.cgroup import probe
from executors.cgroup.group import Group, Quotas
from executors.cgroup.kernel import V1
from executors.mesos.agent.containers import NodeContainers, SessionGroup, Unlimited
from executors.mesos.agent.state import OUT_OF_MEMORY
from tests.executors.mesos.agent.contained import Heard, Place, play
from tests.waiting import until


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
