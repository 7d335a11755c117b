"""The live page at 100,000 tasks, in Chromium: its size, when it is seen, how soon a filter and an event are on it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from asa.core.event import Event, JobEnded, RunEnded, TaskDone
from asa.dashboard.feed import RUNS, Feed, Sources
from asa.dashboard.site import Dashboard, line
from asa.dashboard.tasks import TaskQuery
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from tests.runlogs import MadeStage, run_log

LAST = 200  # tasks that are still to end when the page is opened
REPEAT = 10
SCREEN = {"width": 1400, "height": 1000}


def stages(tasks: int) -> tuple[MadeStage, ...]:
    """Twenty stages in two rows, as many tasks in each, on 64 cores."""
    each, made = tasks // 20, list[MadeStage]()
    for number in range(20):
        after = (f"s{number - 2}",) if number > 1 else ()
        made.append(MadeStage(f"s{number}", 64, each, 30, after, 100, 90, 90))
    return tuple(made)


def shifted(events: list[Event], by: float) -> list[Event]:
    """The same, so much later."""
    return [
        replace(event, at=event.at + by, **({"started": event.started + by} if isinstance(event, TaskDone) else {}))
        for event in events
    ]


def split(tasks: int) -> tuple[list[Event], list[TaskDone]]:
    """A run that goes on, and the ends of tasks that are still to come."""
    log = [event for event in run_log(stages(tasks)) if not isinstance(event, RunEnded)]
    last = [event for event in log if isinstance(event, TaskDone)][-LAST:]
    cut = log.index(last[0])
    return [event for event in log[:cut] if not isinstance(event, JobEnded)], last


def timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def server(state: Path) -> dict[str, float]:
    """What the server does, without a browser [s]."""
    feed: Feed[Any] = Sources(state).open(RUNS, "made")
    found = {"read_s": timed(feed.advance), "look_s": min(timed(feed.look) for _ in range(5))}
    start, end = feed.span
    found["replay_half_s"] = min(timed(lambda: feed.look_at((start + end) / 2)) for _ in range(3))
    found["tasks_s"] = min(timed(lambda: feed.tasks(None).page(TaskQuery("s7"))) for _ in range(5))  # type: ignore[union-attr]
    found["data_bytes"] = len(line({"change": feed.look().document, "bars": feed.bars(0, feed.look().bars)}))
    feed.close()
    return found


PAINTED = """new Promise(resolve => {
    const drawn = () => document.querySelector('#graph svg');
    const look = () => drawn() ? requestAnimationFrame(() => resolve(performance.now())) : setTimeout(look, 5);
    look(); })"""
NUMBERS = """new Promise(resolve => { const look = () => document.querySelector('#figures b') ?
    requestAnimationFrame(() => resolve(performance.now())) : setTimeout(look, 5); look(); })"""
FIRST = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SIZE = (
    "performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
    ".reduce((sum, each) => sum + each.transferSize, 0)"
)
# Called with the number of tasks that are done, as soon as the page shows it.
WATCH = """() => { const find = () => Number(document.querySelector('#figures b:nth-of-type(1)') &&
    [...document.querySelectorAll('#figures b')][1].textContent.split(' ')[0].replaceAll(',', ''));
    let last = find(); new MutationObserver(() => { const now = find(); if (now !== last) { last = now; shown(now); } })
    .observe(document.querySelector('#figures'), { childList: true, subtree: true }); return last; }"""


# From a letter in the field to the rows that fit, in the tasks' view [ms].
FILTER = """async text => { const field = document.querySelector('#text'), found = document.body.dataset.found;
    const begin = performance.now(); field.value = text; field.dispatchEvent(new Event('input'));
    await new Promise(resolve => { const look = () => document.body.dataset.found !== found ?
        requestAnimationFrame(resolve) : setTimeout(look, 1); look(); });
    return performance.now() - begin; }"""


CHART = """() => { const t = []; for (let k = 0; k < 21; k++) { const begin = performance.now();
    document.querySelector('#in').click(); t.push(performance.now() - begin); } return t.sort((a, b) => a - b)[10]; }"""


def browser(state: Path, dashboard: Dashboard, last: list[TaskDone]) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        found = opened(chromium, dashboard) | filtered(chromium, dashboard) | followed(chromium, dashboard, state, last)
        chromium.close()
    return found


def opened(chromium: Any, dashboard: Dashboard) -> dict[str, float]:
    """The page, opened by somebody new each time."""
    paints, numbers, firsts, size = list[float](), list[float](), list[float](), 0
    for _ in range(REPEAT):
        page = chromium.new_page(viewport=SCREEN)
        page.goto(dashboard.link)
        numbers.append(page.evaluate(NUMBERS) / 1000)
        paints.append(page.evaluate(PAINTED) / 1000)
        firsts.append(page.evaluate(FIRST) / 1000)
        size = page.evaluate(SIZE)
        page.close()
    return {
        "first_paint_s": statistics.median(firsts),
        "first_paint_least_s": min(firsts),
        "first_paint_most_s": max(firsts),
        "numbers_s": statistics.median(numbers),
        "numbers_least_s": min(numbers),
        "numbers_most_s": max(numbers),
        "all_drawn_s": statistics.median(paints),
        "all_drawn_most_s": max(paints),
        "files_bytes": size,
    }


def filtered(chromium: Any, dashboard: Dashboard) -> dict[str, float]:
    """From what is typed to the tasks that fit."""
    page = chromium.new_page(viewport=SCREEN)
    page.goto(dashboard.link)
    page.evaluate(PAINTED)
    page.click("#views a:text-is('Tasks')")
    page.wait_for_selector("#tasks tbody tr")
    page.wait_for_timeout(3000)
    times = []
    for text in ("s7", "s19[4", "4711", "n1", "s3[12]", "", "s1", "99", "s12", "none"):
        times.append(page.evaluate(FILTER, text) / 1000)
        page.wait_for_timeout(300)
    page.close()
    return {"filter_s": statistics.median(times), "filter_least_s": min(times), "filter_most_s": max(times)}


def followed(chromium: Any, dashboard: Dashboard, state: Path, last: list[TaskDone]) -> dict[str, float]:
    """From an event in the log to the number on the page."""
    delays, seen = [], dict[int, float]()
    page = chromium.new_page(viewport=SCREEN)
    page.expose_function("shown", lambda count: seen.setdefault(count, time.time()))
    page.goto(dashboard.link)
    page.evaluate(PAINTED)
    count = page.evaluate(WATCH)
    with EventLog(RunDirectory.open(state, "made").events) as log:
        for event in last[:40]:
            now, count = time.time(), count + 1
            log.append([replace(event, at=now, started=now - 30)])
            while count not in seen:
                page.wait_for_timeout(5)
            delays.append(seen[count] - now)
            page.wait_for_timeout(137)  # no multiple of how often the log is looked at
    return {
        "event_to_page_s": statistics.median(delays),
        "event_to_page_least_s": min(delays),
        "event_to_page_most_s": max(delays),
        "chart_s": page.evaluate(CHART) / 1000,
    }


def measured(tasks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        begin, last = split(tasks)
        directory = RunDirectory.create(state, "made")
        with EventLog(directory.events) as log:
            log.append(shifted(begin, time.time() - begin[-1].at))
        found: dict[str, Any] = {"tasks": tasks, **server(state)}
        with directory.lock(), Dashboard(state) as dashboard:  # who has the lock is taken for its driver
            time.sleep(3 + 2 * found["read_s"])  # it has read the log, as `asa dashboard` begins to do at once
            found |= browser(state, dashboard, last)
    found["page_bytes"] = found["files_bytes"] + found["data_bytes"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10_000, 100_000])
    rows = [measured(tasks) for tasks in parser.parse_args().tasks]
    for name in rows[0]:
        print(f"{name:>22}", *(f"{row[name]:>14,.3f}" for row in rows))
    if target := os.environ.get("BENCHMARK_JSON"):
        Path(target).write_text(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
