"""The master on the network: nothing is told before it is durable; time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos import commit
from executors.mesos.effects import Effect, KeepRow, Send
from executors.mesos.journal import Entry, Journal
from executors.mesos.messages import message
from executors.mesos.pool_directory import WRITER
from tests.executors.mesos.master.served import (
    SUBSCRIBED,
    Ground,
    ground,
    seen,
    serve,
    until,
)


def test_nothing_is_told_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            order: list[str] = []
            write, deliver = ground.journal.write, ground.server.commit.deliver

            def writing(entries: Sequence[Entry]) -> None:
                write(entries)
                order.append("kept")

            def delivering(parcels: Sequence[commit.Parcel]) -> None:
                order.append("sent")
                deliver(parcels)

            monkeypatch.setattr(ground.journal, "write", writing)
            monkeypatch.setattr(ground.server.commit, "deliver", delivering)
            row = {"n": 1}
            effects: list[Effect] = [Send(ground.machine.opened[0], SUBSCRIBED), KeepRow("tasks", "t1", row)]
            ground.machine.answers["call"] = effects
            assert (await ground.post("/api/v1/scheduler", message("ACCEPT")))[0] == 202
            order.append("answered")
            assert order == ["kept", "sent", "answered"]
            assert ground.journal.rows() == [KeepRow("tasks", "t1", row)]

    serve(scenario, tmp_path)


@pytest.mark.parametrize("quick", [True, False])
def test_a_full_disk_holds_calls_until_there_is_room(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(ground: Ground) -> None:
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            write, full, tried = ground.journal.write, True, 0

            def writing(entries: Sequence[Entry]) -> None:
                nonlocal tried
                tried += 1
                if full:
                    raise StateError("the disk is full")
                write(entries)

            monkeypatch.setattr(ground.journal, "quick", quick)
            monkeypatch.setattr(ground.journal, "write", writing)
            stream = ground.machine.opened[0]
            ground.machine.answers["call"] = [KeepRow("tasks", "t1", {"n": 1}), Send(stream, message("RESCIND"))]
            held = asyncio.create_task(ground.post("/api/v1/scheduler", message("ACCEPT")))
            await until(lambda: tried > 3)
            asked = len(ground.machine.asked)
            assert (await ground.post("/api/v1/scheduler", message("ACCEPT")))[0] == 503
            assert (await ground.post("/api/v1", message("TEARDOWN"), WRITER))[0] == 503
            async with ground.client.get(ground.url("/health")) as answer:
                assert answer.status == 200
            ground.machine.next = 0.0
            ground.server.clock.arm()
            before = tried
            await until(lambda: tried > before + 3)
            assert len(ground.machine.asked) == asked and ground.machine.woken == 0
            assert not held.done()
            full = False
            assert (await held)[0] == 202
            await seen(response, "RESCIND")
            assert ground.journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
            assert (await ground.post("/api/v1/scheduler", message("ACCEPT")))[0] == 202
            await until(lambda: ground.machine.woken > 0)

    serve(scenario, tmp_path)
    assert caplog.text.count("cannot be written") == 1


def test_calls_of_one_moment_share_a_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(ground: Ground) -> None:
        write, sizes = ground.journal.write, []

        def writing(entries: Sequence[Entry]) -> None:
            sizes.append(len(entries))
            write(entries)

        monkeypatch.setattr(ground.journal, "write", writing)
        carried = [ground.server.commit.carry_out([KeepRow("tasks", f"t{k}", {"n": k})]) for k in range(20)]
        assert all(durable is carried[0] for durable in carried)
        assert carried[0] is not None
        await carried[0].wait()
        assert sizes == [20]

    serve(scenario, tmp_path)


def test_what_waits_is_written_at_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with ground(tmp_path) as found:
            found.server.commit.carry_out([KeepRow("tasks", "t1", {"n": 1})])

    asyncio.run(run())
    journal = Journal(tmp_path / "pool" / "master.db")
    assert journal.rows() == [KeepRow("tasks", "t1", {"n": 1})]
    journal.close()


def test_the_machine_is_woken_when_it_wants(tmp_path: Path) -> None:
    async def scenario(ground: Ground) -> None:
        stream: list[str] = []
        async with ground.stream() as response:
            await seen(response, "HEARTBEAT")
            stream += ground.machine.opened
            ground.machine.answers["wake"] = [Send(stream[0], message("RESCIND"))]
            ground.machine.next = ground.server.clock.now() + 0.02
            await ground.post("/api/v1/scheduler", message("DECLINE"))
            await seen(response, "RESCIND")
            assert ground.machine.woken == 1

    serve(scenario, tmp_path)
