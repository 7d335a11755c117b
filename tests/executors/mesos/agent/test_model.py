"""Whatever happens, in whatever order: no task runs twice, none is lost unheard, and updates come in order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from executors.mesos.agent.records import registration, restored
from executors.mesos.agent.state import AgentState
from executors.mesos.codec import Message
from executors.mesos.effects import Keep
from executors.mesos.messages import TERMINAL, identity, value_of


class Model:
    """What a master knows of an agent: the updates it was sent, each once, and those it has acknowledged."""

    def __init__(self) -> None:
        self.launched: set[str] = set()
        self.told: dict[str, list[tuple[str, str]]] = {}
        self.acknowledged: set[str] = set()

    def hear(self, items: list[Message]) -> None:
        for item in items:
            if item["type"] != "UPDATE":
                continue
            status = item["update"]["status"]
            said = self.told.setdefault(value_of(status, "task_id"), [])
            if (status["uuid"], status["state"]) not in said:
                # one at a time: all that were said before have been acknowledged
                assert all(uuid in self.acknowledged for uuid, _ in said)
                assert not said or said[-1][1] not in TERMINAL
                said.append((status["uuid"], status["state"]))

    def waiting(self) -> list[tuple[str, str]]:
        """Task and uuid of updates to be acknowledged."""
        last = [(task, said[-1][0]) for task, said in self.told.items()]
        return [(task, uuid) for task, uuid in last if uuid not in self.acknowledged]

    def over(self, task: str) -> bool:
        return task in self.told and self.told[task][-1][1] in TERMINAL


class World(RuleBasedStateMachine):
    """One agent, one framework; `make` is set by the test."""

    make: Any

    def __init__(self) -> None:
        super().__init__()
        self.node, self.task, self.executor = self.make()
        self.node.register()
        self.model = Model()
        self.ran: set[str] = set()
        self.launches: list[str] = []
        self.streams = self.uuids = 0

    def _any(self, data: st.DataObject, items: Any) -> Any:
        return data.draw(st.sampled_from(sorted(items)))

    def _hear(self) -> None:
        self.model.hear(self.node.ups)
        self.node.ups.clear()

    @rule(how=st.sampled_from(["command", "custom"]), count=st.integers(1, 2), known=st.booleans())
    def run(self, how: str, count: int, known: bool) -> None:
        names = [f"t{len(self.model.launched) + index}" for index in range(count)]
        if known and self.model.launched:
            names = [name for name in sorted(self.model.launched)[:1] if not self._forgotten(name)]
        tasks = [self.task(name) for name in names]
        if how == "command":
            self.node.run(*tasks)
        else:
            self.node.run(*tasks, executor=self.executor("e1"))
        self.model.launched |= set(names)

    def _forgotten(self, name: str) -> bool:
        return self.node.agent.state.task("F1", name) is None

    def _instances(self, *, started: bool) -> list[str]:
        return [item.id for item in self.node.agent.state.instances.values() if (item.pid is not None) == started]

    @precondition(lambda self: self._instances(started=False))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        container = self._any(data, self._instances(started=False))
        assert container not in self.ran
        self.ran.add(container)
        self.node.do(self.node.agent.started(container, 5, 5, self.node.now))

    @precondition(lambda self: self.node.running)
    @rule(data=st.data(), code=st.sampled_from([0, 1, -15, None]))
    def exit(self, data: st.DataObject, code: int | None) -> None:
        container = self._any(data, self.node.running)
        if container not in self.ran:
            code = None
        self.node.do(self.node.agent.exited(container, code, "", self.node.now))

    @precondition(lambda self: self.model.launched)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.node.kill(self._any(data, self.model.launched))

    @precondition(lambda self: self.model.waiting())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        task, uuid = self._any(data, self.model.waiting())
        self.model.acknowledged.add(uuid)
        self.node.heard("ACKNOWLEDGE", framework_id=identity("F1"), task_id=identity(task), uuid=uuid)

    @rule()
    def break_connection(self) -> None:
        self.node.do(self.node.agent.disconnected(self.node.now))

    @rule()
    def connect(self) -> None:
        said = self.node.register()
        known = {value_of(item, "task_id") for item in said["tasks"]}
        for task in self.model.launched:
            assert task in known or self.model.over(task), f"{task} is lost"

    @rule(seconds=st.sampled_from([0.0, 1.0, 60.0, 900.0]))
    def wait(self, seconds: float) -> None:
        self.node.wake(self.node.now + seconds)

    @rule()
    def restart(self) -> None:
        self._hear()
        self.node.restart()
        left = {item[0] for item in self.node.agent.recovered()}
        for container in [item for item in self.node.running if item not in left]:
            del self.node.running[container]  # what nobody knows of is ended
        self.node.wake(self.node.now)

    def _executor(self) -> Any:
        found = self.node.agent.state.executor("F1", "e1")
        return found if found is not None and found.container in self.ran else None

    @precondition(lambda self: self._executor() is not None)
    @rule()
    def subscribe(self) -> None:
        self.streams += 1
        mine = [{"task_id": identity(name)} for name in self.launches]
        events = self.node.subscribe(stream=f"s{self.streams}", unacknowledged_tasks=mine)
        if self._executor() is not None and self._executor().verdict is None:
            assert events[0]["type"] == "SUBSCRIBED"

    @precondition(lambda self: self._executor() is not None and self._executor().stream and self.launches)
    @rule(data=st.data(), state=st.sampled_from(["TASK_RUNNING", "TASK_FINISHED"]), again=st.booleans())
    def update(self, data: st.DataObject, state: str, again: bool) -> None:
        name = self._any(data, set(self.launches))
        self.uuids += 1
        for _ in range(2 if again else 1):
            self.node.update(name, state, uuid=1_000_000 + self.uuids)

    @invariant()
    def hears(self) -> None:
        self._hear()
        for stream in self.node.sent.values():
            for event in stream:
                if event["type"] == "LAUNCH":
                    name = value_of(event, "launch.task.task_id")
                    assert name not in self.launches, f"{name} was launched twice"
                    self.launches.append(name)
            stream[:] = [event for event in stream if event["type"] != "LAUNCH"]

    @invariant()
    def runs_what_it_says(self) -> None:
        state = self.node.agent.state
        assert set(self.node.running) == set(state.instances)
        for framework in state.frameworks.values():
            for task in framework.tasks.values():
                if task.over:
                    assert task.pending and task.container not in self.node.running
                elif task.executor == "e1":
                    assert task.executor in framework.executors
                else:
                    assert task.container in self.node.running

    @invariant()
    def could_be_restarted(self) -> None:
        """The journal holds all that the agent would tell a master."""
        kept = restored([Keep(table, key, row) for (table, key), row in self.node.journal.items()], self.node.now)
        assert _told(kept, self.node) == _told(self.node.agent.state, self.node)

    def teardown(self) -> None:
        """In the end everything ends, is acknowledged, and leaves nothing."""
        self.connect()
        for _ in range(10):
            for container in list(self.node.running):
                self.node.do(self.node.agent.exited(container, -9, "", self.node.now))
            self._hear()
            for task, uuid in self.model.waiting():
                self.model.acknowledged.add(uuid)
                self.node.heard("ACKNOWLEDGE", framework_id=identity("F1"), task_id=identity(task), uuid=uuid)
        assert set(self.node.journal) == {("agent", "id")}
        assert all(self.model.over(task) for task in self.model.launched)
        assert set(self.model.told) <= self.model.launched
        assert self.node.agent.due() == float("inf")


def _told(state: AgentState, node: Any) -> Message:
    said = registration(state, node.options, "")["register"]
    for name in ("tasks", "executors", "frameworks"):
        said[name] = sorted(said[name], key=str)
    return said


def test_nothing_is_lost_whatever_happens(new_node, task, executor) -> None:
    class Mine(World):
        @staticmethod
        def make() -> Any:
            return new_node(), task, executor

    run_state_machine_as_test(Mine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
