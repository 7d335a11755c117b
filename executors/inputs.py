"""Arguments that refer to results of other tasks."""

from __future__ import annotations

from typing import Any

from asa.core.task import Input
from executors.wire import Stored, load


def fill(value: Any, inputs: tuple[Stored, ...]) -> Any:
    """`value` with every `Input` in it, at any depth of lists, tuples, sets and dict values, replaced by what it means.

    An input that stands in several places is loaded once: they share one object, as they did where it was made.

    >>> import pickle
    >>> fill(([Input(0)], {"all": Input(0, 2)}), (pickle.dumps(7), pickle.dumps(8)))
    ([7], {'all': [7, 8]})
    """
    loaded: dict[int, Any] = {}

    def value_of(position: int) -> Any:
        if position not in loaded:
            loaded[position] = load(inputs[position])
        return loaded[position]

    def place(item: Any) -> Any:
        kind = type(item)
        if kind is Input:
            if item.count is None:
                return value_of(item.first)
            return [value_of(position) for position in range(item.first, item.first + item.count)]
        if kind in (list, tuple, set, frozenset):
            return kind(map(place, item))
        if kind is dict:
            return {key: place(entry) for key, entry in item.items()}
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return kind(*map(place, item))
        return item

    return place(value)
