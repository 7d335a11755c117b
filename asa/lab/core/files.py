"""Files of the laboratory: JSON, and trained networks.

References
----------
https://github.com/huggingface/safetensors: a length (8 bytes, little-endian), a JSON header of that length, and the
tensors.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asa.core.errors import InvalidInput, cause
from asa.lab.core.registry import MODELS
from asa.lab.core.workload import Reals

# -- JSON files, as they are or packed with gzip ----------------------------------------------------------------------

_GZIP = b"\x1f\x8b"
LARGEST = 2**53
"""Numbers of files are smaller than this: from here on, floats are not whole numbers any more."""
_SHOWN = 40  # characters of a number that messages show


def read_json(path: Path, expected: str) -> Any:
    """What a file has; `expected` says what should have been in one that cannot be read.

    Raises
    ------
    InvalidInput
        When it cannot be read, is no JSON, has a key twice, or a number that is not finite, or at least `LARGEST`.
    """
    try:
        data = path.read_bytes()
        return parse_json(gzip.decompress(data) if data[:2] == _GZIP else data)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InvalidInput(f"{path}: {cause(error)}. Expected a JSON file with {expected}") from error


def parse_json(data: bytes | str) -> Any:
    """What JSON says, when every key is there once and every number can be reckoned with.

    Raises
    ------
    ValueError
        When it is none.
    """
    try:
        return json.loads(
            data, parse_constant=_number, parse_float=_number, parse_int=_number, object_pairs_hook=_each_key_once
        )
    except RecursionError:
        raise ValueError("it is nested too deep to be read") from None


def _number(text: str) -> float | int:
    found = float(text)
    if not -LARGEST < found < LARGEST:
        shown = text[:_SHOWN] + "..." * (len(text) > _SHOWN)
        raise ValueError(f"the number {shown}: a finite one below {LARGEST:.1e} expected")
    return int(text) if text.lstrip("-").isdecimal() else found


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {max(keys, key=keys.count)!r} is there twice")
    return found


def check_keys(found: object, known: Collection[str], who: str) -> None:
    """Refuse what is no JSON object, or has an unknown key: it may be a misspelt one.

    Raises
    ------
    InvalidInput
        With the key, and those that are known.
    """
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{who} is {shortened(found)}: a JSON object expected")
    if unknown := [key for key in found if key not in known]:
        raise InvalidInput(f"{who} has {shortened(unknown[0])}: only {', '.join(known)} expected")


def shortened(value: object) -> str:
    """A value of a file as an error message shows it."""
    text = repr(value)
    return text[:_SHOWN] + "..." * (len(text) > _SHOWN)


# -- Trained networks as safetensors files ----------------------------------------------------------------------------

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file raises that is no such file; the caller knows what was expected in its place."""

_ABOUT = "asa"


def read_tensors(path: str | Path) -> tuple[dict[str, Reals], dict[str, Any]]:
    """Tensors of float32, and the metadata that `write_tensors` was given.

    Read here, so that using a network needs no library for it. Where there is no such file, `path` may be a name that
    a distribution has in the group ``asa.models``, such as ``theta-pg`` of `asa-hpc-models`. Such files hold numbers
    only: reading one runs nothing. Raises one of `UNREADABLE` when it is no such file.
    """
    if not Path(path).is_file() and str(path) in MODELS:
        path = MODELS.load(str(path))
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    about: dict[str, Any] = json.loads(header.pop("__metadata__")[_ABOUT])
    return {name: _values(data[8 + size :], entry) for name, entry in header.items()}, about


def no_model(path: str | Path, error: Exception, training: str) -> InvalidInput:
    """What to raise when reading a model raised one of `UNREADABLE`; `training` is the command that writes models."""
    missing = isinstance(error, FileNotFoundError)
    return InvalidInput(
        f"{path}: {'no such file, and no model of this name is installed' if missing else repr(error)}. "
        f"Expected a file that {training} wrote, or a name of the distribution asa-hpc-models "
        "(pip install ./plugins/models)"
    )


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
