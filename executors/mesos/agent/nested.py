"""Processes that operators start inside of containers: for a look around, with their input and output on the wire.

They share everything of the container around them, its limits too, and end with it, with the connection of who has
started them, or with the agent. Nothing of them is written down: a later agent ends those that it finds.

References
----------
Apache Mesos, ``docs/nested-container-and-task-group.md``: debug containers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from asa.core.errors import StateError
from asa.web.errors import HTTPError
from executors.mesos.agent import command
from executors.mesos.agent.containers import Containers
from executors.mesos.agent.effects import Container
from executors.mesos.agent.environment import environment
from executors.mesos.agent.instances import how_it_ended, wait_status
from executors.mesos.agent.machine import Agent
from executors.mesos.agent.pipes import Pipes
from executors.mesos.agent.state import Instance
from executors.mesos.codec import Message
from executors.mesos.messages import base64_of, identity, value_of
from executors.mesos.messages import field as part

LIVING_MOST = 100
"""How many may run at a time on one agent."""
_ENDED_MOST = 1000
_ENTER = 'cd "$0" && exec "$@"'
"""It has a sandbox of its own, but looks at that of the container around it."""


@dataclass(eq=False)
class Session:
    """One of them.

    Parameters
    ----------
    name
        By which `Containers` know it: the id of the container around it and its own.
    pipes
        Its input and output; None when these are files of its sandbox.
    """

    name: str
    around: str
    sandbox: Path
    pipes: Pipes | None = None
    pid: int = 0
    problem: str = ""
    """Why it could not be started."""
    status: int | None = None
    """As ``wait`` has it."""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def output(self) -> AsyncGenerator[Message, None]:
        """What it says, as Mesos' ProcessIO, until it has ended."""
        assert self.pipes
        async with aclosing(self.pipes.read()) as pieces:
            async for kind, data in pieces:
                yield {"type": "DATA", "data": {"type": kind, "data": base64_of(data)}}


class Nested:
    """All of them that an agent has.

    Parameters
    ----------
    machine
        To be read only.
    containers
        Starts and ends them.
    """

    def __init__(self, machine: Agent, containers: Containers) -> None:
        self._machine, self._containers = machine, containers
        self._living: dict[str, Session] = {}
        self._ended: dict[str, Session] = {}

    async def launch(self, asked: Message, *, attached: bool) -> Session:
        """LAUNCH_NESTED_CONTAINER, or with `attached` LAUNCH_NESTED_CONTAINER_SESSION; returns once it runs.

        Raises
        ------
        HTTPError
            When the container around it does not run (404), the id is taken (409), or it cannot be started.
        BadMessage
            When it is no such call.
        """
        instance, name, id = self._named(asked)
        if name in self._living or name in self._ended:
            raise HTTPError(409, f"Container {id!r:.80} has been started already: choose another id")
        if len(self._living) >= LIVING_MOST:
            raise HTTPError(409, f"{LIVING_MOST} nested containers run here already: end some of them first")
        container = self._container(asked, instance, name, id, attached)
        try:
            pipes = Pipes(Path(container.sandbox)) if attached else None
        except StateError as error:
            raise HTTPError(500, str(error)) from error
        session = self._living[name] = Session(name, instance.id, Path(container.sandbox), pipes)
        self._containers.start(container)
        try:
            await session.started.wait()
            if session.problem:
                raise HTTPError(500, session.problem)
        except BaseException:  # the client may have gone, too
            self.let_go(session)
            raise
        if instance.id not in self._machine.state.instances:  # it has ended meanwhile
            self.stop(session)
        return session

    def find(self, asked: Message) -> Session | None:
        """The one that a call is about, with a ``container_id``; None when it is not known."""
        name = _name(asked)
        return self._living.get(name) or self._ended.get(name)

    def kill(self, session: Session, asked: Message) -> None:
        """KILL_NESTED_CONTAINER: end it, or send its first process another signal."""
        number: int = part(asked, "signal", int, signal.SIGKILL)
        if number == signal.SIGKILL:
            self.stop(session)
        elif session.pid and not session.over.is_set():
            try:
                os.kill(session.pid, number)
            except ProcessLookupError:
                pass
            except (OSError, OverflowError) as error:
                raise HTTPError(400, f"cannot send the signal {number}: {error}") from None

    def remove(self, session: Session) -> None:
        """REMOVE_NESTED_CONTAINER: forget one that has ended, with its sandbox; raises `HTTPError` while it runs."""
        if session.name in self._living:
            raise HTTPError(409, "the container has not ended: kill it first")
        del self._ended[session.name]
        shutil.rmtree(session.sandbox, ignore_errors=True)

    def stop(self, session: Session) -> None:
        """End it at once."""
        self._containers.stop(session.name, 0.0)

    def let_go(self, session: Session) -> None:
        """Nobody listens any more: end it."""
        self.stop(session)
        if session.pipes:
            session.pipes.close()

    # ------------------------------------------------------- told by the engine

    def has_started(self, container: str, pid: int) -> bool:
        """Whether it is one of ours that runs now."""
        if session := self._living.get(container):
            session.pid = pid
            if session.pipes:
                session.pipes.attached()
            session.started.set()
        return session is not None

    def has_ended(self, container: str, code: int | None, reason: str) -> bool:
        """Whether it was one of ours that is over; those inside of a container that is over are ended."""
        for inner in [one for one in self._living.values() if one.around == container]:
            self.stop(inner)
        session = self._living.pop(container, None)
        if session is None:
            return False
        self._ended[container] = session
        if len(self._ended) > _ENDED_MOST:
            del self._ended[next(iter(self._ended))]
        session.status = wait_status(code)
        session.problem = "" if session.pid else reason or how_it_ended(code)
        session.started.set()
        session.over.set()
        if session.pipes:
            session.pipes.ended()
        self._containers.remove(container)
        return True

    # ------------------------------------------------------- what is asked for

    def _named(self, asked: Message) -> tuple[Instance, str, str]:
        around = value_of(asked, "container_id.parent")
        id = command.identifier(asked, "container_id")
        instance = self._machine.state.instances.get(around)
        if instance is None or instance.pid is None:
            raise HTTPError(404, f"Container {around!r:.80} cannot be found, or does not run")
        return instance, _name(asked), id

    def _container(self, asked: Message, instance: Instance, name: str, id: str, attached: bool) -> Container:
        options = self._machine.options
        wanted: Message = part(asked, "command", dict)
        if "tty_info" in part(asked, "container", dict, {}):
            raise HTTPError(501, "terminals are not supported: ask for none")
        if objection := command.objection({"command": wanted, "container": asked.get("container", {})}, options):
            raise HTTPError(400, objection)
        if command.files(wanted):
            raise HTTPError(400, "nothing is fetched for a nested container: its command finds the sandbox around it")
        sandbox = os.path.join(instance.sandbox, "containers", id)
        state = self._machine.state
        framework = state.frameworks.get(instance.framework)
        info = {"id": identity(instance.framework)} if framework is None else framework.info
        variables = environment(
            options, state.id or "", info, instance.executor, instance.sandbox, command=wanted, gpus=instance.gpus
        )
        argv = ("/bin/sh", "-c", _ENTER, instance.sandbox, *command.argv(wanted))
        return Container(
            name, instance.framework, instance.executor, argv, variables, sandbox, 0.0, None, None,
            inside=instance.id, pipes=attached,
        )  # fmt: skip


def _name(asked: Message) -> str:
    """Without a parent it is none of ours."""
    id = command.identifier(asked, "container_id")
    around: str | None = part(asked, "container_id.parent.value", str, None)
    return id if around is None else f"{around}.{id}"
