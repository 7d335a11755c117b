"""Tables and text of commands, in terminals of any width."""

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.command import fitted, screen_width, table

words = st.text("abcxyz-_=,/.:", min_size=1, max_size=25)
prose = st.lists(words, min_size=1, max_size=8).map(" ".join)
row = st.fixed_dictionaries(
    {"run": words, "tasks": st.integers(0, 10**6), "backend": prose | st.none(), "share": st.floats(0, 1), "why": prose}
)
rows = st.lists(row, min_size=1, max_size=4)
Row = dict[str, Any]


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(rows, st.integers(12, 120))
def test_a_table_fits_into_any_terminal(found: list[Row], width: int) -> None:
    assert max(map(len, table(found, "", width=width).split("\n"))) <= width


@given(rows)
def test_a_table_that_fits_has_a_line_for_each_row_whatever_the_width(found: list[Row]) -> None:
    wide = table(found, "", width=10**6)
    least = max(map(len, wide.split("\n")))
    assert len(wide.split("\n")) == 1 + len(found)
    assert table(found, "", width=least) == wide


@given(rows, st.integers(12, 120))
def test_no_value_of_a_table_is_lost_in_a_narrow_terminal(found: list[Row], width: int) -> None:
    shown = table(found, "", width=width)
    letters = Counter(squeezed(shown))
    for each in found:
        assert str(each["tasks"]) in shown
        texts = (text for text in (each["run"], each["backend"] or "-", each["why"]) if text != "-")
        letters.subtract("".join(map(squeezed, texts)))
    assert min(letters.values()) >= 0


@given(prose, st.integers(0, 6), st.integers(12, 60))
def test_wrapped_text_keeps_its_letters_and_hangs_from_its_margin(text: str, margin: int, width: int) -> None:
    lines = fitted(" " * margin + text, width).split("\n")
    assert max(map(len, lines)) <= width
    assert squeezed("".join(lines)) == squeezed(text)
    assert all(line.startswith(" " * (margin + 2)) for line in lines[1:])


def test_the_widest_column_of_words_wraps_at_spaces_and_commas() -> None:
    found = [{"run": "one-1", "backend": "sim:nodes=4,cores=8,load=0.9", "jobs": 3}]
    assert table(found, "", width=33).split("\n") == [
        "run    backend               jobs",
        "one-1  sim:nodes=4,cores=8,     3",
        "       load=0.9",
    ]


@pytest.mark.parametrize(("said", "width"), [("60", 60), ("0", float("inf")), ("wide", float("inf"))])
def test_a_pipe_has_no_width_unless_columns_says_so(monkeypatch: pytest.MonkeyPatch, said: str, width: float) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert screen_width() == width
