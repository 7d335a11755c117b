"""The dashboard as people meet it: in a browser, with a real server behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from asa.core.event import RunEnded, RunState, Trouble
from asa.dashboard.site import Dashboard
from asa.log.rundir import list_runs
from tests.browser.conftest import Open, Shoot
from tests.browser.looking import badge, done, holds, move, view, wide, write
from tests.runlogs import MadeStage, job_asked, montage, run_begins, run_log, stage_spec
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WORKFLOW = """
import time
import asa

@asa.stage(cores=2, walltime="5m")
def work(number):
    time.sleep(0.5)
    return number

@asa.stage(walltime="5m")
def add(numbers):
    time.sleep(1.0)
    return sum(numbers)

workflow = add(work.map(range(12)))
"""
PRINTS = """
import time
from pathlib import Path
import asa

mark = Path(__file__).with_name("failed")

@asa.stage(cores=2, walltime="5m", retries=1)
def speak(number):
    print("<b>number</b>", number, flush=True)
    time.sleep(30.0 if number == 1 else 0.0)
    if number == 2 and not mark.exists():
        mark.touch()
        raise ValueError("two is too much")

@asa.stage(walltime="5m")
def listen(words):
    print("heard")

workflow = listen(speak.map(range(3)))
"""
REFUSED = "the server responded with a status of 40"


@pytest.fixture
def dashboard(state: Path, serve: Callable[[], Dashboard]) -> Dashboard:
    """One run that has ended."""
    write(state, "montage-3fa1", run_log(montage(8)))
    return serve()


def test_a_run_that_has_ended_is_shown(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    page = open_page(dashboard.link)
    badge(page, "succeeded")
    assert page.locator("#graph .node").count() == 9
    assert done(page) == sum(stage.tasks for stage in montage(8))
    assert "Every stage runs or is done" in page.inner_text("#why")
    assert page.title() == "✓ montage-3fa1"
    shoot(page, "ended-light")
    view(page, "Why")
    holds(page, "document.querySelectorAll('#waits circle').length === 9")
    assert page.locator("#stages tbody tr").count() == 9
    assert "core-hours saved against one job" in page.inner_text("#hours")


def test_it_is_dark_where_that_is_wanted(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    page = open_page(dashboard.link, color_scheme="dark")
    badge(page, "succeeded")
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert max(int(number) for number in re.findall(r"\d+", ground)) < 60
    shoot(page, "ended-dark")


def test_a_small_screen_shows_all_in_one_column(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    page = open_page(dashboard.link, viewport={"width": 480, "height": 900})
    badge(page, "succeeded")
    assert not wide(page)
    shoot(page, "small")


def test_the_chart_is_drawn(dashboard: Dashboard, open_page: Open) -> None:
    page = open_page(dashboard.link)
    badge(page, "succeeded")
    colours = "() => { const c = document.querySelector('#gantt canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const s = new Set(); for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) s.add((d[i] << 16 | d[i + 1] << 8 | d[i + 2]).toString(16).padStart(6, '0')); return [...s]; }"  # noqa: E501
    holds(page, "document.querySelector('#gantt canvas').width > 500")
    assert {"0072b2", "e69f00", "009e73", "cc79a7"} <= set(page.evaluate(colours))


def test_it_follows_a_run(state: Path, serve: Callable[[], Dashboard], open_page: Open, shoot: Shoot) -> None:
    program = state / "work.py"
    program.write_text(WORKFLOW)
    command = [sys.executable, "-P", "-m", "asa", "run", str(program), "--backend", "local:cores=2", "--quiet"]
    with subprocess.Popen(command, cwd=state, env={"ASA_STATE_DIR": str(state), "PATH": "/usr/bin:/bin"}) as run:
        try:
            until(lambda: list_runs(state) and list_runs(state)[0].events.exists(), "the run to begin")
            page = open_page(serve().link)
            badge(page, "running")
            page.evaluate("window.same = true")
            seen = [0]
            while seen[-1] < 12:
                until(lambda: done(page) > seen[-1], "more tasks to be done")
                seen.append(done(page))
                if len(seen) == 3:
                    assert page.is_visible("#live")
                    assert "waits for work" in page.inner_text("#why")
                    assert "of 2" in page.inner_text("#pool")
                    shoot(page, "live")
            badge(page, "succeeded")
            holds(page, "document.querySelector('#live').hidden")
            assert done(page) == 13
            assert len(seen) > 4  # it was told as it went on
            assert page.evaluate("window.same")  # without being loaded anew
            assert run.wait(30) == 0
        finally:
            run.kill()


def test_the_slider_replays(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    page = open_page(dashboard.link)
    badge(page, "succeeded")
    whole = done(page)
    move(page, 0.4)
    badge(page, "running")
    assert 0 < done(page) < whole
    assert "waits for" in page.inner_text("#why")
    shoot(page, "replayed")
    move(page, 0.05)
    holds(page, "document.querySelector('#figures').textContent.includes('0 / ')")
    assert page.locator("#graph .node.idle").count() == 8
    page.select_option("#speed", "10")
    page.click("#play")
    badge(page, "succeeded")  # it runs to the end, and stops
    holds(page, "document.querySelector('#play').textContent === '▶'")
    assert done(page) == whole
    move(page, 0.4)
    badge(page, "running")
    page.click("#now")
    badge(page, "succeeded")


def test_keys_do_it_all(dashboard: Dashboard, open_page: Open) -> None:
    page = open_page(dashboard.link)
    badge(page, "succeeded")
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    assert not page.is_visible("#keys")
    for _ in range(70):
        page.keyboard.press("<")
    badge(page, "running")
    page.keyboard.press("l")
    badge(page, "succeeded")
    page.focus("#graph .node >> nth=3")
    page.keyboard.press("Enter")
    page.wait_for_selector("#graph .node.chosen")
    assert page.get_attribute("#graph .node.chosen", "data-stage") == "mDiff"
    assert "mDiff: ✓ done" in page.inner_text("#stage")
    page.keyboard.press("Escape")
    holds(page, "!document.querySelector('#graph .node.chosen')")
    page.focus("#gantt")
    for key in ("+", "+", "ArrowRight", "ArrowLeft", "-", "0"):
        page.keyboard.press(key)
    page.keyboard.press(" ")
    holds(page, "document.querySelector('#play').textContent !== '▶'")
    page.keyboard.press(" ")
    holds(page, "document.querySelector('#play').textContent === '▶'")


def test_pointing_at_the_chart_shows_details(dashboard: Dashboard, open_page: Open) -> None:
    page = open_page(dashboard.link)
    badge(page, "succeeded")
    box = page.locator("#gantt").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 32)
    holds(page, "document.querySelector('#tip').textContent.startsWith('mProject: done')")
    page.mouse.move(box["x"] + 300, box["y"] - 300)
    holds(page, "document.querySelector('#tip').hidden")


def test_strangers_are_refused(dashboard: Dashboard, open_page: Open, shoot: Shoot) -> None:
    link, url = dashboard.link, dashboard.address.url
    page = open_page(url, expected=REFUSED)
    page.wait_for_selector("#door")
    assert not page.is_visible("#main")
    page.fill("#code", "guess")
    page.press("#code", "Enter")
    holds(page, "document.querySelector('#said').textContent.includes('used already')")
    shoot(page, "door")
    assert "montage" not in page.content()
    page.fill("#code", link)
    page.click("#door button")
    badge(page, "succeeded")
    assert link.partition("#")[2] not in page.url  # the code is not left in sight
    other = open_page(link, expected=REFUSED)  # somebody else, with a link that was used
    other.wait_for_selector("#door")
    assert not other.is_visible("#main")
    assert page.evaluate("document.cookie") == ""


def test_a_page_that_is_loaded_anew_stays_open_until_its_server_ends(state: Path, open_page: Open) -> None:
    write(state, "montage-3fa1", run_log(montage(2)))
    with Dashboard(state) as dashboard:
        page = open_page(dashboard.link, expected="net::ERR")
        badge(page, "succeeded")
        page.reload()
        badge(page, "succeeded")
    holds(page, "document.querySelector('#trouble').textContent.includes('does not answer')")


def test_what_a_log_says_is_text(state: Path, serve: Callable[[], Dashboard], open_page: Open) -> None:
    """Whoever writes to a log writes words, not pages."""
    evil = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>\'"&amp;'
    log = [
        *run_begins(stage_spec(evil, 2, 1), stage_spec("__proto__", 2, 1, evil), stage_spec("1", 1, None, evil)),
        *job_asked(10.0, "job<b>", 2, evil, predicted=30.0),
        Trouble(11.0, evil),
        RunEnded(20.0, RunState.FAILED, evil, evil),
    ]
    write(state, "evil", log)
    page = open_page(serve().link)
    badge(page, "failed")
    assert evil in page.inner_text("#trouble")
    view(page, "Why")
    holds(page, "evil => document.querySelector('#stages').textContent.includes(evil)", evil)
    view(page, "Tasks")
    holds(page, "evil => document.querySelector('#tasks').textContent.includes(evil)", evil)
    view(page, "Overview")
    assert page.locator("#graph .node").count() >= 2
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hurt") is None


def test_runs_and_queues_are_chosen_from_a_list(
    dashboard: Dashboard, state: Path, open_page: Open, shoot: Shoot
) -> None:
    queue = state / "queue.toml"
    queue.write_text(QUEUE)
    (state / "cosched").mkdir(0o700)
    command = [sys.executable, "-P", "-m", "asa", "cosched", "run", str(queue), "--sharing", "asax", "--work",
               str(state / "cosched" / "night-1")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    write(state, "other", [*run_begins(stage_spec("a", 2, 1), at=1.0), Trouble(2.0, "no answer")])
    page = open_page(dashboard.link)
    badge(page, "succeeded")
    page.click("#home")
    holds(page, "document.querySelectorAll('#runs tbody tr').length === 2")
    assert "34 min" in page.inner_text("#runs") or "min" in page.inner_text("#runs")
    shoot(page, "list")
    page.click("#runs a:text-is('other')")
    badge(page, "interrupted")
    holds(page, "document.querySelector('#trouble').textContent.includes('no answer')")
    page.go_back()
    page.click("#runs a:text-is('night-1')")
    page.wait_for_selector("#queue tbody tr")
    assert page.locator("#queue tbody tr").count() == 6
    words = page.inner_text("#queue thead")
    assert all(name in words for name in ("Cores", "Share", "Its guests", "Bound"))
    page.evaluate("""() => { const s = document.querySelector('#slider');
        s.value = 0.2 * s.max; s.dispatchEvent(new Event('input')); }""")
    holds(page, "/ \\(\\d+ %\\)/.test(document.querySelector('#queue').innerText)")  # a guest with its share
    shoot(page, "queue-guests")
    page.keyboard.press("End")
    page.keyboard.press("/")
    assert "#/queues/" in page.url, "it has no tasks to be found"
    assert "Happiness of the host" in page.inner_text("#decisions")
    assert re.search(r"[✓✕] \d\.\d\d", page.inner_text("#decisions"))
    shoot(page, "queue")


def test_a_guest_that_is_stopped_is_said_to_be(state: Path, serve: Callable[[], Dashboard], open_page: Open) -> None:
    entries: list[dict[str, object]] = [
        {"at": 0.0, "decision": "Start", "job": "census", "nodes": []},
        {"at": 9.0, "decision": "StartGuest", "job": "search", "host": "census", "share": 0.05, "hard": False},
        {"at": 10.0, "decision": "SetShare", "guest": "search", "share": 0.2, "why": None},
        {"at": 20.0, "decision": "SetShare", "guest": "search", "share": 0.0, "why": None},
    ]
    log = state / "cosched" / "night-1" / "log.jsonl"
    log.parent.mkdir(parents=True, mode=0o700)
    log.touch(0o600)
    log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    page = open_page(serve().link)
    page.wait_for_selector("#decisions tbody tr")
    said = page.locator("#decisions tbody td:nth-child(3)").all_inner_texts()
    assert [words.strip() for words in said] == [
        "is stopped", "gets another share", "becomes a guest of census", "starts alone",
    ]  # fmt: skip
    jobs = page.inner_text("#queue tbody")
    assert "stopped on census" in jobs and "search (stopped)" in jobs
    titles = page.locator("#queue .lane i").evaluate_all("all => all.map((each) => each.title)")
    assert [title for title in titles if "guest" in title] == [
        "guest of census, 5 %", "guest of census, 20 %", "guest of census, stopped",
    ]  # fmt: skip


def test_figures_of_a_short_run_have_a_decimal(state: Path, serve: Callable[[], Dashboard], open_page: Open) -> None:
    """What waited is no longer than the run."""
    log = [event for event in run_log((MadeStage("a", 1, 1, 0.2, wait_s=0.12),)) if not isinstance(event, RunEnded)]
    write(state, "short", [*log, RunEnded(log[0].at + 0.33, RunState.SUCCEEDED)])
    page = open_page(serve().link)
    badge(page, "succeeded")
    figures = " ".join(page.inner_text("#figures").split())
    assert "0.3 s from start to end" in figures and "0.1 s waited while nothing ran" in figures


QUEUE = """
cores = 32
[[jobs]]
name = "census"
application = "statistics"
cores = 32
walltime = "1h"
run_time = "40m"
cpu = 0.3
[[jobs]]
name = "search"
cores = 16
walltime = "1h"
phases = [{ time = "2m", cpu = 0.0625 }, { time = "30m", cpu = 1.0 }]
[[jobs]]
name = "mosaic"
cores = 8
walltime = "30m"
run_time = "11m"
[[jobs]]
name = "census-2"
application = "statistics"
cores = 16
walltime = "1h"
run_time = "30m"
cpu = 0.3
[[jobs]]
name = "mosaic-2"
application = "mosaic"
cores = 8
walltime = "30m"
run_time = "11m"
[[jobs]]
name = "mosaic-3"
application = "mosaic"
cores = 8
walltime = "30m"
run_time = "11m"
"""


def test_output_is_shown_while_tasks_run(
    state: Path, serve: Callable[[], Dashboard], open_page: Open, shoot: Shoot
) -> None:
    (state / "prints.py").write_text(PRINTS)
    command = [sys.executable, "-P", "-m", "asa", "run", "prints.py", "--backend", "local:cores=2", "--quiet"]
    environment = {"ASA_STATE_DIR": str(state), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(command, cwd=state, env=environment, stderr=subprocess.DEVNULL) as run:
        try:
            until(lambda: list_runs(state) and list_runs(state)[0].events.exists(), "the run to begin")
            page = open_page(serve().link)
            badge(page, "running")
            view(page, "Tasks")
            page.locator("#output").scroll_into_view_if_needed()
            text = "document.querySelector('#output').innerText"
            holds(page, f"{text}.includes('speak[1] <b>number</b> 1')")  # it runs, and is no HTML
            holds(page, f"{text}.includes('two is too much')")
            assert page.is_visible("#live")
            page.click("#tasks a:text-is('speak[0]')")
            holds(page, f"{text}.includes('speak[0]') && !{text}.includes('speak[1]')")
            assert page.inner_text("#t-output") == "Output of speak[0]"
            page.click("#leave")
            page.select_option("#of-stage", "listen")
            holds(page, f"{text} === 'Nothing was printed.'")
            page.select_option("#of-stage", "")
            holds(page, f"{text}.includes('speak[1]')")
            shoot(page, "output-live")
        finally:
            run.terminate()
            run.wait(60)
