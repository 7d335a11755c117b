import json

import pytest

import asa


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
