from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path

import pytest

from asa.core.errors import StateError
from executors.mesos.agent.pipes import Pipes

PATIENCE_S = 20.0


class Process:
    """The other ends."""

    def __init__(self, pipes: Pipes, path: Path) -> None:
        self.input = os.open(path / "stdin", os.O_RDONLY | os.O_NONBLOCK)
        self.output, self.errors = (os.open(path / name, os.O_WRONLY) for name in ("stdout", "stderr"))
        pipes.attached()

    def die(self) -> None:
        for descriptor in (self.input, self.output, self.errors):
            os.close(descriptor)


async def heard(pipes: Pipes) -> dict[str, bytes]:
    found = {"STDOUT": b"", "STDERR": b""}
    async with asyncio.timeout(PATIENCE_S):
        async for kind, data in pipes.read():
            found[kind] += data
    return found


def test_output_ends_when_nobody_holds_it_open(tmp_path: Path) -> None:
    async def main() -> None:
        pipes = Pipes(tmp_path / "s")
        process = Process(pipes, tmp_path / "s")
        os.write(process.output, b"out")
        hearing = asyncio.create_task(heard(pipes))
        await asyncio.sleep(0)
        os.write(process.errors, b"err")
        process.die()
        assert await hearing == {"STDOUT": b"out", "STDERR": b"err"}
        pipes.close()

    asyncio.run(main())


def test_output_ends_with_the_process_whoever_else_holds_it_open(tmp_path: Path) -> None:
    async def main() -> None:
        pipes = Pipes(tmp_path / "s")
        process = Process(pipes, tmp_path / "s")
        hearing = asyncio.create_task(heard(pipes))
        os.write(process.output, b"last")
        pipes.ended()
        assert (await hearing)["STDOUT"] == b"last"
        process.die()
        pipes.close()

    asyncio.run(main())


def test_input_waits_for_its_reader_and_ends(tmp_path: Path) -> None:
    async def main() -> None:
        pipes = Pipes(tmp_path / "s")
        process = Process(pipes, tmp_path / "s")
        text = b"x" * 300_000  # more than a pipe holds
        writing = asyncio.create_task(pipes.write(text))
        found = b""
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < len(text):
                await asyncio.sleep(0)
                try:
                    found += os.read(process.input, 1 << 16)
                except BlockingIOError:
                    continue
            await writing
            await pipes.write(b"")
            await pipes.write(b"nobody hears this")
        assert found == text and os.read(process.input, 1) == b""
        process.die()
        pipes.close()

    asyncio.run(main())


def test_the_input_never_lacks_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for input would take that for its end."""

    async def run() -> None:
        pipes = Pipes(tmp_path / "box")
        reader = os.open(tmp_path / "box" / "stdin", os.O_RDONLY | os.O_NONBLOCK)
        poll, close = select.poll(), os.close
        poll.register(reader, select.POLLIN)
        monkeypatch.setattr(os, "close", lambda descriptor: (close(descriptor), hung_up.extend(poll.poll(0))))
        pipes.attached()
        monkeypatch.undo()
        assert hung_up == []
        pipes.close()
        assert poll.poll(0) == [(reader, select.POLLHUP)]
        os.close(reader)

    hung_up: list[tuple[int, int]] = []
    asyncio.run(run())


@pytest.mark.parametrize("how", ["reader gone", "ended", "closed"])
def test_input_that_nobody_takes_is_let_go(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        pipes = Pipes(tmp_path / "s")
        process = Process(pipes, tmp_path / "s")
        writing = asyncio.create_task(pipes.write(b"x" * 300_000))
        await asyncio.sleep(0)
        assert not writing.done()
        if how == "reader gone":
            os.close(process.input)
        elif how == "ended":
            pipes.ended()
        else:
            pipes.close()
        async with asyncio.timeout(PATIENCE_S):
            await writing
        pipes.close()

    asyncio.run(main())


def test_pipes_that_cannot_be_made(tmp_path: Path) -> None:
    async def main() -> None:
        Pipes(tmp_path / "s").close()
        with pytest.raises(StateError, match="cannot make pipes"):
            Pipes(tmp_path / "s")

    before = os.listdir("/proc/self/fd")
    asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) == len(before)
