"""Programs of the embedded batch system, each in a session of its own.

A small shell wrapper runs the program and keeps its exit code in a file, so that a later driver can tell how it ended.
The wrapper first waits at a gate: it runs nothing until the driver, having noted who it is, says go. If the driver dies
in between, the wrapper ends and nothing has run.

A process is known by its number, its start time and the machine's boot, for numbers come round again. Everything in the
wrapper's session belongs to the job. What a program moves to a session of its own (``setsid``, a daemon) escapes: it
outlives the job, as it does on clusters that do not track processes by control group.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from asa.core.errors import BackendError
from asa.core.job import JobRequest
from asa.log import proc

# $0 is the file for the exit code, $1 the working directory, the rest the program. At last the wrapper kills what the
# program left behind in its process group, itself included.
_WRAPPER = """\
read -r asa_gate || exit 125
cd -- "$1" && shift && "$@" </dev/null
code=$?
umask 077
echo "$code" >"$0.new" && mv -f "$0.new" "$0" && kill -KILL 0
exit "$code"
"""
_KILL_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that cannot be mistaken for a later one of the same number.

    Parameters
    ----------
    pid
        Process number of the wrapper, which is its session's number too.
    started
        Its start, in clock ticks since the boot.
    boot
        The machine's boot.
    """

    pid: int
    started: int
    boot: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code, None when nothing tells, and when [s since the epoch], None when unknown."""

    exit_code: int | None
    at: float | None


class Program:
    """A job's program, started by this driver or by an earlier one.

    Parameters
    ----------
    identity
        The wrapper's process.
    exit_file
        Where the wrapper keeps the exit code.
    gate
        Descriptor on which the wrapper waits for the word, or None once it was given.
    """

    def __init__(self, identity: Identity, exit_file: Path, gate: int | None = None) -> None:
        self.identity, self._exit_file, self._gate = identity, exit_file, gate
        self._child = gate is not None
        self._asked = False

    @classmethod
    def spawn(cls, request: JobRequest, exit_file: Path) -> Program:
        """Start the wrapper, which waits for `go`. The request's working directory is an absolute path.

        Raises
        ------
        OSError, ValueError
            When the working directory, the output file or the arguments cannot be used.
        """
        os.close(os.open(request.workdir, os.O_RDONLY | os.O_DIRECTORY))
        output = os.devnull if request.output is None else os.path.join(request.workdir, request.output)
        sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        inner, gate = os.pipe()
        try:
            pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _WRAPPER, str(exit_file), request.workdir, *request.argv],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((inner, 0), (sink, 1), (sink, 2))],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
            )
        except BaseException:
            os.close(gate)
            raise
        finally:
            os.close(inner)
            os.close(sink)
        found = proc.stat(pid)
        assert found, "a child that was not waited for is always there"
        return cls(Identity(pid, found.birth, _boot()), exit_file, gate)

    def go(self) -> None:
        """Let the wrapper run the program."""
        if self._gate is not None:
            with contextlib.suppress(BrokenPipeError):  # somebody has killed the wrapper already
                os.write(self._gate, b"go\n")
            self.abandon()

    def abandon(self) -> None:
        """Close the gate: a wrapper that was not told to go ends without running anything."""
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    def poll(self) -> Ended | None:
        """How the program ended, with the rest of its session killed; None while it runs."""
        code: int | None = None
        if self._child:
            try:
                end = os.waitid(os.P_PID, self.identity.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if end is None:
                    return None
                self.kill()  # before the wrapper is waited for: until then its number can belong to nobody else
                code = os.waitstatus_to_exitcode(os.waitpid(self.identity.pid, 0)[1])
                code = 128 - code if code < 0 else code
            except ChildProcessError:
                pass  # somebody else waited for our child: the exit code is in the file all the same
        elif self._alive():
            return None
        try:
            return Ended(int(self._exit_file.read_text()), self._exit_file.stat().st_mtime)
        except (OSError, ValueError):
            return Ended(code, None)

    def terminate(self) -> None:
        """Ask the program, and what it has started, to end (SIGTERM), once.

        The wrapper is left alone: it tells how the program ended. While it is alone, there is nothing to ask yet: try
        again later.
        """
        if not self._asked and (self._child or self._alive()):
            programs = [pid for pid in self._members() if pid != self.identity.pid]
            _signal(programs, signal.SIGTERM)
            self._asked = bool(programs)

    def kill(self) -> None:
        """End every process of the session (SIGKILL), those included that are being born meanwhile.

        Raises
        ------
        BackendError
            When some are still there after a few seconds, which takes a process stuck in the kernel.
        """
        if not (self._child or self._alive()):
            return
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while members := self._members():
            _signal(members, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise BackendError(
                    f"processes {members} of a job do not end, even when killed: they are stuck in the kernel, mostly "
                    "over a file system that does not answer. Whoever runs this machine should look",
                    transient=True,
                )
            time.sleep(0.001)

    def _alive(self) -> bool:
        found = proc.stat(self.identity.pid)
        if found is None or found.ended:
            return False
        return (found.birth, _boot()) == (self.identity.started, self.identity.boot)

    def _members(self) -> list[int]:
        """Numbers of the session's live processes."""
        return [pid for pid, found in proc.living() if found.session == self.identity.pid]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
