"""Files of the laboratory: JSON, and trained networks.

References
----------
https://github.com/huggingface/safetensors: a length (8 bytes, little-endian), a JSON header of that length, and the
tensors.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.errors import InvalidInput, cause
from asa.lab.core.workload import Reals

# -- JSON files, as they are or packed with gzip ----------------------------------------------------------------------

_GZIP = b"\x1f\x8b"


def read_json(path: Path, expected: str) -> Any:
    """What a file has; `expected` says what should have been in one that cannot be read."""
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data[:2] == _GZIP else data)
    except (OSError, EOFError, ValueError) as error:
        raise InvalidInput(f"{path}: {cause(error)}. Expected a JSON file with {expected}") from error


# -- Trained networks as safetensors files ----------------------------------------------------------------------------

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file raises that is no such file; the caller knows what was expected in its place."""

_ABOUT = "asa"


def read_tensors(path: str | Path) -> tuple[dict[str, Reals], dict[str, Any]]:
    """Tensors of float32, and the metadata that `write_tensors` was given.

    Read here, so that using a network needs no library for it. Raises one of `UNREADABLE` when it is no such
    file.
    """
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    about: dict[str, Any] = json.loads(header.pop("__metadata__")[_ABOUT])
    return {name: _values(data[8 + size :], entry) for name, entry in header.items()}, about


def _values(data: bytes, entry: Mapping[str, Any]) -> Reals:
    if entry["dtype"] != "F32":
        raise ValueError(f"dtype {entry['dtype']}: F32 expected")
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"]).astype(np.float32)


def write_tensors(path: str | Path, tensors: Mapping[str, npt.NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Write such a file; `about` must be JSON-able. The same tensors make the same file.

    Raises
    ------
    InvalidInput
        When the library for these files is not installed.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError:
        raise InvalidInput("safetensors is not installed: pip install 'asa-hpc[learn]'") from None
    contiguous = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    save_file(contiguous, path, metadata={_ABOUT: json.dumps(dict(about))})  # one entry, for their order is random
