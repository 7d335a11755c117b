"""Options that strategies share."""

from __future__ import annotations

import inspect
from typing import Any

from asa.core.errors import UnknownName
from asa.core.registry import ESTIMATORS, parse_spec

DEFAULT_ESTIMATOR = "context"
"""What learns the waits where nothing else is asked for."""
PAPER_ESTIMATOR = "fixed-share"
"""What learns the waits for the paper's own strategies, and in the studies that make its figures again."""


def estimator_spec(name: str, options: dict[str, Any]) -> str:
    """The spec of an estimator with these options added to its own.

    Raises
    ------
    UnknownName
        When there is no such estimator, or it has no such option.
    """
    if not options and name in (DEFAULT_ESTIMATOR, PAPER_ESTIMATOR):
        return name  # nothing need be imported yet
    kind, given = parse_spec(name)
    known = inspect.signature(ESTIMATORS.load(kind)).parameters
    options = given | options
    for option in options:
        if option not in known:
            raise UnknownName(f"option of estimator {kind!r}:", option, known)
    listed = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{kind}:{listed}" if listed else kind
