"""What learning needs that not everybody has installed."""

from __future__ import annotations

import importlib.util

from asa.core.errors import InvalidInput


def need(*libraries: str) -> None:
    """Refuse to go on without these libraries, before anything begins.

    Raises
    ------
    InvalidInput
        When one is not installed; says how to install it.
    """
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"{name} is not installed: pip install 'asa-hpc[learn]'")
