"""What `repr` says of an estimator: the options it was made with."""

import functools
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


def printed(cls: _Class) -> _Class:
    """Let `repr` of a class whose options are keyword arguments name those that were given.

    >>> @printed
    ... class Mean:
    ...     def __init__(self, *, window: int = 100, seed: int = 0) -> None: ...
    >>> Mean(), Mean(window=9)
    (Mean(), Mean(window=9))
    """
    made: Any = cls
    make = made.__init__

    @functools.wraps(make)
    def init(self: Any, **options: Any) -> None:
        make(self, **options)
        self._given = options

    def words(self: Any) -> str:
        given = vars(self).get("_given", {})  # none where a class that inherits makes itself
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    made.__init__, made.__repr__ = init, words
    return cls
