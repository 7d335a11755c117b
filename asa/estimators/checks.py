"""Checks of what estimators are given: waits, options, and states read back from disk."""

from __future__ import annotations

import base64
import binascii
import functools
import math
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

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


def pack(array: npt.NDArray[Any], dtype: str) -> str:
    """The array's values as `dtype`, in base64.

    Examples
    --------
    >>> pack(np.array([1.0, 2.0]), "<f2")
    'ADwAQA=='
    """
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode("ascii")


def read_packed(state: Mapping[str, Any], key: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """The array of this shape that `pack` wrote under `key`, as float64.

    Raises
    ------
    InvalidInput
        If the key is absent, its value is no packed array, or one of another size.

    Examples
    --------
    >>> read_packed({"waits": "ADwAQA=="}, "waits", "<f2", (2,))
    array([1., 2.])
    """
    text = read(state, key)
    try:
        values = np.frombuffer(base64.b64decode(text, validate=True), dtype=dtype)
        return values.reshape(shape).astype(np.float64)
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidInput(f"state[{key!r}] is no packed array of the shape {shape}: {error}") from error


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


class Stream:
    """Uniform random numbers that remember only their seed and how many were drawn.

    PCG64 can skip ahead, and one number costs it one step, so these two integers restore the stream exactly:
    a state that any JSON reader keeps, where the generator's own has integers of 128 bits.

    Parameters
    ----------
    seed
        0 or more.
    key
        Streams of one seed and different keys are independent.
    draws
        Numbers to skip, 0 or more.

    Raises
    ------
    InvalidInput
        If the seed or the number of draws is no integer of 0 or more.

    Examples
    --------
    >>> stream = Stream(seed=7, key=0)
    >>> numbers = stream.draw(3)
    >>> stream.state()
    {'seed': 7, 'draws': 3}
    >>> Stream.resume({"seed": 7, "draws": 2}, key=0).draw(1) == numbers[2:]
    True
    """

    def __init__(self, *, seed: int, key: int, draws: int = 0) -> None:
        self._seed = check_count(seed, "seed")
        self._draws = check_count(draws, "draws")
        bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(key,)))
        self._generator = np.random.Generator(bits.advance(draws))

    @classmethod
    def resume(cls, state: Mapping[str, Any], *, key: int) -> Self:
        """Return the stream that continues where the one that wrote `state` stopped.

        Raises
        ------
        InvalidInput
            If the seed or the number of draws is absent or no integer of 0 or more.
        """
        return cls(seed=read(state, "seed"), key=key, draws=read(state, "draws"))

    def draw(self, count: int) -> list[float]:
        """Return the next `count` numbers, in [0, 1)."""
        self._draws += count
        numbers: list[float] = self._generator.random(count).tolist()
        return numbers

    def state(self) -> dict[str, int]:
        """Return the seed and the number of draws."""
        return {"seed": self._seed, "draws": self._draws}
