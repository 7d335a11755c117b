"""The agent's end of its shim, the process that starts containers."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asa.core.errors import StateError


@dataclass(frozen=True)
class Orphans:
    """What becomes of containers whose agent has died.

    Parameters
    ----------
    grace_s
        How long they go on, should no other agent take them over [s].
    quotas, space, scratch
        See `executors.mesos.agent.shim.Shim`.
    """

    grace_s: float
    quotas: str = ""
    space: str = ""
    scratch: str = ""


_LINE_MOST = 1 << 20
_ENDING_S = 5.0


class Launcher:
    """Starts containers through a shim; another takes its place should somebody kill it.

    Parameters
    ----------
    run, lock
        See `executors.mesos.agent.shim.Shim`.
    orphans
        What becomes of containers when we die.
    ended
        Told the id and the wait status of a container that has ended.
    lost
        Told the ids of containers whose shim was killed: how they end must be found out otherwise.
    """

    def __init__(
        self,
        run: Path,
        lock: Path,
        orphans: Orphans,
        *,
        ended: Callable[[str, int], None],
        lost: Callable[[list[str]], None],
    ) -> None:
        program = (sys.executable, "-P", "-m", "executors.mesos.agent.shim")
        self._argv = [*program, str(run), str(lock), str(orphans.grace_s)]
        self._argv += [orphans.quotas, orphans.space, orphans.scratch]
        self._log = run / "shim.log"
        self._ended, self._lost = ended, lost
        self._waiting: dict[str, asyncio.Future[tuple[int, int]]] = {}
        self._running: set[str] = set()
        self._shim: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Start the shim: the first container need not wait for it.

        Raises
        ------
        StateError
            When it cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with open(self._log, "ab") as log, theirs:
                self._shim = subprocess.Popen(
                    self._argv, stdin=theirs.fileno(), stdout=log, stderr=log, cwd="/", start_new_session=True
                )
        except OSError as error:
            ours.close()
            raise StateError(f"cannot start the process that starts containers: {error}") from error
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LINE_MOST)
        self._reading = asyncio.create_task(self._read(reader, self._shim))

    async def launch(
        self, container: str, argv: Sequence[str], environment: Mapping[str, str], sandbox: str
    ) -> tuple[int, int]:
        """Start a container, whose output goes to files in its sandbox: its first process and its start time.

        Raises
        ------
        StateError
            When it cannot be started; the text says why.
        """
        if self._writer is None:
            await self.open()
        assert self._writer
        order = {"id": container, "argv": [*argv], "environment": {**environment}, "sandbox": sandbox}
        answer: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._waiting[container] = answer
        self._writer.write(json.dumps(order).encode() + b"\n")
        try:
            return await answer
        finally:
            self._waiting.pop(container, None)

    async def close(self) -> None:
        """Let go of the shim, which ends with its last container."""
        self._closed = True
        if self._writer:
            self._writer.write(b'{"end":true}\n')
            self._writer.close()
        if self._reading:
            with suppress(asyncio.CancelledError):
                await self._reading
        if self._shim and not self._running:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._shim.wait, _ENDING_S)

    def abandon(self) -> None:
        """As if we had died: containers go on."""
        self._closed = True
        if self._writer:
            self._writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, shim: subprocess.Popen[bytes]) -> None:
        with suppress(OSError, ValueError):
            async for line in reader:
                self._hear(json.loads(line))
        self._writer = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(StateError("the process that starts containers was killed; launch it again"))
        running, self._running = self._running, set()
        if not self._closed:
            self._lost(sorted(running))
            await asyncio.to_thread(shim.wait)

    def _hear(self, said: dict[str, Any]) -> None:
        container: str = said["id"]
        if "status" in said:
            self._running.discard(container)
            self._ended(container, said["status"])
            return
        answer = self._waiting.get(container)
        if "pid" in said:
            self._running.add(container)
        if answer is None or answer.done():
            return
        if "pid" in said:
            answer.set_result((said["pid"], said["birth"]))
        else:
            answer.set_exception(StateError(said["error"]))
