"""The input and output of a process that another process starts: named pipes in its sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from asa.core.errors import StateError
from asa.security.files import private_directory

_PIECE = 1 << 16
_OUTPUTS = ("stdout", "stderr")
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW


class Pipes:
    """Our ends of them; made with the directory that they are in.

    Parameters
    ----------
    sandbox
        Where the process finds ``stdin``, ``stdout`` and ``stderr``.

    Raises
    ------
    StateError
        When they cannot be made.
    """

    def __init__(self, sandbox: Path) -> None:
        self._input = sandbox / "stdin"
        self._open: dict[str, int] = {}
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}  # and what ends the waiting
        self._turn = asyncio.Lock()
        self._over = False
        private_directory(sandbox)
        try:
            for name in ("stdin", *_OUTPUTS):
                os.mkfifo(sandbox / name, 0o600)
                # Both ends of the input are ours at first: who opens it need not wait for us.
                flags = os.O_RDONLY if name in _OUTPUTS else os.O_RDWR
                self._open[name] = os.open(sandbox / name, flags | _FLAGS)
        except OSError as error:
            self.close()
            raise StateError(f"cannot make pipes in {sandbox}: {error}") from error

    def attached(self) -> None:
        """The process has its ends: from now on it sees the end of its input when we close it."""
        if (both := self._open.pop("stdin", None)) is not None:
            try:  # before the other is closed: without a writer in between, the process would see an end that is none
                self._open["stdin"] = os.open(self._input, os.O_WRONLY | _FLAGS)
            finally:
                os.close(both)

    def ended(self) -> None:
        """The process has ended: what is in the pipes now is all, whoever else may hold them open."""
        self._over = True
        for waiting in self._waiting:
            _wake(waiting)

    async def write(self, data: bytes) -> None:
        """Give it input; nothing at all ends that. Returns once it is taken, or will never be."""
        async with self._turn:
            if data:
                await self._write(memoryview(data))
            elif "stdin" in self._open:
                os.close(self._open.pop("stdin"))

    async def _write(self, view: memoryview) -> None:
        loop = asyncio.get_running_loop()
        while view and not self._over and (descriptor := self._open.get("stdin")) is not None:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                await self._ready(loop.add_writer, loop.remove_writer, descriptor)
            except BrokenPipeError:
                return

    async def read(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """What it says, as ``STDOUT`` or ``STDERR``, until both have ended; to be called once it is `attached`."""
        heard: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue(1)
        reading = asyncio.create_task(self._read_all(heard))
        try:
            while (piece := await heard.get()) is not None:
                yield piece
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def close(self) -> None:
        """Let go of all ends."""
        self.ended()
        for stop in self._waiting.values():  # before another file gets the number
            stop()
        self._waiting.clear()
        while self._open:
            os.close(self._open.popitem()[1])

    async def _read_all(self, heard: asyncio.Queue[tuple[str, bytes] | None]) -> None:
        async with asyncio.TaskGroup() as group:
            for name in _OUTPUTS:
                group.create_task(self._read(name, heard))
        await heard.put(None)

    async def _read(self, name: str, heard: asyncio.Queue[tuple[str, bytes] | None]) -> None:
        loop = asyncio.get_running_loop()
        while (descriptor := self._open.get(name)) is not None:
            try:
                data = os.read(descriptor, _PIECE)
            except BlockingIOError:
                if self._over:
                    return
                await self._ready(loop.add_reader, loop.remove_reader, descriptor)
                continue
            if not data:
                return
            await heard.put((name.upper(), data))

    async def _ready(self, add: Callable[..., Any], remove: Callable[..., Any], descriptor: int) -> None:
        """Until a descriptor can be read or written, or it is all over."""
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[found] = partial(remove, descriptor)
        add(descriptor, _wake, found)
        try:
            await found
        finally:
            if stop := self._waiting.pop(found, None):
                stop()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
