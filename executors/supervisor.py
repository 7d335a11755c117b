"""The program that every allocation runs, once on each of its nodes: ``python -m executors.supervisor``.

It outlives the driver. It finds the driver through the run's rendezvous file, says what its node holds, and starts the
worker pool that the driver names. When the connection breaks, it ends all workers and looks for a new driver; when it
has found none for a while, it ends the job.

It logs to standard error, the job's output: warnings, or what the environment variable ``ASA_LOG_LEVEL`` says.

Exit codes: 0 released by the driver; 75 no driver (``EX_TEMPFAIL``); 128 + n ended by signal n.

It holds no secret in its arguments, and loads little, so that a node joins soon after its job has started.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from executors import node
from executors.processes import wakeup
from executors.wire import (
    LARGEST,
    Alive,
    Channel,
    CommandEnded,
    Hello,
    Leaving,
    ReleaseNode,
    RunOrders,
    StartCommand,
    StopCommand,
    TaskReport,
    Welcome,
    connect,
)

if TYPE_CHECKING:
    from executors.remote import LauncherDaemons

log = logging.getLogger("executors.supervisor")  # it is a program: its name is __main__

NO_DRIVER = 75

_STOPS = (signal.SIGTERM, signal.SIGINT)
_SOONEST_S, _LATEST_S, _PATIENCE = 0.005, 0.5, 0.05


class WorkerPool(Protocol):
    """What runs tasks on one node for one driver, which names the class, ``module:Class``, in its `Welcome`.

    It is called with the node (`Hello`), the `Welcome`, the supervisor's selector, in which it may register files with
    a function of the ready mask as data, and a function that sends a `TaskReport`.
    """

    def accept(self, orders: list[Any]) -> None: ...
    def advance(self) -> float | None:
        """Do what can be done now; in how many seconds [s] to call again at the latest, or None."""

    def relay(self) -> None:
        """From time to time: pass on what tasks have written."""

    def reap(self) -> None:
        """Some child process has ended."""

    def close(self) -> None:
        """End all workers, and whatever they have started, before returning."""


class Supervisor:
    """One node of one allocation.

    Parameters
    ----------
    directory
        The run's directory.
    hello
        The node.
    grace_s
        How long to look for a driver [s] before giving up.
    """

    def __init__(self, directory: str, hello: Hello, grace_s: float) -> None:
        self._directory, self._hello, self._grace = directory, hello, grace_s
        self._served = time.monotonic()  # when there last was a driver

    def run(self) -> int:
        """Serve one driver after the other; the program's exit code."""
        while True:
            channel = self._find()
            if channel is None:
                return NO_DRIVER
            log.info("connected to %s", channel.peer)
            code = _Service(channel, self._hello).run(self._served + self._grace)
            if code is not None:
                log.info("the job ends with exit code %d", code)
                return code
            log.warning("lost the connection to %s; looking for a driver for %g s", channel.peer, self._grace)
            self._served = time.monotonic()

    def _find(self) -> Channel | None:
        began, last = time.monotonic(), Exception()
        while True:
            try:
                return connect(self._directory)
            except (OSError, ValueError) as error:  # not there yet, dead, or half written
                if str(error) != str(last):
                    log.info("no driver yet, connecting again: %s", error)
                last = error
            now = time.monotonic()
            if now >= self._served + self._grace:
                print(f"asa: no driver for {self._grace:g} s, so the job ends; last: {last}", file=sys.stderr)
                return None
            time.sleep(min(_LATEST_S, max(_SOONEST_S, (now - began) * _PATIENCE)))


class _Service:
    """The time with one driver."""

    def __init__(self, channel: Channel, hello: Hello) -> None:
        self._channel, self._hello = channel, hello
        channel.largest = LARGEST  # who it is was made sure of when it was connected
        self._selector = selectors.DefaultSelector()
        self._pool: WorkerPool | None = None
        self._daemons: LauncherDaemons | None = None
        self._alive_s, self._spoke = 0.0, time.monotonic()
        self._code: int | None = None
        self._over = False

    def run(self, patience: float) -> int | None:
        """The exit code, once released or stopped by a signal; None, once the driver is gone.

        Parameters
        ----------
        patience
            When to give up on a driver that does not say welcome [s, monotonic].
        """
        with wakeup((*_STOPS, signal.SIGCHLD), _nothing) as signals:
            self._selector.register(signals, selectors.EVENT_READ, lambda mask: self._signalled(signals.recv(4096)))
            self._selector.register(self._channel, selectors.EVENT_READ, self._serve)
            try:
                self._send(self._hello)
                while not self._over:
                    for key, mask in self._selector.select(self._timeout(patience)):
                        key.data(mask)
                    if self._pool is None:
                        self._over |= time.monotonic() >= patience
            finally:
                for part in (self._daemons, self._pool):
                    if part:
                        part.close()
                self._channel.close()
                self._selector.close()
        return self._code

    def _timeout(self, patience: float) -> float:
        if self._pool is None:
            return max(0.0, patience - time.monotonic())
        soon = self._pool.advance()
        quiet = time.monotonic() - self._spoke
        if quiet >= self._alive_s:
            self._pool.relay()
            self._send(Alive())
            quiet = 0.0
        return min(self._alive_s - quiet, self._alive_s if soon is None else soon)

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOPS:
                log.warning("signal %d ends the job", number)
                self._send(Leaving(f"it was ended by signal {number} ({signal.strsignal(number)})"))
                self._code, self._over = 128 + number, True
        for part in (self._daemons, self._pool):
            if part and not self._over:
                part.reap()

    def _serve(self, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._channel.flush()
                self._channel.watch(self._selector)
            for message in self._channel.receive() if mask & selectors.EVENT_READ else ():
                self._receive(message)
        except OSError as error:
            log.info("the connection to %s broke: %s", self._channel.peer, error)
            self._over = True

    def _receive(self, message: Any) -> None:
        if isinstance(message, Welcome):
            log.info("welcome: %s in %s", message.worker_pool, message.workdir)
            self._alive_s = message.alive_s
            self._pool = _load_pool(message.worker_pool)(self._hello, message, self._selector, self._send)
        elif isinstance(message, RunOrders) and self._pool:
            self._pool.accept(message.orders)
        elif isinstance(message, StartCommand | StopCommand):
            self._launch(message)
        elif isinstance(message, ReleaseNode):
            log.info("released")
            self._code, self._over = 0, True

    def _launch(self, message: StartCommand | StopCommand) -> None:
        from executors.remote import LauncherDaemons  # a node joins sooner without it, and few need it

        self._daemons = self._daemons or LauncherDaemons(self._send)
        if isinstance(message, StartCommand):
            self._daemons.start(message)
        else:
            self._daemons.stop(message.number)

    def _send(self, message: Hello | TaskReport | Alive | Leaving | CommandEnded) -> None:
        self._spoke = time.monotonic()
        try:
            self._channel.send(message)
        except OSError:
            self._over = self._over or not isinstance(message, Leaving)
        self._channel.watch(self._selector)


def _nothing(number: int, frame: object) -> None:
    """Signals are read from the wake-up descriptor."""


def _load_pool(name: str) -> Callable[..., WorkerPool]:
    import importlib

    module, _, attribute = name.partition(":")
    found: Callable[..., WorkerPool] = getattr(importlib.import_module(module), attribute)
    return found


def arguments(options: Sequence[str]) -> tuple[str, Hello, float]:
    """Directory, node and grace [s] from the command line, which `executors.hub.Station.bootstrap` writes."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    hello = Hello(
        given["--allocation"],
        node.name(os.environ),
        os.getpid(),
        node.cores(int(given["--cores"]), os.environ),
        int(given.get("--memory", 0)),
        len(node.gpus(int(given.get("--gpus", 0)), os.environ)),
    )
    return given["--directory"], hello, float(given["--grace"])


def log_to_stderr() -> None:
    """Log warnings to standard error, or what the environment variable ``ASA_LOG_LEVEL`` says."""
    wanted = logging.getLevelName(os.environ.get("ASA_LOG_LEVEL", "WARNING").upper())
    level = wanted if isinstance(wanted, int) else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s")


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(Supervisor(*arguments(sys.argv[1:])).run())
