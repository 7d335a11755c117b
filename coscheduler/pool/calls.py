"""Calls to agents: each has a thread of its own that calls it, so that one that is silent holds up nobody else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from http import HTTPStatus

from asa.core.errors import AsaError, BackendError, InvalidInput
from coscheduler.pool.containers import Share
from executors.mesos.codec import BadMessage, Message
from executors.mesos.operator import CallRefused, Operator
from executors.mesos.pool_directory import PoolDirectory

ANSWER_S = 1.0
"""How long an agent may take to say what its containers have used [s]; else it is left out this time."""

_AGAIN_S = 1.0
_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class AgentCalls:
    """Calls the agents of a pool; those to one agent are made in order.

    Parameters
    ----------
    directory
        The pool's.
    now
        The clock that shares are timed with [s].
    """

    def __init__(self, directory: PoolDirectory, now: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._now = directory, now
        self._lines: dict[str, _Line] = {}

    def share(self, share: Share) -> None:
        """Tell an agent what a container may have; returns at once. One that has ended is passed over."""
        line = self._line(share.agent)
        line.submit(lambda: self._tell(line, share))

    def containers(self, agents: Iterable[str]) -> list[Message]:
        """What these agents say of their containers; those that do not answer in time are left out."""
        asked = [found for agent in agents if (found := self._line(agent).ask()) is not None]
        done, _ = wait(asked, ANSWER_S)
        answers: list[Message] = []
        for answer in done:
            with suppress(AsaError, BadMessage):
                answers += answer.result()
        return answers

    def forget(self, agent: str) -> None:
        """An agent is gone: nothing more is told it."""
        if (line := self._lines.pop(agent, None)) is not None:
            line.close()

    def close(self) -> None:
        """No more calls."""
        for agent in list(self._lines):
            self.forget(agent)

    def _line(self, agent: str) -> _Line:
        if agent not in self._lines:
            self._lines[agent] = _Line(agent, Operator(self._directory))
        return self._lines[agent]

    def _tell(self, line: _Line, share: Share) -> None:
        """On the agent's thread. What is leased is asked for once: who wants it for longer asks again."""
        for _ in range(_ATTEMPTS):
            lease_s = None if share.until is None else max(0.0, share.until - self._now())
            try:
                line.operator.update_limits(share.agent, share.id, share.limit, lease_s, request=share.request)
                return
            except InvalidInput as error:
                if not (isinstance(error, CallRefused) and error.status == HTTPStatus.NOT_FOUND):
                    _log.error("the share of container %s on agent %s was refused: %s", share.id, share.agent, error)
                return
            except (BackendError, BadMessage) as error:
                _log.warning("agent %s was not told the share of container %s: %s", share.agent, share.id, error)
            if share.until is not None or line.closing.wait(_AGAIN_S):
                return


class _Line:
    """One agent, and the thread that calls it."""

    def __init__(self, agent: str, operator: Operator) -> None:
        self.operator, self.closing = operator, threading.Event()
        self._agent = agent
        self._thread = ThreadPoolExecutor(1, f"asa-agent-{agent}")
        self._asked: Future[list[Message]] | None = None

    def submit(self, call: Callable[[], None]) -> None:
        """Make a call, after those before it."""
        self._thread.submit(lambda: None if self.closing.is_set() else call()).add_done_callback(_report)

    def ask(self) -> Future[list[Message]] | None:
        """Ask for its containers; None while it has not answered the last time."""
        if self._asked is not None and not self._asked.done():
            return None
        self._asked = self._thread.submit(self._containers)
        return self._asked

    def close(self) -> None:
        """Make none of the calls that are waiting."""
        self.closing.set()
        self._thread.submit(self.operator.close)
        self._thread.shutdown(wait=False)

    def _containers(self) -> list[Message]:
        return [] if self.closing.is_set() else self.operator.containers(self._agent)


def _report(call: Future[None]) -> None:
    """What nobody waits for must not fail in silence."""
    if (error := call.exception()) is not None:
        _log.error("a call to an agent has failed", exc_info=error)
