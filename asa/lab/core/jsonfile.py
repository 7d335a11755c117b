"""JSON files, as they are or packed with gzip."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from asa.core.errors import InvalidInput, cause

_GZIP = b"\x1f\x8b"


def read_json(path: Path, expected: str) -> Any:
    """What a file has; `expected` says what should have been in one that cannot be read.

    Raises
    ------
    InvalidInput
        When there is no such file, or it holds no JSON.
    """
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data[:2] == _GZIP else data)
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{path}: {cause(error)}. Expected a JSON file with {expected}") from error
