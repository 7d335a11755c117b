"""Beliefs and containers as the slider moves: what the log tells of the time shown, or a word that it does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.core.context import geometry_of
from asa.core.event import Believed, ContainersSeen, ContainerUse, Event, Learned, NodeJoined, RunStarted, Submitting
from asa.core.registry import ESTIMATORS
from asa.log.rundir import list_runs
from asa.workflows.learned import weights
from tests.browser.conftest import Open, Serve, Shoot
from tests.browser.looking import badge, holds, move, view, wide, write
from tests.runlogs import montage, run_log
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOLD = "document.querySelector('#{}').textContent.includes({!r})"


def with_beliefs(events: Sequence[Event]) -> Iterator[Event]:
    """Each geometry's estimator says what it believes when it is taught; 20 jobs of other runs have taught it."""
    taught: dict[str, Any] = {}
    jobs: dict[str, int] = {}
    names: dict[str, str] = {}
    for event in events:
        yield event
        if isinstance(event, Submitting):
            request = event.request
            name = names[event.allocation] = str(
                geometry_of("hpc2n", "batch", request.resources.cores, request.walltime_s)
            )
            if name not in taught:
                taught[name], jobs[name] = ESTIMATORS.create("fixed-share", seed=0), 20
                for _ in range(20):
                    taught[name].learn(7200.0)
                yield believed(event.at, name, taught[name], jobs[name], 7200.0)
        if isinstance(event, Learned):
            name = names[event.allocation]
            taught[name].learn(event.wait_s)
            jobs[name] += 1
            yield believed(event.at, name, taught[name], jobs[name], event.wait_s)


def believed(at: float, name: str, estimator: Any, jobs: int, last_s: float) -> Believed:
    return Believed(at, name, "fixed-share", jobs, last_s, estimator.predict(), tuple(weights(estimator.state())))


def with_containers(events: Sequence[Event]) -> Iterator[Event]:
    """Each node has a container; a minute later its quota is halved."""
    seen: list[Event] = []
    for event in events:
        if isinstance(event, RunStarted):
            event = replace(event, executor="mesos")
        if isinstance(event, NodeJoined):
            name = f"{event.node}-{event.allocation}"
            seen.append(ContainersSeen(event.at + 1, (ContainerUse(name, event.node, 28.0, 20.0, 0.0),)))
            seen.append(ContainersSeen(event.at + 60, (ContainerUse(name, event.node, 14.0, 13.9, 0.61),)))
        yield event
    yield from seen


@pytest.fixture
def told(state: Path) -> None:
    """A run whose log tells all."""
    events = list(with_beliefs(list(with_containers(run_log(montage(8))))))
    write(state, "montage-3fa1", sorted(events, key=lambda event: event.at))


@pytest.fixture
def silent(state: Path) -> None:
    """An older one."""
    start, *rest = run_log(montage(8))
    assert isinstance(start, RunStarted)
    write(state, "montage-3fa1", [replace(start, executor="mesos"), *rest])


def geometries(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all("#beliefs .belief", "all => all.map(one => one.textContent)")
    return found


@pytest.mark.usefixtures("told")
def test_beliefs_are_those_of_the_time_shown(serve: Serve, open_page: Open, shoot: Shoot) -> None:
    page = open_page(serve().link)
    badge(page, "succeeded")
    view(page, "Why")
    holds(page, TOLD.format("t-beliefs", "What waits were expected at the end"))
    last = geometries(page)
    assert len(last) >= 4
    move(page, 0.02)  # the first job has been asked for, and waits
    holds(page, TOLD.format("t-beliefs", "expected then"))
    holds(page, "document.querySelectorAll('#beliefs .belief').length === 1")
    (first,) = geometries(page)
    assert ": 1 h 56 min from 20 jobs" in first or ": 2 h from 20 jobs" in first
    assert "from all runs until then" in page.inner_text("#beliefs")
    shoot(page, "slider-begin")
    move(page, 0.5)
    holds(page, "document.querySelectorAll('#beliefs .belief').length > 2")
    middle = geometries(page)
    assert middle != last and "112 cores for 1h on hpc2n batch" in middle[-1] and "from 21 jobs" in middle[-1]
    assert page.locator("#waits circle").count() < 9
    shoot(page, "slider-middle")
    page.click("#now")
    holds(page, TOLD.format("t-beliefs", "at the end"))
    assert geometries(page) == last


@pytest.mark.usefixtures("told")
def test_containers_are_those_of_the_time_shown(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().link)
    badge(page, "succeeded")
    holds(page, TOLD.format("containers", "There were none at this time"))
    long = page.evaluate("(slider => slider.max - slider.min)(document.querySelector('#slider'))")
    move(page, 415 / long)  # mProject's four nodes have joined at 410 s
    holds(page, TOLD.format("containers", "28 cores"))
    assert page.locator("#containers tbody tr").count() == 4
    assert "20.00 cores" in page.inner_text("#containers") and "0 %" in page.inner_text("#containers")
    move(page, 480 / long)
    holds(page, TOLD.format("containers", "14 cores"))
    assert "61 %" in page.inner_text("#containers") and "28 cores" not in page.inner_text("#containers")
    move(page, 1.0)
    holds(page, TOLD.format("containers", "There were none"))


@pytest.mark.usefixtures("told")
def test_what_went_wrong_with_a_time_is_forgotten_once_one_is_shown(serve: Serve, open_page: Open) -> None:
    page = open_page(serve().link, expected="ERR_FAILED")
    badge(page, "succeeded")
    for again in (0.5, 1.0):  # another time, and now
        page.route("**/at?*", lambda route: route.abort())
        move(page, 0.3)
        holds(page, TOLD.format("trouble", "the page as it was then cannot be shown"))
        page.unroute("**/at?*")
        move(page, again)
        holds(page, "document.querySelector('#trouble').hidden")


@pytest.mark.usefixtures("silent")
def test_an_older_log_is_replayed_as_far_as_it_goes_and_the_rest_is_said(
    serve: Serve, open_page: Open, shoot: Shoot
) -> None:
    page = open_page(serve().link)
    badge(page, "succeeded")
    holds(page, TOLD.format("containers", "does not tell of containers"))
    view(page, "Why")
    holds(page, TOLD.format("beliefs", "Nothing has been learned about this queue yet"))
    move(page, 0.02)
    holds(page, TOLD.format("beliefs", "By then nothing had been learned from jobs of this run"))
    move(page, 0.5)
    holds(page, TOLD.format("beliefs", "replayed from its own waits alone"))
    assert all("from 1 job;" in words or "from 2 jobs;" in words for words in geometries(page))
    assert page.locator("#beliefs rect").count() > 5
    shoot(page, "slider-older")


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("look", [{"color_scheme": "dark"}, {"viewport": {"width": 480, "height": 900}}])
def test_they_look_well_everywhere(serve: Serve, open_page: Open, shoot: Shoot, look: Any) -> None:
    page = open_page(serve().link, **look)
    badge(page, "succeeded")
    move(page, 0.3)
    badge(page, "running")
    assert not wide(page)
    view(page, "Why")
    holds(page, TOLD.format("t-beliefs", "expected then"))
    assert not wide(page)
    shoot(page, "slider-dark" if "color_scheme" in look else "slider-small")


BURN = """
import time
import asa

@asa.stage(cores=2, walltime="5m")
def work(number):
    deadline = time.time() + 90
    while time.time() < deadline:
        pass

workflow = work.map(range(2))
"""


def test_containers_of_a_run_that_goes_on(state: Path, serve: Serve, open_page: Open, shoot: Shoot) -> None:
    """With real agents: from the log, now and before."""
    (state / "burn.py").write_text(BURN)
    command = [sys.executable, "-P", "-m", "asa", "run", "burn.py", "--backend", "local:cores=2", "--executor", "mesos"]
    environment = {"ASA_STATE_DIR": str(state), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen([*command, "--quiet"], cwd=state, env=environment, stderr=subprocess.DEVNULL) as run:
        try:
            until(lambda: list_runs(state) and list_runs(state)[0].events.exists(), "the run to begin")
            page = open_page(serve().link)
            badge(page, "running")
            holds(page, "/[0-9]\\.\\d\\d cores/.test(document.querySelector('#containers').textContent)")
            assert page.is_visible("#live")
            assert page.locator("#containers tbody tr").count() == 1
            shoot(page, "slider-live")
            move(page, 0.001)  # before there was a node
            holds(page, TOLD.format("containers", "There were none at this time"))
            page.click("#now")
            holds(page, "document.querySelector('#containers tbody tr') !== null")
        finally:
            run.terminate()
            run.wait(60)
