"""The parent of an agent's containers: a process of its own, forked in advance (`fork`) or started (``python -P -m``).

It starts them, which takes a small process with one thread much less time than the agent, and takes note of how they
end: in a file for each, which a later agent finds when the first has died meanwhile. A program that it has loaded, the
supervisor, it forks: Python need not be started again. It has a socket, over which one JSON object a line comes and
goes::

    {"run", "lock", "grace_s", ...}           first of all: the parameters of `Shim`
    {"id", "argv", "environment", "sandbox",  start a container: so many words of argv lead into its group, as it would
     "leads", "gates"}                        by writing 0 to these files, if there are any that do (else null)
    {"id", "pid", "birth"}, {"id", "error"}   done: the first process and its start time; or why not
    {"id", "status"}                          it has ended, with this status as `wait` has it
    {"end"}                                   nothing is to be done any more

When the agent dies, its containers go on. Should no other agent take its lock within the grace, the shim ends them and
removes what was left of their groups. Its own end leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import gc
import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from asa.log import proc

LOG = "shim.log"
"""What a shim itself has to say, in its directory."""

_LOOK_S, _WAIT_S = 0.25, 0.002
_PIECE = 1 << 16
_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTERING = 125  # exit code of a child that could not become what it was to be, as of those that `wrap` starts
# Python ignores some of them, the shim others: a program that is started expects none of that.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
_OF_PYTHON = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "OPENSSL_", "GLIBC_")
"""What variables begin with that a Python reads when it starts: a fork has those of its parent."""

Programs = Mapping[tuple[str, ...], Callable[[Sequence[str]], int]]
"""The first words of command lines, and what is called with the others in place of a start; returns the exit code."""


def birth_of(pid: int) -> int | None:
    """When a process was started, in the kernel's own count since boot; None when it is gone, a zombie included."""
    found = proc.stat(pid)
    return None if found is None or found.ended else found.birth


def process_file(run: Path, container: str) -> Path:
    """Where a container's first process and its start time are, once it has been started."""
    return run / f"{container}.process"


def process_of(file: Path, birth_of: Callable[[int], int | None] = birth_of) -> int | None:
    """The living process that such a file names; None when there is none, or its number is another one's by now."""
    with suppress(OSError, ValueError):
        pid, birth = map(int, file.read_text().split())
        return pid if birth_of(pid) == birth else None
    return None


def status_file(run: Path, container: str) -> Path:
    """Where the wait status of a container is, once it has ended."""
    return run / f"{container}.status"


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)


class Shim:
    """Starts containers and waits for them. What begins with ``node_`` is asked of the machine.

    Parameters
    ----------
    run
        Directory of status files.
    lock
        The file that a living agent holds locked.
    grace_s
        How long containers may go on without an agent [s].
    quotas, space
        By what means quotas are kept, and under which name space; "" for none that has to be tidied up.
    scratch
        A directory to be removed with them, or "".
    programs
        Those that are loaded, and so can be forked.
    """

    def __init__(
        self,
        peer: socket.socket,
        run: Path,
        lock: Path,
        grace_s: float,
        *,
        quotas: str,
        space: str,
        scratch: str,
        programs: Programs,
    ) -> None:
        self._peer: socket.socket | None = peer
        self._programs = programs
        self._run, self._lock, self._grace_s = run, lock, grace_s
        self._quotas, self._space, self._scratch = quotas, space, scratch
        self._orphaned = True
        self._containers: dict[int, str] = {}
        self._held = bytearray()
        self._null = self._wake = -1

    def serve(self) -> None:
        """Until the agent has gone, and either another one has come or nothing is left of its containers."""
        self.node_open()
        while self._peer:
            self._step(None)
        deadline = self.node_monotonic() + self._grace_s
        while self._containers or self._orphaned:
            self._step(_LOOK_S)
            if not self._orphaned:
                continue
            lock = self._free_lock()
            if lock is None:  # another agent has taken them over
                if not self._containers:
                    return
                deadline = self.node_monotonic() + self._grace_s
                continue
            with open(lock):  # held until all is tidy: no agent starts meanwhile
                if self.node_monotonic() >= deadline or (self._scratch and not self._containers):
                    self._end_orphans()
                    return
            if not self._containers:  # what an earlier shim still runs is that one's matter
                return

    def node_open(self) -> None:
        """Have the ends of children wake `node_wait`."""
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._wake, outer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in _SIGNALS[:3]:  # a batch system sends them to every process, but containers may take their time
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(outer, warn_on_full_buffer=False)

    def node_monotonic(self) -> float:
        return time.monotonic()

    def node_wait(self, peer: socket.socket | None, timeout: float | None) -> tuple[bool, bool]:
        """Until one of these is so, or `timeout` [s] are over: the peer has said something; a child has ended."""
        waiting: list[Any] = [self._wake] if peer is None else [peer, self._wake]
        ready, _, _ = select.select(waiting, [], [], timeout)
        if self._wake in ready:
            os.read(self._wake, _PIECE)
        return peer in ready, self._wake in ready

    def node_start(self, order: dict[str, Any]) -> int:
        """Start the container's first process: its number."""
        return self._forked(order) or self._spawn(order["argv"], order["environment"], order["sandbox"])

    def node_birth(self, pid: int) -> int | None:
        return birth_of(pid)

    def node_ended(self) -> tuple[int, int] | None:
        """A child that has ended, and its status as ``wait`` has it; None when there is none. Each is returned once."""
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        return (pid, status) if pid else None

    def node_kill(self, sessions: set[int]) -> None:
        """End these children, with all that they have started."""
        from executors.processes import kill_sessions  # here: a container starts sooner without it

        kill_sessions(sessions)

    def _step(self, timeout: float | None) -> None:
        said, ended = self.node_wait(self._peer, timeout)
        if ended:
            self._reap()
        if said:
            self._receive()

    def _free_lock(self) -> int | None:
        """The agent's lock; None while an agent holds it."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:  # the directory is gone, and no agent can be in it
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _end_orphans(self) -> None:
        """No agent has taken them over in time."""
        import shutil  # here and below: a container starts sooner without what is hardly ever needed

        self.node_kill(set(self._containers))
        self._reap()
        if self._space:
            from executors.cgroup import probe

            probe.best(self._space, self._quotas).sweep(())
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _receive(self) -> None:
        assert self._peer
        gone = False
        try:
            while data := self._peer.recv(_PIECE, socket.MSG_DONTWAIT):
                self._held += data
            gone = True
        except BlockingIOError:
            pass
        except OSError:
            gone = True
        *lines, rest = self._held.split(b"\n")
        self._held = bytearray(rest)
        for line in lines:
            record = json.loads(line)
            if "end" in record:
                self._orphaned = False
            elif not gone:  # else the next agent has taken it for failed, perhaps
                self._start(record)
        if gone:
            self._peer.close()
            self._peer = None

    def _start(self, order: dict[str, Any]) -> None:
        try:
            pid = self.node_start(order)
        except OSError as error:
            where = error.filename or order["sandbox"]
            self._send(id=order["id"], error=f"cannot start the container: {where}: {error.strerror}{advice(error)}")
            return
        except (ValueError, TypeError) as error:  # a null byte, say
            self._send(id=order["id"], error=f"cannot start the container: {error}")
            return
        self._containers[pid] = order["id"]
        birth = self.node_birth(pid) or 0  # it may have ended, but is not reaped yet
        with suppress(OSError):  # only an agent that comes after this one would look there
            _write(process_file(self._run, order["id"]), f"{pid} {birth}")
        self._send(id=order["id"], pid=pid, birth=birth)

    def _forked(self, order: dict[str, Any]) -> int:
        """The process of a program that is loaded; 0 where it must be started."""
        argv, environment = order["argv"][order["leads"] :], order["environment"]
        found = [words for words in self._programs if tuple(argv[: len(words)]) == words]
        if not found or order["gates"] is None or _of_python(environment) != _of_python(os.environ):
            return 0
        with self._standard(order["sandbox"]) as standard:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # none is lost before the child has its own handlers
            try:
                pid = os.fork()
                if pid == 0:
                    code = _ENTERING
                    try:
                        _become(standard, order["gates"], environment)
                        code = _called(self._programs[found[0]], argv[len(found[0]) :])
                    except OSError as error:
                        os.write(2, f"asa: the container cannot be started: {error}\n".encode())
                    finally:
                        os._exit(code)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return pid

    def _spawn(self, argv: list[str], environment: dict[str, str], sandbox: str) -> int:
        with self._standard(sandbox) as standard:
            actions = [(os.POSIX_SPAWN_DUP2, source, to) for to, source in enumerate(standard)]
            program = _program(argv[0], environment)
            return os.posix_spawn(
                program, argv, environment, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_SIGNALS
            )

    @contextmanager
    def _standard(self, sandbox: str) -> Iterator[list[int]]:
        """Standard input, output and error of a container, opened in its sandbox, where we are meanwhile."""
        os.chdir(sandbox)  # the child inherits it; the shim itself needs none
        opened = [self._null]
        try:
            opened.append(os.open("stdout", _OUTPUT, 0o600))
            opened.append(os.open("stderr", _OUTPUT, 0o600))
            yield opened
        finally:
            for descriptor in opened[1:]:
                os.close(descriptor)
            os.chdir("/")

    def _reap(self) -> None:
        while (found := self.node_ended()) is not None:
            pid, status = found
            if (container := self._containers.pop(pid, None)) is None:
                continue
            with suppress(OSError):  # a full disk: a living agent is informed all the same
                _write(status_file(self._run, container), str(status))
            self._send(id=container, status=status)

    def _send(self, **what: Any) -> None:
        if self._peer:
            with suppress(OSError):  # it has died: the next `recv` says so
                self._peer.sendall(json.dumps(what).encode() + b"\n")


def _program(name: str, environment: dict[str, str]) -> str:
    """Where a program is, as its own PATH has it."""
    if "/" in name:
        return name
    for directory in environment.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(2, "No such program on its PATH", name)


def advice(error: OSError) -> str:
    """What to do about an error, to be added to its text; mostly nothing."""
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ": free some space there, or start agents with another --work directory"
    return ""


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


def _become(standard: Sequence[int], gates: Sequence[str], environment: Mapping[str, str]) -> None:
    """In a forked child: all that a new process has of its own, but for the program."""
    from executors.processes import detach

    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # these three as Python has them when it starts
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for to, source in enumerate(standard):
        os.dup2(source, to)
    for gate in gates:
        Path(gate).write_text("0")
    detach({0, 1, 2})
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _called(program: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """In a forked child: the exit code of a program, which may also exit, or raise."""
    try:
        return program(words)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else error.code is not None
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()


def begin(peer: socket.socket, programs: Programs, words: Sequence[str] = ()) -> int:
    """Be the shim that the first line from `peer` describes, until it has nothing more to do; takes no words."""
    with peer.makefile("rb", buffering=0) as lines:  # what follows on it is not read here
        line = lines.readline()
    if not line.endswith(b"\n"):  # the agent ended before it started a container
        return 0
    given = json.loads(line)
    run, lock, grace_s = Path(given.pop("run")), Path(given.pop("lock")), given.pop("grace_s")
    log = os.open(run / LOG, _OUTPUT, 0o600)
    for to in (1, 2):
        os.dup2(log, to)
    os.close(log)
    Shim(peer, run, lock, grace_s, programs=programs, **given).serve()
    return 0


class ForkedShim:
    """A shim that was forked in advance, before the agent had loaded what it does not need; and our end of its socket.

    In a session of its own; it opens no file before it has its parameters.
    """

    def __init__(self, programs: Programs) -> None:
        self.socket, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                from executors.processes import detach

                self.socket.close()
                gc.enable()  # off while the agent loads: what the shim forks runs user code
                os.setsid()
                os.chdir("/")
                detach({1, 2, theirs.fileno()})
                for number in _SIGNALS[:3]:  # as in `Shim.serve`
                    signal.signal(number, signal.SIG_IGN)
                _called(partial(begin, theirs, programs), ())
            finally:
                os._exit(0)
        theirs.close()

    def wait(self, timeout: float = math.inf) -> None:
        """Until it has ended, or `timeout` [s] are over."""
        deadline = time.monotonic() + timeout
        with suppress(ChildProcessError):  # waited for already
            while os.waitpid(self.pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
                time.sleep(_WAIT_S)


class StartedShim:
    """A shim that was started as a program, and our end of its socket; its log goes there. Raises `OSError`."""

    def __init__(self, log: Path) -> None:
        import subprocess

        self.socket, theirs = socket.socketpair()
        argv = (sys.executable, "-P", "-m", "executors.mesos.agent.shim")
        try:
            with open(log, "ab") as out, theirs:
                self._process = subprocess.Popen(
                    argv, stdin=theirs.fileno(), stdout=out, stderr=out, cwd="/", start_new_session=True
                )
        except OSError:
            self.socket.close()
            raise

    def wait(self, timeout: float | None = None) -> None:
        import subprocess

        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)


if __name__ == "__main__":
    begin(socket.socket(fileno=0), {})
