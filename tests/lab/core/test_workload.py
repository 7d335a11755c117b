from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.workload import UNKNOWN, Workload

TWO = Workload.of(submit=[0, 5], run=[60, 30], cores=[4, 1], walltime=[100, 90], number=[7, 8])


@pytest.mark.parametrize(
    ("column", "second", "expected"),
    [
        ("submit", math.inf, "submit inf: a finite time"),
        ("run", -1, "run -1.0: at least 0 s and finite"),
        ("run", math.nan, "run nan: at least 0 s and finite"),
        ("run", math.inf, "run inf: at least 0 s and finite"),
        ("units", 0, "units 0: at least 1"),
        ("walltime", 0, "walltime 0.0: above 0 s, or NaN"),
        ("kind", 1, "kind 1: a row of demands"),
        ("kind", -1, "kind -1: a row of demands"),
        ("per_node", -1, "per_node -1: at least 0"),
        ("think", -0.5, "think -0.5: at least 0 s"),
        ("think", math.nan, "think nan: at least 0 s"),
        ("after", 2, "after 2: a row, or -1"),
        ("after", -2, "after -2: a row, or -1"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_with_its_row(column: str, second: float, expected: str) -> None:
    wrong = np.array([getattr(TWO, column)[0], second])
    with pytest.raises(InvalidInput) as caught:
        replace(TWO, **{column: wrong})
    assert str(caught.value) == f"job 8 (row 1) has {expected} expected"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": [1.0]}, r"column 'run' has shape \(1,\): \(2,\) expected"),
        ({"units": [[1], [1]]}, r"column 'units' has shape \(2, 1\): \(2,\) expected"),
        ({"demands": [[1, 0]]}, r"demands of shape \(1, 2\) need one column for each of \('cores',\)"),
        ({"demands": [1]}, r"demands of shape \(1,\) need one column"),
        ({"demands": [[1], [-2]]}, "demands of kind 1 are -2 cores: at least 0 expected"),
        ({"submit": [5.0, 0.0]}, r"job 8 \(row 1\) was submitted before the one above it: sort by submission first"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(TWO, **{name: np.array(values) for name, values in changes.items()})


@pytest.mark.parametrize("submit", [[0, 5], [5, 0]], ids=["sorted", "to be sorted"])
@pytest.mark.parametrize("run", [[1], [1, 2, 3], 1], ids=["short", "long", "a number"])
def test_columns_of_other_lengths_are_refused_whatever_the_order(submit: list[float], run: Any) -> None:
    with pytest.raises(InvalidInput, match=r"column 'run' has shape \(.*\): \(2,\) expected"):
        Workload.of(submit=submit, run=run, cores=[1, 1])


@pytest.mark.parametrize("submit", [[0, 5], [5, 0]], ids=["sorted", "to be sorted"])
@pytest.mark.parametrize("after", [2, -2])
def test_jobs_after_none_of_them_are_refused_whatever_the_order(submit: list[float], after: int) -> None:
    with pytest.raises(InvalidInput, match=rf"has after {after}: a row, or -1 expected"):
        Workload.of(submit=submit, run=[1, 1], cores=[1, 1], after=[UNKNOWN, after])


@pytest.mark.parametrize("sizes", [{}, {"cores": [1], "units": [1]}])
def test_either_cores_or_units_are_needed(sizes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="give a workload either `cores` or `units`"):
        Workload.of(submit=[0], run=[1], **sizes)


def test_sorting_takes_every_column_along() -> None:
    work = Workload.of(
        submit=[9, 3, 3], run=[1, 2, 3], cores=[4, 5, 6], after=[1, UNKNOWN, 0], user=[2, 1, 0], number=[1, 2, 3],
        labels={"user": ("ann", "bob", "cid")},
    )  # fmt: skip
    assert [column.tolist() for column in (work.submit, work.run, work.cores, work.number)] == [
        [3.0, 3.0, 9.0], [2.0, 3.0, 1.0], [5, 6, 4], [2, 3, 1],
    ]  # fmt: skip
    assert work.after.tolist() == [UNKNOWN, 2, 0]
    assert [work.label("user", row) for row in range(3)] == ["bob", "ann", "cid"]


def test_wall_times_may_be_unknown() -> None:
    assert math.isnan(replace(TWO, walltime=np.array([math.nan, 5.0])).walltime[0])


def test_columns_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TWO.run[0] = 7.0
