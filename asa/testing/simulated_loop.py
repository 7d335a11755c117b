"""asyncio on a simulated machine: its own loop, transports and streams, on connections of `asa.testing.simulation`."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

from asa.testing.simulation import (
    Killed,
    SimulatedBell,
    SimulatedProcess,
    SimulatedSelector,
    SimulatedStream,
    Simulation,
    Watched,
)

Result = TypeVar("Result")
_DRAINS = 50


class SimulatedPorts:
    """Who listens at which port: there is one address, and each port is on one machine."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self._listening: dict[int, ListeningSocket] = {}
        self._next = 40_000

    def listen(self, process: SimulatedProcess, port: int) -> ListeningSocket:
        """A socket for `asyncio.loop.create_server`, at this port or any (0); raises `OSError` when it is taken."""
        if not port:
            self._next += 1
            port = self._next
        found = self._listening.get(port)
        if found is not None and not found.closed and not found.process.dead:
            raise OSError(98, "Address already in use")
        found = self._listening[port] = ListeningSocket(self, process, port)
        return found

    def delay(self, process: SimulatedProcess, port: int) -> tuple[float, type[OSError] | None]:
        """How long a connection takes [s], and what goes wrong with it then."""
        found = self._listening.get(port)
        if found is None or found.process.machine == process.machine:
            return 1e-4, None
        if self.simulation.network.reaches(process.machine, found.process.machine):
            return self.simulation.random.uniform(4e-4, 1e-2), None
        return 5.0, TimeoutError

    def connect(self, process: SimulatedProcess, port: int) -> SimulatedStream:
        """A connection that is there at once; raises `OSError`."""
        found = self._listening.get(port)
        if found is None or found.closed or found.process.dead:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = self.simulation.network.connect(process, found.process)
        found.pending.append(theirs)
        found.changed()
        return ours


class ListeningSocket(Watched):
    """What a simulated server accepts connections on."""

    family, type, proto = socket.AF_UNIX, socket.SOCK_STREAM, 0

    def __init__(self, ports: SimulatedPorts, process: SimulatedProcess, port: int) -> None:
        super().__init__()
        self.process, self.port, self.closed = process, port, False
        self.pending: list[SimulatedStream] = []
        self._number = ports.simulation.network.number(self)

    def fileno(self) -> int:
        return self._number

    def readable(self) -> bool:
        return bool(self.pending)

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def setblocking(self, _blocking: bool) -> None:
        """It never blocks."""

    def listen(self, _backlog: int) -> None:
        """It does already."""

    def accept(self) -> tuple[SimulatedStream, tuple[str, int]]:
        if not self.pending:
            raise BlockingIOError
        stream = self.pending.pop(0)
        return stream, stream.getpeername()

    def close(self) -> None:
        self.closed = True
        for stream in self.pending:
            stream.close()
        self.pending.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _LoopSelector(SimulatedSelector):
    """What the loop of one process waits on."""

    def __init__(self, simulation: Simulation, process: SimulatedProcess) -> None:
        super().__init__(simulation)
        self.process, self.draining = process, False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.draining:
            return []
        if timeout is None or timeout > 0.0:
            return super().select(timeout)
        self._simulation.pass_by(self.process)
        return self._found()


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The loop of a thread of this process.

    Parameters
    ----------
    failed
        Called with what asyncio would log: an exception that was not handled.
    """

    _selector: _LoopSelector

    def __init__(self, ports: SimulatedPorts, process: SimulatedProcess, failed: Callable[[str], object]) -> None:
        self._simulation, self._ports, self._process = ports.simulation, ports, process
        self._bell = SimulatedBell(ports.simulation.network)
        self._failed = failed
        super().__init__(_LoopSelector(ports.simulation, process))
        self._clock_resolution = 1e-6
        self.set_exception_handler(_report)

    def time(self) -> float:
        return self._simulation.now

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """As `asyncio.run`; when the process is killed meanwhile, what was to be done is dropped."""
        try:
            return self.run_until_complete(work)
        finally:
            self._selector.draining = True
            for task in asyncio.all_tasks(self):
                task.cancel()
            for _ in range(_DRAINS):
                if not asyncio.all_tasks(self):
                    break
                with suppress(BaseException):
                    self.call_soon(self.stop)
                    self.run_forever()
            self.close()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *arguments: Any
    ) -> Any:
        """In a thread of this process."""
        future = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            try:
                found, problem = func(*arguments), None
            except Exception as error:
                found, problem = None, error
            if not self.is_closed():
                self.call_soon_threadsafe(settle, found, problem)

        self._simulation.start(self._process, work, f"{self._process.name} thread")
        return future

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: str | None = None, port: int = 0, *, sock: Any = None, **options: Any
    ) -> Any:
        if sock is None:
            seconds, problem = self._ports.delay(self._process, port)
            await asyncio.sleep(seconds)
            if problem is not None:
                raise problem("timed out")
            sock = self._ports.connect(self._process, port)
        return await super().create_connection(protocol_factory, sock=sock)

    def report(self, context: dict[str, Any]) -> None:
        """An exception that was not handled."""
        error = context.get("exception")
        if not self.is_closed() and not self._selector.draining and not isinstance(error, Killed):
            self._failed(f"{context.get('message')}: {error!r}")

    # what wakes it from another thread

    def _make_self_pipe(self) -> None:
        self._add_reader(self._bell.fileno(), self._bell.hush)  # type: ignore[attr-defined]

    def _close_self_pipe(self) -> None:
        self._remove_reader(self._bell.fileno())  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        self._bell.ring()


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, SimulatedLoop)
    loop.report(context)
