"""Many processes in one, under one virtual clock and one seed: whatever happens, happens again with the same seed.

`Simulation` runs the threads of simulated processes on stacks of their own in one real thread: each runs until it waits
(for time, for a connection, for another thread), and which of those that could go on does so is drawn. A process that
is killed never goes on: nothing of it is cleaned up, as after ``kill -9``.

`SimulatedStream` is a connection between two processes: bytes arrive late and in pieces, wait while the network is
cut, and are lost with their machine. `SimulatedSelector` is what waits for them, as one of `selectors` does.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import random
import selectors
import socket
import sys
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from asa.core.errors import InvalidInput

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:
    raise InvalidInput("simulated threads need greenlet: pip install 'asa-hpc[lab]'") from error

START_S = 1.8e9
"""When a simulation begins [s since the epoch]."""
FARTHEST_S = 240.0
"""How far a wall clock may be from virtual time [s]: no more than sites allow, as MUNGE refuses what is five minutes
apart."""


class Killed(BaseException):
    """Raised in a thread of a process that is dead, to end it."""


class Stuck(Exception):
    """A simulation that does not end."""


class SimulatedThread:
    """A thread of a simulated process. It runs when the simulation says so, until it waits or ends."""

    def __init__(self, simulation: Simulation, process: SimulatedProcess, call: Callable[[], None], name: str) -> None:
        self.process, self.name = process, name
        self.ready: Callable[[], bool] = _always
        self.until = -math.inf
        self.over = False
        self.error: BaseException | None = None
        self._simulation, self._call = simulation, call
        self._stack = greenlet(self._run)
        self._stack.gr_context = copy_context()

    def join(self, timeout: float | None = None) -> None:
        """As a thread's; for other threads of the simulation [s]."""
        now = self._simulation.now
        self._simulation.wait(lambda: self.over, math.inf if timeout is None else now + timeout)

    def go_on(self) -> None:
        """Run until it waits or ends. For the simulation."""
        self._stack.parent = getcurrent()
        self._stack.switch()

    def pause(self) -> None:
        """Let the simulation go on until it is this one's turn again. For the thread itself."""
        assert self._stack.parent is not None
        if (loop := asyncio._get_running_loop()) is None:
            self._stack.parent.switch()
            return
        hooks = sys.get_asyncgen_hooks()  # what asyncio knows by the real thread
        asyncio._set_running_loop(None)
        sys.set_asyncgen_hooks(None, None)
        self._stack.parent.switch()
        asyncio._set_running_loop(loop)
        sys.set_asyncgen_hooks(*hooks)

    def _run(self) -> None:
        try:
            self._call()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.over = True


def _always() -> bool:
    return True


def _never() -> bool:
    return False


class SimulatedProcess:
    """A process on some machine.

    Attributes
    ----------
    turns, dies_at
        How often its threads have waited, and at which time it is killed (0: never).
    stopped
        No thread of it goes on before this time [s], as between SIGSTOP and SIGCONT.
    at_death
        Called once when it is killed.
    """

    def __init__(self, name: str, machine: str) -> None:
        self.name, self.machine = name, machine
        self.dead = False
        self.stopped = -math.inf
        self.turns = self.dies_at = 0
        self.at_death: list[Callable[[], None]] = []


class Simulation:
    """Virtual time, threads, and a network.

    Parameters
    ----------
    seed
        Of every choice.
    steps_most
        After so many turns it is `Stuck`.

    Examples
    --------
    >>> simulation = Simulation(seed=1)
    >>> process = SimulatedProcess("a", "here")
    >>> def program():
    ...     simulation.sleep(60.0)
    ...     print(simulation.now - START_S)
    >>> thread = simulation.start(process, program, "main")
    >>> simulation.run(lambda: thread.over)
    60.0
    """

    def __init__(self, seed: int, steps_most: int = 500_000) -> None:
        self.random = random.Random(seed)
        self.now = START_S
        self.steps = 0
        self.network = SimulatedNetwork(self)
        self.clocks = SimulatedClocks(self)
        self._steps_most = steps_most
        self._threads: list[SimulatedThread] = []
        self._running: SimulatedThread | None = None
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._buried: list[SimulatedThread] = []
        self._ending = False

    # ------------------------------------------------------- for threads of simulated processes

    def wait(self, ready: Callable[[], bool], until: float = math.inf) -> bool:
        """Let others go on until `ready` says yes, or the time `until` has come [s]; whether it says yes.

        Raises
        ------
        Killed
            When the process is dead.
        """
        thread = self._thread_now()
        self.pass_by(thread.process)
        thread.ready, thread.until = ready, until
        thread.pause()
        if self._ending:
            raise Killed
        return ready()

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass [s]."""
        self.wait(_never, self.now + seconds)

    def pass_by(self, process: SimulatedProcess) -> None:
        """Count a turn in which no other thread goes first; it may be the one at which the process is killed."""
        process.turns += 1
        if process.turns == process.dies_at:
            self.kill(process)

    def turn(self) -> None:
        """Let others go first, perhaps: where real threads could be interrupted."""
        if self._running is not None:
            self.wait(_always)

    @property
    def thread(self) -> SimulatedThread:
        """The one that runs now."""
        return self._thread_now()

    @property
    def ending(self) -> bool:
        """Whether `close` was called."""
        return self._ending

    def _thread_now(self) -> SimulatedThread:
        if self._ending:
            raise Killed
        assert self._running is not None, "only threads of the simulation wait"
        return self._running

    # ------------------------------------------------------- for the test that sets it up

    def start(self, process: SimulatedProcess, call: Callable[[], None], name: str) -> SimulatedThread:
        """Begin a thread of this process; it runs when it is its turn."""
        thread = SimulatedThread(self, process, call, name)
        self._threads.append(thread)
        return thread

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Have the outside world do something then [s]; now if that is past."""
        heapq.heappush(self._calls, (max(when, self.now), next(self._order), call))

    def soon(self, seconds: float, call: Callable[[], None]) -> None:
        """As `call_at`, in so many seconds [s]."""
        self.call_at(self.now + seconds, call)

    def waiting(self) -> list[SimulatedThread]:
        """Threads that have not ended, of processes that are not dead."""
        return list(self._threads)

    def kill(self, process: SimulatedProcess) -> None:
        """As ``kill -9``: none of its threads goes on, its connections break. By its own thread: does not return."""
        if not process.dead:
            process.dead = True
            own = [thread for thread in self._threads if thread.process is process]
            self._buried += own
            self._threads = [thread for thread in self._threads if thread.process is not process]
            self.network.died(process)
            for call in process.at_death:
                call()
        if self._running is not None and self._running.process is process:
            self._running.pause()
            raise Killed

    def run(self, over: Callable[[], bool], until: float = math.inf) -> None:
        """Go on until `over` says yes, or until a time [s].

        Raises
        ------
        Stuck
            When nothing is left to wait for, or after too many turns.
        Exception
            What a thread ended with.
        """
        while not over():
            if self.now > until:
                return
            self.steps += 1
            if self.steps > self._steps_most:
                raise Stuck(f"{self._steps_most} turns, and no end")
            able, soonest = self._able()
            if able:
                self._step(able[0] if len(able) == 1 else self.random.choice(able))
            elif not self._pass_time(soonest, until):
                return

    def _able(self) -> tuple[list[SimulatedThread], float]:
        """Threads that could go on, and when the next of the others can at the latest [s]."""
        now, soonest = self.now, math.inf
        able: list[SimulatedThread] = []
        for thread in self._threads:
            due = thread.until
            if (stopped := thread.process.stopped) > now:
                due = stopped
            elif due <= now or thread.ready():
                able.append(thread)
                continue
            if due < soonest:
                soonest = due
        return able, soonest

    def _step(self, thread: SimulatedThread) -> None:
        self._running = thread
        try:
            thread.go_on()
        finally:
            self._running = None
        if thread.over:
            if thread in self._threads:
                self._threads.remove(thread)
            if thread.error is not None:
                raise thread.error

    def _pass_time(self, soonest: float, until: float) -> bool:
        """To `soonest`, or what is called before; False when that is after `until`."""
        if self._calls:
            soonest = min(soonest, self._calls[0][0])
        if soonest == math.inf and until == math.inf:
            raise Stuck("every thread waits for another one")
        if soonest > until:
            self.now = until
            return False
        self.now = max(self.now, soonest)
        while self._calls and self._calls[0][0] <= self.now:
            heapq.heappop(self._calls)[2]()
        return True

    def close(self) -> None:
        """End all threads."""
        self._ending = True
        for thread in [*self._threads, *self._buried]:
            while not thread.over:
                thread.go_on()
        self._threads.clear()
        self._buried.clear()


class SimulatedClocks:
    """The wall clocks of machines: they may jump, and gain or lose time, up to `FARTHEST_S` from virtual time."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._errors: dict[str, tuple[float, float, float]] = {}

    def time(self, machine: str) -> float:
        """What the clock of this machine shows [s since the epoch]."""
        return self._simulation.now + self._ahead_s(machine)

    def jump(self, machine: str, ahead_s: float) -> None:
        """From now on it is right but for so many seconds."""
        self._errors[machine] = ahead_s, 0.0, self._simulation.now

    def drift(self, machine: str, rate: float) -> None:
        """From now on it gains so many seconds in each, or loses them (below 0)."""
        self._errors[machine] = self._ahead_s(machine), rate, self._simulation.now

    def _ahead_s(self, machine: str) -> float:
        ahead_s, rate, since = self._errors.get(machine, (0.0, 0.0, 0.0))
        return min(FARTHEST_S, max(-FARTHEST_S, ahead_s + rate * (self._simulation.now - since)))


class Watched:
    """What a `SimulatedSelector` waits for."""

    def __init__(self) -> None:
        self._watchers: list[SimulatedSelector] = []

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return False

    def watched_by(self, selector: SimulatedSelector) -> None:
        self._watchers.append(selector)

    def unwatched_by(self, selector: SimulatedSelector) -> None:
        self._watchers.remove(selector)

    def changed(self) -> None:
        """It may be ready now."""
        for selector in self._watchers:
            selector.touched = True


_Broken = type[OSError]
LATENCY_S = 2e-4, 5e-3
"""How long bytes are under way between machines [s], from and to."""
KEPT_ALIVE_S = 60.0
"""How long a connection is silent, or its bytes are not acknowledged, before a machine gives it up [s]."""
_WINDOW = 1 << 18


class SimulatedNetwork:
    """Connections between processes, and what becomes of them.

    Attributes
    ----------
    files
        What can be waited for, by number.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.files: dict[int, Watched] = {}
        self._numbers = itertools.count(1000)
        self._streams: dict[SimulatedProcess, list[SimulatedStream]] = {}
        self._cuts: dict[frozenset[str], float] = {}
        self._lost: set[str] = set()

    def number(self, file: Watched) -> int:
        """A descriptor for this."""
        number = next(self._numbers)
        self.files[number] = file
        return number

    def connect(self, one: SimulatedProcess, other: SimulatedProcess) -> tuple[SimulatedStream, SimulatedStream]:
        """Both ends of a connection that is there at once."""
        first, second = SimulatedStream(self, one), SimulatedStream(self, other)
        first.peer, second.peer = second, first
        for stream in (first, second):
            self.adopt(stream)
        return first, second

    def adopt(self, stream: SimulatedStream) -> None:
        """A stream belongs to its process from now on."""
        self._streams.setdefault(stream.process, []).append(stream)

    def reaches(self, one: str, other: str) -> bool:
        """Whether bytes get from one machine to another now."""
        return not self.is_lost(one, other) and self.healed(one, other) <= self.simulation.now

    def is_lost(self, one: str, other: str) -> bool:
        """Whether one of two machines is gone."""
        return bool({one, other} & self._lost)

    def healed(self, one: str, other: str) -> float:
        """When bytes get from one machine to another again [s]."""
        return self._cuts.get(frozenset((one, other)), -math.inf)

    def cut(self, one: str, other: str, seconds: float) -> None:
        """No bytes pass between two machines for so long [s]; what is under way waits."""
        self._cuts[frozenset((one, other))] = self.simulation.now + seconds

    def lose(self, machine: str) -> None:
        """A machine is gone, without a message to its peers."""
        self._lost.add(machine)

    def stall(self, process: SimulatedProcess) -> None:
        """A router forgets the connections of a process: no byte passes any more, and neither end notices."""
        for stream in list(self._streams.get(process, ())):
            if stream.process.machine != stream.peer.process.machine:
                for end in (stream, stream.peer):
                    end.stalled = True
                    self.simulation.soon(KEPT_ALIVE_S, end.expire)

    def reset(self, process: SimulatedProcess) -> None:
        """All connections of a process to other machines break at once, with what is under way."""
        for stream in list(self._streams.get(process, ())):
            if stream.process.machine != stream.peer.process.machine:
                for end in (stream, stream.peer):
                    end.stalled = True
                    end.expire(ConnectionResetError)

    def died(self, process: SimulatedProcess) -> None:
        """The machine closes what a process had open; if it is lost itself, peers find out when they ask."""
        for stream in self._streams.pop(process, []):
            if process.machine in self._lost:
                stream.closed = True
                self.simulation.soon(KEPT_ALIVE_S, stream.peer.expire)
            else:
                stream.close()

    def forget(self, stream: SimulatedStream) -> None:
        if stream in (own := self._streams.get(stream.process, [])):
            own.remove(stream)


class SimulatedStream(Watched):
    """One end of a connection, as a socket that never blocks."""

    peer: SimulatedStream

    def __init__(self, network: SimulatedNetwork, process: SimulatedProcess) -> None:
        super().__init__()
        self._network, self._simulation = network, network.simulation
        self.process = process
        self.closed = self.stalled = False
        self._number = network.number(self)
        self._inbox = bytearray()
        self._ended: type[OSError] | None = None
        """What reads and writes raise once the connection is broken."""
        self._over = False
        self._due = -math.inf
        self._under_way = 0

    # what a socket has

    def fileno(self) -> int:
        return self._number

    family, type, proto = socket.AF_UNIX, socket.SOCK_STREAM, 0

    def setblocking(self, _blocking: bool) -> None:
        """It never blocks."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._number

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", self.peer._number

    def recv_into(self, buffer: memoryview) -> int:
        piece = self.recv(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def sendall(self, data: bytes) -> None:
        """For what fits into the window: lines between processes of one machine."""
        while data:
            data = data[self.send(data) :]

    def shutdown(self, _how: int) -> None:
        """Nothing more is sent."""
        self._deliver(None)

    def send(self, data: bytes | memoryview) -> int:
        if self.closed or self._ended is not None:
            raise (self._ended or BrokenPipeError)("the connection is gone")
        room = _WINDOW - self._under_way
        if room <= 0:
            raise BlockingIOError
        size = min(len(data), room)
        if size > 1 and self._simulation.random.random() < 0.1:
            size = self._simulation.random.randint(1, size)
        self._under_way += size
        self._deliver(bytes(data[:size]))
        return size

    def recv(self, size: int, _flags: int = 0) -> bytes:
        if self._inbox:
            if len(self._inbox) > 1 and self._simulation.random.random() < 0.1:
                size = min(size, self._simulation.random.randint(1, len(self._inbox)))
            piece = bytes(self._inbox[:size])
            del self._inbox[:size]
            return piece
        if self._ended is not None:
            raise self._ended("the connection is gone")
        if self._over:
            return b""
        raise BlockingIOError

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.forget(self)
            self._deliver(None)

    def move(self, process: SimulatedProcess) -> SimulatedStream:
        """This end in another process, as after a fork; here it is closed."""
        other = SimulatedStream(self._network, process)
        other.peer, self.peer.peer = self.peer, other
        other._inbox, self._inbox = self._inbox, other._inbox
        self.closed = True
        self._network.forget(self)
        self._network.adopt(other)
        return other

    # what a selector asks

    def readable(self) -> bool:
        return bool(self._inbox) or self._over or self._ended is not None

    def writable(self) -> bool:
        return self._under_way < _WINDOW or self._ended is not None

    # what the network does

    def expire(self, why: _Broken = TimeoutError) -> None:
        """The connection is broken; by default, since the other end has not answered for too long."""
        if not self.closed and self._ended is None:
            self._ended = why
            self.changed()

    def _deliver(self, data: bytes | None) -> None:
        """Bytes, or the end, are on their way; they arrive in order."""
        here, there = self.process.machine, self.peer.process.machine
        now = self._simulation.now
        took = 0.0 if here == there else self._simulation.random.uniform(*LATENCY_S)
        self._due = max(self._due, now + took)
        self._simulation.call_at(self._due, lambda: self._arrive(data, now))

    def _arrive(self, data: bytes | None, sent: float) -> None:
        here, there = self.process.machine, self.peer.process.machine
        if self.stalled or self._ended is not None:
            return
        if here != there and not self._network.reaches(here, there):
            healed = self._network.healed(here, there)
            if self._network.is_lost(here, there):
                self._simulation.call_at(sent + KEPT_ALIVE_S, self.expire)
            elif healed <= sent + KEPT_ALIVE_S:
                self._simulation.call_at(max(healed, self._simulation.now), lambda: self._arrive(data, sent))
            else:
                self._simulation.call_at(sent + KEPT_ALIVE_S, self.expire)
                self._simulation.call_at(healed, self.peer.expire)
            return
        if data is None:
            self.peer._over = True
        else:
            self._under_way -= len(data)
            if self.peer.closed:
                self._ended = ConnectionResetError
            else:
                self.peer._inbox += data
            self.changed()
        self.peer.changed()


class SimulatedBell(Watched):
    """As `executors.host.Bell`."""

    def __init__(self, network: SimulatedNetwork) -> None:
        super().__init__()
        self._number, self._rung = network.number(self), False

    def fileno(self) -> int:
        return self._number

    def ring(self) -> None:
        self._rung = True
        self.changed()

    def hush(self) -> None:
        self._rung = False

    def close(self) -> None:
        """Nothing is held."""

    def readable(self) -> bool:
        return self._rung


def _number_of(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())


class SimulatedSelector(selectors.BaseSelector):
    """Waits for simulated files; which of those that are ready comes first is drawn."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._files = simulation, simulation.network.files
        self._keys: dict[int, selectors.SelectorKey] = {}
        self.touched = False
        """Whether a file may have become ready."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = _number_of(fileobj)
        if number in self._keys:
            raise KeyError(f"{fileobj!r} is registered")
        key = self._keys[number] = selectors.SelectorKey(fileobj, number, events, data)
        self._files[number].watched_by(self)
        self.touched = True
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = self._keys.pop(_number_of(fileobj))
        self._files[key.fd].unwatched_by(self)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        until = math.inf if timeout is None else self._simulation.now + max(0.0, timeout)
        if self._found():
            self._simulation.turn()
        while not (found := self._found()) and self._simulation.now < until:
            self.touched = False
            self._simulation.wait(lambda: self.touched, until)
        if len(found) > 1:
            self._simulation.random.shuffle(found)
        return found

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_number_of(fileobj)]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {key.fileobj: key for key in self._keys.values()}

    def close(self) -> None:
        self._keys.clear()

    def _ready(self, key: selectors.SelectorKey) -> int:
        file, ready = self._files[key.fd], 0
        if key.events & selectors.EVENT_READ and file.readable():
            ready |= selectors.EVENT_READ
        if key.events & selectors.EVENT_WRITE and file.writable():
            ready |= selectors.EVENT_WRITE
        return ready

    def _found(self) -> list[tuple[selectors.SelectorKey, int]]:
        return [(key, ready) for key in self._keys.values() if (ready := self._ready(key))]
