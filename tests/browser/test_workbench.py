"""The page as a workbench: what a stranger asks of it, tasks, all runs, commands, and whether everybody can use it."""

from __future__ import annotations

import importlib.util
import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.event import RunEnded, RunState, TaskDone, TaskFailed
from asa.dashboard.site import Dashboard
from asa.log.curve import SUFFIX, UsageSample, curve_head, curve_line
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory, list_runs
from tests.browser.conftest import Open, Serve, Shoot
from tests.browser.looking import badge, holds, move, wide, write
from tests.runlogs import MadeStage, montage, run_begins, run_log, stage_spec
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PROGRAM = """
import time
import asa

@asa.stage(cores=1, walltime="5m")
def align(sample, reference="hg38"):
    print("aligning sample", sample, flush=True)
    time.sleep(60 if sample > 2 else 0.1)
    return sample

@asa.stage(cores=1, walltime="5m")
def merge(samples):
    return sum(samples)

workflow = merge(align.map(range(6)))
"""


@contextmanager
def running(state: Path) -> Iterator[str]:
    """A run that goes on, by its name."""
    (state / "work.py").write_text(PROGRAM)
    command = [sys.executable, "-P", "-m", "asa", "run", "work.py", "--backend", "local:cores=2", "--quiet"]
    environment = {"ASA_STATE_DIR": str(state), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, cwd=state, env=environment, stderr=subprocess.DEVNULL) as run:
        try:
            until(lambda: list_runs(state) and list_runs(state)[0].events.exists(), "the run to begin")
            yield list_runs(state)[0].name
        finally:
            run.terminate()
            run.wait(60)


def test_the_five_questions_of_a_stranger(state: Path, serve: Serve, open_page: Open, shoot: Shoot) -> None:
    """What is running, why not that, where is its log, when is it done, what did it cost: two clicks each at most."""
    with running(state) as name:
        page = open_page(serve().link)
        clicks = 0

        def click(what: str) -> None:
            nonlocal clicks
            clicks += 1
            page.click(what)

        def anew() -> None:
            nonlocal clicks
            clicks = 0
            page.goto(f"{page.url.partition('#')[0]}#/runs/{name}")
            badge(page, "running")

        badge(page, "running")
        holds(page, "/of align/.test(document.querySelector('#running').innerText)")
        assert "1 of 1 core busy" in page.inner_text("#running"), "what is running?"
        click("#running a")
        holds(page, "document.querySelectorAll('#tasks tbody tr').length === 1")
        assert clicks <= 2
        shoot(page, "five-running")

        anew()
        assert "merge: waits for align" in page.inner_text("#why"), "why not that?"
        click("#graph .node >> nth=1")
        holds(page, "document.querySelector('#stage').innerText.includes('waits for align')")
        assert clicks <= 2
        shoot(page, "five-why")

        anew()
        click("#views a:text-is('Tasks')")
        click("#tasks a:text-is('align[3]')")
        holds(page, "document.querySelector('#output').innerText.includes('aligning sample 3')")
        assert clicks <= 2, "where is its log?"
        holds(page, "document.querySelector('#facts').innerText.includes(\"asa logs\")")
        facts = page.inner_text("#facts")
        assert "Arguments" in facts and "3" in facts
        shoot(page, "five-log")

        anew()
        assert "until the end, expected at" in page.inner_text("#figures"), "when is it done?"
        assert "core-hours charged" in page.inner_text("#figures"), "what did it cost?"
        click("#views a:text-is('Why')")
        holds(page, "/This run/.test(document.querySelector('#hours').innerText)")
        assert clicks <= 2


def sampled(state: Path, run: str, task: TaskDone) -> None:
    """Say that it took more and more memory, and all of a core but for a pause."""
    shown = [
        UsageSample(task.started + 5.0 * number, 5.0, number * 20 << 20, float(number != 7)) for number in range(1, 21)
    ]
    lines = [curve_line(each, task.started, task.index, task.stage) for each in shown]
    folder = RunDirectory.open(state, run).output
    folder.mkdir()
    (folder / f"{task.node}-0{SUFFIX}").write_text(curve_head(task.node, task.allocation) + "".join(lines))


@pytest.fixture
def dashboard(state: Path, serve: Serve) -> Dashboard:
    log = run_log(montage(8))
    write(state, "montage-3fa1", log)
    sampled(state, "montage-3fa1", next(each for each in log if isinstance(each, TaskDone) and each.index == 3))
    begin = run_begins(stage_spec("fit", 2, 3), stage_spec("plot", 1, 1, "fit"), at=1_700_000_000.0)
    failed = TaskFailed(
        begin[0].at + 90, "fit", 1, "j", "n1", begin[0].at + 50, "ValueError: no such band",
        traceback='  File "fit.py", line 3, in fit\n' + "x" * 300, stderr="reading " + "y" * 200, exit=3, peak=3 << 30,
    )  # fmt: skip
    over = RunEnded(begin[0].at + 99, RunState.FAILED, "stage fit failed: task 1: ValueError: no such band", "fit")
    log = [*begin, failed, over]
    write(state, "fit-77c0", [replace(log[0], run="fit-77c0"), *log[1:]])  # type: ignore[call-arg]
    return serve()


def open_run(page: Any, name: str, rest: str = "") -> None:
    holds(page, "!document.querySelector('#main').hidden")
    page.evaluate("to => { location.hash = to }", f"#/runs/{name}{rest}")
    holds(page, "name => document.querySelector('#name').textContent === name", name)
    holds(page, "document.querySelector('#state').textContent !== ''")


def test_tasks_are_found_by_text_state_stage_and_node(dashboard: Dashboard, open_page: Open) -> None:
    page = open_page(dashboard.link)
    open_run(page, "montage-3fa1", "/tasks")
    holds(page, "document.querySelector('#count').textContent === '1 to 50 of 256 tasks'")
    page.click("#next")
    holds(page, "document.querySelector('#count').textContent === '51 to 100 of 256 tasks'")
    page.locator("#text").press_sequentially("mdiff[7]")  # letters come while answers to earlier ones are on their way
    holds(page, "document.querySelector('#count').textContent === '1 to 1 of 1 task'")
    assert "text=mdiff%5B7%5D" in page.url
    assert page.inner_text("#tasks tbody a") == "mDiff[7]"
    page.fill("#text", "")
    page.select_option("#of-stage", "mBackground")
    page.select_option("#order", "tries")
    holds(page, "document.querySelector('#count').textContent.endsWith('of 48 tasks')")
    holds(page, "document.querySelector('#tasks tbody tr td:nth-child(6)').textContent === '2'")
    page.click("#tasks tbody a")
    holds(page, "document.querySelectorAll('#facts tbody tr').length === 2")
    assert page.locator("#tasks tr.chosen").count() == 1
    assert page.evaluate("document.activeElement.id") == "t-one"
    address = page.url
    page.click("#leave")
    holds(page, "document.querySelector('#one').hidden")
    page.goto(address)  # a link to a task may be kept
    holds(page, "!document.querySelector('#one').hidden")
    page.select_option("#of-stage", "")
    page.fill("#text", "nothing is called so")
    holds(page, "document.querySelector('#count').textContent === 'No task fits.'")


def test_a_task_that_failed_tells_all(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    page = open_page(dashboard.link, viewport={"width": 390, "height": 844})
    open_run(page, "fit-77c0", "/tasks?state=failed")
    page.click("#tasks a")
    holds(page, "document.querySelector('#facts').textContent.includes('ValueError')")
    facts = page.inner_text("#facts")
    assert "no such band" in facts and "fit.py" in facts and "n1" in facts
    assert page.locator("#facts tbody td:nth-child(5)").inner_text() == "3"
    assert not wide(page)
    shoot(page, "task-small")


def test_tasks_are_those_of_the_time_shown(dashboard: Dashboard, open_page: Open) -> None:
    page = open_page(dashboard.link)
    open_run(page, "montage-3fa1", "/tasks?state=done")
    holds(page, "document.querySelector('#count').textContent.endsWith('of 256 tasks')")
    long = page.evaluate("(slider => slider.max - slider.min)(document.querySelector('#slider'))")
    move(page, 600 / long)
    holds(page, "document.querySelector('#count').textContent.endsWith('of 49 tasks')")
    page.click("#now")
    holds(page, "document.querySelector('#count').textContent.endsWith('of 256 tasks')")


def test_a_run_is_cancelled_and_resumed_from_the_page(state: Path, serve: Serve, open_page: Open, shoot: Shoot) -> None:
    with running(state) as name:
        page = open_page(serve().link)
        badge(page, "running")
        page.click("#actions button:text-is('Hold')")
        assert page.inner_text("#t-sure") == f"Hold run {name}?"
        assert page.evaluate("document.activeElement.id") == "no"  # Enter does nothing rash
        page.keyboard.press("Enter")
        assert not page.is_visible("#sure")
        page.click("#actions button:text-is('Hold')")
        page.click("#yes")
        badge(page, "running, held")
        holds(page, "document.querySelector('#came').textContent.includes('is held')")
        shoot(page, "held")
        page.click("#no")
        page.click("#actions button:text-is('Release')")
        page.click("#yes")
        holds(page, "!document.querySelector('#state').textContent.includes('held')")
        holds(page, "document.querySelector('#came').textContent.includes('goes on')")
        page.click("#no")
        page.click("#actions button:text-is('Cancel')")
        page.click("#yes")
        badge(page, "cancelled")
        holds(page, "document.querySelector('#came').textContent.includes('is cancelled')")
        page.click("#no")
        page.click("#actions button:text-is('Resume')")
        page.click("#yes")
        badge(page, "running")
        holds(page, "document.querySelector('#yes').hidden")
        page.click("#no")
        page.click("#actions button:text-is('Cancel')")
        page.click("#yes")
        badge(page, "cancelled")
        holds(page, "document.querySelector('#yes').hidden")


def test_a_page_without_runs_waits_for_the_first(state: Path, serve: Serve, open_page: Open) -> None:
    page = open_page(serve().link)
    holds(page, "document.querySelector('#runs').textContent.includes('asa run workflow.py')")
    write(state, "first-1", run_log(montage(1)))
    holds(page, "document.querySelector('#runs a')?.textContent === 'first-1'")
    page.click("#runs a")
    badge(page, "succeeded")


CROSSED = """() => {
    const boxes = [...document.querySelectorAll('#graph .node')].map((node) => {
        const [x, y] = node.getAttribute('transform').match(/[-\\d.]+/g).map(Number);
        return { name: node.dataset.stage, x, y, width: 136, height: 46 };
    });
    const found = [];
    for (const edge of document.querySelectorAll('#graph .edge')) {
        const long = edge.getTotalLength();
        for (let at = 2; at < long - 2; at += 2) {
            const { x, y } = edge.getPointAtLength(at);
            for (const { name, x: left, y: top, width, height } of boxes)
                if (x > left + 1 && x < left + width - 1 && y > top + 1 && y < top + height - 1) found.push(name);
        }
    }
    return found;
}"""
"""Boxes that an edge runs behind."""


def test_edges_go_around_boxes(state: Path, serve: Serve, open_page: Open, shoot: Shoot) -> None:
    """In workflows of many shapes, and upright as on a phone."""
    rng = random.Random(7)
    for number in range(6):
        names = [f"s{place}" for place in range(rng.randint(5, 24))]
        stages = []
        for place, name in enumerate(names):
            before = rng.sample(names[:place], min(place, rng.choice((0, 1, 1, 2, 3))))
            stages.append(MadeStage(name, 2, 2, 5, tuple(before or names[max(0, place - 1) : place]), 5))
        write(state, f"shape-{number}", run_log(stages))
    skip = [MadeStage("a", 2, 2, 5), MadeStage("b", 2, 2, 5, ("a",)), MadeStage("c", 2, 2, 5, ("b",)),
            MadeStage("d", 2, 2, 5, ("a", "c"))]  # fmt: skip
    write(state, "shape-skip", run_log(skip))
    link = serve()
    for width in (1280, 390):
        page = open_page(link.link, viewport={"width": width, "height": 900})
        for run in [*(f"shape-{number}" for number in range(6)), "shape-skip"]:
            open_run(page, run)
            holds(page, "document.querySelectorAll('#graph .edge').length > 2")
            assert page.evaluate(CROSSED) == [], run
        page.locator("#graph").scroll_into_view_if_needed()
        shoot(page, f"edges-{width}")


def test_what_a_task_takes_is_drawn_as_time_goes_on(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    for width, scheme in itertools.product((390, 800, 1280), ("light", "dark")):
        page = open_page(dashboard.link, viewport={"width": width, "height": 900}, color_scheme=scheme)
        open_run(page, "montage-3fa1", "/tasks?task=mProject[3]")
        page.wait_for_selector(".curves svg")
        said = [each.get_attribute("aria-label") for each in page.locator(".curves [role=img]").all()]
        assert said == [
            "Memory over 1 min 40 s: 400 MiB at most, mean 210 MiB",
            "Processor over 1 min 40 s: 1 core at most, mean 0.95 cores",
        ]
        assert said[0].partition(": ")[2] in page.inner_text(".curves") and not wide(page)
        page.locator(".curves").scroll_into_view_if_needed()
        shoot(page, f"curves-{width}-{scheme}")
    open_run(page, "montage-3fa1", "/tasks?task=mProject[4]")
    holds(page, "document.querySelector('#t-one').textContent === 'mProject[4]'")
    holds(page, "!document.querySelector('.curves') && document.querySelector('#facts dd')")


VIEWS = {"list": "", "now": "/runs/montage-3fa1", "tasks": "/runs/montage-3fa1/tasks?task=mProject[3]",
         "why": "/runs/montage-3fa1/why", "failed": "/runs/fit-77c0"}  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [*itertools.product((390, 768, 1280), ("light", "dark"))])
def test_everybody_can_use_it(dashboard: Dashboard, open_page: Open, shoot: Shoot, width: int, scheme: str) -> None:
    """No sideways scrolling; no violation that axe knows of; every control has a name, and is reached by Tab."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("axe is not installed: pip install axe-playwright-python")
    axe = Path(package.origin).with_name("axe.min.js").read_text()
    page = open_page(dashboard.link, viewport={"width": width, "height": 844}, color_scheme=scheme)
    holds(page, "document.querySelector('#state').textContent !== ''")
    for name, place in VIEWS.items():
        page.evaluate("to => { location.hash = to }", f"#/{place.removeprefix('/')}")
        ready = {"list": "#runs td", "tasks": "#facts dd", "why": "#hours dd"}.get(name, "#graph svg")
        page.wait_for_selector(ready)
        page.wait_for_timeout(300)
        assert not wide(page), name
        page.evaluate(axe)
        found = page.evaluate(
            "async () => (await axe.run()).violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join('  '))"
        )
        assert found == [], name
        shoot(page, f"{name}-{width}-{scheme}")
    page.keyboard.press("Tab")
    reached = set()
    for _ in range(60):
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        page.keyboard.press("Tab")
    assert {"home", "help", "graph", "gantt", "slider"} <= reached


def test_many_tasks_are_served_in_pages(state: Path, serve: Callable[[], Dashboard], open_page: Open) -> None:
    """A page never holds more than it shows: the numbers of 20,000 tasks, and fifty rows."""
    stages = [MadeStage(f"s{number}", 64, 5000, 30, (), 10) for number in range(4)]
    with EventLog(RunDirectory.create(state, "many").events) as log:
        log.append(run_log(stages))
    page = open_page(serve().link)
    open_run(page, "many", "/tasks")
    holds(page, "document.querySelector('#count').textContent === '1 to 50 of 20,000 tasks'")
    assert page.locator("#tasks tbody tr").count() == 50
    page.fill("#text", "s3[4999]")
    holds(page, "document.querySelector('#tasks tbody a')?.textContent === 's3[4999]'")
