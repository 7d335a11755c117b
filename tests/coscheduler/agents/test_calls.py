from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from asa.core.errors import BackendError, InvalidInput
from coscheduler.agents import machine as module
from coscheduler.agents.containers import ShareCall
from coscheduler.agents.machine import AgentCalls
from executors.mesos.codec import Message
from executors.mesos.operator import CallRefused
from tests.executors.mesos.scripted import DEADLINE_S, until

LASTING = ShareCall("A", "id-1", 0.5, math.inf, None)
LEASED = ShareCall("A", "id-2", 0.5, 1.0, 107.0)


class Said:
    """What all operators are told, and what they do then: `answers` are raised, or called, one for each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: list[Exception | Callable[[], object]] = []
        self.closed = 0

    def __call__(self, directory: object) -> Said:
        return self

    def update_limits(self, agent: str, id: str, cpus: float, lease_s: float, *, request: float) -> None:
        self._said(agent, id, request, cpus, lease_s)

    def containers(self, agent: str) -> list[Message]:
        self._said(agent)
        return [{"agent": agent}]

    def close(self) -> None:
        self.closed += 1

    def _said(self, *call: Any) -> None:
        self.calls.append(call)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            answer()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    said = Said()
    monkeypatch.setattr(module, "Operator", said)
    monkeypatch.setattr(module, "_AGAIN_S", 0.01)
    return said


@pytest.fixture
def calls(said: Said) -> Iterator[AgentCalls]:
    calls = AgentCalls(None, now=lambda: 100.0)  # type: ignore[arg-type]
    yield calls
    calls.close()


def silent() -> BackendError:
    return BackendError("the agent does not answer", transient=True)


def test_an_agent_is_told_what_it_is_to_do_in_order(calls: AgentCalls, said: Said) -> None:
    calls.share(LASTING)
    calls.share(LEASED)
    calls.share(ShareCall("A", "id-2", 0.5, 1.0, 99.0))
    until(lambda: len(said.calls) == 3)
    assert said.calls == [
        ("A", "id-1", 0.5, math.inf, None), ("A", "id-2", 0.5, 1.0, 7.0), ("A", "id-2", 0.5, 1.0, 0.0),
    ]  # fmt: skip


def test_what_is_for_good_is_told_again_and_what_is_leased_is_not(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent(), silent()]
    calls.share(LASTING)
    until(lambda: len(said.calls) == 3)
    said.answers = [silent()]
    calls.share(LEASED)
    calls.share(LASTING)
    until(lambda: len(said.calls) == 5)
    assert [id for _, id, *_ in said.calls] == ["id-1"] * 3 + ["id-2", "id-1"]


def test_an_agent_that_never_answers_is_not_told_for_ever(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent()] * 5
    calls.share(LASTING)
    calls.share(LEASED)
    until(lambda: len(said.calls) == 6)
    assert [id for _, id, *_ in said.calls] == ["id-1"] * 5 + ["id-2"]


def test_refusals_are_logged_unless_the_container_has_ended(
    calls: AgentCalls, said: Said, caplog: pytest.LogCaptureFixture
) -> None:
    said.answers = [CallRefused("it has ended", 404)]
    calls.share(LASTING)
    until(lambda: len(said.calls) == 1)
    said.answers = [CallRefused("expected a limit", 400)]
    calls.share(LASTING)
    until(lambda: "expected a limit" in caplog.text)
    said.answers = [InvalidInput("there is no agent 'A'")]
    calls.share(LASTING)
    until(lambda: "no agent" in caplog.text)
    assert "it has ended" not in caplog.text
    assert len(said.calls) == 3


def test_what_fails_in_any_other_way_is_logged(calls: AgentCalls, said: Said, caplog: pytest.LogCaptureFixture) -> None:
    said.answers = [RuntimeError("a fault of ours")]
    calls.share(LASTING)
    until(lambda: "a fault of ours" in caplog.text)
    calls.share(LASTING)
    until(lambda: len(said.calls) == 2)


def test_an_agent_that_is_late_is_left_out_and_not_asked_again_meanwhile(
    calls: AgentCalls, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(item["agent"] for item in calls.containers(["A", "B"])) == ["A", "B"]
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    hold, said.calls = threading.Event(), []
    said.answers = [lambda: hold.wait(DEADLINE_S)]
    assert calls.containers(["A"]) == []
    assert calls.containers(["A"]) == []
    assert said.calls == [("A",)]
    hold.set()
    until(lambda: calls.containers(["A"]) == [{"agent": "A"}])


def test_an_agent_that_cannot_answer_is_left_out(calls: AgentCalls, said: Said) -> None:
    said.answers = [silent()]
    assert calls.containers(["A"]) == []
    assert calls.containers(["A"]) == [{"agent": "A"}]


def test_an_agent_that_is_gone_is_told_nothing_more(calls: AgentCalls, said: Said) -> None:
    hold = threading.Event()
    said.answers = [lambda: hold.wait(DEADLINE_S)]
    calls.share(LASTING)
    calls.share(LEASED)
    calls.forget("A")
    hold.set()
    until(lambda: said.closed == 1)
    assert len(said.calls) <= 1
