from __future__ import annotations

import re
from html.parser import HTMLParser

from asa.core.event import Event, JobEnded, RunEnded, RunStarted, RunState, TaskFailed
from asa.core.job import JobState
from asa.metrics.workflow import summarise
from asa.report.html import render
from asa.testing.runlogs import MadeStage, job_asked, montage, run_log, stage_spec

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


def test_page_tells_the_run() -> None:
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
