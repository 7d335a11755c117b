from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("safetensors", reason="needs the extra 'learn'")

from safetensors.numpy import save_file

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.dispatchers.learned.model import SHIPPED, SLOPE, Model, Shape, read_model
from asa.lab.dispatchers.learned.observation import one_by_one

CORI = (10_000, 4_000)


def at_random(shape: Shape, seed: int = 0) -> Model:
    draw = np.random.default_rng(seed)
    return Model(shape, {name: draw.normal(size=size).astype(np.float32) for name, size in shape.tensors.items()})


def test_the_paper_s_numbers_of_parameters() -> None:
    """Table III; on Cori it prints 161,764,004 for DRAS-DQL, which its own input does not give."""
    assert Shape("pg", 4360).parameters == 21_890_053
    assert Shape("dql", 4360).parameters == 21_449_004
    assert Shape("pg", 12_076, hidden=CORI).parameters == 161_960_053
    assert Shape("dql", 12_076, hidden=CORI).parameters == 160_784_004


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_scores_by_the_definition(kind: str) -> None:
    """One unit after the other, one job after the other."""
    shape = Shape(kind, nodes=4, window=3, hidden=(5, 2))
    model, seen = at_random(shape), np.random.default_rng(1).normal(size=(10, 2)).astype(np.float32)
    t, leaky = model.tensors, lambda x: x if x > 0 else SLOPE * x
    expected = []
    for rows in [seen] if kind == "pg" else one_by_one(seen, 3):
        values = [t["filter.weight"][0] @ row + t["filter.bias"][0] for row in rows]
        for layer in ("first", "second"):
            values = [leaky(weights @ np.array(values)) for weights in t[f"{layer}.weight"]]
        expected += [t["output.weight"][k] @ np.array(values) + t["output.bias"][k] for k in range(shape.jobs)]
    assert model.scores(seen) == pytest.approx(np.array(expected), rel=1e-4)


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_a_file_gives_the_model_back(kind: str, tmp_path) -> None:
    model = at_random(Shape(kind, nodes=4, window=3, hidden=(5, 2), scaling="shares", levels=kind == "dql"))
    model.save(tmp_path / "m")
    found = read_model(tmp_path / "m")
    assert found.shape == model.shape and found.tensors.keys() == model.tensors.keys()
    assert all(np.array_equal(found.tensors[name], model.tensors[name]) for name in model.tensors)
    model.save(tmp_path / "again")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "again").read_bytes()


def test_what_is_refused(tmp_path) -> None:
    path, good = tmp_path / "m", at_random(Shape("pg", nodes=4, window=3, hidden=(5, 2)))
    with pytest.raises(InvalidInput, match=r"m: .*Expected a model of DRAS"):
        read_model(path)
    path.write_bytes(b"\x80\x04nothing to unpickle")
    with pytest.raises(InvalidInput, match="Expected a model of DRAS"):
        read_model(path)
    save_file(dict(good.tensors), path)
    with pytest.raises(InvalidInput, match="Expected a model of DRAS"):
        read_model(path)
    about = {"kind": "pg", "nodes": 5, "window": 3, "hidden": [5, 2], "scaling": "raw", "levels": True}
    save_file(dict(good.tensors), path, metadata={"asa": json.dumps(about)})
    with pytest.raises(InvalidInput, match=r"first.weight: \(5, 10\); shape \(5, 11\) expected"):
        read_model(path)
    with pytest.raises(InvalidInput, match="no such tensor"):
        Model(good.shape, {})
    with pytest.raises(UnknownName, match="pg"):
        Shape("pgg", 4)
    with pytest.raises(UnknownName, match="raw"):
        Shape("pg", 4, scaling="no")
    with pytest.raises(InvalidInput, match="at least 1"):
        Shape("pg", 0)


@pytest.mark.parametrize("kind", ["pg", "dql"])
def test_the_models_that_ship_are_what_their_curves_tell_of(kind: str) -> None:
    found, about = read_model(f"theta-{kind}"), json.loads((SHIPPED / f"theta-{kind}.json").read_text())
    plan = about["plan"]
    assert found.shape == Shape(kind, 4392, plan["window"], tuple(plan["hidden"]), plan["scaling"])
    assert about["best"] == max(about["curve"], key=lambda point: point["validation_reward"])["episode"]
    assert all(np.isfinite(values).all() for values in found.tensors.values())
    assert f"--seed {plan['seed']}" in about["command"] and plan["objective"] in about["command"]


def test_a_file_of_the_same_name_is_meant_first(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    at_random(Shape("pg", nodes=4, window=3, hidden=(5, 2))).save("theta-pg")
    assert read_model("theta-pg").shape.nodes == 4
