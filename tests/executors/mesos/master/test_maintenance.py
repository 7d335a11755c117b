from __future__ import annotations

from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import Message
from executors.mesos.effects import Effect, KeepRow, Send
from executors.mesos.master.machine import Master
from executors.mesos.master.state import MasterOptions
from executors.mesos.messages import base64_of, identity, message, task_status
from executors.mesos.resources import scalars, to_json

AGENT = "M-S1"
REGISTER = {"agent_info": {"hostname": "node1", "port": 5051, "resources": [], "id": identity(AGENT)}}


class Pool:
    """A master with a framework; agents and tasks are added as tests need them."""

    def __init__(self, master: Master | None = None) -> None:
        self.master = master or Master("M", MasterOptions(), 1000.0)
        self.heard: list[Effect] = []
        info = {"name": "one", "user": "ann", "roles": ["*"], "capabilities": [{"type": "MULTI_ROLE"}]}
        self.do(self.master.subscribe(message("SUBSCRIBE", framework_info=info), None, "f", 1000.0))

    def do(self, effects: list[Effect]) -> list[Effect]:
        self.heard += effects
        return effects

    def join(self, hostname: str = "node1", stream: str = "a", tasks: tuple[str, ...] = (), **more: Any) -> None:
        info = {"hostname": hostname, "port": 5051, "resources": to_json(scalars(cpus=8, mem=1024))} | more
        running = [
            {
                "name": name,
                "task_id": identity(name),
                "framework_id": identity(self.framework),
                "state": "TASK_RUNNING",
                "resources": to_json(scalars(cpus=1)),
            }
            for name in tasks
        ]
        register = {"agent_info": info, "version": "1.11.0", "frameworks": [], "executors": [], "tasks": running}
        self.do(self.master.register({"type": "REGISTER", "register": register}, stream, 1001.0))

    @property
    def framework(self) -> str:
        [found] = self.master.state.frameworks
        return found

    def launch(self, name: str, **more: Any) -> None:
        """Let a task run on the agent that has an offer."""
        offer = next(iter(self.master.state.offers.values()))
        task = {
            "name": name,
            "task_id": identity(name),
            "agent_id": identity(offer.agent),
            "command": {"value": "true"},
            "resources": to_json(scalars(cpus=1)),
        } | more
        operations = [{"type": "LAUNCH", "launch": {"task_infos": [task]}}]
        call = message("ACCEPT", offer_ids=[identity(offer.id)], operations=operations, filters={"refuse_seconds": 0})
        self.do(self.master.call(call | {"framework_id": identity(self.framework)}, None, "f", 1002.0))
        self.update(name, "TASK_RUNNING")

    def update(self, name: str, state: str) -> None:
        """The agent tells of a task, and the framework acknowledges."""
        uuid = base64_of(f"{name} {state}".ljust(16)[:16].encode())
        status = task_status(name, state, 1003.0, source="SOURCE_EXECUTOR", agent_id=AGENT) | {"uuid": uuid}
        update = {"framework_id": identity(self.framework), "status": status, "latest_state": state}
        self.do(self.master.from_agent("a", [{"type": "UPDATE", "update": update}], 1003.0)[0])
        call = message("ACKNOWLEDGE", agent_id=identity(AGENT), task_id=identity(name), uuid=uuid)
        self.do(self.master.call(call | {"framework_id": identity(self.framework)}, None, "f", 1003.0))

    def ask(self, kind: str, **payload: Any) -> list[Message]:
        """An operator's call: what is said because of it."""
        _, effects = self.master.operate({"type": kind, kind.lower(): payload}, 1010.0)
        return [effect.message for effect in self.do(effects) if isinstance(effect, Send)]

    def drain_info(self) -> Any:
        answer, _ = self.master.operate({"type": "GET_AGENTS"}, 1010.0)
        assert answer is not None
        return answer["get_agents"]["agents"][0].get("drain_info")

    def restarted(self) -> Master:
        """The master after a crash, from what it has kept."""
        rows = {(effect.table, effect.key): effect for effect in self.heard if isinstance(effect, KeepRow)}
        return Master("M2", MasterOptions(), 2000.0, rows.values())


def kinds(said: list[Message]) -> list[str]:
    return [one["type"] for one in said]


def test_drain_kills_and_is_over_with_the_last_task() -> None:
    pool = Pool()
    pool.join()
    pool.launch("t1")
    pool.launch("t2")
    said = pool.ask("DRAIN_AGENT", agent_id=identity(AGENT))
    assert kinds(said) == ["RESCIND", "KILL", "KILL"]
    assert "kill_policy" not in said[1]["kill"]
    assert pool.drain_info() == {"state": "DRAINING", "config": {"mark_gone": False}}
    assert not pool.master.state.offers
    with pytest.raises(HTTPError, match="still draining, 2 tasks"):
        pool.ask("REACTIVATE_AGENT", agent_id=identity(AGENT))
    pool.update("t1", "TASK_KILLED")
    assert pool.drain_info()["state"] == "DRAINING"
    pool.update("t2", "TASK_KILLED")
    assert pool.drain_info()["state"] == "DRAINED"
    pool.do(pool.master.wake(1020.0))
    assert not pool.master.state.offers
    assert "OFFERS" in kinds(pool.ask("REACTIVATE_AGENT", agent_id=identity(AGENT)))
    assert pool.drain_info() is None


@pytest.mark.parametrize(
    ("most", "own", "expected"),
    [
        ("5s", None, 5.0),
        ("0.5s", 3.0, 0.5),
        ("5s", 3.0, 3.0),
        ({"seconds": 2, "nanos": 500_000_000}, None, 2.5),
        ({"nanoseconds": 1_000_000_000}, None, 1.0),
    ],
)
def test_drain_shortens_the_grace_of_tasks(most: Any, own: float | None, expected: float) -> None:
    pool = Pool()
    pool.join()
    policy = {} if own is None else {"kill_policy": {"grace_period": {"nanoseconds": round(own * 1e9)}}}
    pool.launch("t1", **policy)
    [_, kill] = pool.ask("DRAIN_AGENT", agent_id=identity(AGENT), max_grace_period=most)
    assert kill["kill"]["kill_policy"] == {"grace_period": {"nanoseconds": round(expected * 1e9)}}


def test_drain_of_a_task_that_only_its_agent_knows_and_that_makes_no_sense() -> None:
    pool = Pool()
    pool.join(tasks=("t1",))
    pool.master.state.agents[AGENT].tasks[pool.framework, "t1"].info["kill_policy"] = 5
    [*_, kill] = pool.ask("DRAIN_AGENT", agent_id=identity(AGENT), max_grace_period="5s")
    assert kill["kill"]["kill_policy"] == {"grace_period": {"nanoseconds": 5_000_000_000}}


@pytest.mark.parametrize("most", ["5", "-5s", "1e3s", "99999999999s", {"nanoseconds": -1}, {"seconds": "x"}, 5, []])
def test_drain_refuses_odd_grace_periods(most: Any) -> None:
    pool = Pool()
    pool.join()
    with pytest.raises(HTTPError, match="max_grace_period"):
        pool.ask("DRAIN_AGENT", agent_id=identity(AGENT), max_grace_period=most)
    assert pool.drain_info() is None


def test_drained_agent_is_gone_if_it_was_said_so() -> None:
    pool = Pool()
    pool.join()
    pool.launch("t1")
    pool.ask("DRAIN_AGENT", agent_id=identity(AGENT), mark_gone=True)
    assert AGENT in pool.master.state.agents
    pool.update("t1", "TASK_KILLED")
    assert AGENT in pool.master.state.gone
    shut_down = [effect for effect in pool.heard if isinstance(effect, Send) and effect.message["type"] == "SHUTDOWN"]
    assert [effect.stream for effect in shut_down] == ["a"]


def test_idle_agent_is_drained_and_gone_at_once() -> None:
    pool = Pool()
    pool.join()
    pool.ask("DRAIN_AGENT", agent_id=identity(AGENT))
    assert pool.drain_info()["state"] == "DRAINED"
    pool.ask("DRAIN_AGENT", agent_id=identity(AGENT), mark_gone=True)
    assert AGENT in pool.master.state.gone


def test_drain_goes_on_after_a_restart_of_the_master() -> None:
    pool = Pool()
    pool.join()
    pool.launch("t1")
    pool.ask("DRAIN_AGENT", agent_id=identity(AGENT))
    pool.master = pool.restarted()
    assert AGENT in pool.master.state.recovered
    before = len(pool.heard)
    pool.join(id=identity(AGENT), tasks=("t1",))
    said = [effect.message for effect in pool.heard[before:] if isinstance(effect, Send)]
    assert "KILL" in kinds(said)
    assert "OFFERS" not in kinds(said)
    assert pool.drain_info()["state"] == "DRAINING"


def test_drain_is_over_for_an_agent_whose_framework_was_torn_down_while_it_was_away() -> None:
    pool = Pool()
    pool.join()
    pool.launch("t1")
    pool.ask("DRAIN_AGENT", agent_id=identity(AGENT), mark_gone=True)
    framework = pool.framework
    pool.master = pool.restarted()
    pool.ask("TEARDOWN", framework_id=identity(framework))
    assert AGENT in pool.master.state.recovered
    before = len(pool.heard)
    pool.do(pool.master.register({"type": "REGISTER", "register": REGISTER}, "a", 2001.0))
    assert "SHUTDOWN" in kinds([effect.message for effect in pool.heard[before:] if isinstance(effect, Send)])
    assert AGENT in pool.master.state.gone


def test_agents_that_are_not_back_yet_can_be_drained() -> None:
    pool = Pool()
    pool.join()
    pool.launch("t1")
    pool.master = pool.restarted()
    assert "KILL" not in kinds(pool.ask("DRAIN_AGENT", agent_id=identity(AGENT)))
    before = len(pool.heard)
    pool.join(id=identity(AGENT), tasks=("t1",))
    assert "KILL" in kinds([effect.message for effect in pool.heard[before:] if isinstance(effect, Send)])


def test_deactivated_agent_keeps_its_tasks_and_gets_no_more() -> None:
    pool = Pool()
    pool.join()
    pool.launch("t1")
    assert kinds(pool.ask("DEACTIVATE_AGENT", agent_id=identity(AGENT))) == ["RESCIND"]
    pool.do(pool.master.wake(1020.0))
    assert not pool.master.state.offers
    assert not pool.master.state.agents[AGENT].active
    assert "OFFERS" in kinds(pool.ask("REACTIVATE_AGENT", agent_id=identity(AGENT)))
    with pytest.raises(HTTPError, match="not deactivated"):
        pool.ask("REACTIVATE_AGENT", agent_id=identity(AGENT))


@pytest.mark.parametrize("kind", ["DRAIN_AGENT", "DEACTIVATE_AGENT", "REACTIVATE_AGENT"])
def test_unknown_agents_are_refused(kind: str) -> None:
    with pytest.raises(HTTPError, match="'nobody' is not known"):
        Pool().ask(kind, agent_id=identity("nobody"))
