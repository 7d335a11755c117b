"""Why a decision was made, written down only when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any


class Reason(Mapping[str, Any]):
    """A record that is made when it is first looked at: most decisions nobody asks about.

    >>> dict(Reason(lambda: {"harm": 0.1}))
    {'harm': 0.1}
    >>> Reason(lambda: {"harm": 0.1})
    {'harm': 0.1}
    """

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make

    @cached_property
    def _record(self) -> dict[str, Any]:
        return self._make()

    def __getitem__(self, name: str) -> Any:
        return self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)

    def __repr__(self) -> str:
        return repr(self._record)
