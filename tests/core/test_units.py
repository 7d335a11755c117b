from __future__ import annotations

import math

import pytest

from asa.core.errors import InvalidInput
from asa.core.units import brief, duration, share


@pytest.mark.parametrize(("value", "most", "found"), [("100%", 1.0, 1.0), (0, 1.0, 0.0), ("150 %", math.inf, 1.5)])
def test_a_share_within_its_bounds(value: float | str, most: float, found: float) -> None:
    assert share(value, most=most) == found


@pytest.mark.parametrize(
    ("value", "most", "message"),
    [
        (50, 1.0, "memory 50 is not a share from 0 to 1: write one like '3%' or 0.03"),
        ("101%", 1.0, "memory '101%' is not a share from 0 to 1"),
        (-0.1, math.inf, "memory -0.1 is not a share of at least 0"),
        ("inf", math.inf, "memory 'inf' is not a share of at least 0"),
        ("half", 1.0, "memory 'half' is not a share from 0 to 1"),
    ],
)
def test_one_that_is_none_is_refused_with_what_was_expected(value: float | str, most: float, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        share(value, what="memory", most=most)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", [None, True, [5], 0, -1, math.nan, math.inf, "90", "", "5 parsecs", "1h-"])
def test_what_is_no_duration_is_refused_in_words(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"runs for .* is not a positive duration: write '90s'") as caught:
        duration(value, what="runs for")  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-90, "-90 s"), (59.4, "59.4 s"), (60, "1 min"), (3599.6, "1 h"), (86399, "23 h 59 min"),
     (86400, "1 d"), (864000 + 3601, "10 d 1 h")],
)  # fmt: skip
def test_a_duration_as_people_say_it(seconds: float, words: str) -> None:
    assert brief(seconds) == words
