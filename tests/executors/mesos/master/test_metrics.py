from __future__ import annotations

from executors.mesos import codec
from executors.mesos.master import views
from executors.mesos.master.state import AgentRecord, FrameworkRecord, MasterOptions, MasterState, Offer, TaskRecord
from executors.mesos.resources import scalars


def test_an_empty_master_has_all_metrics() -> None:
    found = views.metrics(MasterState("M", MasterOptions(), started=100.0), now=130.0)
    assert found["master/uptime_secs"] == 30.0
    assert found["master/elected"] == 1.0
    assert found["master/cpus_percent"] == 0.0
    assert all(f"master/{name}" in found for name in views.COUNTERS)
    assert all(isinstance(value, float) for value in found.values())
    assert codec.encode(found)


def busy() -> MasterState:
    """A master that knows something of everything that is counted."""
    state = MasterState("M", MasterOptions(), 0.0)
    state.agents = {
        "S1": AgentRecord("S1", {}, scalars(cpus=8, mem=100), 0.0, stream="s1", used=scalars(cpus=2)),
        "S2": AgentRecord("S2", {}, scalars(cpus=8), 0.0, stream="s2", active=False),
        "S3": AgentRecord("S3", {}, scalars(gpus=1), 0.0),
    }
    state.unreachable = {"S4": 1.0}
    state.frameworks = {
        "F1": FrameworkRecord("F1", {}, frozenset(), 0.0, stream="f1"),
        "F2": FrameworkRecord("F2", {}, frozenset(), 0.0),
        "F3": FrameworkRecord("F3", {}, frozenset(), 0.0, stream="f3", active=False),
    }
    for number, word in enumerate(("RUNNING", "RUNNING", "STAGING", "KILLING", "FINISHED")):
        task = TaskRecord(str(number), "F1", "S1", None, {}, scalars(), "*", f"TASK_{word}")
        state.frameworks["F1"].tasks[task.id] = task
    away = TaskRecord("9", "F1", "S4", None, {}, scalars(), "*", "TASK_UNREACHABLE")
    state.frameworks["F1"].unreachable["9"] = away
    state.unreachable_tasks["S4"] = [away]
    state.offers["O1"] = Offer("O1", "F1", "S1", "*", scalars(cpus=1), 0.0)
    state.operators.add("o")
    state.counters = {"tasks_finished": 7, "something_new": 1}
    return state


def test_what_is_there_is_counted() -> None:
    found = views.metrics(busy(), 1.0)
    expected = {
        "agents_active": 1,
        "agents_inactive": 1,
        "agents_disconnected": 1,
        "agents_unreachable": 1,
        "slaves_active": 1,
        "slaves_connected": 2,
        "frameworks_active": 1,
        "frameworks_inactive": 1,
        "frameworks_connected": 2,
        "frameworks_disconnected": 1,
        "tasks_running": 2,
        "tasks_staging": 1,
        "tasks_killing": 1,
        "tasks_starting": 0,
        "tasks_unreachable": 1,
        "cpus_total": 16,
        "cpus_used": 2,
        "cpus_percent": 0.125,
        "mem_total": 100,
        "gpus_total": 1,
        "outstanding_offers": 1,
        "operator_event_stream_subscribers": 1,
        "tasks_finished": 7,
        "something_new": 1,
        "tasks_lost": 0,
    }
    assert {name: found[f"master/{name}"] for name in expected} == expected


def test_a_clock_that_goes_back_gives_no_negative_time() -> None:
    assert views.metrics(MasterState("M", MasterOptions(), started=100.0), now=90.0)["master/uptime_secs"] == 0.0
