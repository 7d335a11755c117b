from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.report.axis import ticks


@given(st.floats(1e-3, 1e8), st.integers(1, 150))
def test_ticks_are_even_few_and_inside(span_s: float, about: int) -> None:
    made = ticks(span_s, about)
    assert made.at[0] == 0.0 and made.at[-1] <= span_s * (1 + 1e-6)
    assert len(made.at) <= about + 1
    assert len(set(made.labels)) == len(made.labels), "no two ticks read the same"


@pytest.mark.parametrize(
    ("span_s", "about", "unit", "labels"),
    [
        (0.5, 5, "s", ("0", "0.1", "0.2")),
        (90, 3, "s", ("0", "30", "60")),
        (600, 20, "min:s", ("0:00", "0:30", "1:00")),
        (9000, 300, "h:min:s", ("0:00:00", "0:00:30", "0:01:00")),
        (3000, 5, "min", ("0", "10", "20")),
        (30000, 10, "h", ("0", "1", "2")),
        (864000, 5, "d", ("0", "2", "4")),
    ],
)
def test_units_fit_the_steps(span_s: float, about: int, unit: str, labels: tuple[str, ...]) -> None:
    made = ticks(span_s, about)
    assert made.unit == unit and made.labels[:3] == labels
