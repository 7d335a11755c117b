"""Lets pymesos be imported where the package `http_parser`, which it needs, cannot be built: Python >= 3.11.

::

    pip install --no-deps pymesos==0.3.15 addict six kazoo

    from executors.mesos.compat import enable_pymesos
    enable_pymesos()
    import pymesos
"""

from __future__ import annotations

import importlib.util
import sys
import types


def enable_pymesos() -> bool:
    """Register a stand-in for `http_parser`, for this process, unless the real one is installed.

    Returns
    -------
    bool
        Whether the stand-in is in use. Nothing happens when this is called again.
    """
    present = sys.modules.get(_NAME)
    if present is not None:
        return getattr(present, _MARK, False)
    if importlib.util.find_spec(_NAME) is not None:
        return False
    from executors.mesos.parser import HttpParser

    package, http = types.ModuleType(_NAME, "A stand-in"), types.ModuleType(f"{_NAME}.http", "A stand-in")
    package.__path__ = []  # a package without files
    vars(http)["HttpParser"] = HttpParser
    vars(package).update({"http": http, _MARK: True})
    sys.modules |= {_NAME: package, f"{_NAME}.http": http}
    return True


_NAME, _MARK = "http_parser", "asa_stand_in"
