"""What the engine does in which order; what its parts do is tested with them, and all together with the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from executors.mesos.agent.containers import OrphanPolicy, Unlimited
from executors.mesos.agent.engine import AgentEngine
from executors.mesos.codec import Message
from executors.mesos.effects import Keep
from executors.mesos.journal import Journal
from executors.mesos.pool_directory import PoolDirectory
from tests.executors.mesos.agent.conftest import Node


def test_it_registers_with_what_is_written_only(
    node: Node, task: Callable[..., Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an agent that dies then would contradict, the next time, what the framework was told meanwhile."""
    node.run(task())
    node.start("t1")
    node.acknowledge("t1")
    container = node.container("t1").id
    journal = Journal(tmp_path / "agent.db")
    said: list[tuple[str, list[Keep]]] = []

    async def connect() -> None:
        directory = PoolDirectory.create(tmp_path / "pool", "test")
        engine = AgentEngine(
            node.agent, journal, directory, Unlimited(),
            run=tmp_path / "run", lock=tmp_path / "lock", orphans=OrphanPolicy(1.0), patience_s=1.0,
        )  # fmt: skip
        monkeypatch.setattr(engine.link, "say", lambda item: said.append((item["type"], journal.rows())))
        monkeypatch.setattr(engine.link, "clear", lambda: said.append(("nothing is left to say", journal.rows())))
        engine.exited(container, 3, "")  # its update is to be said once it is written, in the next turn of the loop
        assert said == []
        engine.connected()

    asyncio.run(connect())
    assert [what for what, _ in said] == ["UPDATE", "nothing is left to say", "REGISTER"]
    assert {keep.table for keep in said[1][1]} == {"updates"} and said[2][1] == said[1][1] == journal.rows()
    journal.close()
