"""What launchers on other nodes run on this one: their daemons, which start ranks here, as children of the supervisor.

So the ranks are in the supervisor's container, under its quota, and end with it.
"""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Callable
from contextlib import suppress

from asa.log.messages import notify
from executors.processes import Warden, kill_sessions
from executors.surroundings import of_node
from executors.wire import Start, Stopped

_NO_SUCH_COMMAND = 127
_HELD = 'read -r go || exit; exec "$@" </dev/null'
"""Runs a command once there is a line to read: if we die before it is guarded, it never begins."""


class Daemons:
    """Starts and ends them, each in a session of its own.

    Parameters
    ----------
    report
        Takes what is to be sent to the driver.
    """

    def __init__(self, report: Callable[[Stopped], None]) -> None:
        self._report = report
        self._numbers: dict[int, int] = {}  # by process number
        self._warden = Warden()

    def start(self, start: Start) -> None:
        """Run a command, as a remote shell would; what it writes goes to the job's output."""
        own = pwd.getpwuid(os.getuid()).pw_shell
        shell = own if own.endswith("csh") else "/bin/sh"  # launchers speak to C shells in their own tongue
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
            self._warden.guard(pid)
            self._numbers[pid] = start.number
            with suppress(BrokenPipeError):  # it has been killed
                os.write(ours, b"\n")
        except OSError as error:
            notify(f"{shell} cannot be started: {error.strerror}")
            self._report(Stopped(start.number, _NO_SUCH_COMMAND))
        finally:
            os.close(theirs)
            os.close(ours)

    def stop(self, number: int) -> None:
        """End a command, and whatever it has started, before returning; nothing if it has ended."""
        kill_sessions({pid for pid, other in self._numbers.items() if other == number})
        self.reap()

    def reap(self) -> None:
        """Some child process has ended."""
        for pid in list(self._numbers):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                kill_sessions({pid})  # ranks that have outlived their daemon
                self._warden.dismiss(pid)
                self._report(Stopped(self._numbers.pop(pid), os.waitstatus_to_exitcode(status)))
        self._warden.reap()

    def close(self) -> None:
        """End all of them."""
        kill_sessions(set(self._numbers))
        for pid in self._numbers:
            os.waitpid(pid, os.WNOHANG)  # it is dead, or stuck in the kernel
            self._warden.dismiss(pid)
        self._warden.close()
