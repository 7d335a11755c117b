"""What learning needs that not everybody has installed."""

from __future__ import annotations

import importlib.util

from asa.core.errors import InvalidInput

NEEDED = ("torch", "sb3_contrib", "safetensors")


def check_libraries(names: tuple[str, ...] = NEEDED) -> None:
    """See to it that these can be imported, before anything begins.

    Raises
    ------
    InvalidInput
        When one is not installed; says how to install it.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"{name} is not installed: pip install 'asa-hpc[learn]'")
