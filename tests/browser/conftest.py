"""Debian's Chromium through Playwright. Whatever it says on its console, or blocks, fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from asa.dashboard.site import Dashboard

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
WAIT_MS = 30_000
Open = Callable[..., Any]
Shoot = Callable[[Any, str], None]
Serve = Callable[[], Dashboard]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make test-browser")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("Chromium is not installed: make test-browser, as root")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])  # tests may run as root
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """Opens an address as somebody new would; `errors` are kept, unless they are expected."""
    found: list[str] = []

    with ExitStack() as stack:

        def opened(address: str, *, expected: str = "", **look: Any) -> Any:
            context = chromium.new_context(**({"viewport": {"width": 1400, "height": 1500}} | look))
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(WAIT_MS)
            page.on("pageerror", lambda error: found.append(str(error)))
            page.on(
                "console",
                lambda said: said.type not in ("log", "info") and not (expected and expected in said.text)
                and found.append(f"{said.type}: {said.text}"),
            )  # fmt: skip
            page.goto(address)
            return page

        yield opened
    assert found == []


@pytest.fixture
def shoot(request: pytest.FixtureRequest) -> Shoot:
    """Keeps a picture of a page, to be looked at by people."""

    def shot(page: Any, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png")

    return shot


@pytest.fixture
def state(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def serve(state: Path) -> Iterator[Serve]:
    """Starts a dashboard, which outlives the pages of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Dashboard(state))
