"""Values of options: text in, a number out, and what is wrong with it told by the command's own usage."""

from __future__ import annotations

import argparse

from asa.core import units
from asa.core.errors import InvalidInput


def positive(text: str) -> int:
    """A whole number above 0."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def duration(text: str) -> float:
    """A duration [s], as `asa.core.units.duration` takes it."""
    try:
        return units.duration(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(str(error)) from error
