"""Random numbers whose state is two integers."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from asa.estimators.checks import check_count, read


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
