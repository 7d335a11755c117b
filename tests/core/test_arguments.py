from __future__ import annotations

import argparse

import pytest

from asa.cli.main import main
from asa.core.command import duration, positive


def test_numbers() -> None:
    assert positive("3") == 3 and duration("250ms") == 0.25
    for text in ("0", "-1", "1.5", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number above 0"):
            positive(text)


def test_what_is_wrong_with_a_duration_is_told_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["dispatch", "queue.json", "--time-limit", "1x"])
    said = capsys.readouterr().err
    assert "usage: asa dispatch" in said
    assert "argument --time-limit: duration '1x' is not a positive duration: write '90s'" in said
