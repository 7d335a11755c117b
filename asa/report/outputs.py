"""Files that results are written to: whether they can be is found out before the results are made."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from asa.core.errors import InvalidInput

PICTURES = (".png", ".pdf", ".svg")
"""Endings of pictures' names."""


def check_output(what: str, path: str | Path, endings: Sequence[str] = ()) -> None:
    """Refuse a file that cannot be written.

    Parameters
    ----------
    what
        What it is called in the message: an option, such as ``--csv``, or a noun.
    path
        The file; it may exist.
    endings
        Of which its name must have one, in lower case; () for any.

    Raises
    ------
    InvalidInput
        When it cannot be written, saying why.
    """
    path = Path(path)
    if endings and path.suffix.lower() not in endings:
        reason = f"end the name with {', '.join(endings)}"
    elif not path.parent.is_dir():
        reason = f"there is no directory {str(path.parent)!r}: make it first"
    elif path.is_dir():
        reason = "it is a directory: name a file in it"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "you may not write there"
    else:
        return
    raise InvalidInput(f"{what} {str(path)!r} cannot be written: {reason}")


def check_picture(what: str, path: str | Path) -> None:
    """Refuse a picture that cannot be drawn; see `check_output`.

    Raises
    ------
    InvalidInput
        When it cannot be written, or matplotlib is not installed.
    """
    check_output(what, path, PICTURES)
    check_matplotlib()


def check_matplotlib() -> None:
    """Refuse to draw without matplotlib.

    Raises
    ------
    InvalidInput
        When it is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidInput("pictures need matplotlib: pip install 'asa-hpc[plots]'")
