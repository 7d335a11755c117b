from __future__ import annotations

import pytest

from asa.lab.studies.compare_words import METRICS, in_words
from asa.lab.studies.interval import Estimate


def section(system: str | None, value: float = 1.0) -> dict[str, object]:
    normal = {"workflow": "blast", "strategy": "asa"} | {name: Estimate(value) for name in METRICS}
    return {"system": system, "regime": "fifo", "table1": [], "normalised": [normal], "ratios": {"of sums": {}}}


def test_a_ratio_to_nothing_is_a_dash() -> None:
    assert "nan" not in in_words([section("here", float("nan"))], [], 1)
    assert "+50.0 %" in in_words([section("here", 1.5)], [], 1)


@pytest.mark.parametrize(("systems", "means"), [(["here"], 1), ([None], 0), (["here", "there", None], 2)])
def test_means_are_of_one_system(systems: list[str | None], means: int) -> None:
    text = in_words([section(system) for system in systems], [], 1)
    assert text.count("means of one seed") == means
    assert text.count("normalised averages") == len(systems)
    assert "predictions of" not in text
