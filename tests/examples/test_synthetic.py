"""The synthetic example."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asa


@pytest.fixture(scope="session")
def stages(load_example):
    return load_example("synthetic", "stages").stages


@given(first=st.integers(0, 5000), count=st.integers(0, 5000), rounds=st.integers(0, 10**6))
def test_the_closed_form(stages, first, count, rounds):
    values = [place % 1024 / 1024 + rounds / 4 for place in range(first, first + count)]
    assert stages.expected_sum(first, count, rounds) == math.fsum(values)


@pytest.mark.parametrize("floats", [1, 1023, 1024, 5000])
def test_fill(stages, tmp_path, floats):
    path = stages.fill(floats, tmp_path / "new")
    assert np.fromfile(path).tolist() == [place % 1024 / 1024 for place in range(floats)]


@pytest.mark.parametrize("parts", [1, 3, 7, 5001])
def test_parts_make_up_the_whole(stages, tmp_path, parts):
    path = stages.fill(5000, tmp_path)
    made = [stages.compute(part, parts, 5000, path, rounds=6, seconds=None) for part in range(parts)]
    assert sum(part["count"] for part in made) == 5000
    assert stages.summary(made) == {
        "floats": 5000,
        "operations": 4 * 6 * 5000,
        "sum": stages.expected_sum(0, 5000, 6),
    }


def test_seconds_decide_how_many_rounds(stages, tmp_path):
    path = stages.fill(2000, tmp_path)
    assert stages.compute(0, 2, 2000, path, rounds=5, seconds=0.0)["rounds"] == 0
    made = stages.compute(0, 2, 2000, path, rounds=0, seconds=0.02)
    assert made["rounds"] > 0
    assert made["sum"] == stages.expected_sum(0, 1000, made["rounds"])


def test_wrong_numbers_are_noticed(stages, tmp_path):
    path = stages.fill(2000, tmp_path)
    values = np.fromfile(path)
    values[1500] += 1 / 1024
    values.tofile(path)
    assert stages.compute(0, 2, 2000, path, rounds=3, seconds=None)["rounds"] == 3
    with pytest.raises(ArithmeticError, match=r"numbers 1000 to 2000 of .*floats.bin sum to .* after 3 rounds"):
        stages.compute(1, 2, 2000, path, rounds=3, seconds=None)


def test_a_file_that_is_too_short_is_noticed(stages, tmp_path):
    path = stages.fill(1000, tmp_path)
    with pytest.raises(ArithmeticError, match="is this the file that the first stage wrote"):
        stages.compute(1, 2, 2000, path, rounds=3, seconds=None)


@pytest.fixture(scope="session")
def example(load_example):
    return load_example("synthetic", "stages", "workflow")


def run(node, tmp_path, **options):
    return asa.run(node, **{"backend": "local:cores=2", "state": tmp_path / "state", **options}).result()


def test_a_sequential_stage_and_a_parallel_one(example, tmp_path):
    graph = asa.make_graph(example.workflow.build(tmp_path, floats=10**9, tasks=64, cores=16))
    assert {name: graph.width(name) for name in graph.nodes} == {"fill": 1, "compute": 64}
    assert graph.predecessors == {"fill": (), "compute": ("fill",)}
    fill, compute = (node.stage.needs.resources for node in graph.nodes.values())
    assert (fill.cores, compute.cores) == (1, 16)
    assert fill.memory == 8 * 10**9 + 2 * 2**27
    assert compute.memory == 8 * 10**9 + 17 * 2**27


def test_the_wall_time_has_room_for_the_seconds(example, tmp_path):
    graph = asa.make_graph(example.workflow.build(tmp_path, seconds=100, tasks=9, cores=2))
    assert graph.nodes["compute"].stage.needs.walltime_s > 5 * 100


@pytest.mark.parametrize("strategy", ["big-job", "per-stage"])
def test_as_it_comes_it_gives_the_golden_figures(example, tmp_path, monkeypatch, strategy):
    monkeypatch.chdir(tmp_path)
    parts = run(example.workflow.workflow(), tmp_path, strategy=strategy)
    golden = json.loads((example.workflow.Path(example.folder) / "golden.json").read_text())
    assert example.stages.summary(parts) == golden


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"floats": 0}, "floats must be at least 1, not 0"),
        ({"rounds": -1}, "rounds must be at least 0, not -1"),
        ({"seconds": -1.0}, r"seconds must be at least 0, not -1.0"),
        ({"tasks": 0}, "tasks must be at least 1, not 0"),
        ({"cores": 0}, "cores must be at least 1, not 0"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(example, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        example.workflow.build(tmp_path, **options)


def test_from_the_command_line_in_another_folder(run_script, tmp_path):
    done = run_script("synthetic/workflow.py", "--floats", 1024, "--rounds", 2, "--tasks", 3, "--out", "out")
    assert done.stdout == "floats: 1024\noperations: 8192\nsum: 1023.5\n", done.stderr
    assert (tmp_path / "out" / "floats.bin").stat().st_size == 8192


def test_bad_options_end_it_with_one_line(run_script):
    done = run_script("synthetic/workflow.py", "--floats", 0)
    assert (done.returncode, done.stderr) == (1, "workflow.py: floats must be at least 1, not 0\n")
    assert "not allowed with" in run_script("synthetic/workflow.py", "--rounds", 1, "--seconds", 1).stderr
