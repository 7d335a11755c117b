"""What the page shows, as data: tables of rows by key. Of two such documents, what has changed between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Mapping[str, Any]]
"""Table -> key -> row, all of it JSON-able."""

Change = dict[str, dict[str, Any]]
"""Table -> ``put``, rows that are new or other than before, and ``drop``, keys of those that are gone."""


def difference(before: Document, after: Document) -> Change:
    """What makes `after` of `before`; empty where nothing has changed.

    >>> difference({"jobs": {"a": 1, "b": 2}}, {"jobs": {"b": 3}})
    {'jobs': {'put': {'b': 3}, 'drop': ['a']}}
    """
    found: Change = {}
    for table in {**before, **after}:
        old, new = before.get(table, {}), after.get(table, {})
        put = {key: row for key, row in new.items() if key not in old or old[key] != row}
        drop = [key for key in old if key not in new]
        if put or drop:
            found[table] = ({"put": put} if put else {}) | ({"drop": drop} if drop else {})
    return found


def plain(value: float | None, digits: int = 3) -> float | None:
    """A number that JSON has, rounded; None for one that it has not.

    >>> plain(1.23456), plain(float("inf")), plain(None)
    (1.235, None, None)
    """
    return None if value is None or not math.isfinite(value) else round(value, digits)
