from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.compiled import compiled
from asa.lab.core.registry import MODELS, PLACEMENT_METHODS
from asa.lab.core.workload import Reals
from asa.lab.placement.tjap.instance import Window, cost, grouped, objective, violations
from asa.lab.placement.tjap.nsa import (
    CONVOLUTION,
    LINEAR,
    MODEL,
    NETWORKS,
    TANH,
    Neural,
    network,
    read_network,
    scores,
    squash,
    widest,
)
from asa.lab.placement.tjap.seq import Sequential
from tests.lab.placement.tjap.windows import best_dynamic, windows


def places(window: Window, **options: object) -> list[list[int]]:
    return [mine.tolist() for mine in Neural(iterations=50, **options).place(window).places]


def drawn(seed: int, idle: int = 150, jobs: int = 4, potential: tuple[float, ...] = ()) -> Window:
    draw = np.random.default_rng(seed)
    nodes = draw.choice(400, idle, replace=False)
    return grouped(nodes, draw.integers(2, 30, jobs), below=[10, 40], potential=potential)


@given(windows(), st.integers(0, 3), st.booleans(), st.sampled_from([None, "none"]), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_every_placement_keeps_the_laws_and_costs_at_most_what_it_began_with(window, seed, anywhere, model, tries):
    found = Neural(iterations=20, seed=seed, anywhere=anywhere, model=model, tries=tries).place(window)
    assert violations(window, found) == []
    assert objective(window, found) <= objective(window, Sequential().place(window)) * (1 + 1e-9) + 1e-9


def test_with_a_potential_it_minimises_cost_less_potential():
    many = [(drawn(seed, potential=(0.5, 0.1)), drawn(seed)) for seed in range(10)]
    found = [[Neural(seed=1).place(window) for window in pair] for pair in many]
    objectives = [[objective(window, each) for each in pair] for (window, _), pair in zip(many, found, strict=True)]
    costs = [[cost(plain, each) for each in pair] for (_, plain), pair in zip(many, found, strict=True)]
    assert np.mean(objectives, axis=0)[0] < np.mean(objectives, axis=0)[1]
    assert np.mean(costs, axis=0)[1] < np.mean(costs, axis=0)[0]


def test_a_seed_gives_a_placement():
    window = drawn(5)
    assert places(window, seed=3) == places(window, seed=3) != places(window, seed=4)


def test_it_sees_nodes_from_anywhere_on_only_where_there_are_more_than_it_sees():
    assert places(drawn(6, idle=100)) == places(drawn(6, idle=100), anywhere=False)
    assert places(drawn(6, idle=250)) != places(drawn(6, idle=250), anywhere=False)


def test_as_in_the_paper_no_job_begins_behind_the_nodes_that_are_seen():
    """Before the 100th node that no job holds there are at most three other jobs; the job itself has 30 nodes."""
    window = grouped(np.arange(400), [30, 30, 30, 30], below=[10, 40])
    for seed in range(10):
        found = Neural(iterations=100, anywhere=False, warmest=1e6, seed=seed).place(window)
        assert max(int(mine.max()) for mine in found.places) < 100 + 3 * 30 + 30


def test_the_model_that_ships_is_far_better_than_no_search_and_than_chance():
    many = [drawn(seed) for seed in range(20)]
    seq, chance, found = (
        sum(cost(window, PLACEMENT_METHODS.create(spec).place(window)) for window in many)
        for spec in ("seq", "sa:iterations=50", "nsa:iterations=50,tries=4")
    )
    assert found < 0.98 * chance < seq


def test_small_and_odd_windows():
    assert places(grouped([3], [1], below=[2, 4])) == [[0]]
    assert places(grouped([3, 5], [], below=[2, 4])) == []
    one, two = places(grouped(range(6), [2, 4], below=[6]))
    assert sorted(one + two) == list(range(6))
    larger = grouped(np.arange(90), [80, 5], below=[10, 40])  # than any job that it has learned from
    assert violations(larger, Neural().place(larger)) == []


@given(windows(most_idle=8, most_jobs=3, most_size=4))
@settings(max_examples=40, deadline=None)
def test_in_small_windows_it_finds_what_is_best_of_all_when_it_tries_long(window):
    """All placements that it can reach are those of jobs in some order, or cheaper ones around jobs that left."""
    found = Neural(iterations=3000, model="none", tries=2, removed=3).place(window)
    assert cost(window, found) <= best_dynamic(window) * (1 + 1e-9) + 1e-9


def test_more_tries_cost_less():
    many = [drawn(seed) for seed in range(20)]
    costs = [
        sum(cost(window, Neural(iterations=30, tries=tries, model=model).place(window)) for window in many)
        for model, tries in (("none", 1), ("none", 4), (None, 4))
    ]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize(
    "options", [{"iterations": -1}, {"removed": 0}, {"tries": 0}, {"coldest": 0.0}, {"warmest": 1.0, "coldest": 2.0}]
)
def test_options_out_of_range(options):
    with pytest.raises(InvalidInput, match="iterations"):
        Neural(**options)


def test_it_needs_no_library_for_learning():
    code = (
        "import sys; from asa.lab.core.registry import PLACEMENT_METHODS; PLACEMENT_METHODS.create('nsa');"
        "print(*sorted({'torch', 'gymnasium', 'safetensors', 'stable_baselines3'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_model_is_small():
    assert MODELS.load(MODEL).stat().st_size < 500_000
    assert read_network(MODEL).biggest == 40


PRINTED = {"fcn-1": 36324, "fcn-2": 40484, "fcn-3": 51204, "cnn-1": 71260, "cnn-2": 71504, "cnn-3": 117372}
"""Parameters of the layers that Table II prints, counted by hand."""
PUBLISHED = {"fcn-1": 42724, "fcn-2": 46884, "fcn-3": 60804, "cnn-1": 37248, "cnn-2": 42097, "cnn-3": 54641}
"""What Table II says of how many there are."""


def weights(name: str, seed: int = 0) -> dict[str, Reals]:
    draw, found = np.random.default_rng(seed), {}
    for place, layer in enumerate(NETWORKS[name]):
        if layer.kind != TANH:
            scale = (layer.inputs * layer.width) ** -0.5
            found[f"{place}.weight"] = draw.normal(0, scale, layer.shape).astype(np.float32)
            found[f"{place}.bias"] = draw.normal(0, 0.3, layer.outputs).astype(np.float32)
    return found


def reference(name: str, tensors: dict[str, Reals], state: Reals) -> np.ndarray:
    """The network, layer by layer as printed, in double precision."""
    x = state.astype(np.float64)
    for place, layer in enumerate(NETWORKS[name]):
        weight, bias = tensors.get(f"{place}.weight"), tensors.get(f"{place}.bias")
        if layer.kind == TANH:
            x = np.tanh(x)
        elif layer.kind == LINEAR:
            x = weight.astype(np.float64) @ x.ravel() + bias
        else:
            starts = range(0, x.shape[1] - layer.width + 1, layer.stride)
            pieces = np.stack([x[:, at : at + layer.width] for at in starts])
            x = np.einsum("oik,pik->op", weight.astype(np.float64), pieces) + bias[:, None]
    return x


@pytest.mark.parametrize("name", NETWORKS)
def test_they_have_as_many_parameters_as_printed(name):
    assert sum(layer.parameters for layer in NETWORKS[name] if layer.kind != TANH) == PRINTED[name]
    assert sum(each.size for each in weights(name).values()) == PRINTED[name]


def test_of_a_fifth_attribute_come_the_published_numbers_of_parameters():
    """That of the fully connected ones: 100 inputs more. No such thing is known of the others."""
    for name, published in PUBLISHED.items():
        more = PRINTED[name] + 100 * NETWORKS[name][0].outputs
        assert (more == published) == name.startswith("fcn")


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_fit_one_another(name):
    values, channels, length = 400, 4, 100
    for layer in NETWORKS[name]:
        if layer.kind == CONVOLUTION:
            assert layer.inputs == channels
            channels, length = layer.outputs, (length - layer.width) // layer.stride + 1
            values = channels * length
        elif layer.kind == LINEAR:
            assert layer.inputs == values and values % 4 == 0
            values = layer.outputs
    assert values == 100


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("nodes", [0, 1, 37, 100])
def test_it_says_what_its_layers_say(name, nodes):
    state, draw = np.zeros((4, 100), np.float32), np.random.default_rng(nodes)
    state[:2, :nodes], state[2:, :nodes] = draw.random((2, nodes)), draw.random((2, 1))
    tensors = weights(name, nodes)
    found = scores(network(name, tensors, "paper", 40), state, nodes)
    assert found == pytest.approx(reference(name, tensors, state), abs=1e-4)
    assert widest(network(name, tensors, "paper", 40)) >= 400


@compiled
def squashed(values: Reals) -> Reals:
    return np.array([squash(value) for value in values], np.float32)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1))
def test_tanh(values):
    found = squashed(np.array(values, np.float32))
    assert found == pytest.approx(np.tanh(np.array(values)), abs=8e-6)
    assert (np.abs(found) <= 1).all()


def saved(path: Path, tensors: dict[str, Reals], about: dict[str, object]) -> Path:
    """A safetensors file, written by hand."""
    header: dict[str, object] = {"__metadata__": {"asa": json.dumps(about)}}
    data = b""
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


ABOUT = {"network": "fcn-1", "state": "steps", "biggest": 40}


def test_files(tmp_path):
    tensors, state = weights("fcn-1"), np.ones((4, 100), np.float32)
    found = read_network(saved(tmp_path / "m", tensors, ABOUT))
    assert found.steps and found.biggest == 40
    assert scores(found, state, 100) == pytest.approx(reference("fcn-1", tensors, state), abs=1e-4)


@pytest.mark.parametrize(
    ("about", "what"),
    [
        ({"network": "fcn-9"}, "fcn-9"),
        ({"network": "cnn-1"}, "0.weight"),
        ({"state": "x"}, "'x'"),
        ({"biggest": "?"}, "?"),
    ],
)
def test_files_that_hold_something_else(tmp_path, about, what):
    path = saved(tmp_path / "m", weights("fcn-1"), ABOUT | about)
    with pytest.raises(InvalidInput, match=f"(?s){path}.*asa train nsa") as caught:
        read_network(path)
    assert what in str(caught.value)


def test_files_that_are_no_models(tmp_path):
    whole = saved(tmp_path / "m", weights("fcn-1"), ABOUT).read_bytes()
    for content in (b"", b"no model", whole[:5000], whole[:-4]):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(InvalidInput, match="asa train nsa"):
            read_network(tmp_path / "m")
    with pytest.raises(InvalidInput, match="asa train nsa"):
        read_network(tmp_path / "none")


def test_without_its_distribution_the_default_model_is_said_to_be_missing(monkeypatch):
    monkeypatch.setattr("asa.lab.core.files.MODELS", {})
    with pytest.raises(InvalidInput) as caught:
        PLACEMENT_METHODS.create("nsa")
    assert str(caught.value) == (
        "nsa: no such file, and no model of this name is installed. Expected a file that asa train nsa wrote, "
        "or a name of the distribution asa-hpc-models (pip install ./plugins/models)"
    )


def test_what_is_missing_is_named():
    tensors = weights("fcn-1")
    del tensors["2.bias"]
    with pytest.raises(InvalidInput, match=r"2\.bias: no such tensor; shape \(64,\) expected"):
        network("fcn-1", tensors, "paper", 40)
    with pytest.raises(UnknownName, match="fcn-1"):
        network("fcn-0", tensors, "paper", 40)
    with pytest.raises(UnknownName, match="paper"):
        network("fcn-1", weights("fcn-1"), "papers", 40)
