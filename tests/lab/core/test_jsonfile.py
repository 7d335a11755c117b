from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from asa.core.errors import InvalidInput
from asa.lab.core.jsonfile import read_json


def test_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text('{"a": [1, null]}')
    (tmp_path / "packed").write_bytes(gzip.compress(b'{"a": [1, null]}'))
    assert read_json(tmp_path / "plain", "a") == read_json(tmp_path / "packed", "a") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "No such file or directory"),
        (b"{", "Expecting property name"),
        (b"\xff\xfe\xfd", "codec can't decode"),
        (gzip.compress(b"{}", mtime=0)[:-4], "before the end-of-stream marker"),
        (b"\x1f\x8b nothing of the kind", "[Uu]nknown compression method|Not a gzipped file"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_was_expected(tmp_path: Path, data: bytes | None, says: str) -> None:
    path = tmp_path / "x.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InvalidInput, match=rf"x.json: .*({says}).*Expected a JSON file with 'a'"):
        read_json(path, "'a'")
