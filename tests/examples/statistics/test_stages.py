import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6)


def by_hand(example, path, chunks, out):
    """Run all stages in this process."""
    stages = example.stages
    summaries = [stages.summarise(chunk, chunks, path, out) for chunk in range(chunks)]
    columns = stages.combine(summaries)
    return stages.finish(columns, [stages.refine(summary, columns) for summary in summaries], out)


@given(values=st.lists(finite, min_size=1))
def test_bins_are_in_the_order_of_the_values(example, values):
    bins = example.stages.bin_of(np.sort(np.array(values)))
    assert (np.diff(bins) >= 0).all()


def test_bins_are_narrow_and_zero_has_one(example):
    bin_of = example.stages.bin_of
    assert bin_of(np.array([0.0, -0.0])).tolist() == [0, 0]
    assert len(np.unique(bin_of(np.linspace(1, 2, 100_000, endpoint=False)))) == 4096
    assert len(np.unique(bin_of(np.linspace(-2, -1, 100_000, endpoint=False)))) in (4096, 4097)


@given(parts=st.lists(st.lists(st.integers(-5, 5)), min_size=1))
def test_tallies_add_up(example, parts):
    tallies = [np.unique(np.array(part, dtype=np.int64), return_counts=True) for part in parts]
    keys, counts = example.stages.add_up(tallies)
    expected = np.unique(np.array([value for part in parts for value in part], dtype=np.int64), return_counts=True)
    np.testing.assert_array_equal(keys, expected[0])
    np.testing.assert_array_equal(counts, expected[1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(moderate | st.integers(0, 3) | st.just("?"), min_size=1, max_size=30), chunks=st.integers(1, 5))
def test_all_stages_give_the_figures_of_the_whole(example, write, tmp_path, values, chunks):
    figures = by_hand(example, write(values), chunks, tmp_path)["statistics"]["Voltage"]
    numbers = np.array([float(value) for value in values if value != "?"])
    assert figures["count"] == len(numbers)
    assert figures["missing"] == len(values) - len(numbers)
    if len(numbers) > 1:
        size = np.abs(numbers).max()
        assert figures["mean"] == pytest.approx(numbers.mean(), rel=1e-12, abs=1e-12 * size)
        assert figures["variance"] == pytest.approx(numbers.var(ddof=1), rel=1e-9, abs=1e-12 * size**2)
        assert figures["standard deviation"] == math.sqrt(figures["variance"])
    if len(numbers):
        assert (figures["minimum"], figures["maximum"]) == (numbers.min(), numbers.max())
        assert figures["median"] == figures["50%"] == np.quantile(numbers, 0.5)
        for share in example.stages.QUANTILES:
            assert figures[f"{share:.0%}"] == np.quantile(numbers, share)


def test_no_value_at_all_and_only_one(example, write, tmp_path):
    nothing = by_hand(example, write(["?", "?"]), 2, tmp_path)["statistics"]["Voltage"]
    assert (nothing.pop("count"), nothing.pop("missing")) == (0, 2)
    assert all(math.isnan(value) for value in nothing.values())
    one = by_hand(example, write([5.5]), 2, tmp_path)["statistics"]["Voltage"]
    assert (one["count"], one["mean"], one["95%"], one["maximum"]) == (1, 5.5, 5.5, 5.5)
    assert math.isnan(one["variance"])


def test_the_second_pass_looks_at_few_values(example, tmp_path):
    """Else it would be no better than sorting everything in one place."""
    example.make_data.make_data(tmp_path / "power.txt", 20_000)
    summary = example.stages.summarise(0, 1, tmp_path / "power.txt", tmp_path)
    columns = example.stages.combine([summary])
    voltage = example.stages.refine(summary, columns)[2]
    assert sum(voltage.values[1]) < 0.1 * columns[2].count


def test_the_table_has_what_is_returned(example, write, tmp_path):
    made = by_hand(example, write([1.0, 2.5, "?", 4.0]), 1, tmp_path)
    assert example.check.read_table(made["table"]) == made["statistics"]
    assert list(made["statistics"]) == list(example.power.COLUMNS)
