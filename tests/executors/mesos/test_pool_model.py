"""Master, agent and framework with everything between them, any of which may fail at any moment.

What is written down and what is sent are two steps, so a crash may come between; what is on its way may be lost with
its connection; updates are repeated, also late ones. However it goes, in the end every task was told to be over, ran at
most once, never after that was told, and nothing is left of it.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from executors.mesos.master.machine import Master
from executors.mesos.messages import identity
from executors.mesos.resources import scalars
from tests.executors.mesos.pool_model import OPTIONS, Model


class Pool(Model, RuleBasedStateMachine):
    # ------------------------------------------------------- what may happen

    @rule()
    def connect(self) -> None:
        """Whoever is not connected is now."""
        self.come_back()

    @precondition(lambda self: self.offers)
    @rule(count=st.integers(1, 2))
    def launch(self, count: int) -> None:
        self.launch_tasks(count)

    @precondition(lambda self: self.unfinished())
    @rule(data=st.data(), reconcile=st.booleans())
    def ask(self, data: st.DataObject, reconcile: bool) -> None:
        task = data.draw(st.sampled_from(sorted(self.unfinished())))
        one = {"task_id": identity(task), "agent_id": identity(self.launched[task])}
        self.call("RECONCILE", tasks=[one]) if reconcile else self.call("KILL", **one)

    @precondition(lambda self: self.calls)
    @rule()
    def call_arrives(self) -> None:
        self.m.take(self.master.call(self.calls.popleft(), "p", self.stream_f, self.now))

    @precondition(lambda self: self.events)
    @rule()
    def event_arrives(self) -> None:
        self.hear()

    @precondition(lambda self: self.ups)
    @rule()
    def up_arrives(self) -> None:
        item = self.ups.popleft()
        self.said.append(item)
        self.hear_agent(item)

    @precondition(lambda self: self.stream_a and any(item["type"] == "UPDATE" for item in self.said))
    @rule(data=st.data())
    def update_is_repeated(self, data: st.DataObject) -> None:
        """Also one of long ago, which was acknowledged and followed by others, on another connection perhaps."""
        self.hear_agent(data.draw(st.sampled_from([item for item in self.said if item["type"] == "UPDATE"])))

    @precondition(lambda self: self.downs)
    @rule()
    def down_arrives(self) -> None:
        item = self.downs.popleft()
        if item["type"] == "CLOSED":
            self.disconnect_agent()
        else:
            self.a.take(self.agent.from_master(item, self.now))

    @precondition(lambda self: self.m.waiting)
    @rule()
    def master_writes(self) -> None:
        self.commit_master()

    @precondition(lambda self: self.a.waiting)
    @rule()
    def agent_writes(self) -> None:
        self.commit_agent()

    @precondition(lambda self: self.to_start)
    @rule()
    def container_starts(self) -> None:
        self.begin(self.to_start[0])

    @precondition(lambda self: self.unheard)
    @rule()
    def start_is_heard(self) -> None:
        self.a.take(self.agent.started(self.unheard.pop(0), 5, 5, self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), code=st.sampled_from([0, 0, 1]))
    def container_ends(self, data: st.DataObject, code: int) -> None:
        container = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[container]
        self.ended[container] = code

    @precondition(lambda self: any(container not in self.unheard for container in self.ended))
    @rule()
    def end_is_heard(self) -> None:
        container = next(name for name in self.ended if name not in self.unheard)
        self.a.take(self.agent.exited(container, self.ended.pop(container), "", self.now))

    @rule(seconds=st.sampled_from([1.0, 15.0, 80.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := min(self.master.due(), self.agent.due())) <= end:
            self.now = max(self.now, due)
            self.m.take(self.master.wake(self.now))
            self.a.take(self.agent.wake(self.now))
        self.now = end

    # ------------------------------------------------------- what may fail

    @precondition(lambda self: self.stream_f)
    @rule()
    def framework_dies(self) -> None:
        """Or its connection breaks; it has written down what it launched and heard."""
        stream = self.cut_framework()
        self.m.take(self.master.closed(stream, self.now))

    @precondition(lambda self: self.stream_a)
    @rule()
    def agents_connection_breaks(self) -> None:
        self.disconnect_agent()

    @rule(torn=st.booleans())
    def master_dies(self, torn: bool) -> None:
        rows = self.m.die(torn)
        self.cut_framework()
        if self.stream_a:
            self.cut_agent()
            self.a.take(self.agent.disconnected(self.now))
        self.master = Master("M", OPTIONS, self.now, rows)

    @rule(torn=st.booleans())
    def agent_dies(self, torn: bool) -> None:
        """Containers go on; what the next one does not know of it ends."""
        rows = self.a.die(torn)
        if self.stream_a:
            self.m.take(self.master.closed(self.cut_agent(), self.now))
        self.to_start.clear()
        self.unheard.clear()
        self.agent = self.new_agent(rows)
        known = {name for name, _, _ in self.agent.recovered()}
        for container in [name for name in self.running if name not in known]:
            del self.running[container]
        gone = [name for name in sorted(known) if name not in self.running]
        for container in gone:
            self.a.take(self.agent.exited(container, self.ended.get(container), "", self.now))
        self.ended.clear()

    # ------------------------------------------------------- the end

    @rule(steps=st.integers(1, 20))
    def things_go_on(self, steps: int) -> None:
        """Several steps of what would happen anyway: failures would come too often otherwise."""
        self._go_on(steps)

    def _go_on(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    @rule(steps=st.integers(0, 25))
    def a_launch_gets_so_far(self, steps: int) -> None:
        """From ACCEPT to the acknowledgement of RUNNING it takes some twenty steps."""
        self.come_back()
        self._work()
        if self.offers:
            self.launch_tasks(1)
        self._go_on(steps)

    def _step(self) -> bool:
        """One thing that can be done without anything new happening: whether there is any."""
        todo = (
            (self.m.waiting, self.master_writes),
            (self.a.waiting, self.agent_writes),
            (self.calls, self.call_arrives),
            (self.events, self.event_arrives),
            (self.ups, self.up_arrives),
            (self.downs, self.down_arrives),
            (self.to_start, self.container_starts),
            (self.unheard, self.start_is_heard),
            (set(self.ended) - set(self.unheard), self.end_is_heard),
        )
        act = next((act for there, act in todo if there), None)
        if act is not None:
            act()
        return act is not None

    def _work(self) -> None:
        steps = 0
        while self._step():
            steps += 1
            assert steps < 10_000, "it never comes to rest"

    def teardown(self) -> None:
        for _ in range(8):  # longer than agents have to come back, and to answer pings
            self.come_back()
            self._work()
            for container in list(self.running):
                del self.running[container]
                self.ended[container] = 0
            self._work()
            self.time_passes(15.0)
            self._work()
            if self.stream_f:
                one = [{"task_id": identity(t), "agent_id": identity(a)} for t, a in self.unfinished().items()]
                self.call("RECONCILE", tasks=one) if one else None
            self._work()
        # an agent that died before it had written down its id came back under another: the first stays unreachable
        lost = {task for task, agent in self.unfinished().items() if agent != self.agent.state.id}
        assert all(self.told[task][-1] == "TASK_UNREACHABLE" and not self.starts[task] for task in lost)
        assert set(self.unfinished()) == lost, (
            f"never told to be over: { {task: self.told[task] for task in self.unfinished()} }"
        )
        assert not self.agent.state.instances and not self.agent.state.frameworks
        assert [key for key in self.a.rows if key[0] not in ("agent",)] == []
        assert all(not framework.tasks for framework in self.master.state.frameworks.values())
        assert {key[1].split()[1] for key in self.m.rows if key[0] == "tasks"} <= lost
        assert all(agent.used == scalars() for agent in self.master.state.agents.values())


def test_whatever_fails_no_task_is_lost_or_run_twice_without_a_word() -> None:
    run_state_machine_as_test(Pool, settings=settings(max_examples=150, stateful_step_count=50, deadline=None))
