"""Tasks on the page: found and shown as the log has them; arguments without running code; commands carried out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.event import CancelAsked, DriverStarted, Event, HoldAsked, RunEnded, RunState, TaskDone, TaskFailed
from asa.core.run import FoldedRun
from asa.dashboard.feed import RunModel, replayed
from asa.dashboard.site import Dashboard
from asa.dashboard.tasks import ORDERS, STATES, Arguments, TaskQuery, TaskTable
from asa.log.curve import SUFFIX, UsageSample, curve_head, curve_line
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from tests.dashboard.test_site import enter, get
from tests.runlogs import MadeStage, montage, run_begins, run_log, stage_spec
from tests.waiting import until

LOG = run_log(montage(1))
EVERYTHING = 1000


def table(events: Iterable[Event], driven: bool = True) -> TaskTable:
    model = replayed(RunModel, list(events))
    assert isinstance(model, RunModel)
    found = model.tasks(model.last, driven)
    assert found is not None
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, len(LOG)),
    st.sampled_from(["", "mdiff", "mD", "1", "mDiff[2]", "n1", "lost", "exit", "nowhere"]),
    st.sampled_from(["", *STATES]),
    st.sampled_from(["", "mDiff", "mFitplane", "mBackground", "x"]),
    st.sampled_from(["number", "longest", "newest", "tries", "memory"]),
    st.integers(0, 20),
)
def test_a_query_finds_what_one_would_find_row_by_row(
    count: int, text: str, state: str, stage: str, order: str, first: int
) -> None:
    tasks = table(LOG[:count])
    every = tasks.page(TaskQuery(count=EVERYTHING))["rows"]

    def fits(row: dict[str, Any]) -> bool:
        words = text.lower()
        parts = (row["stage"], row.get("node", ""), row["error"])
        named = any(words in part.lower() for part in parts) or words in (
            str(row["index"]), f"{row['stage']}[{row['index']}]".lower())  # fmt: skip
        return named and stage in ("", row["stage"])

    wanted = [row for row in every if fits(row)]
    found = tasks.page(TaskQuery(text, state, stage, order=order, first=first, count=7))
    assert found["states"] == {
        name: number for name in STATES if (number := sum(row["state"] == name for row in wanted))
    }
    wanted = [row for row in wanted if state in ("", row["state"])]
    assert found["total"] == len(wanted)
    if order == "number":
        assert found["rows"] == wanted[first : first + 7]
    else:
        assert len(found["rows"]) == len(wanted[first : first + 7])
        assert all(row in wanted for row in found["rows"])
    if order == "tries":
        tries = [row["tries"] for row in found["rows"]]
        assert tries == sorted(tries, reverse=True)


def test_tasks_that_run_are_in_the_order_of_how_long_they_have_run() -> None:
    for count in range(1, len(LOG)):
        times = [row.get("ran", -1.0) for row in table(LOG[:count]).page(TaskQuery(order="longest"))["rows"]]
        assert times == sorted(times, reverse=True)


def test_what_runs_has_run_for_longer_when_it_is_asked_again() -> None:
    model = replayed(RunModel, list(LOG[: next(n for n, event in enumerate(LOG) if isinstance(event, TaskDone)) + 2]))
    assert isinstance(model, RunModel)

    def ran(later: float, driven: bool = True) -> list[float]:
        found = model.tasks(model.last + later, driven)
        assert found is not None
        return [row["ran"] for row in found.page(TaskQuery(state="running", count=5))["rows"]]

    before = ran(0.0)
    assert before and ran(7.0) == pytest.approx([each + 7.0 for each in before])
    assert ran(7.0, driven=False) == []


def test_of_a_run_without_stages_nothing_is_found() -> None:
    tasks = TaskTable(FoldedRun(), {}, 0.0, True)
    for text in ("", "a", "7", "a[7]"):
        for order in ORDERS:
            assert tasks.page(TaskQuery(text, order=order))["rows"] == []


def test_what_a_module_of_asa_has_imported_is_not_made(tmp_path: Path) -> None:
    mark = tmp_path / "was-run"
    call = b"casa.workflows.driver\nsubprocess.Popen\n((Vtouch\nV" + bytes(mark) + b"\nltR."
    run = RunDirectory.create(tmp_path, "run")
    run.settings.write_bytes(b"\n\x80\x04" + call)
    assert "cannot be read" in Arguments(run).of("a", 0)["note"]
    time.sleep(0.2)
    assert not mark.exists()


def test_all_states_add_up_to_the_stages_numbers_at_every_event() -> None:
    model = RunModel()
    for event in LOG:
        model.on(event)
        found = model.tasks(model.last, True)
        assert found is not None and model.plan is not None
        states = found.page(TaskQuery(count=0))["states"]
        assert states.get("done", 0) == sum(stage.done for stage in model.plan.in_order)
        assert states.get("running", 0) <= sum(stage.running for stage in model.plan.in_order)


def test_a_task_that_failed_has_all_its_attempts() -> None:
    tasks = table(LOG)
    failed = next(event for event in LOG if isinstance(event, TaskFailed) and not event.infrastructure)
    one = tasks.one(failed.stage, failed.index)
    assert one is not None
    assert [each["outcome"] for each in one["attempts"]] == ["failed", "done"]
    assert failed.error in one["attempts"][0]["story"]
    assert one["state"] == "done" and one["error"] == "" and one["tries"] == 2
    assert one["node"] == one["attempts"][-1]["node"]
    assert one["jobs"][one["job"]].startswith("J") or one["jobs"][one["job"]]
    assert tasks.one("mAdd", 5) is None and tasks.one("none", 0) is None


def test_what_a_run_has_left_is_named_so() -> None:
    middle = next(number for number, event in enumerate(LOG) if isinstance(event, TaskDone)) + 2
    begun = LOG[:middle]
    assert "running" in table(begun).page(TaskQuery())["states"]
    assert "unknown" in table(begun, driven=False).page(TaskQuery())["states"]
    ended = [*begun, CancelAsked(begun[-1].at, "enough"), RunEnded(begun[-1].at, RunState.CANCELLED, "enough")]
    states = table(ended, driven=False).page(TaskQuery())["states"]
    assert states["stopped"] and states["not run"] and "running" not in states


def test_of_a_stage_that_stops_the_task_that_failed_is_named() -> None:
    begin = run_begins(stage_spec("a", 2, 3))
    failed = TaskFailed(5.0, "a", 1, "j", "n1", 2.0, "ValueError: no such band", exit=3, peak=1 << 30)
    log = [*begin, failed, RunEnded(9.0, RunState.FAILED, "stage a failed", "a")]
    rows = table(log, driven=False).page(TaskQuery())["rows"]
    assert [row["state"] for row in rows] == ["not run", "failed", "not run"]
    assert (rows[1]["exit"], rows[1]["peak"], rows[1]["node"]) == (3, 1 << 30, "n1")
    assert "no such band" in rows[1]["error"]
    found = table(log, driven=False).page(TaskQuery("no such band"))
    assert [row["index"] for row in found["rows"]] == [1]


def test_memory_and_processor_time_are_shown_where_the_log_has_them() -> None:
    log = [
        *run_begins(stage_spec("a", 2, 3)),
        TaskDone(5.0, "a", 0, "j", "n1", 2.0, cpu_s=2.5, peak=1 << 20, source="proc"),
        TaskDone(6.0, "a", 1, "j", "n1", 2.0, cpu_s=1.5, peak=3 << 20, source="proc"),
    ]
    rows = table(log).page(TaskQuery(order="memory"))["rows"]
    assert [(row["index"], row.get("peak"), row.get("cpu_s")) for row in rows] == [
        (1, 3 << 20, 1.5), (0, 1 << 20, 2.5), (2, None, None)]  # fmt: skip


def test_the_server_serves_pages_and_one_task(dashboard: Dashboard) -> None:
    session, run = enter(dashboard), "/api/runs/montage-3fa1"
    page = get(session, dashboard, f"{run}/tasks?count=5&first=5").json()
    assert len(page["rows"]) == 5 and page["rows"][0] == {**page["rows"][0], "stage": "mProject", "index": 5}
    assert page["total"] == sum(stage.tasks for stage in montage(2))
    assert get(session, dashboard, f"{run}/tasks?state=failed").json()["total"] == 0
    assert get(session, dashboard, f"{run}/tasks?first=-1").status_code == 400
    assert get(session, dashboard, f"{run}/tasks?t=x").status_code == 400
    assert get(session, dashboard, f"{run}/task?stage=mAdd&index=7").status_code == 404
    start = LOG[0].at
    then = get(session, dashboard, f"{run}/tasks?t={start + 1}").json()
    assert then["states"] == {"waiting": page["total"]}
    one = get(session, dashboard, f"{run}/task?stage=mDiff&index=1").json()
    assert one["attempts"][0]["outcome"] == "done"
    assert one["arguments"] == {"values": {}, "note": one["arguments"]["note"]}
    assert "no settings" in one["arguments"]["note"]  # it is a log without a run


def noted(run: RunDirectory, started: float, task: tuple[str, int], job: str, *samples: UsageSample) -> Path:
    """A file of what a task has taken, on node n1."""
    (run.path / "output").mkdir(exist_ok=True)
    path = run.path / "output" / f"n1-{task[1]}{SUFFIX}"
    path.write_text(curve_head("n1", job) + "".join(curve_line(each, started, task[1], task[0]) for each in samples))
    return path


def test_what_a_task_takes_as_time_goes_on_is_shown_where_that_is_known(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    run = RunDirectory.create(tmp_path, "run")
    begin = run_begins(stage_spec("a", 4, 4), at=1_700_000_000.0)
    at = begin[0].at
    done = [TaskDone(at + 40.0, "a", index, "j", "n1", at + 20.0) for index in (0, 1)]
    with EventLog(run.events) as log:
        log.append([*begin, *done])
    samples = UsageSample(at + 26, 5.0, 7 << 20, 0.5), UsageSample(at + 36, 10.0, 3 << 20, 2.0)
    file = noted(run, at + 20.0, ("a", 0), "j", *samples)
    with Dashboard(tmp_path) as dashboard:
        session = enter(dashboard)

        def curves(index: int, rest: str = "") -> Any:
            return get(session, dashboard, f"/api/runs/run/task?stage=a&index={index}{rest}").json()["curves"]

        assert curves(0) == [
            {
                "attempt": 1,
                "memory": [7 << 20, round((7 + 2 * 3) / 3 * (1 << 20))],
                "cores": [2.0, 1.5],
                "points": [[5.0, 5.0, 7 << 20, 0.5], [15.0, 10.0, 3 << 20, 2.0]],
            }
        ]
        assert curves(1) == []
        assert curves(0, f"&t={at + 30}") == []  # it had not ended then
        for stage in ("../a", "/etc/passwd", "n1-0"):
            assert get(session, dashboard, f"/api/runs/run/task?stage={stage}&index=0").status_code == 404
        file.write_text("something else")
        assert curves(0) == []
        file.unlink()
        assert curves(0) == []


def test_the_list_says_when_and_how_long(dashboard: Dashboard) -> None:
    (row,) = get(enter(dashboard), dashboard, "/api/list").json()["rows"]
    assert (row["name"], row["state"], row["stages"], row["site"]) == ("montage-3fa1", "succeeded", 9, "hpc2n")
    assert row["makespan_s"] > 1000


def test_a_state_directory_without_runs_is_shown_until_there_are_some(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with Dashboard(tmp_path) as dashboard:
        session = enter(dashboard)
        assert get(session, dashboard, "/api/list").json() == {"rows": []}
        with EventLog(RunDirectory.create(tmp_path, "first").events) as log:
            log.append(run_log((MadeStage("a", 1),)))
        assert [row["name"] for row in get(session, dashboard, "/api/list").json()["rows"]] == ["first"]


PROGRAM = """
import os, pathlib, time
import asa

class Model:
    def __init__(self, size):
        self.size = size
    def __setstate__(self, state):
        pathlib.Path(__file__).with_name("was-run").touch()
        self.__dict__ = state

@asa.stage(walltime="5m")
def fit(number, model, scale=1.0):
    print("fitted", number)
    time.sleep(WAIT)
    return number

@asa.stage(walltime="5m")
def gather(numbers, where):
    return sum(numbers)

workflow = gather(fit.map([10, 20, 30], [Model(1)] * 3, scale={"x": [1, 2]}), where=pathlib.Path("/data/out"))
"""


def program(folder: Path, wait_s: float) -> list[str]:
    (folder / "work.py").write_text(PROGRAM.replace("WAIT", str(wait_s)))
    return [sys.executable, "-P", "-m", "asa", "run", "work.py", "--backend", "local:cores=1", "--quiet", "--detach"]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    return tmp_path


def test_arguments_are_shown_and_no_code_is_run_for_that(workplace: Path) -> None:
    command = [word for word in program(workplace, 0.0) if word != "--detach"]
    subprocess.run(command, cwd=workplace, check=True, capture_output=True)
    mark = workplace / "was-run"
    mark.unlink(missing_ok=True)
    before = set(sys.modules)
    arguments = Arguments(list_runs(workplace)[0])
    found = arguments.of("fit", 1)
    assert found["values"]["1"] == "20"
    assert found["values"]["scale"] == "{'x': [1, 2]}"
    assert found["values"]["2"] == "<Model object>"
    assert "your own classes" in found["note"]
    last = arguments.of("gather", 0)
    assert last["values"]["1"] == "all results of fit" and "/data/out" in last["values"]["where"]
    assert last["note"] == ""
    assert not mark.exists() and not {name for name in set(sys.modules) - before if "work" in name}
    assert "not kept" in arguments.of("none", 0)["note"]


def test_arguments_of_damaged_settings_are_left_out_with_the_reason(workplace: Path) -> None:
    subprocess.run([w for w in program(workplace, 0.0) if w != "--detach"], cwd=workplace, check=True)
    run = list_runs(workplace)[0]
    kept = run.settings.read_bytes()
    for cut in (20, len(kept) // 2, len(kept) - 3):
        run.settings.write_bytes(kept[:cut])
        found = Arguments(run).of("fit", 0)
        assert found["values"] == {} and "cannot be read" in found["note"]


def post(session: requests.Session, dashboard: Dashboard, path: str, **headers: str) -> requests.Response:
    return session.post(dashboard.address.url + path, headers=headers, timeout=120)


@pytest.mark.slow
def test_a_run_is_held_released_cancelled_and_resumed(workplace: Path) -> None:
    """By the commands themselves: what they log is in the run's log."""
    subprocess.run(program(workplace, 3.0), cwd=workplace, check=True, capture_output=True)
    run = list_runs(workplace)[0]

    def logged(kind: type[Event]) -> list[Any]:
        with EventLog(run.events) as log:
            return [event for _, event in log.read() if isinstance(event, kind)]

    with Dashboard(workplace) as dashboard:
        session, path = enter(dashboard), f"/api/runs/{run.name}"
        assert "is held" in post(session, dashboard, f"{path}/hold").json()["said"]
        assert [event.held for event in logged(HoldAsked)] == [True]
        assert "goes on" in post(session, dashboard, f"{path}/release").json()["said"]
        assert "is cancelled" in post(session, dashboard, f"{path}/cancel").json()["said"]
        assert logged(RunEnded)[-1].state is RunState.CANCELLED
        again = post(session, dashboard, f"{path}/cancel")
        assert again.status_code == 409 and "there is nothing to cancel" in again.text
        assert post(session, dashboard, f"{path}/resume").status_code == 200
        assert len(logged(DriverStarted)) == 2
        until(lambda: logged(RunEnded)[-1].state is RunState.SUCCEEDED, "the resumed run to end")
        said = run.log.read_text()
        for action in ("hold", "release", "cancel", "resume"):
            assert f"asked on the live page: asa {action} {run.name}" in said


@pytest.mark.parametrize("action", ["cancel", "hold", "release", "resume"])
def test_nobody_else_may_do_that(dashboard: Dashboard, state: Path, action: str) -> None:
    session, path = enter(dashboard), f"/api/runs/montage-3fa1/{action}"
    assert requests.post(dashboard.address.url + path, timeout=10).status_code == 401
    assert get(session, dashboard, path).status_code == 405
    assert post(session, dashboard, path, Origin="http://evil.example").status_code == 403
    assert post(session, dashboard, path, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert post(session, dashboard, path, Host="evil.example").status_code == 421
    assert post(session, dashboard, f"/api/runs/montage/{action}").status_code == 404  # no beginnings of names
    assert not RunDirectory(state / "runs" / "montage-3fa1").log.exists()  # nothing was carried out
