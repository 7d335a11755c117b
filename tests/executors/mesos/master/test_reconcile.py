from executors.mesos.codec import Message
from executors.mesos.messages import identity
from tests.executors.mesos.master.world import World, task_info


def told(world: World, framework: str) -> list[tuple[str, str]]:
    records = [record["update"]["status"] for record in world.take(framework) if record["type"] == "UPDATE"]
    assert all(one["reason"] == "REASON_RECONCILIATION" and "uuid" not in one for one in records)
    return [(one["task_id"]["value"], one["state"]) for one in records]


def ask(*tasks: tuple[str, str | None]) -> Message:
    items = [{"task_id": identity(task)} | ({"agent_id": identity(agent)} if agent else {}) for task, agent in tasks]
    return {"tasks": items}


def running(**info: object) -> tuple[World, str, str]:
    world = World()
    agent, framework = world.agent(), world.subscribe(**info)
    world.start(framework, task_info("t", agent), task_info("u", agent))
    world.update(agent, framework, "t", "TASK_RUNNING", "TASK_FINISHED")
    world.take(framework)
    return world, agent, framework


def test_all() -> None:
    world, _, framework = running()
    world.call(framework, "RECONCILE", {"tasks": []})
    assert told(world, framework) == [("t", "TASK_RUNNING"), ("u", "TASK_STAGING")]
    world.call(framework, "RECONCILE")
    assert len(told(world, framework)) == 2


def test_some() -> None:
    world, agent, framework = running()
    world.call(framework, "RECONCILE", ask(("t", agent), ("t", None), ("x", agent), ("y", None), ("z", "nowhere")))
    assert told(world, framework) == [
        ("t", "TASK_RUNNING"),
        ("t", "TASK_RUNNING"),
        ("x", "TASK_GONE"),
        ("y", "TASK_UNKNOWN"),
        ("z", "TASK_UNKNOWN"),
    ]


def test_frameworks_that_cannot_tell_know_lost_only() -> None:
    world, agent, framework = running(capabilities=[])
    world.call(framework, "RECONCILE", ask(("x", agent), ("y", None), ("t", None)))
    assert told(world, framework) == [("x", "TASK_LOST"), ("y", "TASK_LOST"), ("t", "TASK_RUNNING")]


def test_unreachable_and_gone() -> None:
    world, agent, framework = running()
    world.cut(agent)
    world.sleep(100)
    world.take(framework)
    world.call(framework, "RECONCILE", ask(("u", None), ("x", agent)))
    assert told(world, framework) == [("u", "TASK_UNREACHABLE"), ("x", "TASK_UNREACHABLE")]
    world.call(framework, "RECONCILE", {"tasks": []})
    assert ("u", "TASK_UNREACHABLE") in told(world, framework)
    call = {"type": "MARK_AGENT_GONE", "mark_agent_gone": {"agent_id": identity(agent)}}
    world.do(world.master.operate(call, world.now)[1])
    world.take(framework)
    world.call(framework, "RECONCILE", ask(("u", agent)))
    assert told(world, framework) == [("u", "TASK_GONE_BY_OPERATOR")]


def test_silent_until_agents_are_back() -> None:
    world, agent, framework = running()
    world.restart()
    world.subscribe(framework)
    world.take(framework)
    world.call(framework, "RECONCILE", ask(("t", agent), ("x", agent), ("y", None)))
    world.call(framework, "RECONCILE", {"tasks": []})
    assert told(world, framework) == []
    world.call(framework, "RECONCILE", ask(("x", "nowhere")))
    assert told(world, framework) == [("x", "TASK_UNKNOWN")]
