"""Commands that MPI launchers run on other nodes: the launchers' remote shell, and the supervisor's part.

``python -m executors.remote DIRECTORY TICKET HOSTS HOST COMMAND...`` is the remote shell: ``mpirun`` starts it, once
for each other node, where it would start ``ssh``. It asks the node's supervisor to run the command, and ends as the
command ends. When the shell ends first, the command is ended::

    first node                                                    another node of the order
    ---------------------------------------                       ---------------------------------
    supervisor                                                    supervisor
      worker (launch.py)                                            CommandDesk (here)
        mpirun                                                        orted, or its like
          ranks                                                         ranks
          remote shell (here)  -- RemoteCommand -->
                               <-- CommandEnded ---

So ranks are in the supervisor's container, under its quota, and end with it. The driver only says beforehand which
order may ask (`ExpectCommands`), so what runs goes on without it. Both sides prove by mutual TLS that they belong to
the run.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import select
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from asa.core.task import ending
from asa.log.messages import notify
from asa.log.proc import environment
from asa.security.files import private_directory, write_private
from executors.node import elsewhere, of_node
from executors.processes import SessionGuard, kill_sessions
from executors.wire import (
    CERTIFICATES,
    LARGEST,
    REACHED,
    Channel,
    CommandEnded,
    CommandRefused,
    RemoteCommand,
    TlsListener,
    connect_node,
)

log = logging.getLogger("executors.remote")

_NO_SUCH_COMMAND = 127
_HELD = 'read -r go || exit; exec "$@" </dev/null'
"""Runs a command once there is a line to read: if we die before it is guarded, it never begins."""
_STRANGERS_MOST = 64


Asker = TypeVar("Asker")


class LauncherDaemons(Generic[Asker]):
    """Starts and ends commands, each in a session of its own.

    Parameters
    ----------
    report
        Takes who asked for a command, and its exit code or -n if signal n ended it.
    """

    def __init__(self, report: Callable[[Asker, int], None]) -> None:
        self._report = report
        self._askers: dict[int, Asker] = {}  # by process number
        self._guard = SessionGuard()

    def start(self, asker: Asker, command: str, variables: Mapping[str, str]) -> None:
        """Run a command, as a remote shell would; what it writes goes to the job's output."""
        own = pwd.getpwuid(os.getuid()).pw_shell
        shell = own if own.endswith("csh") else "/bin/sh"  # launchers write other command lines for C shells
        theirs, ours = os.pipe()
        try:
            pid = os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", _HELD, "sh", shell, "-c", command],
                of_node(os.environ) | dict(variables),
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0)],
                setsid=True,
                setsigdef=[signal.SIGPIPE],  # which Python ignores
            )
            self._guard.guard(pid)
            self._askers[pid] = asker
            log.info("a command of another node's launcher runs as process %d", pid)
            with suppress(BrokenPipeError):  # it has been killed
                os.write(ours, b"\n")
        except OSError as error:
            notify(f"{shell} cannot be started: {error.strerror}")
            self._report(asker, _NO_SUCH_COMMAND)
        finally:
            os.close(theirs)
            os.close(ours)

    def stop(self, asker: Asker) -> None:
        """End what this one has asked for, and whatever that has started, before returning; nothing if it has ended."""
        kill_sessions({pid for pid, other in self._askers.items() if other == asker})
        self.reap()

    def reap(self) -> None:
        for pid in list(self._askers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                log.info("the command in process %d %s", pid, ending(code))
                kill_sessions({pid})  # ranks that have outlived their daemon
                self._guard.forget(pid)
                self._report(self._askers.pop(pid), code)
        self._guard.reap()

    def close(self) -> None:
        kill_sessions(set(self._askers))
        for pid in self._askers:
            os.waitpid(pid, os.WNOHANG)  # it is dead, or stuck in the kernel
            self._guard.forget(pid)
        self._guard.close()


@dataclass(eq=False)
class _Shell:
    """A remote shell that is connected; without a ticket until it has asked for something."""

    channel: Channel
    ticket: int | None = None


class CommandDesk:
    """A supervisor's side: listens for the shells of orders that it expects, and runs what they ask for.

    Parameters
    ----------
    directory
        The run's.
    node
        The node's name in the run.
    selector
        Where it registers what it waits for; the data of each registration is a function of the ready mask.

    Raises
    ------
    StateError, OSError
        When it cannot listen.
    """

    def __init__(self, directory: str, node: str, selector: selectors.BaseSelector) -> None:
        self._directory, self._node, self._selector = Path(directory), node, selector
        self._listener = TlsListener(self._directory / CERTIFICATES, "worker.pem")
        self._daemons = LauncherDaemons[Channel](self._ended)
        self._expected: dict[int, Path] = {}
        self._shells: dict[Channel, _Shell] = {}
        selector.register(self._listener, selectors.EVENT_READ, lambda mask: self._accept())

    def expect(self, ticket: int) -> None:
        """The launcher of this order may ask for commands: say where."""
        path = private_directory(self._directory / REACHED) / f"{ticket}-{self._node}.json"
        write_private(path, json.dumps(self._listener.address()).encode())
        self._expected[ticket] = path

    def forget(self, ticket: int, reason: str) -> None:
        """It may not any more: end what it has asked for."""
        if path := self._expected.pop(ticket, None):
            path.unlink(missing_ok=True)
        for shell in [shell for shell in self._shells.values() if shell.ticket == ticket]:
            self._refuse(shell, reason)

    def reap(self) -> None:
        """Some child process has ended."""
        self._daemons.reap()

    def close(self) -> None:
        for ticket in list(self._expected):
            self.forget(ticket, "the supervisor of the node has ended")
        for channel in list(self._shells):
            self._drop(channel)
        self._selector.unregister(self._listener)
        self._listener.close()
        self._daemons.close()

    def _accept(self) -> None:
        with suppress(OSError):  # no more files may be open: it is asked again
            while (channel := self._listener.accept()) is not None:
                self._meet(channel)

    def _meet(self, channel: Channel) -> None:
        strangers = [shell for shell in self._shells.values() if shell.ticket is None]
        if len(strangers) >= _STRANGERS_MOST:  # shells ask at once: the one that has been silent longest is none
            self._drop(strangers[0].channel)
        shell = self._shells[channel] = _Shell(channel)
        self._selector.register(channel, selectors.EVENT_READ, lambda mask: self._serve(shell, mask))

    def _serve(self, shell: _Shell, mask: int) -> None:
        channel = shell.channel
        try:
            if mask & selectors.EVENT_WRITE:
                channel.flush()
                channel.watch(self._selector)
            for message in channel.receive() if mask & selectors.EVENT_READ else ():
                self._receive(shell, message)
        except Exception as error:  # what a peer sends must not end the supervisor, whatever it is
            log.log(logging.INFO if shell.ticket else logging.WARNING, "%s is gone: %s", channel.peer, error)
            self._drop(channel)

    def _receive(self, shell: _Shell, message: Any) -> None:
        if not isinstance(message, RemoteCommand) or shell.ticket is not None:
            raise ValueError(f"{type(message).__name__} was not expected")
        shell.ticket, shell.channel.largest = message.ticket, LARGEST
        if message.ticket in self._expected:
            self._daemons.start(shell.channel, message.command, message.environment)
        else:
            log.warning("refused a command of order %d, which is not expected", message.ticket)
            self._refuse(shell, "the node is not, or not any more, one of the task's")

    def _refuse(self, shell: _Shell, reason: str) -> None:
        self._say(shell.channel, CommandRefused(reason))
        self._drop(shell.channel)

    def _ended(self, asker: Channel, code: int) -> None:
        self._say(asker, CommandEnded(code))

    def _say(self, channel: Channel, message: object) -> None:
        if channel in self._shells:
            with suppress(OSError):  # its end is read next
                channel.send(message)
            channel.watch(self._selector)

    def _drop(self, channel: Channel) -> None:
        if self._shells.pop(channel, None):
            self._selector.unregister(channel)
            channel.close()
            self._daemons.stop(channel)


_FAILED = 255
PATIENCE_S, _AGAIN_S = 30.0, 0.02
"""How long a node's supervisor may take to hear of an order whose launcher asks already; between two looks [s]."""


def main(directory: str, ticket: int, hosts: str, host: str, command: str) -> int:
    """Have a command run on another node; its exit code, 128 + n if signal n ended it.

    If it cannot be run, or the connection to the node is lost, the launcher is ended, and the exit code is 255.

    Parameters
    ----------
    directory
        The run's directory.
    ticket
        Of the order that the launcher belongs to.
    hosts
        The order's other nodes, with commas between.
    host
        The node.
    command
        As a shell understands it.
    """
    try:
        if host not in hosts.split(","):
            raise ConnectionRefusedError("it is not one of the task's nodes")
        channel = _connected(directory, ticket, host)
        channel.send(RemoteCommand(ticket, command, elsewhere(os.environ)))
        while True:
            select.select([channel], [channel] if channel.unsent else [], [])
            channel.flush()
            for message in channel.receive():
                if isinstance(message, CommandEnded):
                    return message.code if message.code >= 0 else 128 - message.code
                if isinstance(message, CommandRefused):
                    raise ConnectionAbortedError(message.reason)
    except (OSError, ValueError) as error:
        print(f"asa: no remote shell on {host}: {error}", file=sys.stderr)
        _end_launcher()
        return _FAILED


def _connected(directory: str, ticket: int, host: str) -> Channel:
    """A channel to the node's supervisor, which hears of the order at the same time as the first node's."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return connect_node(directory, ticket, host)
        except FileNotFoundError:
            if time.monotonic() > until:
                raise TimeoutError("its supervisor does not expect commands of this task") from None
            time.sleep(_AGAIN_S)


def _end_launcher() -> None:
    """End MPICH's launcher, which would wait for a daemon that is gone; our parent, unless that has ended itself."""
    parent = os.getppid()
    if os.environb[b"HYDRA_LAUNCHER_EXEC"] in (environment(parent) or b""):
        with suppress(OSError):
            os.kill(parent, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], " ".join(sys.argv[5:])))
