from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.tensors import UNREADABLE, read_tensors, write_tensors

TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3).T, "a": np.array([0.5], np.float32)}


def test_what_was_written_is_read_by_us_and_by_the_library(tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.numpy", reason="needs the extra 'learn'").load_file
    path, again = tmp_path / "m", tmp_path / "again"
    write_tensors(path, TENSORS, {"seed": 7, "hidden": [2, 3]})
    write_tensors(again, dict(reversed(TENSORS.items())), {"seed": 7, "hidden": [2, 3]})
    assert path.read_bytes() == again.read_bytes()
    found, about = read_tensors(path)
    assert about == {"seed": 7, "hidden": [2, 3]}
    for read in (found, load_file(path)):
        assert {name: values.tolist() for name, values in read.items()} == {
            name: values.tolist() for name, values in TENSORS.items()
        }


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(InvalidInput, match=r"safetensors is not installed: pip install 'asa-hpc\[learn\]'"):
        write_tensors(tmp_path / "m", TENSORS, {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 20,
        b"\x80\x04nothing to unpickle",
        b"\x02" + bytes(7) + b"{}",
        b"\x02" + bytes(7) + b"[]",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
    ],
)
def test_what_is_no_such_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m"
    with pytest.raises(UNREADABLE):
        read_tensors(path)
    path.write_bytes(data)
    with pytest.raises(UNREADABLE):
        read_tensors(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]},
        {"dtype": "F32", "shape": [2]},
    ],
)
def test_tensors_that_are_not_as_their_header_says(tmp_path: Path, entry: dict[str, object]) -> None:
    text = json.dumps({"__metadata__": {"asa": "{}"}, "x": entry}).encode()
    (tmp_path / "m").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(UNREADABLE):
        read_tensors(tmp_path / "m")
