"""What commands that take long have in common: outputs are found fit before, and a bar tells how far it is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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

    Raises
    ------
    InvalidInput
        When one cannot be written, or a picture cannot be drawn.
    """
    from asa.report.outputs import check_output, check_picture  # here, for the page of options needs no NumPy

    for name in ("json", *files):
        target = getattr(options, name)
        if target and (name, target) != ("json", "-"):
            check_output(f"--{name}", target)
    if picture and (target := getattr(options, picture)):
        check_picture(f"--{picture}", target)


@contextmanager
def progress_bar(name: str, *, quiet: bool = False, counts: bool = False) -> Iterator[Callable[..., None] | None]:
    """A bar on standard error, where that is a terminal; None elsewhere.

    It is told how much is done, and of how much (1): as many things as these where `counts` says so.
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
