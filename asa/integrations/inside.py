"""What Python runs inside a container, as a program of its own: ASA need not be in the image.

It imports nothing but the standard library, and cloudpickle where the function, or what it returns, asks for that.
"""

from __future__ import annotations

import pickle
import sys
import traceback
from typing import Any


def main(source: str, target: str) -> None:
    """Call what was pickled into one file, and pickle its outcome into another."""
    with open(source, "rb") as file:
        path, call = pickle.load(file)
    sys.path += [entry for entry in path if entry not in sys.path]
    function, args, kwargs = pickle.loads(call)
    try:
        answer = (True, function(*args, **kwargs), "")
    except BaseException as error:
        answer = (False, error, traceback.format_exc())
    with open(target, "wb") as file:
        file.write(_dump(answer))


def _dump(answer: tuple[bool, Any, str]) -> bytes:
    try:
        return pickle.dumps(answer, 5)
    except Exception:  # of the user's own file, perhaps
        import cloudpickle

        data: bytes = cloudpickle.dumps(answer, 5)
        return data


if __name__ == "__main__":
    main(*sys.argv[1:])
