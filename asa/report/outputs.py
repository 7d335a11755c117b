"""Output of commands: files, checked before the results are computed, and a progress bar."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    """Refuse a picture that cannot be drawn; see `check_output`."""
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


def check_outputs(options: argparse.Namespace, *files: str, picture: str = "") -> None:
    """Refuse outputs that cannot be written: better said before than after what may take minutes.

    Parameters
    ----------
    options
        The command's; those looked at are ``--json`` and the ones named here, where they were given.
    files
        Names of options that name a file.
    picture
        Name of the option that names a picture; "" for none.
    """
    for name in ("json", *files):
        target = getattr(options, name)
        if target and (name, target) != ("json", "-"):
            check_output(f"--{name}", target)
    if picture and (target := getattr(options, picture)):
        check_picture(f"--{picture}", target)


@contextmanager
def progress_bar(name: str, *, quiet: bool = False, counts: bool = False) -> Iterator[Callable[..., None] | None]:
    """A bar on standard error, where that is a terminal; None elsewhere.

    It is called with how much is done, and of how much (1): numbers of things where `counts` says so.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    columns = [*Progress.get_default_columns(), *([MofNCompleteColumn()] if counts else [])]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{name}: compiling, the first time", total=None)
        yield lambda done, total=1.0: bar.update(task, description=name, completed=done, total=total)
