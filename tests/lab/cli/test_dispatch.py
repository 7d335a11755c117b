import json

import pytest

from asa.cli.main import main
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import PlannedJob, read_instance

INSTANCE = {
    "cap": [[2], [2]],
    "running": [{"rn": 1, "req": [2], "end": 10, "alloc": [[0, 1]]}],
    "queue": [
        {"id": "long", "rn": 1, "req": [1], "d": 20, "q": 0},
        {"id": "wide", "rn": 2, "req": [2], "d": 5, "q": -3},
        *({"id": f"short{number}", "rn": 1, "req": [1], "d": 8, "q": -1} for number in range(25)),
    ],
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "queue.json"
    path.write_text(json.dumps(INSTANCE))
    return str(path)


@pytest.mark.parametrize("options", [[], ["--dispatcher", "listplan:scheme=non-delay"], ["--time-limit", "50ms"]])
def test_a_plan(path, tmp_path, capsys, options):
    out = tmp_path / "plan.json"
    assert main(["dispatch", path, *options, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["bound"] <= found["objective"] and found["status"] == "feasible"
    assert found["gap"] == pytest.approx(found["objective"] / found["bound"] - 1)
    assert [job["id"] for job in found["jobs"]] == [job["id"] for job in INSTANCE["queue"]]
    assert sum(units for _, units in found["jobs"][1]["nodes"]) == 2
    shown = capsys.readouterr().out
    assert "plan of 27 jobs" in shown and "none is below" in shown and "... and 7 more: --json has all" in shown


def test_nobody_waits(tmp_path, capsys):
    path = tmp_path / "empty.json"
    path.write_text(json.dumps(INSTANCE | {"queue": []}))
    assert main(["dispatch", str(path)]) == 0
    assert "nobody waits" in capsys.readouterr().out


def test_who_makes_no_plans(path, capsys):
    assert main(["dispatch", path, "--dispatcher", "easy"]) == 1
    assert "makes no plans of whole queues: listplan (the default), pcp20, pcp19 or hcp19" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dispatcher", "options", "limit"),
    [
        ("pcp20", [], 10.0),
        ("pcp20:seconds=3", [], 3.0),
        ("pcp20:seconds=3", ["--time-limit", "50ms"], 0.05),
        ("listplan", [], 0.0),
        ("listplan:seconds=3", [], 3.0),
    ],
)
def test_how_long_a_planner_may_search(path, capsys, monkeypatch, dispatcher, options, limit):
    """As long as it is told, or as it takes for itself."""
    nothing = PlannedJob(None, "unknown")
    for planner in ("cp.planner.CpDispatcher", "listplan.ListPlan"):
        monkeypatch.setattr(f"asa.lab.dispatchers.{planner}.solve", lambda self, instance, seconds: nothing)
    assert main(["dispatch", path, "--dispatcher", dispatcher, *options]) == 1
    assert f"has found no plan in {limit:g} s: give it more (--time-limit)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("by", "words"),
    [("cp", "constraints alone have found it"), ("improved", "better than the list"), ("warm start", "the list plan")],
)
def test_who_has_found_it(path, capsys, monkeypatch, by, words):
    plan = ListPlan().solve(read_instance(path), 0.0).plan
    found = PlannedJob(plan, "feasible", notes={"by": by})
    monkeypatch.setattr("asa.lab.dispatchers.cp.planner.CpDispatcher.solve", lambda self, instance, seconds: found)
    assert main(["dispatch", path, "--dispatcher", "hcp19"]) == 0
    assert words in capsys.readouterr().out


def test_a_plan_that_breaks_laws_is_told(path, capsys, monkeypatch):
    monkeypatch.setattr("asa.lab.dispatchers.planning.verify.violations", lambda *_: ["node 0 is asked for 3"])
    assert main(["dispatch", path]) == 1
    assert "the plan breaks laws:\nnode 0 is asked for 3" in capsys.readouterr().err


def test_no_such_file(capsys):
    assert main(["dispatch", "none.json"]) == 1
    assert "none.json" in capsys.readouterr().err
