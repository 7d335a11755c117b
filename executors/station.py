"""The executor that `local` and `dask` configure: a run's hub, its nodes' program, and how they find the driver."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput, StateError
from asa.core.ports import Post, RunContext
from asa.core.task import Task
from asa.security.files import private_directory, write_private
from executors.hub import Hub
from executors.transport import CERTIFICATES, RENDEZVOUS, Listener, TlsListener, UnixListener
from executors.wire import Welcome

VALUES = "values"
"""Directory of results that are too long to travel, in the run's directory."""


def share(allocation: Allocation, context: RunContext) -> dict[str, int]:
    """What each node of an allocation holds: cores and, where they were asked for, memory [bytes] and GPUs."""
    each = allocation.resources.on_each(1 if context.local else allocation.resources.nodes or 1)
    found = {"cores": each.cores}
    if each.memory:
        found["memory"] = each.memory
    if each.gpus:
        found["gpus"] = each.gpus
    return found


def command(module: str, options: Mapping[str, object]) -> tuple[str, ...]:
    """The command line of a program that runs on nodes. An option whose value is a tuple is repeated.

    ``-P``: a file in the working directory must not pose as a standard module.
    """
    pairs = ((name, item) for name, value in options.items() for item in (value if type(value) is tuple else (value,)))
    return sys.executable, "-P", "-m", module, *(word for name, item in pairs for word in (f"--{name}", str(item)))


class Between(Protocol):
    """What may stand between the hub and the nodes of a run."""

    def front(self, listener: Listener) -> Listener:
        """What the hub is to listen at, where all that comes to `listener` passes through here."""

    def wait(self) -> None:
        """Return once it works; raises what keeps it from that."""

    def close(self) -> None: ...


class Station:
    """Runs tasks under supervisors: listens for those of a run, and says where in the run's directory.

    Parameters
    ----------
    crew, options
        What supervisors start, as ``module:Class``, and what they pass on to it; see `executors.supervisor.Crew`.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.
    between
        Makes what stands between the hub and the nodes, from the run's context and where the driver listens; by default
        nothing does.

    Raises
    ------
    InvalidInput
        When `heartbeat_s` is out of range.
    """

    def __init__(
        self,
        crew: str,
        options: Mapping[str, Any] | None = None,
        *,
        heartbeat_s: float = 60.0,
        between: Callable[[RunContext, Listener], Between] | None = None,
    ) -> None:
        if not heartbeat_s > 0:
            raise InvalidInput(f"heartbeat_s={heartbeat_s!r} must be a positive number of seconds")
        self._crew, self._options, self._heartbeat, self._between = crew, dict(options or {}), heartbeat_s, between
        self._hub: Hub | None = None
        self._opened = ExitStack()

    def bootstrap(self, allocation: Allocation, context: RunContext) -> tuple[str, ...]:
        """The supervisor's command line, for each node of an allocation."""
        options = {"directory": context.directory, "allocation": allocation.key, "grace": context.orphan_grace_s}
        return command("executors.supervisor", options | share(allocation, context))

    def start(self, context: RunContext, post: Post) -> None:
        """Listen, and say where.

        Raises
        ------
        StateError
            When the run's directory cannot be used.
        """
        values = private_directory(private_directory(context.directory) / VALUES)
        alive_s = self._heartbeat / 4
        welcome = Welcome(self._crew, self._options, str(values), context.workdir, context.sys_path, alive_s)
        listener = listen(context)
        try:
            between = self._between(context, listener) if self._between else None
            if between:
                self._opened.callback(between.close)
            front = between.front(listener) if between else listener
            self._hub = Hub(front, welcome, post, self._heartbeat, spanning=not context.local)
            self._opened.callback(self._hang_up)
            self._opened.enter_context(rendezvous(context, listener))
            if between:
                between.wait()  # meanwhile nodes come, load what they need, too, and are given tasks
        except BaseException:
            self.close()
            raise

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""
        self._started().launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""
        self._started().release(allocation)

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._started().dismiss_idle(idle_s)

    def close(self) -> None:
        """Stop listening. Supervisors that are not released wait for a new driver."""
        self._opened.close()

    def _hang_up(self) -> None:
        self._started().close()
        self._hub = None

    def _started(self) -> Hub:
        if self._hub is None:
            raise InvalidInput("this executor has not been started, or is closed: call start() first")
        return self._hub


@contextmanager
def rendezvous(context: RunContext, listener: Listener) -> Iterator[None]:
    """While it lasts, a file in the run's directory says where `listener` is, unless a new driver takes over."""
    path, address = context.directory / RENDEZVOUS, json.dumps(listener.address()).encode()
    write_private(path, address)
    try:
        yield
    finally:
        with suppress(OSError):  # gone already
            if path.read_bytes() == address:
                path.unlink()


def listen(context: RunContext) -> Listener:
    """Listen for supervisors: on a Unix socket where all nodes are this machine, else with mutual TLS.

    Raises
    ------
    StateError
        When the run's directory cannot be used.
    """
    if not context.local:
        return TlsListener(certificates(context))
    try:
        for stale in context.directory.glob("hub-*.sock"):  # of drivers that died
            stale.unlink(missing_ok=True)
        return UnixListener(context.directory, f"hub-{secrets.token_hex(8)}.sock")
    except OSError as error:
        raise StateError(
            f"cannot make a socket in {context.directory}: {error.strerror or error}. Set ASA_STATE_DIR to a directory "
            "on a file system that has sockets"
        ) from error


def certificates(context: RunContext) -> Path:
    """The directory of the run's certificates, which are made if they are not there."""
    directory = context.directory / CERTIFICATES
    if not (directory / "node.pem").exists():  # written last: a driver may have died while it made them
        from asa.security.ca import create

        create(directory, context.run)
    return directory
