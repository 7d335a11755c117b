from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.lab.dispatchers.learned.compact import MODEL
from asa.lab.dispatchers.learned.compact_network import COLUMNS, PARAMETERS, SHAPES, Network, read_network
from tests.lab.dispatchers.learned.compact_networks import by_column, drawn


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1 + count, COLUMNS)).astype(np.float32)


@given(st.integers(1, 40), st.integers(0, 99))
def test_the_order_of_the_jobs_does_not_matter(count: int, seed: int) -> None:
    seen, network = rows(count, seed), drawn(seed)
    order = np.random.default_rng(seed).permutation(count)
    shuffled = np.concatenate([seen[:1], seen[1:][order]])
    assert network.scores(shuffled) == pytest.approx(network.scores(seen)[order], rel=1e-4, abs=1e-4)


def test_other_jobs_matter() -> None:
    seen, network = rows(5, 1), drawn(1)
    assert not np.allclose(network.scores(seen)[:3], network.scores(seen[:4]), atol=1e-3)


def test_a_network_by_hand() -> None:
    seen = np.clip(rows(6, 3), -2, 2)
    assert by_column(3, -1.0).scores(seen) == pytest.approx(-2 - seen[1:, 3])


def test_it_is_small() -> None:
    assert 10_000 <= PARAMETERS <= 300_000
    assert MODEL.stat().st_size < 1_000_000


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="needs the extra 'learn'")
    from safetensors.numpy import load_file

    path, network = tmp_path / "m.safetensors", drawn(7)
    Network(network.tensors, {"seed": 7}).save(path)
    found = read_network(path)
    assert found.about == {"seed": 7} and set(found.tensors) == set(load_file(path)) == set(SHAPES)
    for name, values in load_file(path).items():
        assert np.array_equal(values, network.tensors[name]) and np.array_equal(values, found.tensors[name])


def file(path: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    about = {"asa": json.dumps({"kind": "compact"})}
    cases = {
        "FileNotFoundError": lambda: None,
        "KeyError": lambda: file(path, {}),
        "a model of another dispatcher": lambda: file(path, {"__metadata__": {"asa": json.dumps({"kind": "pg"})}}),
        "first.weight: no such tensor": lambda: file(path, {"__metadata__": about}),
        "F32 expected": lambda: file(path, {"__metadata__": about, "x": {"dtype": "I8", "data_offsets": [0, 1]}}),
        "JSONDecodeError": lambda: path.write_bytes(b"\x02" + bytes(7) + b"{]"),
        "`asa train compact`": lambda: path.write_bytes(b"\xff" * 20),
    }
    for says, make in cases.items():
        make()
        with pytest.raises(InvalidInput, match=says):
            read_network(path)


def test_wrong_tensors_are_refused() -> None:
    tensors = dict(drawn(0).tensors)
    with pytest.raises(InvalidInput, match=r"score\.bias: \(2,\); shape \(1,\) expected"):
        Network(tensors | {"score.bias": np.zeros(2, np.float32)})
    with pytest.raises(InvalidInput, match=r"score\.bias: finite numbers expected"):
        Network(tensors | {"score.bias": np.full(1, np.nan, np.float32)})
