"""A run on Slurm, watched in a browser as it goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from asa.core.event import AllocationStarted, Submitting
from asa.dashboard.site import Dashboard
from tests.browser.conftest import Open, chromium, open_page, shoot  # noqa: F401 (fixtures)
from tests.cluster.processes import wait_until
from tests.integration.shell import FLOWS, Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(200)]

RUN = ("run", f"{FLOWS}:tasks", "--set", "count=12", "--quiet", "--backend", "slurm:poll_s=1", "--strategy", "asa")


def test_a_run_on_slurm_is_seen_live(shell: Shell, open_page: Open, shoot: Callable[[Any, str], None]) -> None:  # noqa: F811
    with shell.started(*RUN) as run:
        shell.await_events(Submitting)
        with Dashboard(shell.state) as dashboard:
            page = open_page(dashboard.link)

            def says(where: str, pattern: str) -> bool:
                return re.search(pattern, page.inner_text(where)) is not None

            shell.await_events(AllocationStarted)
            assert wait_until(lambda: says("#figures", r"[1-9]\d* / 13"), 60), page.inner_text("#figures")
            assert says("#state", "running") and page.is_visible("#live")
            assert says("#pool", r"n\d \(2\)"), page.inner_text("#pool")
            shoot(page, "slurm-live")
            assert wait_until(lambda: says("#state", "succeeded"), 60), page.inner_text("#state")
            assert says("#figures", "13 / 13")
            shoot(page, "slurm-ended")
            page.context.close()  # before the server goes
        outcome = shell.ended(run)
    assert outcome.code == 0, outcome.err
