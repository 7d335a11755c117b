"""How many tasks of a stage to hand out at once: several when they are short, one when they are long or unknown."""

from __future__ import annotations

_DECAY = 0.98
_MOST = 128


class Pace:
    """Remembers about how long each stage's longest recent tasks ran.

    One long task is enough to hand out singly for a while: a short task that waits behind a long one while another
    worker idles costs more than a message does.

    Examples
    --------
    >>> pace = Pace()
    >>> pace.fit("blur", 0.005)
    1
    >>> pace.learn("blur", 0.001)
    >>> pace.fit("blur", 0.005)
    5
    >>> pace.learn("blur", 2.0)
    >>> pace.fit("blur", 0.005)
    1
    """

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}

    def learn(self, stage: str, seconds: float) -> None:
        """A task of this stage ran for so long [s]."""
        self._longest[stage] = max(seconds, self._longest.get(stage, 0.0) * _DECAY, 1e-6)

    def fit(self, stage: str, seconds: float) -> int:
        """How many of its tasks run in so many `seconds` [s]: between 1 (also when nothing is known) and 128."""
        longest = self._longest.get(stage)
        return 1 if longest is None else max(1, min(_MOST, int(seconds / longest + 1e-9)))
