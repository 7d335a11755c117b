from __future__ import annotations

import math

import pytest

from asa.core.errors import InvalidInput
from asa.core.units import share


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
