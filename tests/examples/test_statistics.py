"""The statistics example."""

import copy
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asa


@pytest.fixture(scope="session")
def example(load_example):
    return load_example("statistics", "power", "stages", "make_data", "check", "workflow")


@pytest.fixture
def write(example, tmp_path):
    """Call it to write rows of values, the same in all columns or one for each, in the format of the data."""

    def write(rows, end="\n"):
        lines = [example.power.HEAD]
        for number, row in enumerate(rows):
            fields = row if isinstance(row, list) else [row] * len(example.power.COLUMNS)
            lines.append(";".join(["16/12/2006", f"00:00:{number:02d}", *(str(field) for field in fields)]))
        path = tmp_path / "power.txt"
        path.write_bytes((end.join(lines) + end).encode())
        return path

    return write


NOTHING = ["?", "?", "?", "?", "?", "?", ""]  # as the original has it


def test_missing_values(example, write):
    values = example.power.read(write([1.5, NOTHING, ["", "", "", 1, "?", 2, 3], 2]))
    nan = np.nan
    expected = [[1.5] * 7, [nan] * 7, [nan, nan, nan, 1, nan, 2, 3], [2] * 7]
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [3.25, NOTHING], ids=["number", "nothing"])
@pytest.mark.parametrize("complete", [True, False])
def test_any_number_of_chunks_has_every_line_once(example, write, end, last, complete):
    path = write([1.0, NOTHING, 22.125, last], end)
    if not complete:
        path.write_bytes(path.read_bytes().removesuffix(end.encode()))
    whole = example.power.read(path)
    assert whole.shape == (4, 7)
    size = path.stat().st_size
    for chunks in (*range(1, 20), size, size + 1):  # with as many chunks as bytes, every line begins a chunk
        parts = [example.power.read(path, chunk, chunks) for chunk in range(chunks)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_file_with_nothing_but_its_head(example, write):
    assert example.power.read(write([])).shape == (0, 7)


def test_another_head_is_refused(example, tmp_path):
    (tmp_path / "other.csv").write_text("datetime,Voltage\n")
    with pytest.raises(ValueError, match=r"other.csv begins with 'datetime,Voltage': expected 'Date;Time;"):
        example.power.read(tmp_path / "other.csv")


@pytest.mark.parametrize("row", [[1, 2, 3], [1, 2, 3, 4, 5, 6, "7 W"]], ids=["short", "text"])
def test_a_bad_line_is_refused_with_its_place(example, write, row):
    path = write([1.0, row])
    with pytest.raises(ValueError, match=r"power.txt, in the bytes 122 to \d+: "):
        example.power.read(path)


def test_the_same_arguments_give_the_same_bytes_and_fewer_minutes_the_beginning(example, tmp_path):
    texts = {}
    for name, minutes, seed in (("one", 3000, 1), ("two", 3000, 1), ("fewer", 2000, 1), ("other", 3000, 2)):
        example.make_data.make_data(tmp_path / name, minutes, seed)
        texts[name] = (tmp_path / name).read_text()
    assert texts["one"] == texts["two"] != texts["other"]
    assert texts["one"].startswith(texts["fewer"])
    assert texts["one"].count("\n") == 3001


def test_the_beginning_looks_like_the_original(example, tmp_path):
    example.make_data.make_data(tmp_path / "power.txt", 1000)
    head, first, *_, last = (tmp_path / "power.txt").read_text().splitlines()
    assert head == example.power.HEAD
    assert first.startswith("16/12/2006;17:24:00;")
    assert last.startswith("17/12/2006;10:03:00;")
    assert all(len(field.split(".")[1]) == 3 for field in first.split(";")[2:])


def test_a_plausible_household(example, tmp_path):
    example.make_data.make_data(tmp_path / "power.txt", 60 * 1440)
    values = example.power.read(tmp_path / "power.txt")
    missing = np.isnan(values)
    assert 0.005 < missing.mean() < 0.02
    assert (missing.all(axis=1) == missing.any(axis=1)).all()
    active, reactive, voltage, intensity, *meters = values[~missing.any(axis=1)].T
    assert active.min() > 0 and active.max() < 12
    assert reactive.min() >= 0
    assert voltage.min() > 225 and voltage.max() < 255
    np.testing.assert_allclose(intensity, 1000 * active / voltage, atol=0.11)
    assert (1000 * active / 60 > sum(meters) - 0.02).all()  # the meters count a part of it [Wh a minute]
    assert all(len(np.unique(meter)) > 2 for meter in meters)


def test_too_few_minutes(example, tmp_path):
    with pytest.raises(ValueError, match="minutes must be at least 1, not 0"):
        example.make_data.make_data(tmp_path / "power.txt", 0)


def test_command_line(run_script, tmp_path):
    assert run_script("statistics/make_data.py", "--minutes", 5, "--out", "new/power.txt").stdout == (
        "5 minutes in new/power.txt\n"
    )
    assert len((tmp_path / "new" / "power.txt").read_text().splitlines()) == 6
    assert "at least 1" in run_script("statistics/make_data.py", "--minutes", 0, "--out", "power.txt").stderr


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


@pytest.fixture
def standard(example, tmp_path, monkeypatch):
    """The workflow for the standard file, made in a folder of this test's own."""
    monkeypatch.chdir(tmp_path)
    return example.workflow.workflow()


def run(node, tmp_path, **options):
    return asa.run(node, **{"backend": "local:cores=2", "state": tmp_path / "state", **options}).result()


def check_against_pandas(statistics, path):
    frame = pd.read_csv(path, sep=";", na_values="?").iloc[:, 2:]
    assert list(statistics) == list(frame)
    for name, figures in statistics.items():
        column = frame[name]
        exact = {"count": column.count(), "missing": column.isna().sum(), "median": column.median()}
        exact |= {"minimum": column.min(), "maximum": column.max()}
        exact |= {f"{share:.0%}": column.quantile(share) for share in (0.05, 0.25, 0.5, 0.75, 0.95)}
        rounded = {"mean": column.mean(), "variance": column.var(), "standard deviation": column.std()}
        assert figures == exact | {key: pytest.approx(value, rel=1e-12) for key, value in rounded.items()}


@pytest.mark.slow
def test_two_parallel_and_two_sequential_stages_intertwined(standard):
    graph = asa.make_graph(standard)
    assert {name: graph.width(name) for name in graph.nodes} == {
        "summarise": 8,
        "combine": 1,
        "refine": 8,
        "finish": 1,
    }
    assert {name: set(before) for name, before in graph.predecessors.items()} == {
        "summarise": set(),
        "combine": {"summarise"},
        "refine": {"summarise", "combine"},
        "finish": {"combine", "refine"},
    }
    assert [node.stage.needs.resources.cores for node in graph.nodes.values()] == [2, 1, 2, 1]


@pytest.mark.slow
def test_the_standard_file_gives_the_golden_figures_and_those_of_pandas(example, standard, tmp_path):
    made = run(standard, tmp_path)
    golden = json.loads((example.folder / "golden.json").read_text())
    assert example.check.problems(made["statistics"], golden) == []
    check_against_pandas(made["statistics"], tmp_path / "statistics-data" / "power.txt")


@pytest.mark.slow
@pytest.mark.shared
def test_real_measurements(example, shared_data, tmp_path):
    data = shared_data / "power" / "household_power_consumption_first40963min.txt.gz"
    node = example.workflow.build(data, tmp_path / "out", chunks=3)
    assert next(iter(asa.make_graph(node).nodes)) == "unpack"
    made = run(node, tmp_path, strategy="per-stage")
    assert made["statistics"]["Voltage"]["missing"] == 4
    check_against_pandas(made["statistics"], data)


@pytest.mark.slow
def test_more_chunks_than_lines(example, write, tmp_path):
    made = run(example.workflow.build(write([1.0, 2.0, 4.0]), tmp_path / "out", chunks=300), tmp_path)
    assert made["statistics"]["Voltage"]["count"] == 3
    assert made["statistics"]["Voltage"]["median"] == 2.0


@pytest.mark.slow
def test_bad_arguments_are_refused_before_anything_runs(example, write, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.txt"):
        example.workflow.build(tmp_path / "nowhere.txt", tmp_path)
    with pytest.raises(ValueError, match="chunks must be at least 1, not 0"):
        example.workflow.build(write([]), tmp_path, chunks=0)


@pytest.mark.slow
def test_from_the_command_line_in_another_folder(run_script, write, tmp_path):
    write([1.0, "?", 3.0])
    done = run_script("statistics/workflow.py", "--data", "power.txt", "--out", "out", "--chunks", 2)
    *columns, table = done.stdout.splitlines()
    assert columns[2].startswith("Voltage: count 2, missing 1, mean 2, median 2, "), done.stderr
    assert table == f"table: {tmp_path}/out/statistics.csv"
    checked = run_script("statistics/check.py", "out/statistics.csv", "power.txt")
    assert checked.stdout == "7 columns as expected\n"
