"""Commands that MPI launchers run on other nodes: the launchers' remote shell, and the supervisor's part.

``python -m executors.remote DIRECTORY TICKET HOST COMMAND...`` is the remote shell: ``mpirun`` starts it, once for each
other node, where it would start ``ssh``. It asks the driver, which asks the node's supervisor, to run the command, and
ends as the command ends. When the shell ends first, the command is ended::

    first node                                driver              another node of the order
    ---------------------------------------   ----------------    ---------------------------------
    supervisor
      worker (launch.py)
        mpirun
          ranks
          remote shell (here) -- RemoteCommand --> Hub -- StartCommand --> supervisor
                             <-- CommandEnded ---     <-- CommandEnded --   LauncherDaemons (here)
                                                                              orted, or its like
                                                                                ranks

So ranks are in the supervisor's container, under its quota, and end with it.
"""

from __future__ import annotations

import logging
import os
import pwd
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from asa.core.task import ending
from asa.log.messages import notify
from asa.log.proc import environment
from executors.node import elsewhere, of_node
from executors.processes import SessionGuard, kill_sessions
from executors.wire import CommandEnded, CommandRefused, RemoteCommand, StartCommand, connect

log = logging.getLogger("executors.remote")

_NO_SUCH_COMMAND = 127
_HELD = 'read -r go || exit; exec "$@" </dev/null'
"""Runs a command once there is a line to read: if we die before it is guarded, it never begins."""


class LauncherDaemons:
    """Starts and ends them, each in a session of its own.

    Parameters
    ----------
    report
        Takes what is to be sent to the driver.
    """

    def __init__(self, report: Callable[[CommandEnded], None]) -> None:
        self._report = report
        self._numbers: dict[int, int] = {}  # by process number
        self._guard = SessionGuard()

    def start(self, start: StartCommand) -> None:
        """Run a command, as a remote shell would; what it writes goes to the job's output."""
        own = pwd.getpwuid(os.getuid()).pw_shell
        shell = own if own.endswith("csh") else "/bin/sh"  # launchers write other command lines for C shells
        theirs, ours = os.pipe()
        try:
            pid = os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", _HELD, "sh", shell, "-c", start.command],
                of_node(os.environ) | start.environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0)],
                setsid=True,
                setsigdef=[signal.SIGPIPE],  # which Python ignores
            )
            self._guard.guard(pid)
            self._numbers[pid] = start.number
            log.info("command %d runs as process %d", start.number, pid)
            with suppress(BrokenPipeError):  # it has been killed
                os.write(ours, b"\n")
        except OSError as error:
            notify(f"{shell} cannot be started: {error.strerror}")
            self._report(CommandEnded(start.number, _NO_SUCH_COMMAND))
        finally:
            os.close(theirs)
            os.close(ours)

    def stop(self, number: int) -> None:
        """End a command, and whatever it has started, before returning; nothing if it has ended."""
        kill_sessions({pid for pid, other in self._numbers.items() if other == number})
        self.reap()

    def reap(self) -> None:
        for pid in list(self._numbers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                log.info(
                    "command %d (process %d) %s", self._numbers[pid], pid, ending(os.waitstatus_to_exitcode(status))
                )
                kill_sessions({pid})  # ranks that have outlived their daemon
                self._guard.forget(pid)
                self._report(CommandEnded(self._numbers.pop(pid), os.waitstatus_to_exitcode(status)))
        self._guard.reap()

    def close(self) -> None:
        kill_sessions(set(self._numbers))
        for pid in self._numbers:
            os.waitpid(pid, os.WNOHANG)  # it is dead, or stuck in the kernel
            self._guard.forget(pid)
        self._guard.close()


_FAILED = 255


def main(directory: str, ticket: int, host: str, command: str) -> int:
    """Have a command run on another node; its exit code, 128 + n if signal n ended it.

    If it cannot be run, or the connection to the driver is lost, the launcher is ended, and the exit code is 255.

    Parameters
    ----------
    directory
        The run's directory.
    ticket
        Of the order that the launcher belongs to.
    host
        The node.
    command
        As a shell understands it.
    """
    try:
        channel = connect(directory)
        channel.send(RemoteCommand(ticket, host, command, elsewhere(os.environ)))
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


def _end_launcher() -> None:
    """End MPICH's launcher, which would wait for a daemon that is gone; our parent, unless that has ended itself."""
    parent = os.getppid()
    if os.environb[b"HYDRA_LAUNCHER_EXEC"] in (environment(parent) or b""):
        with suppress(OSError):
            os.kill(parent, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], " ".join(sys.argv[4:])))
