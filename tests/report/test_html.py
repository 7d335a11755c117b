"""Reports of runs as pages."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from asa.core.errors import InvalidInput
from asa.core.event import (
    AllocationStarted,
    DriverStarted,
    Event,
    JobEnded,
    Leased,
    LeaseEnded,
    RunEnded,
    RunStarted,
    RunState,
    StageFailed,
    TaskDone,
    TaskFailed,
    TasksLaunched,
)
from asa.core.job import JobState
from asa.metrics.workflow import summarise
from asa.report.chart import BINS, LANES_MOST, ROWS_DRAWN, TASKS_DRAWN, chart, pack
from asa.report.html import (
    FAILURES_MOST,
    LABEL_LETTERS,
    ZOOMS,
    Pictures,
    core_hours_section,
    draw,
    failures_section,
    jobs_section,
    render,
    stages_section,
    unit_names,
)
from asa.report.progress import ProgressDisplay, changes, table
from asa.report.words import job_title, job_words, purpose
from asa.report.write import write_report
from tests.metrics.leased import LENDER, borrowing
from tests.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec


def test_suffix_chooses_the_form(tmp_path: Path) -> None:
    events = run_log(montage(8))
    for suffix in (".html", ".json", ".HTML"):
        write_report(iter(events), tmp_path / f"run{suffix}")
    assert (tmp_path / "run.html").read_text("utf-8").startswith("<!doctype html>")
    data = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert data["state"] == "succeeded" and len(data["stages"]) == 9 and len(data["jobs"]) == 10


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_report(run_log(montage(8)), tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["run", "run.txt", "run.html.gz"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"\.html, \.json"):
        write_report(run_log(montage(8)), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        write_report(run_log(montage(8)), tmp_path / "nowhere" / "run.html")


def test_bytes_that_are_no_text_do_not_stop_a_report(tmp_path: Path) -> None:
    stderr = b"caf\xe9".decode("utf-8", "surrogateescape")
    events: list[Event] = [
        *run_begins(stage_spec("a", 1, 1)),
        *job_asked(0.0, "j0", 1, "a"),
        TaskFailed(9.0, "a", 0, "j0", "n", 1.0, "it failed", stderr=stderr),
    ]
    write_report(events, tmp_path / "run.html")
    assert "caf" in (tmp_path / "run.html").read_text("utf-8")


def test_reports_need_no_matplotlib_until_a_picture_is_asked_for() -> None:
    code = (
        "import sys, asa.report, asa.report.html, asa.report.progress; print({'matplotlib', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_rows_of_a_montage_run() -> None:
    run = summarise(run_log(montage()))
    drawn = chart(run)
    rows = {row.stage.name: row for row in drawn.stages}
    assert rows["mProject"].wait == (0.0, 410.0) and rows["mImgtbl"].wait is None
    assert len(rows["mFitplane"].active) == 2, "it lost its first allocation and waited for another"
    early = next(row for row in drawn.jobs if row.job.stages == ("mDiff",))
    assert sum(end - start for start, end in early.early) * early.job.cores / 3600 == pytest.approx(
        early.job.overhead_core_hours
    )
    assert drawn.peak == 197 and drawn.span_s >= run.makespan_s


def test_small_jobs_show_tasks_and_large_ones_curves() -> None:
    drawn = chart(summarise(run_log([MadeStage("small", LANES_MOST, 60), MadeStage("large", LANES_MOST + 1, 60)])))
    small, large = drawn.jobs
    assert len(small.tasks) == 60 and not small.curves
    assert all(0 <= task.lane < LANES_MOST for task in small.tasks)
    assert not large.tasks and len(large.curves) == 1


def test_curves_keep_the_core_hours() -> None:
    run = summarise(run_log([MadeStage("a", 100, 5000, 40)]))
    (row,) = chart(run).jobs
    (curve,) = row.curves
    assert len(curve.level) <= BINS
    hours = sum((curve.times[1:] - curve.times[:-1]) * curve.level) / 3600
    assert hours == pytest.approx(run.core_hours_used)


def test_curves_are_stacked_the_uppermost_first() -> None:
    events = run_log([MadeStage("a", 64, 64, 50), MadeStage("b", 64, 64, 50)])
    first = next(event.allocation for event in events if isinstance(event, TasksLaunched))
    moved = [replace(event, allocation=first) if isinstance(event, TaskDone) else event for event in events]
    row = next(row for row in chart(summarise(moved)).jobs if row.job.token == first)
    upper, lower = row.curves
    assert (upper.level >= lower.level).all() and (upper.level > lower.level).any()


def test_number_of_things_drawn_is_bounded() -> None:
    chain = [MadeStage(f"s{n}", 2, 20, after=(f"s{n - 1}",) if n else ()) for n in range(ROWS_DRAWN + 30)]
    drawn = chart(summarise(run_log(chain)))
    assert len(drawn.stages) == len(drawn.jobs) == ROWS_DRAWN
    assert drawn.stages_left_out == drawn.jobs_left_out == 30
    assert sum(len(row.tasks) for row in drawn.jobs) <= TASKS_DRAWN


def test_run_that_has_hardly_begun() -> None:
    drawn = chart(summarise(run_begins(stage_spec("a", 1, 1))))
    assert drawn.jobs == () and len(drawn.held) == 0 and drawn.span_s > 0


def test_job_that_waits_and_job_that_runs_reach_to_now() -> None:
    events: list[Event] = [
        *run_begins(stage_spec("a", 1, 1), stage_spec("b", 1, 1, "a")),
        *job_asked(0.0, "j0", 1, "a"),
        *job_asked(5.0, "j1", 1, "b", predicted=40.0),
        AllocationStarted(10.0, "j0", 10.0),
    ]
    first, second = chart(summarise(events, now=60.0)).jobs
    assert first.queued == (0.0, 10.0) and first.runs == ((10.0, 60.0),)
    assert second.queued == (5.0, 60.0) and second.runs == () and second.predicted == 45.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=30))
def test_tasks_of_one_core_never_overlap_when_there_is_room(tasks: list[tuple[int, int]]) -> None:
    started = np.array([start for start, _ in tasks], dtype=float)
    ended = np.array([start + length for start, length in tasks], dtype=float)
    lanes = pack(started, ended, np.ones(len(tasks), dtype=np.int64), len(tasks) + 1)
    for one in range(len(tasks)):
        for other in range(one):
            apart = ended[one] <= started[other] or ended[other] <= started[one]
            assert apart or lanes[one] != lanes[other]


def test_wide_tasks_stay_inside_and_beside_each_other() -> None:
    lanes = pack(np.zeros(3), np.ones(3), np.array([2, 1, 9]), 3)
    assert lanes[0] == 0 and lanes[1] == 2, "side by side"
    assert lanes[2] == 0, "cut to the lanes there are, and drawn over the others"


def test_no_tasks() -> None:
    assert pack(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64), 4).tolist() == []


VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what a reader would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def test_page_shows_the_run() -> None:
    page = Page(render(summarise(run_log(montage()))))
    for words in (
        "montage-3fa1",
        "43 min 48 s",
        "mFitplane",
        "810003",
        "node fail",
        "Big Job",
        "Per-Stage",
        "tile <3, 7>",
    ):
        assert words in page.text


def test_page_loads_nothing_and_runs_nothing() -> None:
    text = render(summarise(run_log(montage())))
    page = Page(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert "http" not in text.replace("http-equiv", "") and "@import" not in text
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {"#wait", "#early"}


HOSTILE = "</td><script>alert('1')</script>&amp;\"'"


def test_every_text_of_the_run_is_escaped() -> None:
    name = f"stage {HOSTILE}"
    stages = (stage_spec(name, 2, 1), stage_spec("after", 1, 1, name))
    fields = ("run", "workflow", "backend", "strategy", "executor", "pool", "site", "partition")
    run, workflow, *others = (field + HOSTILE for field in fields)
    events: list[Event] = [
        RunStarted(0.0, run, workflow, stages, *others),
        *job_asked(0.0, "job" + HOSTILE, 2, name),
        TaskFailed(
            20.0, name, 0, "job" + HOSTILE, "node" + HOSTILE, 10.0, "error" + HOSTILE, "t" + HOSTILE, "e" + HOSTILE
        ),
        JobEnded(30.0, "job" + HOSTILE, JobState.FAILED, 5.0, reason=HOSTILE),
        RunEnded(30.0, RunState.FAILED, "message" + HOSTILE),
    ]
    page = Page(render(summarise(events)))
    assert "script" not in page.tags
    for word in (*fields, "stage ", "error", "t", "e", "message"):
        assert word + HOSTILE in page.text


def test_page_of_many_tasks_stays_small() -> None:
    stages = [MadeStage(f"s{n}", 200, 4000, 30, (f"s{n - 1}",) if n else (), bad_tasks=200) for n in range(6)]
    assert len(render(summarise(run_log(stages)))) < 400_000


def test_page_of_many_stages_and_jobs_stays_small() -> None:
    stages = [MadeStage(f"stage-{n}", 60, 70, 30, (f"stage-{n - 1}",) if n else ()) for n in range(400)]
    text = render(summarise(run_log(stages)))
    assert len(text) < 1_500_000
    page = Page(text)
    assert "280 more stages not drawn" in page.text and "100 more jobs not shown" in page.text


def test_page_of_a_run_that_goes_on() -> None:
    events = run_log(montage())
    for cut in (2, 3, 4, 7, len(events) // 2):
        page = Page(render(summarise(events[:cut])))
        assert "running" in page.text and "not ended" in page.text


def drawn(*stages: MadeStage) -> Pictures:
    return draw(chart(summarise(run_log(stages))))


def test_both_pictures_are_well_formed_and_of_one_height() -> None:
    pictures = drawn(*montage())
    labels, plot = (ElementTree.fromstring(picture) for picture in (pictures.labels, pictures.plot))
    assert labels.get("height") == plot.get("height") == str(pictures.height)


def test_everything_lies_inside_the_plot() -> None:
    pictures = drawn(*montage())
    rectangles = re.findall(r'<rect x="([\d.e-]+)%" y="([\d.]+)" width="([\d.e-]+)%" height="([\d.]+)"', pictures.plot)
    assert len(rectangles) > 50
    for x, y, width, height in (map(float, each) for each in rectangles):
        assert 0 <= x <= x + width <= 100
        assert 0 <= y <= y + height <= pictures.height


def test_each_zoom_has_its_own_ticks() -> None:
    plot = ElementTree.fromstring(drawn(*montage()).plot)
    grids = {group.get("class", ""): len(group) for group in plot.findall("g") if "grid" in group.get("class", "")}
    counts = [grids[f"grid z{zoom}"] for zoom in ZOOMS]
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_unit_of_time_follows_the_zoom() -> None:
    units = dict(unit_names(chart(summarise(run_log(montage())))))
    assert units[1] == "min" and units[16] == "min:s"


@pytest.mark.parametrize("name", ["short", "a name that is much too long to stand beside a plot"])
def test_names_fit_beside_the_plot(name: str) -> None:
    root = ElementTree.fromstring(drawn(MadeStage(name, 4)).labels)
    for text in root.findall("text"):
        title = text.find("title")
        shown = "".join(text.itertext()).removeprefix((title.text or "") if title is not None else "")
        assert len(shown) <= LABEL_LETTERS + 1


def test_waits_stand_side_by_side() -> None:
    text = stages_section(summarise(run_log([MadeStage("a", 1, wait_s=90, predicted_wait_s=120)])))
    assert text.count("1 min 30 s</td>") == 3, "started, in the queue, perceived"
    assert "2 min</td>" in text, "predicted"


def test_what_is_not_known_is_a_dash() -> None:
    text = stages_section(summarise(run_begins(stage_spec("a", 1, None))))
    assert ">0 of ?</td>" in text
    assert text.count("–</td>") == 8


def test_core_hours_add_up_to_the_whole_bar() -> None:
    run = summarise(run_log(montage()))
    text = core_hours_section(run)
    for words in ("used 18.6", "idle (came early) 3.9", "idle (otherwise) 3.6", "26.2", "Big Job", "Per-Stage"):
        assert words in text


def test_job_that_never_ran() -> None:
    events = [
        *run_begins(stage_spec("a", 1, 1)),
        *job_asked(0.0, "j0", 1, "a"),
        JobEnded(9.0, "j0", JobState.CANCELLED),
    ]
    text = jobs_section(summarise(events))
    assert ">J0</span>" in text and "cancelled" in text and text.count("–</td>") == 2, "neither waited nor held"


def test_no_failures_no_section() -> None:
    assert failures_section(summarise(run_log([MadeStage("a", 1)]))) == ""


def test_failures_are_counted_beyond_those_shown() -> None:
    text = failures_section(summarise(run_log([MadeStage("a", 4, 300, bad_tasks=FAILURES_MOST + 200)])))
    assert text.count("<details>") == FAILURES_MOST and "200 more failed attempts" in text


def test_stage_that_failed_without_a_task_is_named() -> None:
    events = [*run_begins(stage_spec("a", 1, 1)), StageFailed(5.0, "a", "no allocation")]
    assert "<b>Stage a</b> failed" in failures_section(summarise(events))


EVENTS = borrowing()
STAGES_OF_LIFE = [EVENTS[:number] for number in range(1, len(EVENTS) + 1)]


def test_words() -> None:
    own, lease = summarise(EVENTS).jobs
    assert job_words(lease) == (f"lent by {LENDER}", "2 cores")
    assert (purpose(own), purpose(lease)) == ("a", f"lent by {LENDER}")
    title = job_title(lease)
    assert title.startswith(f"lease l1, lent by {LENDER}\ncompleted\n") and "queue" not in title
    assert "in the queue" in job_title(own)


def test_tables() -> None:
    run = summarise(EVENTS)
    assert escape(f"lent by {LENDER}") in jobs_section(run)
    assert core_hours_section(run)


def test_nothing_of_it_came_too_early() -> None:
    own, lease = chart(summarise(EVENTS)).jobs
    assert lease.queued == (50.0, 50.0) and lease.early == () and lease.runs == ((50.0, 300.0),)
    assert own.queued == (0.0, 100.0)
    assert len(lease.tasks) == 3


@pytest.mark.parametrize("events", STAGES_OF_LIFE, ids=lambda events: type(events[-1]).__name__)
def test_a_page_can_be_made_at_any_time(events: list[Event]) -> None:
    page = render(summarise(events, now=1400.0))
    leased = any(isinstance(event, Leased) for event in events)
    assert (f"lent by {LENDER}" in unescape(page)) is leased
    assert LENDER not in page, "it is escaped"


@pytest.mark.parametrize("end", [LeaseEnded(1150.0, "l1", "the agent is gone"), DriverStarted(1150.0, 2, "host")])
def test_a_page_of_one_that_was_lost_says_why(end: Event) -> None:
    until = next(n for n, event in enumerate(EVENTS) if event.at > end.at)
    page = unescape(render(summarise([*EVENTS[:until], end], now=1200.0)))
    assert ("the agent is gone" if isinstance(end, LeaseEnded) else "the driver was gone") in page


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html", ".json"])
def test_a_file_of_every_form(tmp_path: Path, suffix: str) -> None:
    if suffix in (".svg", ".png"):
        pytest.importorskip("matplotlib")
    path = tmp_path / f"run{suffix}"
    write_report(EVENTS, path)
    if suffix != ".png":
        assert LENDER in unescape(path.read_text())
    assert path.stat().st_size > 0


def test_a_lease_is_reported_when_it_begins_and_ends() -> None:
    def at(count: int) -> list[str]:
        return changes(summarise(EVENTS[: count - 1]), summarise(EVENTS[:count]))

    (came,) = [line for number, event in enumerate(EVENTS, 1) if isinstance(event, Leased) for line in at(number)]
    assert came.endswith(f"lease lent by {LENDER}: running")
    gone = [line for number, event in enumerate(EVENTS, 1) if isinstance(event, LeaseEnded) for line in at(number)]
    assert gone == [f"[5 min] lease lent by {LENDER}: completed"]


def test_the_display_takes_it() -> None:
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, width=200)) as display:
        for event in EVENTS:
            display.update([event], event.at)
    assert f"lent by {LENDER}" in text.getvalue()
    Console(file=text).print(table(summarise(EVENTS)))
