from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import GraphError, InvalidInput
from asa.lab.traces.wfformat import RecordedTask, WorkflowInstance, parse_workflow, read_workflow
from tests.lab.traces.shared import shared_file


def document(**tasks):
    """A document in which each task, given as (run time, parents), runs the program that its name begins with."""
    return {
        "name": "test",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "tasks": [{"id": key, "name": key, "parents": above} for key, (_, above) in tasks.items()]
            },
            "execution": {
                "makespanInSeconds": 9.5,
                "tasks": [
                    {"id": key, "runtimeInSeconds": time, "command": {"program": "/bin/" + key.split("_")[0]}}
                    for key, (time, _) in tasks.items()
                ],
            },
        },
    }


DIAMOND = document(cut_1=(1.0, []), sum_1=(2.0, ["cut_1"]), sum_2=(3.0, ["cut_1"]), cut_2=(4.0, ["sum_1", "sum_2"]))


def test_a_diamond(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(DIAMOND).encode()))
    run = read_workflow(path)
    assert (run.name, run.makespan_s, run.critical_path_s, run.core_seconds) == ("test", 9.5, 8.0, 10.0)
    assert run.tasks[3] == RecordedTask("cut_2", "cut", 4.0, parents=(1, 2))
    assert run.levels.tolist() == [0, 1, 1, 2]
    stages = [(stage.name, stage.level, stage.tasks, stage.after) for stage in run.stages()]
    assert stages == [
        ("cut-1", 0, (0,), ()), ("sum", 1, (1, 2), ("cut-1",)), ("cut-2", 2, (3,), ("sum",)),
    ]  # fmt: skip
    assert repr(run) == "<WorkflowInstance test: 4 tasks on 3 levels>"


def test_an_older_document_whose_tasks_tell_all_themselves():
    tasks = [
        {"name": "fit_ID01", "runtime": 3, "children": ["add_ID02"], "cores": 4, "memoryInBytes": 100},
        {"name": "add_ID02", "runtimeInSeconds": 2.5, "parents": ["fit_ID01"]},
    ]
    run = parse_workflow({"name": "old", "workflow": {"makespanInSeconds": 6, "tasks": tasks}})
    assert run.tasks == (
        RecordedTask("fit_ID01", "fit", 3.0, cores=4, memory=100), RecordedTask("add_ID02", "add", 2.5, parents=(0,)),
    )  # fmt: skip
    assert run.makespan_s == 6


def test_a_script_is_no_category():
    scripted = document(align_7=(1.0, []))
    scripted["workflow"]["execution"]["tasks"][0]["command"]["program"] = "cp a b\nrun b"
    assert parse_workflow(scripted).tasks[0].category == "align"


@st.composite
def instances(draw):
    count = draw(st.integers(0, 9))
    order = draw(st.permutations(range(count)))
    tasks = [RecordedTask("", "", 0.0)] * count
    for place, row in enumerate(order):
        parents = draw(st.sets(st.sampled_from(order[:place]))) if place else ()
        run_time = float(draw(st.integers(0, 9)))
        tasks[row] = RecordedTask(f"t{row}", draw(st.sampled_from("ab")), run_time, parents=tuple(sorted(parents)))
    return WorkflowInstance("drawn", tuple(tasks))


def paths(run, row):
    """All ways to a task, by brute force."""
    above = run.tasks[row].parents
    return [[*way, row] for parent in above for way in paths(run, parent)] if above else [[row]]


@given(instances())
def test_levels_and_the_critical_path_are_those_of_all_paths(run):
    ways = [paths(run, row) for row in range(len(run.tasks))]
    assert run.levels.tolist() == [max(map(len, found)) - 1 for found in ways]
    times = [sum(run.tasks[row].run_time_s for row in way) for found in ways for way in found]
    assert run.critical_path_s == max(times, default=0)
    assert not run.tasks or list(run.critical_path) in [way for found in ways for way in found]


@given(instances())
def test_stages_hold_every_task_once_and_follow_those_they_wait_for(run):
    stages = run.stages()
    assert sorted(row for stage in stages for row in stage.tasks) == list(range(len(run.tasks)))
    of = {row: stage for stage in stages for row in stage.tasks}
    assert len({stage.name for stage in stages}) == len(stages)
    for place, stage in enumerate(stages):
        above = {of[parent].name for row in stage.tasks for parent in run.tasks[row].parents}
        assert set(stage.after) == above <= {before.name for before in stages[:place]}
        assert {(run.tasks[row].category, int(run.levels[row])) for row in stage.tasks} == {
            (run.tasks[stage.tasks[0]].category, stage.level)
        }


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (document(a=(1.0, ["b"]), b=(1.0, ["a"]), c=(1.0, [])), GraphError, "in a circle; 'a' never starts"),
        (document(a=(1.0, ["a"])), GraphError, "in a circle; 'a' never starts"),
        (document(a=(1.0, ["z"])), GraphError, "task 'a' is bound to 'z', which is not there"),
        (document(a=(None, [])), InvalidInput, "task 'a' has no measured run time"),
        (document(a=(-1.0, [])), InvalidInput, "task 'a' ran for -1.0 s"),
        (document(a=(float("nan"), [])), InvalidInput, "task 'a' ran for nan s"),
        (document(a=("long", [])), InvalidInput, "no workflow in WfFormat .*could not convert"),
        ({"workflow": {"specification": {}}}, InvalidInput, "no workflow in WfFormat"),
        ({"processes": []}, InvalidInput, "no workflow in WfFormat .KeyError: 'workflow'"),
        ([1, 2], InvalidInput, "no workflow in WfFormat"),
        ({"workflow": {"tasks": 2 * [{"name": "a", "runtime": 1}]}}, GraphError, "two tasks with the id 'a'"),
    ],
)
def test_documents_that_are_no_workflow(broken, error, message):
    with pytest.raises(error, match=message):
        parse_workflow(broken)


def test_tasks_and_instances_that_are_none(tmp_path):
    with pytest.raises(GraphError, match="'a' of 'x' waits for row 7, which is not there"):
        WorkflowInstance("x", (RecordedTask("a", "a", 1.0, parents=(7,)),))
    with pytest.raises(InvalidInput, match="task 'a' has 0 cores"):
        RecordedTask("a", "a", 1.0, cores=0)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"a.json is no JSON: "):
        read_workflow(tmp_path / "a.json")


@pytest.mark.shared
@pytest.mark.slow
def test_all_real_instances_are_as_their_index_says():
    with open(shared_file("wfinstances", "INDEX.tsv")) as file:
        index = {row["path"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert len(index) == 167
    with tarfile.open(shared_file("wfinstances", "WfInstances-f085867.tar.xz")) as archive:
        for member in archive:
            row = index.pop(member.name.partition("/")[2], None)
            if row is None:
                continue
            run = parse_workflow(json.load(io.BytesIO(archive.extractfile(member).read())), member.name)
            assert len(run.tasks) == int(row["tasks"])
            assert sum(len(task.parents) for task in run.tasks) == int(row["edges"])
            assert sum(task.run_time_s for task in run.tasks) == pytest.approx(float(row["sum_runtime_s"]), abs=0.1)
            assert max(task.run_time_s for task in run.tasks) == pytest.approx(float(row["max_runtime_s"]), abs=0.01)
            assert run.makespan_s == pytest.approx(float(row["makespan_s"]), abs=0.01)
            assert run.critical_path_s <= run.makespan_s, "or the levels were wrong"
    assert not index
