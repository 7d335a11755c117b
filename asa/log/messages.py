"""Messages for people, printed while a program runs."""

from __future__ import annotations

import sys


def notify(line: str) -> None:
    """Print a line on standard error, at once."""
    print(f"asa: {line}", file=sys.stderr, flush=True)
