"""Checks of what estimators are given: waits, options, and states read back from disk."""

import math
from collections.abc import Mapping
from typing import Any

from asa.core.errors import InvalidInput


def check_wait(value: float, name: str = "wait_s") -> float:
    """Return the wait `value` [s] as a float.

    Raises
    ------
    InvalidInput
        If it is negative, infinite or not a number.

    Examples
    --------
    >>> check_wait(30)
    30.0
    >>> check_wait(-1.0)
    Traceback (most recent call last):
    ...
    asa.core.errors.InvalidInput: wait_s is -1.0: expected a finite time of 0 s or more
    """
    if not 0 <= value < math.inf:
        raise InvalidInput(f"{name} is {value!r}: expected a finite time of 0 s or more")
    return float(value)


def check_open_share(value: float, name: str) -> float:
    """Return `value`, which must lie strictly between 0 and 1.

    Raises
    ------
    InvalidInput
        If it does not.
    """
    if not 0 < value < 1:
        raise InvalidInput(f"{name} is {value!r}: expected a number between 0 and 1, both excluded")
    return float(value)


def check_positive(value: float, name: str) -> float:
    """Return `value`, which must be finite and above 0.

    Raises
    ------
    InvalidInput
        If it is not.
    """
    if not 0 < value < math.inf:
        raise InvalidInput(f"{name} is {value!r}: expected a finite number above 0")
    return float(value)


def check_count(value: object, name: str, at_least: int = 0) -> int:
    """Return `value`, which must be an integer of `at_least` or more.

    Raises
    ------
    InvalidInput
        If it is not.
    """
    if not isinstance(value, int) or value < at_least:
        raise InvalidInput(f"{name} is {value!r}: expected an integer of {at_least} or more")
    return value


def read(state: Mapping[str, Any], key: str) -> Any:
    """Return `state[key]`.

    Raises
    ------
    InvalidInput
        If the state has no such key: another kind of estimator wrote it.
    """
    if key not in state:
        raise InvalidInput(
            f"the state has no {key!r}, only {sorted(state)}: expected one that this kind of estimator wrote"
        )
    return state[key]


def read_waits(state: Mapping[str, Any], key: str) -> list[float]:
    """Return the waits [s] under `key`.

    Raises
    ------
    InvalidInput
        If the key is absent or one of them is no wait.
    """
    return [check_wait(wait, f"state[{key!r}]") for wait in read(state, key)]


def read_numbers(
    state: Mapping[str, Any], key: str, length: int, *, least: float = -math.inf, most: float = math.inf
) -> list[float]:
    """Return the `length` finite numbers under `key`, each from `least` to `most`.

    Raises
    ------
    InvalidInput
        If the key is absent, the length differs, or one of them is not finite or out of its bounds.
    """
    numbers = [float(number) for number in read(state, key)]
    if len(numbers) != length:
        raise InvalidInput(f"state[{key!r}] has {len(numbers)} numbers: expected {length}")
    if not all(math.isfinite(number) for number in numbers):
        raise InvalidInput(f"state[{key!r}] holds a number that is not finite: {numbers}")
    if not all(least <= number <= most for number in numbers):
        raise InvalidInput(f"state[{key!r}] holds {numbers}: expected numbers from {least:g} to {most:g}")
    return numbers


def check_same_grid(state: Mapping[str, Any], grid: tuple[float, ...]) -> None:
    """Make sure that `state` was learned on `grid`.

    Raises
    ------
    InvalidInput
        If it was learned on another one: weights do not carry over between grids.
    """
    written = tuple(read(state, "grid"))
    if written != grid:
        raise InvalidInput(
            f"the state was learned on a grid of {len(written)} alternatives {written[:3]}..., "
            f"this estimator has {len(grid)} {grid[:3]}...: give it the same grid, or start without a state"
        )
