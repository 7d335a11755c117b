"""The program that every allocation runs, once on each of its nodes: ``python -m executors.supervisor``.

It outlives the driver. It finds the driver through the run's rendezvous file, says what its node holds, and starts the
worker pool that the driver names. When the connection breaks, it looks for a new driver, while its tasks run on and
outcomes go to a file (`executors.kept`); the new driver takes over both. When it has found none for a while, it ends
the tasks and the job.

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
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from executors import node
from executors.host import HOST, Host
from executors.kept import OutcomeFile, Owed
from executors.wire import (
    LARGEST,
    Alive,
    Channel,
    ExpectCommands,
    ForgetCommands,
    Hello,
    KeepOrders,
    KeptOrders,
    Leaving,
    OutcomesLogged,
    ReleaseNode,
    RunOrders,
    TaskReport,
    Welcome,
    is_released,
)

if TYPE_CHECKING:
    from executors.remote import CommandDesk

log = logging.getLogger("executors.supervisor")  # it is a program: its name is __main__

NO_DRIVER = 75

_STOPS = (signal.SIGTERM, signal.SIGINT)
_SOONEST_S, _LATEST_S, _PATIENCE = 0.005, 0.5, 0.05
_RELAY_S = 15.0
_REPORTED_MOST = 256


class WorkerPool(Protocol):
    """What runs tasks on one node. Drivers name the class, ``module:Class``, in their `Welcome`.

    It is called with the node (`Hello`), the `Welcome`, the supervisor's selector, in which it may register files with
    a function of the ready mask as data, and a function that sends a `TaskReport`.
    """

    def accept(self, orders: list[Any]) -> None: ...
    def advance(self) -> float | None:
        """Do what can be done now; in how many seconds [s] to call again at the latest, or None."""

    def reap(self) -> None:
        """Some child process has ended."""

    def close(self) -> None:
        """End all workers, and whatever they have started, before returning."""


@runtime_checkable
class KeepingPool(WorkerPool, Protocol):
    """A pool whose tasks go on without a driver. Any other is closed, and the next driver gets a new one."""

    def renew(self, welcome: Welcome) -> None:
        """There is another driver: what runs goes on, and what begins from now on begins as that one says."""

    def drop(self, tickets: Collection[int]) -> None:
        """Nobody wants the outcome of these orders any more."""


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
    selector
        Where it registers what it waits for, if that is not its own; the data of each registration is a function of
        the ready mask. Where several share one, `run` is not called: `greet` a driver, `advance` as often as that says.
    host
        The machine.
    """

    def __init__(
        self,
        directory: str,
        hello: Hello,
        grace_s: float,
        selector: selectors.BaseSelector | None = None,
        host: Host = HOST,
    ) -> None:
        self._directory, self.hello, self._grace, self._host = directory, hello, grace_s, host
        self._served = host.monotonic()  # when there last was a driver
        self._selector = selector or host.selector()
        self._pool: WorkerPool | None = None
        self._keeps = False  # whether it is a `KeepingPool`: to ask that for each message takes long
        self._desk: CommandDesk | None = None
        self._owed, self._file = Owed(), OutcomeFile(directory, hello.allocation, hello.node)
        self._asked: list[int] = []  # orders of earlier drivers that the new one was asked about
        self._settled = False  # whether the driver knows of all that is owed
        self._unwelcome = False  # whether the last driver hung up before its welcome
        self._kept = 0  # how many orders the driver knows of
        self._channel: Channel | None = None
        self._welcome: Welcome | None = None  # of the present driver
        self._alive_s, self._spoke = _RELAY_S, self._served
        self._newest, self._looked = 0, self._served  # generation of the newest driver known of; when that was asked
        self.code: int | None = None
        """The program's exit code, once the job is to end."""

    def run(self) -> int:
        """Serve one driver after the other; the program's exit code."""
        with self._host.signals((*_STOPS, signal.SIGCHLD)) as signals:
            self._selector.register(signals, selectors.EVENT_READ, lambda mask: self._signalled(signals.recv(4096)))
            try:
                while self.code is None and (channel := self._find()) is not None:
                    self._attend(channel)
            finally:
                self.close()
                self._host.kill_children()  # what tasks have moved to sessions of their own
                self._selector.close()
        if self.code is None:
            return NO_DRIVER
        if self.code == 0:
            self._file.remove()
        log.info("the job ends with exit code %d", self.code)
        return self.code

    def close(self) -> None:
        """End all tasks, and take leave of the driver."""
        self._hang_up()
        if self._pool:
            self._pool.close()
        if self._desk:
            self._desk.close()

    # ------------------------------------------------------- with a driver and without

    def _find(self) -> Channel | None:
        """A connection to the driver; None when there is none for too long, or a signal has come."""
        began, last = self._host.monotonic(), Exception()
        while self.code is None:
            try:
                if self._unwelcome:
                    self._unwelcome = False
                    raise ConnectionError("the driver hung up before its welcome: is it of another version of ASA?")
                self._newest = max(self._newest, self._host.newest_driver(self._directory))
                return self._host.connect(self._directory, self._newest)
            except (OSError, ValueError) as error:  # not there yet, dead, or half written
                if str(error) != str(last):
                    log.info("no driver yet, connecting again: %s", error)
                last = error
            if is_released(self._directory, self.hello.allocation):
                log.info("released, by a driver that is gone")
                self.code = 0
                return None
            now = self._host.monotonic()
            if now >= self._served + self._grace:
                print(f"asa: no driver for {self._grace:g} s, so the job ends; last: {last}", file=sys.stderr)
                if self._owed:
                    ended = len(self._owed.outcomes)
                    print(
                        f"asa: {len(self._owed) - ended} tasks end with it; outcomes of {ended} are kept for the next "
                        f"driver in {self._file.path}",
                        file=sys.stderr,
                    )
                return None
            self._go_on(now + min(_LATEST_S, max(_SOONEST_S, (now - began) * _PATIENCE)))
        return None

    def _go_on(self, until: float) -> None:
        """Without a driver, until some time [s, monotonic] or a signal."""
        while self.code is None and (left := until - self._host.monotonic()) > 0:
            self._turn(left)

    def _attend(self, channel: Channel) -> None:
        """Serve this driver until it is gone, or the job ends."""
        until = self._served + self._grace
        self.greet(channel)
        while self.is_served:
            left = None if self._welcome else until - self._host.monotonic()
            if left is not None and left <= 0:
                self._hang_up()
            elif left is not None and self._is_replaced():
                self._hang_up()  # it may never say a word
                self._unwelcome = False
            else:
                self._turn(None if left is None else min(left, self._alive_s))

    def _is_replaced(self) -> bool:
        """Whether the run has a later driver than the one that is served, which is asked as often as we say something:
        one that was stopped looks from here as if it had nothing to do."""
        now = self._host.monotonic()
        if now - self._looked < self._alive_s:
            return False
        self._looked = now
        newest, known = self._host.newest_driver(self._directory), self._newest
        self._newest = max(known, newest)
        return newest > known

    def greet(self, channel: Channel) -> None:
        """Begin to serve the driver at the other end."""
        log.info("connected to %s", channel.peer)
        channel.largest = LARGEST  # who it is was made sure of when it was connected
        self._channel = channel
        self._selector.register(channel, selectors.EVENT_READ, self._serve)
        self._kept = len(self._owed)
        self._send(self.hello._replace(kept=self._kept, newest=self._newest))

    @property
    def is_served(self) -> bool:
        """Whether there is a driver, and the job goes on."""
        return self._channel is not None and self.code is None

    def advance(self) -> float | None:
        """Do what is due; in how many seconds [s] to call again at the latest, or None."""
        if self._pool is None:
            return None
        if self._welcome and self._is_replaced():
            log.warning("the run has a newer driver: this one is left")
            self._hang_up()
            if self._pool is None:
                return 0.0
        now, soon = self._host.monotonic(), self._pool.advance()
        if now - self._spoke >= self._alive_s:
            self._spoke = now
            if self._welcome:
                self._send(Alive())
        left = self._alive_s - (now - self._spoke)
        return left if soon is None else min(left, soon)

    def _turn(self, timeout: float | None) -> None:
        """Wait for what comes next, for `timeout` at most [s], and do what is to be done then."""
        due = [left for left in (timeout, self.advance()) if left is not None]
        for key, mask in self._selector.select(max(0.0, min(due)) if due else None):
            key.data(mask)

    def _hang_up(self) -> None:
        """There is no driver any more: what it gave us goes on, as far as that needs none."""
        if self._channel is None:
            return
        self._selector.unregister(self._channel)
        self._channel.close()
        if self._welcome:
            self._served = self._host.monotonic()
        self._unwelcome = not self._welcome
        self._channel, self._welcome, self._settled = None, None, False
        if self.code == 0:
            return
        self._save()
        if self.code is not None:
            return
        log.warning("the driver is gone; looking for another for %g s", self._grace)
        if self._pool and not self._keeps:
            self._pool.close()
            self._pool = None

    def _signalled(self, numbers: bytes) -> None:
        for number in numbers:
            if number in _STOPS:
                log.warning("signal %d ends the job", number)
                self._send(Leaving(f"it was ended by signal {number} ({signal.strsignal(number)})"))
                self.code = 128 + number
        while self.code is None and (ended := self._host.ended_child()):
            for part in (self._desk, self._pool):
                if part:
                    part.reap()
            self._host.reap(ended)  # if it is one of theirs it is gone; else it was adopted

    # ------------------------------------------------------- what the driver says

    def _serve(self, mask: int) -> None:
        channel = self._channel
        assert channel, "it is in the selector as long as it is there"
        try:
            if mask & selectors.EVENT_WRITE:
                channel.flush()
                channel.watch(self._selector)
            for message in channel.receive() if mask & selectors.EVENT_READ else ():
                if self._channel is not channel:
                    break  # a driver that is out of date
                self._receive(message)
        except OSError as error:
            log.info("the connection to %s broke: %s", channel.peer, error)
            self._hang_up()

    def _receive(self, message: Any) -> None:
        if isinstance(message, Welcome):
            self._begin(message)
        elif isinstance(message, RunOrders) and self._pool:
            orders = message.orders
            if message.now:  # their allocation ends by the driver's clock, and is to by this machine's
                ahead = self._host.time() - message.now
                orders = [order._replace(ends=order.ends + ahead) if order.ends else order for order in orders]
            if self._keeps:
                self._owed.given(orders)
            self._pool.accept(orders)
        elif isinstance(message, OutcomesLogged):
            self._owed.move(message.tickets, "logged")
            self._forget_file()
        elif isinstance(message, KeepOrders):
            self._settle(set(message.tickets))
        elif isinstance(message, ExpectCommands | ForgetCommands):
            self._expect(message)
        elif isinstance(message, ReleaseNode):
            log.info("released")
            self.code = 0

    def _begin(self, welcome: Welcome) -> None:
        if welcome.generation < self._newest:
            log.warning("driver %d is out of date, number %d is not", welcome.generation, self._newest)
            self._hang_up()
            self._unwelcome = False
            return
        self._newest = welcome.generation
        log.info("welcome: %s in %s", welcome.worker_pool, welcome.workdir)
        self._alive_s, self._welcome = welcome.alive_s, welcome
        if isinstance(self._pool, KeepingPool):
            self._pool.renew(welcome)
        else:
            self._host.adopt()
            pool = self._host.worker_pool(welcome.worker_pool)
            self._pool = pool(self.hello, welcome, self._selector, self._report)
            self._keeps = isinstance(self._pool, KeepingPool)
        self._settled = not self._kept
        if self._kept:
            self._asked = list(self._owed.orders)
            self._send(KeptOrders(list(self._owed.orders.values())))

    def _settle(self, wanted: set[int]) -> None:
        """The driver has said what of the earlier drivers' orders it wants: report what has ended, end the rest."""
        asked, self._asked, self._settled = self._asked, [], True
        dropped = self._owed.move([ticket for ticket in asked if ticket not in wanted], "disowned")
        log.info("of %d orders of an earlier driver %d go on", len(asked), len(asked) - len(dropped))
        if isinstance(self._pool, KeepingPool):
            self._pool.drop(set(dropped))
        ended = list(self._owed.outcomes.values())
        for first in range(0, len(ended), _REPORTED_MOST):
            self._send(TaskReport(ended[first : first + _REPORTED_MOST], []))
        if returned := [ticket for ticket in asked if ticket in wanted and ticket not in self._owed.orders]:
            self._send(TaskReport([], returned))  # meanwhile: the driver took them to be here
        self._forget_file()

    def _expect(self, message: ExpectCommands | ForgetCommands) -> None:
        from asa.core.errors import StateError
        from executors.remote import CommandDesk  # a node joins sooner without it, and few need it

        try:
            self._desk = self._desk or CommandDesk(self._directory, self.hello.node, self._selector)
            if isinstance(message, ExpectCommands):
                self._desk.expect(message.ticket)
            else:
                self._desk.forget(message.ticket, "the task has ended")
        except (StateError, OSError) as error:  # the task's remote shell says that it is not expected
            log.error("no launcher can start ranks here: %s", error)

    # ------------------------------------------------------- what it is owed

    def _report(self, message: Any) -> None:
        """What the pool has to say; what it says of orders is owed until a driver has logged it."""
        if not (self._keeps and isinstance(message, TaskReport)):
            self._send(message)
            return
        outcomes, returned = self._owed.ended(message.outcomes), self._owed.move(message.returned, "returned")
        if self._settled:
            self._send(TaskReport(outcomes, returned))
        elif self._channel is None:
            self._save()

    def _save(self) -> None:
        """Without a driver an order has ended when its outcome is on disk."""
        unsaved = [(self._owed.orders[ticket], self._owed.outcomes[ticket]) for ticket in self._owed.unsaved]
        if not unsaved:
            return
        from asa.core.errors import StateError

        try:
            self._file.save(unsaved)
            self._owed.unsaved.clear()
        except StateError as error:
            why = f"its outcome could not be kept while there was no driver: {error}"
            log.error("%d tasks: %s", len(unsaved), why)
            self._owed.replace(
                outcome if outcome.value is None else outcome._replace(value=None, error=why, infrastructure=True)
                for _, outcome in unsaved
            )

    def _forget_file(self) -> None:
        if not self._owed.outcomes:
            self._file.remove()

    def _send(self, message: object) -> None:
        if self._channel is None:
            return
        self._spoke = self._host.monotonic()
        with suppress(OSError):  # its end is read next
            self._channel.send(message)
        self._channel.watch(self._selector)


def arguments(options: Sequence[str], host: Host = HOST) -> tuple[str, Hello, float]:
    """Directory, node and grace [s] from the command line, which `executors.hub.Station.bootstrap` writes."""
    given = dict(zip(options[::2], options[1::2], strict=True))
    whole = int(given["--cores"])
    cores, gpus = node.cores(whole, host.environ), int(given.get("--gpus", 0))
    if gpus:
        from asa.log.gpus import usable  # here: most nodes have none, and join sooner

        gpus = len(usable(gpus, host.environ))
    hello = Hello(
        given["--allocation"],
        node.name(host.environ),
        host.pid,
        cores,
        node.share(int(given.get("--memory", 0)), whole, cores),
        gpus,
    )
    return given["--directory"], hello, float(given["--grace"])


def log_to_stderr() -> None:
    """Log warnings to standard error, or what the environment variable ``ASA_LOG_LEVEL`` says."""
    wanted = logging.getLevelName(os.environ.get("ASA_LOG_LEVEL", "WARNING").upper())
    level = wanted if isinstance(wanted, int) else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s")


def main(words: Sequence[str]) -> int:
    """The program; `words` are its arguments."""
    log_to_stderr()
    return Supervisor(*arguments(words)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
