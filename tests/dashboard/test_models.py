"""What the page shows of runs and queues, now and at any time before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.context import Context, geometry_of
from asa.core.errors import RunNotFound
from asa.core.event import (
    Believed,
    ContainersSeen,
    ContainerUse,
    DriverStarted,
    Event,
    Learned,
    NodeJoined,
    RunEnded,
    RunStarted,
    RunState,
    StagesAdded,
    TaskDone,
    Trouble,
)
from asa.core.registry import ESTIMATORS
from asa.dashboard.beliefs import Beliefs, beliefs
from asa.dashboard.containers import Containers, containers
from asa.dashboard.document import Change, Document, difference
from asa.dashboard.feed import Feed, QueueLog, QueueModel, RunLog, RunModel, Sources, replayed
from asa.estimators.waits import Waits
from asa.log.database import LearnedStore
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from asa.metrics.workflow import summarise
from tests.cli.test_cli import QUEUE
from tests.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec
from tests.waiting import until

LOG = run_log((MadeStage("a", 2, 4, 30, (), 60), MadeStage("b", 1, 2, 20, ("a",), 10, 15, 15)))
START, END = LOG[0].at, LOG[-1].at


class Growing:
    """A log that has so many events by now."""

    def __init__(self, count: int = len(LOG), *, written: bool = False, log: Sequence[Event] = LOG) -> None:
        self.count, self.written, self.closed, self.log = count, written, False, log

    def read(self, after: int) -> Iterable[tuple[int, Event]]:
        yield from enumerate(self.log[after : self.count], after + 1)

    def is_written(self) -> bool:
        return self.written

    def follows_the_clock(self) -> bool:
        return True

    def at(self, event: Event) -> float:
        return event.at

    def part(self, event: Event, when: float) -> Iterable[Event]:
        return ()

    def close(self) -> None:
        self.closed = True


def feed(log: Growing, now: float = END) -> Feed[Event]:
    return Feed(log, RunModel, lambda: now)


def test_news_are_read_once() -> None:
    log = Growing(5)
    followed = feed(log)
    assert followed.advance()
    assert not followed.advance()
    log.count = len(LOG)
    assert followed.advance()
    whole = replayed(RunModel, LOG)
    assert followed.look().document == whole.document(whole.last)
    assert followed.span == (START, END)


def test_time_goes_on_only_while_the_log_is_written() -> None:
    half = len(LOG) // 2
    live, left = feed(Growing(half, written=True), END + 50), feed(Growing(half), END + 50)
    live.advance()
    left.advance()
    assert live.look().live
    assert live.look().now == END + 50
    assert not left.look().live
    assert left.look().now == max(event.at for event in LOG[:half])


def test_a_run_that_is_over_stands_still() -> None:
    followed = feed(Growing(written=True), END + 50)
    followed.advance()
    assert not followed.look().live
    assert followed.look().now == END


@settings(max_examples=25)
@given(st.floats(START - 10, END + 10))
def test_the_page_at_a_time_is_the_replay_of_what_was_logged_by_then(when: float) -> None:
    followed = feed(Growing())
    followed.advance()
    view = followed.look_at(when)
    by_then = replayed(RunModel, [event for event in LOG if event.at <= when])
    assert view.document == by_then.document(max(when, by_then.last), past=True)
    assert followed.bars(0, view.bars) == (by_then.bars_from(0) if by_then.bars else [])


def test_a_stage_that_a_task_has_added_is_drawn_after_that_one() -> None:
    study, report = stage_spec("study", 1, 1), stage_spec("report", 1, 1, "study")
    added = StagesAdded(5.0, "study", 0, (stage_spec("study.measure", 1, 4),), ("study.measure",))
    done = TaskDone(4.0, "study", 0, "a", "n1", 1.0, b"", None)
    model = replayed(RunModel, [*run_begins(replace(study, expands=True), report), done, added])
    stages = model.document(6.0)["stages"]
    assert [stages[name]["after"] for name in ("study", "study.measure", "report")] == [
        [],
        ["study"],
        ["study.measure"],
    ]


def test_an_event_behind_a_later_one_is_shown_with_that() -> None:
    """Clocks of machines differ."""
    followed = feed(Growing(log=[*LOG[:5], replace(LOG[5], at=END + 1), *LOG[6:]]))
    followed.advance()
    assert followed.look_at(END).document == replayed(RunModel, LOG[:5]).document(END)


def test_bars_are_had_in_pieces() -> None:
    followed = feed(Growing())
    followed.advance()
    total = followed.look().bars
    assert total == 6
    assert followed.bars(0, 2) + followed.bars(2, total) == followed.bars(0, total)
    assert followed.bars(3, 3) == []


@settings(max_examples=40, deadline=None)
@given(st.floats(START, END))
def test_tasks_that_are_kept_together_are_replayed_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, when: float
) -> None:
    """A log keeps tasks that returned together as one: at a time in between, some of them had."""
    directory = RunDirectory.create(tmp_path_factory.mktemp("state", numbered=True), "kept")
    directory.path.parents[1].chmod(0o700)
    with EventLog(directory.events) as log:
        log.append(LOG)
    kept: Feed[Any] = Feed(RunLog(directory), RunModel)
    kept.advance()
    single = feed(Growing())
    single.advance()
    assert kept.look_at(when).document == single.look_at(when).document
    kept.close()


def test_a_log_without_events_is_shown_empty() -> None:
    log = Growing(0)
    followed = feed(log)
    assert not followed.advance()
    assert followed.look().document == {}
    assert followed.span == (0.0, 0.0)
    followed.close()
    assert log.closed


BEGUN = run_begins(stage_spec("a", 1, 1))
LINE = '{"at": 0.0, "decision": "Start", "job": "h", "nodes": []}\n'


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_without_runs_it_is_said_how_to_get_one(empty: Path) -> None:
    with pytest.raises(RunNotFound, match=f"there are no runs in {empty}: start one with asa run"):
        Sources(empty).find("")


def test_the_newest_run_is_opened_or_the_newest_queue_where_there_are_no_runs(empty: Path) -> None:
    for at, name in ((200.0, "night-1"), (100.0, "day-1")):
        log = empty / "cosched" / name / "log.jsonl"
        log.parent.mkdir(parents=True, mode=0o700)
        log.write_text(LINE)
        os.utime(log, (at, at))
    assert Sources(empty).find("") == ("queues", "night-1")
    RunDirectory.create(empty, "first")
    assert Sources(empty).find("") == ("runs", "first")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("queues", "night-1", "no queue 'night-1'"),
        ("cats", "montage-3fa1", "no queue"),
        ("runs", "mont", "no run 'mont'"),
    ],
)
def test_what_is_opened_is_named_in_full(state: Path, kind: str, name: str, said: str) -> None:
    with pytest.raises(RunNotFound, match=said):
        Sources(state).open(kind, name)


def test_runs_without_a_driver_are_listed_as_such(empty: Path) -> None:
    RunDirectory.create(empty, "too-early")
    with EventLog(RunDirectory.create(empty, "begun").events) as log:
        log.append(BEGUN)
    rows = {row["name"]: row for row in Sources(empty).listed()}
    assert rows["begun"]["state"] == rows["too-early"]["state"] == "interrupted"
    assert "workflow" in rows["begun"] and "workflow" not in rows["too-early"]
    with RunDirectory.open(empty, "begun").lock():
        assert {row["name"]: row["state"] for row in Sources(empty).listed()}["begun"] == "running"


@pytest.mark.parametrize(("executor", "follows"), [("virtual", False), ("local", True)])
def test_time_goes_on_in_runs_that_go_by_the_clock(empty: Path, executor: str, follows: bool) -> None:
    directory = RunDirectory.create(empty, "now")
    with EventLog(directory.events) as log:
        log.append([replace(event, executor=executor) if isinstance(event, RunStarted) else event for event in BEGUN])
    feed = Sources(empty).open("runs", "now")
    with directory.lock():
        feed.advance()
        assert feed.look().written
        assert feed.look().live == follows
    feed.close()


def test_a_queues_log_is_read_again_only_when_it_has_grown(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.touch(0o600)
    path.write_text(LINE)
    log = QueueLog(path, lambda found: [json.loads(line) for line in found.read_text().splitlines() if line[0] == "{"])
    assert len(list(log.read(0))) == 1
    path.write_text("x" * len(LINE))
    assert len(list(log.read(0))) == 1 and not list(log.read(1))
    path.write_text(LINE * 2)
    assert [number for number, _ in log.read(1)] == [2]


rows = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2))
documents = st.dictionaries(st.sampled_from(["jobs", "stages", "nodes"]), rows)


def filled(document: Document) -> dict[str, dict[str, object]]:
    return {table: dict(found) for table, found in document.items() if found}


def patched(before: Document, change: Change) -> dict[str, dict[str, object]]:
    """The document after a change, as the page makes it."""
    made = {table: dict(found) for table, found in before.items()}
    for table, part in change.items():
        found = made.setdefault(table, {})
        found.update(part.get("put", {}))
        for key in part.get("drop", ()):
            found.pop(key, None)
    return made


@settings(max_examples=40)
@given(documents, documents)
def test_a_difference_patches_one_document_into_the_other(before: Document, after: Document) -> None:
    assert filled(patched(before, difference(before, after))) == filled(after)


@settings(max_examples=40)
@given(documents)
def test_nothing_changes_between_equals(document: Document) -> None:
    assert difference(document, {table: dict(found) for table, found in document.items()}) == {}


@settings(max_examples=40)
@given(documents, documents)
def test_only_rows_that_differ_are_sent(before: Document, after: Document) -> None:
    for table, change in difference(before, after).items():
        assert change
        for key, row in change.get("put", {}).items():
            assert after[table][key] == row
            assert before.get(table, {}).get(key) != row
        assert all(key not in after.get(table, {}) for key in change.get("drop", ()))


STAGES = (
    MadeStage("first", 4, 9, 40, (), 120, 60),
    MadeStage("second", 2, 3, 30, ("first",), 90, 100, 100, lost_after_s=20),
    MadeStage("third", 2, 4, 10, ("second",), 5, None, 0, bad_tasks=1),
)
MADE = run_log(STAGES)


def telling() -> list[Event]:
    """The same run, with beliefs and containers in its log."""
    found: list[Event] = []
    for number, event in enumerate(MADE):
        found.append(event)
        if isinstance(event, Learned):
            weights = ((event.wait_s, 0.75), (event.wait_s + number, 0.25))
            found.append(
                Believed(event.at, f"hpc2n/batch/{number}/1h", "fixed-share", number, event.wait_s, 30.0, weights)
            )
        if isinstance(event, NodeJoined):
            found.append(ContainersSeen(event.at, (ContainerUse(f"c{number}", event.node, 28.0, number / 10, 0.0),)))
    return found


TELLING = telling()


def folded(events: Sequence[Event]) -> RunModel:
    model = RunModel()
    for event in events:
        model.on(event)
    return model


def test_numbers_are_those_of_reports() -> None:
    model, run = folded(MADE), summarise(MADE)
    shown = model.document(model.last)
    assert shown["run"]["state"] == "succeeded"
    assert shown["run"]["core_hours_charged"] == pytest.approx(run.core_hours_charged, abs=1e-5)
    assert shown["run"]["big_job_core_hours"] == pytest.approx(run.big_job_core_hours, abs=1e-5)
    for stage in run.stages:
        row = shown["stages"][stage.name]
        assert (row["done"], row["tasks"], row["state"]) == (stage.done, stage.tasks, stage.state.value)
        assert row["perceived_wait_s"] == pytest.approx(stage.perceived_wait_s, abs=1e-3)
    assert [row["id"] for row in shown["jobs"].values()] == [job.job_id for job in run.jobs]
    assert model.bars == len(run.attempts)


def test_bars_are_the_runs_of_tasks() -> None:
    model, run = folded(MADE), summarise(MADE)
    names = model.document(model.last)["names"]
    for bar, attempt in zip(model.bars_from(0), run.attempts, strict=True):
        stage, index, job, node, cores, start, end, outcome = bar
        assert names["stages"][int(stage)] == attempt.stage
        assert names["jobs"][int(job)] == attempt.allocation
        assert names["nodes"][int(node)] == attempt.node
        assert (index, cores, outcome) == (attempt.index, attempt.cores, attempt.outcome)
        assert start == pytest.approx(attempt.started - run.start.at, abs=1e-3)
        assert end == pytest.approx(attempt.ended - run.start.at, abs=1e-3)


@settings(max_examples=25)
@given(st.lists(st.integers(0, len(TELLING)), max_size=5))
def test_increments_make_the_whole(cuts: list[int]) -> None:
    model, seen = RunModel(), 0
    shown: Document = {}
    bars: list[list[float]] = []
    for cut in sorted({*cuts, len(TELLING)}):
        for event in TELLING[seen:cut]:
            model.on(event)
        seen = cut
        now = model.document(model.last)
        change = json.loads(json.dumps(difference(shown, now), allow_nan=False))
        shown = patched(shown, change)
        bars += model.bars_from(len(bars)) if model.plan else []
    whole = folded(TELLING)
    expected = {table: dict(rows) for table, rows in whole.document(whole.last).items() if rows}
    assert {table: rows for table, rows in shown.items() if rows} == json.loads(json.dumps(expected))
    assert bars == whole.bars_from(0)


@settings(max_examples=25)
@given(st.integers(2, len(MADE)))
def test_any_beginning_of_a_log_can_be_shown(count: int) -> None:
    model = folded(MADE[:count])
    shown = model.document(model.last + 1.0)
    json.dumps(shown, allow_nan=False)
    assert set(shown["why"]) - {""} == {stage.name for stage in STAGES}
    for token, tasks in shown["underway"].items():
        assert sum(cores for _, _, cores, _ in tasks) <= shown["jobs"][token]["cores"]
        assert shown["jobs"][token]["state"] == "running"
    done = sum(isinstance(event, TaskDone) for event in MADE[:count])
    assert sum(row["done"] for row in shown["stages"].values()) == done


def test_a_stage_says_why_it_does_not_run() -> None:
    log = [
        *run_begins(stage_spec("a", 2, 1), stage_spec("b", 2, 1, "a")),
        *job_asked(10.0, "j", 2, "a", predicted=30.0),
    ]
    shown = folded(log).document(40.0)
    assert "has been in the queue for 30 s" in shown["why"]["a"]
    assert shown["why"]["b"].startswith("waits for a")
    assert shown["jobs"]["j"]["predicted"] == 40.0


def test_a_silent_batch_system_is_shown() -> None:
    log = [*run_begins(stage_spec("a", 2, 1)), Trouble(1.0, "slurm_load_jobs error: <b>no</b>")]
    assert folded(log).document(2.0)["run"]["trouble"] == "slurm_load_jobs error: <b>no</b>"


def test_nothing_is_shown_before_the_first_event() -> None:
    model = RunModel()
    assert model.document(0.0) == {}
    assert model.bars == 0
    assert not model.over


def test_a_wait_of_a_job_that_the_log_does_not_have_belongs_to_no_geometry() -> None:
    (row,) = folded([*run_begins(stage_spec("a", 2, 1)), Learned(9.0, "j", "a", 3.0)]).document(9.0)["waits"].values()
    assert (row["wait_s"], row["geometry"]) == (3.0, None)


def test_a_run_is_over_once_its_last_job_is() -> None:
    log = [
        *run_begins(stage_spec("a", 2, 1)),
        *job_asked(10.0, "j", 2, "a"),
        RunEnded(20.0, RunState.CANCELLED, "enough"),
    ]
    assert not folded(log).over
    assert folded(MADE).over


def test_a_custom_strategy_can_be_shown() -> None:
    begins = run_begins(stage_spec("a", 2, 1))
    shown = folded([replace(begins[0], strategy="<mine.Strategy object>"), begins[1]]).document(0.0)  # type: ignore[type-var]
    assert shown["run"]["strategy"] == "<mine.Strategy object>"
    assert shown["why"]["a"]


def test_montage_is_shown() -> None:
    model = folded(run_log(montage(4)))
    shown = model.document(model.last)
    assert len(shown["stages"]) == 9
    assert [row["position"] for row in shown["stages"].values()] == list(range(9))
    assert len(shown["waits"]) == len(shown["jobs"]) == 10
    assert shown["waits"]["montage-3fa1.3"]["geometry"] == "hpc2n/batch/84/15m"


@settings(max_examples=25)
@given(st.integers(2, len(TELLING)))
def test_beliefs_and_containers_are_the_last_logged(count: int) -> None:
    model = folded(TELLING[:count])
    shown = model.document(model.last)
    told = {event.geometry: event for event in TELLING[:count] if isinstance(event, Believed)}
    assert {name: row["at"] for name, row in shown["beliefs"].items()} == {
        name: pytest.approx(event.at, abs=1e-3) for name, event in told.items()
    }
    seen = {use.node for event in TELLING[:count] if isinstance(event, ContainersSeen) for use in event.seen}
    nodes = {row["node"] for row in shown["nodes"].values()}
    assert {row["node"] for row in shown["containers"].values()} == seen & nodes
    assert all(row["limit_cores"] == 28.0 for row in shown["containers"].values())
    assert ("beliefs" in shown["run"]["tells"]) is bool(told)
    past = model.document(model.last, past=True)["beliefs"]
    assert past == shown["beliefs"] if told else all(row["replayed"] for row in past.values())


def test_the_past_of_a_log_that_does_not_tell_is_replayed() -> None:
    model = folded(MADE)
    now, then = model.document(model.last), model.document(model.last, past=True)
    assert (now["run"]["tells"], now["beliefs"], now["containers"]) == ([], {}, {})
    assert {name: (row["jobs"], row["replayed"]) for name, row in then["beliefs"].items()} == {
        "hpc2n/batch/4/1h": (1, True),
        "hpc2n/batch/2/15m": (3, True),
    }
    assert {**then, "beliefs": {}} == {**now, "beliefs": {}}


def test_a_custom_strategy_has_no_estimator() -> None:
    log = [replace(MADE[0], strategy="<mine.Strategy object>"), *MADE[1:]]  # type: ignore[call-arg]
    model = folded(log)
    assert model.document(model.last, past=True)["beliefs"] == {}


STATE = {"cpu": 0.2, "memory": 0.1, "parallel": False, "elapsed": 0.3, "happiness": 1.4}
ENTRIES: list[dict[str, Any]] = [
    {"at": 0.0, "decision": "Start", "job": "h", "nodes": [], "why": None},
    {"at": 0.5, "event": "started", "job": "h", "nodes": ["n1"]},
    {"at": 10.0, "decision": "Keep", "host": "h", "why": {"state": {**STATE, "happiness": 0.7}, "action": 0.0}},
    {
        "at": 20.0,
        "decision": "StartGuest",
        "job": "g",
        "host": "h",
        "share": 0.4,
        "hard": False,
        "why": {"state": STATE},
    },
    {"at": 30.0, "decision": "SetShare", "guest": "g", "share": 0.2, "why": None},
    {"at": 40.0, "decision": "Evict", "guest": "g", "why": None},
    {
        "at": 50.0,
        "event": "ended",
        "job": "h",
        "problem": "",
        "run_time_s": 50.0,
        "slowdown": 1.25,
        "loss": {"a": None},
    },
    {"at": 55.0, "decision": "Start", "job": "g", "why": {"state": {**STATE, "happiness": None}}},
    {"at": 60.0, "event": "ended", "job": "g", "problem": "exit code 1"},
]


def shown(count: int = len(ENTRIES)) -> Any:
    model = QueueModel()
    for entry in ENTRIES[:count]:
        model.on(entry)
    return json.loads(json.dumps(model.document(model.last), allow_nan=False))


def test_stays_follow_the_decisions() -> None:
    jobs = shown()["queued"]
    assert jobs["h"]["stays"] == [{"since": 0.0, "until": 50.0, "host": None, "share": 1.0}]
    assert [(stay["host"], stay["share"], stay["until"]) for stay in jobs["g"]["stays"]] == [
        ("h", 0.4, 30.0),
        ("h", 0.2, 40.0),
        (None, 1.0, 60.0),
    ]


def test_states_are_shown() -> None:
    assert shown(1)["queued"]["h"]["state"] == "running"
    assert shown(6)["queued"]["g"]["state"] == "waiting"
    assert shown()["queue"] == {"running": 0, "ended": 1, "failed": 1, "waiting": 0}
    assert shown()["queued"]["g"]["problem"] == "exit code 1"
    assert shown()["queued"]["h"]["slowdown"] == 1.25
    assert shown()["queued"]["h"]["nodes"] == ["n1"]


def test_what_a_job_has_asked_for_is_shown() -> None:
    model = QueueModel()
    model.on({"at": 0.0, "event": "queued", "job": "h", "cores": 32, "bound": 0.1})
    for entry in ENTRIES[:1]:
        model.on(entry)
    jobs: Any = model.document(model.last)["queued"]
    assert (jobs["h"]["cores"], jobs["h"]["bound"], jobs["h"]["state"]) == (32, 0.1, "running")
    assert (shown()["queued"]["h"]["cores"], shown()["queued"]["h"]["bound"]) == (None, None)


def test_a_job_whose_nodes_were_lost_waits_again() -> None:
    model = QueueModel()
    for entry in (*ENTRIES[:2], {"at": 5.0, "event": "requeued", "job": "h"}):
        model.on(entry)
    job: Any = model.document(model.last)["queued"]["h"]
    assert (job["state"], job["stays"][-1]["until"]) == ("waiting", 5.0)
    assert model.bars_from(0) == [] and model.bars == 0


@pytest.mark.parametrize(
    "entry", [{"event": "drained"}, {"event": "greeted", "job": "h"}, {"decision": "Bow", "host": "h"}]
)
def test_what_it_does_not_know_of_changes_nothing_but_the_time(entry: dict[str, Any]) -> None:
    model = QueueModel()
    model.on(ENTRIES[0])
    before = json.dumps(model.document(model.last))
    model.on({"at": 7.0, **entry})
    assert json.dumps(model.document(model.last)) == before
    assert model.last == 7.0


def test_decisions_have_the_happiness_they_were_made_with() -> None:
    rows = list(shown()["decisions"].values())
    assert [row["decision"] for row in rows] == ["Start", "Keep", "StartGuest", "SetShare", "Evict", "Start"]
    assert [(row["measured"], row["happiness"]) for row in rows] == [
        (False, None), (True, 0.7), (True, 1.4), (False, None), (False, None), (True, None),
    ]  # fmt: skip


def test_what_was_shown_is_never_changed() -> None:
    model = QueueModel()
    before: list[tuple[Any, str]] = []
    for entry in ENTRIES:
        model.on(entry)
        document = model.document(model.last)
        before.append((document, json.dumps(document)))
    assert all(json.dumps(document) == text for document, text in before)


def test_the_log_of_a_real_queue_is_read(tmp_path: Path) -> None:
    """What the co-scheduler writes is what is read here."""
    from asa.cli.main import main
    from asa.dashboard.feed import Sources

    queue = tmp_path / "queue.toml"
    queue.write_text(QUEUE)
    (tmp_path / "cosched").mkdir(0o700)
    tmp_path.chmod(0o700)
    work = tmp_path / "cosched" / "day-1"
    assert main(["cosched", "run", str(queue), "--on", "sim", "--sharing", "static", "--work", str(work)]) == 0
    sources = Sources(tmp_path)
    assert sources.find("day-1") == ("queues", "day-1")
    feed = sources.open("queues", "day-1")
    assert feed.advance()
    document: Any = feed.look().document
    assert {row["state"] for row in document["queued"].values()} == {"ended"}
    assert document["queued"]["guest"]["stays"][0]["host"] == "host"
    assert {row["decision"] for row in document["decisions"].values()} >= {"Start", "StartGuest"}
    feed.close()


HERE = geometry_of("here", "core", 16, 1800.0)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["fixed-share", "algorithm1:sampling=tuned"])
def test_the_distribution_is_the_estimators(tmp_path: Path, spec: str) -> None:
    tmp_path.chmod(0o700)
    store = LearnedStore(tmp_path / "learned.db")
    waits = Waits(store, spec)
    for number in range(40):
        waits.learn(HERE, f"job-{number}", 600.0)
    waits.learn(geometry_of("there", "core", 16, 1800.0), "other", 5.0)
    (row,) = beliefs(tmp_path / "learned.db", "here", "core")
    store.close()
    assert (row["geometry"], row["jobs"], row["last_wait_s"]) == (str(HERE), 40, 600.0)
    likeliest = max(row["weights"], key=lambda pair: pair[1])
    assert 300 < likeliest[0] < 1200
    assert sum(weight for _, weight in row["weights"]) == pytest.approx(1.0, abs=0.05)
    assert row["predicted_s"] is not None


def test_where_nothing_was_learned_nothing_is_made(tmp_path: Path) -> None:
    assert beliefs(tmp_path / "learned.db", "here", "core") == []
    assert not (tmp_path / "learned.db").exists()


def test_estimators_without_weights_have_their_prediction(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    store = LearnedStore(tmp_path / "learned.db")
    Waits(store, "last").learn(HERE, "job", 70.0)
    (row,) = beliefs(tmp_path / "learned.db", "here", "core")
    store.close()
    assert (row["weights"], row["predicted_s"]) == ([], 70.0)


def lesson(number: int, wait_s: float, **more: Any) -> Learned:
    return Learned(float(number), f"job-{number}", "a", wait_s, **more)


def test_the_last_logged_belief_counts() -> None:
    held = Beliefs("fixed-share")
    assert not held.logged and held.table() == {}
    held.believe(Believed(1.0, "s/core/16/1h", "fixed-share", 3, 60.0, 50.0, ((50.0, 0.75), (60.0, 0.25))))
    held.believe(Believed(2.0, "s/core/32/1h", "fixed-share"))
    held.believe(Believed(3.0, "s/core/16/1h", "fixed-share", 4, 90.0, 60.0, ((60.0, 1.0),)))
    assert held.logged
    assert held.table()["s/core/16/1h"] == {
        "geometry": "s/core/16/1h",
        "estimator": "fixed-share",
        "jobs": 4,
        "last_wait_s": 90.0,
        "predicted_s": 60.0,
        "weights": [[60.0, 1.0]],
        "at": 3.0,
        "replayed": False,
    }
    assert held.table()["s/core/32/1h"]["jobs"] == 0


@settings(max_examples=20)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.booleans()), max_size=8))
def test_a_log_that_does_not_tell_is_replayed_with_its_own_waits(waits: list[tuple[float, bool]]) -> None:
    held, alone = Beliefs("fixed-share"), ESTIMATORS.create("fixed-share", seed=0)
    for number, (wait_s, censored) in enumerate(waits):
        held.learn("s/core/16/1h", lesson(number, wait_s, censored=censored), None)
        if not censored:
            alone.learn(wait_s)
    taught = [wait_s for wait_s, censored in waits if not censored]
    assert held.table() == {}
    if not taught:
        assert held.replay() == {}
        return
    (row,) = held.replay().values()
    assert (row["jobs"], row["replayed"]) == (len(taught), True)
    assert row["predicted_s"] == pytest.approx(alone.predict(), abs=1e-3)
    assert row["last_wait_s"] == pytest.approx(taught[-1], abs=1e-3)
    assert sum(weight for _, weight in row["weights"]) == pytest.approx(1.0, abs=0.06)


def test_geometries_are_replayed_apart() -> None:
    held = Beliefs("last")
    held.learn("s/core/16/1h", lesson(1, 60.0), None)
    held.learn("s/core/32/1h", lesson(2, 900.0), None)
    assert {name: row["predicted_s"] for name, row in held.replay().items()} == {
        "s/core/16/1h": 60.0,
        "s/core/32/1h": 900.0,
    }


def test_of_a_pooled_estimator_there_is_what_it_said() -> None:
    held = Beliefs("context")
    held.learn("s/core/16/1h", lesson(1, 60.0, predicted_s=45.0), Context(0.0, 16))
    (row,) = held.replay().values()
    assert (row["predicted_s"], row["weights"], row["last_wait_s"]) == (45.0, [], 60.0)


def test_where_the_log_does_not_say_which_estimator_nothing_is_made_up() -> None:
    held = Beliefs(None)
    held.learn("s/core/16/1h", lesson(1, 60.0), None)
    assert held.replay() == {}


WORKFLOW = """
import time
import asa

@asa.stage(cores=2, walltime="5m")
def work(number):
    deadline = time.time() + 60
    while time.time() < deadline:
        pass

workflow = work.map(range(2))
"""


def test_where_there_is_no_pool_there_are_none(tmp_path: Path) -> None:
    assert containers(tmp_path / "pool") is None


def test_a_pool_that_does_not_answer_has_none(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pool").mkdir(0o700)
    assert containers(tmp_path / "pool") is None


def used(*uses: ContainerUse, at: float = 0.0, gone: tuple[str, ...] = ()) -> ContainersSeen:
    return ContainersSeen(at, uses, gone)


def test_logged_containers_are_shown_until_they_are_gone() -> None:
    seen = Containers()
    assert not seen.logged and seen.table({"cn01"}) == {}
    seen.on(used(ContainerUse("c1", "cn01", 4.0), ContainerUse("c2", "cn02", 2.0), at=10.0))
    seen.on(used(ContainerUse("c1", "cn01", 3.0, 2.9, 0.4), at=15.0))
    assert seen.logged
    assert seen.table({"cn01", "cn02"})["c1"] == {
        "node": "cn01",
        "container": "c1",
        "state": "running",
        "limit_cores": 3.0,
        "used": 2.9,
        "throttled_share": 0.4,
        "at": 15.0,
    }
    assert list(seen.table({"cn02"})) == ["c2"]  # the other node has left, although nobody has looked since
    seen.on(used(at=20.0, gone=("c2", "c9")))
    assert seen.table({"cn02"}) == {} and seen.logged


def test_a_new_driver_logs_all_containers_again() -> None:
    seen = Containers()
    seen.on(used(ContainerUse("c1", "cn01", 4.0)))
    seen.on(DriverStarted(5.0, 4711, "login1"))
    assert seen.table({"cn01"}) == {}


@pytest.mark.slow
def test_quotas_and_use_are_shown(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "work.py").write_text(WORKFLOW)
    command = [sys.executable, "-P", "-m", "asa", "run", "work.py", "--backend", "local:cores=2", "--executor", "mesos"]
    environment = os.environ | {"ASA_STATE_DIR": str(tmp_path)}
    with subprocess.Popen([*command, "--quiet"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as run:
        try:
            (directory,) = until(lambda: list_runs(tmp_path), "the run")

            def spent() -> float:
                rows = containers(directory.path / "pool") or [{"cpu_s": None, "limit_cores": None}]
                assert rows[0]["limit_cores"] in (None, 2.0)
                return rows[0]["cpu_s"] or 0.0

            first = until(spent, "CPU time")
            assert until(lambda: spent() > first, "more of it")
            with EventLog(directory.events) as log:
                told = until(lambda: log.latest(ContainersSeen), "what the log tells of it", within_s=60)
            assert isinstance(told, ContainersSeen) and told.seen[0].limit_cores in (None, 2.0)
        finally:
            run.terminate()
            run.wait(60)
