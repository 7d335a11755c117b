import copy

import pytest


@pytest.fixture
def figures(example, write):
    return example.check.whole(write([1.0, 2.5, "?", 4.0]))


def test_figures_of_the_whole(figures):
    voltage = figures["Voltage"]
    assert (voltage["count"], voltage["missing"], voltage["mean"], voltage["median"]) == (3, 1, 2.5, 2.5)
    assert voltage["variance"] == 2.25


@pytest.mark.parametrize(
    ("name", "factor", "found"), [("mean", 1 + 1e-12, 0), ("mean", 1 + 1e-6, 1), ("95%", 1 + 1e-12, 1), ("count", 2, 1)]
)
def test_problems_name_the_figure(example, figures, name, factor, found):
    mine = copy.deepcopy(figures)
    mine["Voltage"][name] *= factor
    problems = example.check.problems(mine, figures)
    assert len(problems) == found
    assert all(problem.startswith(f"{name} of Voltage is ") for problem in problems)


def test_columns_and_figures_that_are_not_there(example, figures):
    mine = copy.deepcopy(figures)
    del mine["Voltage"], mine["Sub_metering_1"]["mean"]
    expected = figures["Sub_metering_1"]["mean"]
    assert example.check.problems(mine, figures) == [
        "column Voltage is in one of them only",
        f"mean of Sub_metering_1 is nan, expected {expected}",
    ]
