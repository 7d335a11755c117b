"""A run's hub and what goes with it: the program of its nodes, and the file through which they find the driver.

What executors share whose tasks run under our supervisor; they differ in the crew that it is told to start.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from asa.core.allocation import Allocation
from asa.core.errors import StateError
from asa.core.ports import Executor, Post, RunContext
from asa.core.task import Task
from asa.security.files import private_directory, write_private
from executors.hub import Hub
from executors.transport import CERTIFICATES, RENDEZVOUS, Listener, TlsListener, UnixListener
from executors.wire import Welcome

VALUES = "values"
"""Directory of results that are too long to travel, in the run's directory."""


class Supervised(Executor, Protocol):
    """An executor whose tasks run under our supervisor."""

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""


def program(allocation: Allocation, context: RunContext) -> tuple[str, ...]:
    """The supervisor's command line, for each node of an allocation."""
    options = {"directory": context.directory, "allocation": allocation.key, "grace": context.orphan_grace_s}
    return command("executors.supervisor", options | share(allocation, context))


def share(allocation: Allocation, context: RunContext) -> dict[str, int]:
    """What each node of an allocation holds: cores and, where they were asked for, memory [bytes] and GPUs."""
    needs = allocation.resources
    nodes = 1 if context.local else needs.nodes or 1
    found = {"cores": needs.cores // nodes}
    if needs.memory:
        found["memory"] = needs.memory // nodes
    if needs.gpus:
        found["gpus"] = -(-needs.gpus // nodes)
    return found


def command(module: str, options: Mapping[str, object]) -> tuple[str, ...]:
    """The command line of a program that runs on nodes. An option whose value is a tuple is repeated.

    ``-P``: a file in the working directory must not pose as a standard module.
    """
    pairs = ((name, item) for name, value in options.items() for item in (value if type(value) is tuple else (value,)))
    return sys.executable, "-P", "-m", module, *(word for name, item in pairs for word in (f"--{name}", str(item)))


class Station:
    """Listens for the supervisors of a run, and says where in the run's directory.

    Parameters
    ----------
    context
        The run.
    post
        Where events go.
    crew, options
        What supervisors start, as ``module:Class``, and what they pass on to it; see `executors.supervisor.Crew`.
    heartbeat_s
        A node that was silent for so long [s] is lost; > 0.

    Raises
    ------
    StateError
        When the run's directory cannot be used.
    """

    def __init__(
        self, context: RunContext, post: Post, crew: str, options: Mapping[str, Any], heartbeat_s: float = 60.0
    ) -> None:
        directory = private_directory(context.directory)
        values = private_directory(directory / VALUES)
        workdir, path = context.workdir, context.sys_path
        welcome = Welcome(crew, dict(options), str(values), workdir, path, heartbeat_s / 4)
        listener = listen(directory, context)
        self._rendezvous = Rendezvous(directory, listener)
        self._hub = Hub(listener, welcome, post, heartbeat_s, spanning=not context.local)
        self._rendezvous.publish()

    def launch(self, tasks: Sequence[Task], allocation: str) -> None:
        """Run these tasks in this allocation, in order, as its nodes have room."""
        self._hub.launch(tasks, allocation)

    def release(self, allocation: str) -> None:
        """End this allocation's job with exit code 0; running tasks are killed."""
        self._hub.release(allocation)

    def dismiss_idle(self, idle_s: float) -> None:
        """End the supervisors of nodes that have had nothing to do for so long [s]; their allocations go on."""
        self._hub.dismiss_idle(idle_s)

    def close(self) -> None:
        """Stop listening. Supervisors that are not released wait for a new driver."""
        self._rendezvous.withdraw()
        self._hub.close()


class Rendezvous:
    """The file in the run's directory that tells supervisors where `listener` is."""

    def __init__(self, directory: Path, listener: Listener) -> None:
        self._path, self._address = directory / RENDEZVOUS, json.dumps(listener.address()).encode()

    def publish(self) -> None:
        """Nodes may come from now on."""
        write_private(self._path, self._address)

    def withdraw(self) -> None:
        """Nobody is to come any more, unless a new driver has taken over."""
        with suppress(OSError):  # gone already
            if self._path.read_bytes() == self._address:
                self._path.unlink()


def listen(directory: Path, context: RunContext) -> Listener:
    """Listen for supervisors: on a Unix socket where all nodes are this machine, else with mutual TLS.

    Raises
    ------
    StateError
        When the run's directory cannot be used.
    """
    if not context.local:
        certificates = directory / CERTIFICATES
        if not (certificates / "node.pem").exists():  # written last: a driver may have died while it made them
            from asa.security.ca import create

            create(certificates, context.run)
        return TlsListener(certificates)
    try:
        for stale in directory.glob("hub-*.sock"):  # of drivers that died
            stale.unlink(missing_ok=True)
        return UnixListener(directory, f"hub-{secrets.token_hex(8)}.sock")
    except OSError as error:
        raise StateError(
            f"cannot make a socket in {directory}: {error.strerror or error}. Set ASA_STATE_DIR to a directory on a "
            "file system that has sockets"
        ) from error
