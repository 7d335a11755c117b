"""A biologist with a bug, an engineer who must decide, an operator who is worried: none of them is stuck."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.newcomers.play import Step, play, table
from tests.newcomers.scripts import NEWCOMERS

pytest_plugins = ("tests.wheels",)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("newcomer", NEWCOMERS)
def test_a_newcomer_is_not_stuck(newcomer: str, clean: Path, tmp_path: Path) -> None:
    played = play(newcomer, NEWCOMERS[newcomer], clean, tmp_path)
    assert [each.wrong for each in played if each.wrong] == []


def test_a_step_that_goes_wrong_is_reported(tmp_path: Path) -> None:
    steps = [
        Step("see", "echo yes", sees=("^yes$",)),
        Step("see more", "echo yes; exit 1", sees=("^no$",), never=("yes",), stuck="here"),
    ]
    well, wrong = play("a tester", steps, tmp_path, tmp_path)
    assert not well.wrong
    assert wrong.wrong.endswith("ended with 1; did not say '^no$'; said 'yes'")
    lines = table([well, wrong], [well._replace(seconds=2.0), wrong]).splitlines()
    assert lines[3:] == [f"| see | 2.0 | {well.seconds:.1f} |", "| see more | here | STUCK |"]
