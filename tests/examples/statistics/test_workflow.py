import json

import pandas as pd
import pytest

import asa

pytestmark = pytest.mark.slow


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


def test_the_standard_file_gives_the_golden_figures_and_those_of_pandas(example, standard, tmp_path):
    made = run(standard, tmp_path)
    golden = json.loads((example.folder / "golden.json").read_text())
    assert example.check.problems(made["statistics"], golden) == []
    check_against_pandas(made["statistics"], tmp_path / "statistics-data" / "power.txt")


@pytest.mark.shared
def test_real_measurements(example, shared_data, tmp_path):
    data = shared_data / "power" / "household_power_consumption_first40963min.txt.gz"
    node = example.workflow.build(data, tmp_path / "out", chunks=3)
    assert next(iter(asa.make_graph(node).nodes)) == "unpack"
    made = run(node, tmp_path, strategy="per-stage")
    assert made["statistics"]["Voltage"]["missing"] == 4
    check_against_pandas(made["statistics"], data)


def test_more_chunks_than_lines(example, write, tmp_path):
    made = run(example.workflow.build(write([1.0, 2.0, 4.0]), tmp_path / "out", chunks=300), tmp_path)
    assert made["statistics"]["Voltage"]["count"] == 3
    assert made["statistics"]["Voltage"]["median"] == 2.0


def test_bad_arguments_are_refused_before_anything_runs(example, write, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nowhere.txt"):
        example.workflow.build(tmp_path / "nowhere.txt", tmp_path)
    with pytest.raises(ValueError, match="chunks must be at least 1, not 0"):
        example.workflow.build(write([]), tmp_path, chunks=0)


def test_from_the_command_line_in_another_folder(run_script, write, tmp_path):
    write([1.0, "?", 3.0])
    done = run_script("statistics/workflow.py", "--data", "power.txt", "--out", "out", "--chunks", 2)
    *columns, table = done.stdout.splitlines()
    assert columns[2].startswith("Voltage: count 2, missing 1, mean 2, median 2, "), done.stderr
    assert table == f"table: {tmp_path}/out/statistics.csv"
    checked = run_script("statistics/check.py", "out/statistics.csv", "power.txt")
    assert checked.stdout == "7 columns as expected\n"
