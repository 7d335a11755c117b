"""Trainings, from the plan to a model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'learn'")
pytest.importorskip("gymnasium", reason="needs the extra 'learn'")
pytest.importorskip("safetensors", reason="needs the extra 'learn'")

from asa.cli.main import main
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import DecimaPg, DrasDql, DrasPg, read_model
from asa.lab.dras_paper.figures import EpisodePoint
from asa.lab.dras_paper.training import BEST, CURVE, KINDS, PHASES, STATE, TrainingPlan, read_curve, system, train
from asa.lab.simulator.run import simulate
from asa.lab.traces.resample import weeks
from asa.lab.traces.swf import log_of, write_swf
from tests.lab.dras_paper.workloads import MACHINE, NODES, busy

SMALL = TrainingPlan(window=4, hidden=(8, 4), jobs=30, sampled=1, synthetic=1)
LOG, VALIDATION = busy(120), busy(40, 9)


def told(curve) -> list[EpisodePoint]:
    """But for the time that it took."""
    return [replace(point, cpu_s=0.0) for point in curve]


@pytest.mark.parametrize("kind", list(KINDS))
def test_phases_and_models(kind: str, tmp_path) -> None:
    found = train(replace(SMALL, kind=kind), LOG, VALIDATION, MACHINE, output=tmp_path)
    assert [point.phase for point in found.curve] == ["sampled", *["real"] * len(weeks(LOG)), "synthetic"]
    assert [point.jobs for point in found.curve if point.phase != "real"] == [30, 30]
    dispatcher = {"pg": DrasPg, "dql": DrasDql, "decima": DecimaPg}[kind](found.model)
    assert np.isfinite(simulate(VALIDATION, MACHINE, dispatcher).start).all()
    for point in found.curve:
        assert read_model(tmp_path / f"episode-{point.episode:03d}.safetensors").shape.nodes == NODES
    best = tmp_path / f"episode-{found.best.episode:03d}.safetensors"
    assert best.read_bytes() == (tmp_path / BEST).read_bytes()
    assert found.best.validation_reward == max(point.validation_reward for point in found.curve)
    assert told(read_curve(tmp_path)[1]) == told(found.curve)


def test_the_curve_tells_what_the_model_does(tmp_path) -> None:
    """The waits of an episode are those that the simulator finds for the model of that episode."""
    found = train(SMALL, LOG, VALIDATION, MACHINE, output=tmp_path)
    for point in found.curve:
        model = str(tmp_path / f"episode-{point.episode:03d}.safetensors")
        assert simulate(VALIDATION, MACHINE, DrasPg(model)).wait.mean() == pytest.approx(point.mean_wait_s)


@pytest.mark.parametrize("kind", ["pg", pytest.param("dql", marks=pytest.mark.slow)])
def test_a_seed_gives_a_curve_however_often_it_is_stopped(kind: str, tmp_path) -> None:
    plan = replace(SMALL, kind=kind)
    whole = train(plan, LOG, VALIDATION, MACHINE)
    for episodes in (1, 2, 0):
        parts = train(replace(plan, episodes=episodes), LOG, VALIDATION, MACHINE, output=tmp_path, snapshots=False)
    assert told(parts.curve) == told(whole.curve)
    assert all(np.array_equal(parts.model.tensors[name], whole.model.tensors[name]) for name in whole.model.tensors)
    other = train(replace(plan, seed=1), LOG, VALIDATION, MACHINE)
    assert told(other.curve) != told(whole.curve)
    assert not list(tmp_path.glob("episode-*")) and not list(tmp_path.glob("*.new"))


def test_an_order_changes_the_order_and_nothing_else() -> None:
    sets = {jobset.phase: jobset.jobs for jobset in SMALL.jobsets(LOG)}
    turned = [(each.phase, each.jobs) for each in replace(SMALL, order=PHASES[::-1]).jobsets(LOG)]
    assert [phase for phase, _ in turned] == list(PHASES[::-1])
    for phase, jobs in turned:
        assert jobs.submit.tolist() == sets[phase].submit.tolist()


@pytest.mark.parametrize(("name", "nodes", "parameters"), [("theta", 4360, 21_890_053), ("cori", 12_076, 161_960_053)])
def test_a_system_has_the_network_and_the_reward_of_the_paper(name: str, nodes: int, parameters: int) -> None:
    found = system(name)
    assert TrainingPlan(hidden=found.hidden).shape(nodes).parameters == parameters
    assert found.objective == {"theta": "capability", "cori": "capacity"}[name]
    with pytest.raises(UnknownName, match="system 'summit'"):
        system("summit")


def test_a_plan_comes_back_from_json() -> None:
    plan = replace(SMALL, kind="dql", objective="capability:wait=1,size=0")
    assert TrainingPlan.of(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(InvalidInput, match="no plan of a training"):
        TrainingPlan.of({"kind": "pg"})


def test_what_is_refused(tmp_path) -> None:
    train(replace(SMALL, episodes=1), LOG, VALIDATION, MACHINE, output=tmp_path)
    with pytest.raises(InvalidInput, match=r"a training with rate 0.001, not 0.1"):
        train(replace(SMALL, rate=0.1), LOG, VALIDATION, MACHINE, output=tmp_path)
    (tmp_path / STATE).write_bytes(b"nothing to unpickle")
    with pytest.raises(InvalidInput, match="Expected the state of a training"):
        train(SMALL, LOG, VALIDATION, MACHINE, output=tmp_path)
    (tmp_path / CURVE).write_text("[]")
    with pytest.raises(InvalidInput, match="asa train dras wrote"):
        read_curve(tmp_path)
    with pytest.raises(InvalidInput, match="no set of jobs"):
        train(replace(SMALL, order=()), LOG, VALIDATION, MACHINE)
    for wrong, what in (({"kind": "pgg"}, "kind of dispatcher"), ({"order": ("reel",)}, "phase"),
                        ({"objective": "capability:waits=1"}, "weight"), ({"scaling": "no"}, "scaling")):  # fmt: skip
        with pytest.raises(UnknownName, match=what):
            replace(SMALL, **wrong)
    for numbers in ({"rate": 0.0}, {"jobs": 0}, {"episodes": -1}, {"window": 0}, {"discount": 1.5}):
        with pytest.raises(InvalidInput, match="at least 1"):
            replace(SMALL, **numbers)
    without = Workload.of(submit=[0, 9], run=[5, 5], cores=[2, 2])
    with pytest.raises(InvalidInput, match="no requested time"):
        train(SMALL, without, VALIDATION, MACHINE)


@pytest.fixture
def trace(tmp_path) -> str:
    """Ten days of a log."""
    jobs = busy(600, 4)
    jobs = Workload.of(submit=jobs.submit * 3, run=jobs.run, cores=jobs.cores, walltime=jobs.walltime)
    path = tmp_path / "small.swf"
    write_swf(log_of(simulate(jobs, MACHINE, "easy")), path)
    return str(path)


OPTIONS = ["--hidden", "8,4", "--window", "4", "--jobs", "30", "--sampled", "1", "--synthetic", "1", "--quiet"]


@pytest.mark.slow
def test_the_command(trace, tmp_path, capsys) -> None:
    out, curve, picture = tmp_path / "m", tmp_path / "m.json", tmp_path / "m.png"
    words = ["train", "dras", "--trace", trace, "--system", "cori", "--kind", "dql"]
    words += ["--to-day", "5", "--validate", "5-8", "--output"]
    assert main([*words, str(out), *OPTIONS, "--json", str(curve), "--plot", str(picture)]) == 0
    text = capsys.readouterr().out
    assert f"--dispatcher dras-dql:model={out}/{BEST}" in text
    made = json.loads(curve.read_text())
    assert (made["plan"]["kind"], made["plan"]["objective"]) == ("dql", "capacity")
    assert [point["phase"] for point in made["curve"]] == list(PHASES)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    spec = f"dras-dql:model={out}/{BEST}"
    assert main(["simulate", trace, "--dispatcher", spec, "--from-day", "8", "--quiet", "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["jobs_ran"] == row["jobs"] > 20


def test_what_the_command_refuses(trace, tmp_path, capsys) -> None:
    words = ["train", "dras", "--trace", trace, "--output", str(tmp_path / "m"), *OPTIONS]
    assert main([*words, "--to-day", "6", "--validate", "5-8"]) == 1
    assert "do not overlap" in capsys.readouterr().err
    assert main([*words, "--to-day", "5", "--validate", "50-80"]) == 1
    assert "no job was submitted" in capsys.readouterr().err
    for wrong, says in ((["--order", "reel"], "phase"), (["--system", "summit"], "unknown system 'summit'")):
        assert main([*words, "--validate", "5-8", *wrong]) == 2
        assert says in capsys.readouterr().err
    for wrong in (["--validate", "8-5"], ["--validate", "5-8", "--hidden", "8"]):
        with pytest.raises(SystemExit):
            main([*words, *wrong])
