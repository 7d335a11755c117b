"""How a simulated machine behaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from asa.core.errors import InvalidInput, UnknownName
from asa.core.ports import JobPredictor, Placement
from asa.lab.core.registry import PLACEMENTS, PRIORITIES
from asa.lab.simulator.priority import Fifo, Multifactor


@dataclass(frozen=True)
class Settings:
    """How a simulated machine behaves.

    Parameters
    ----------
    placement
        On which nodes jobs run: ``"first-fit"``, ``"best-fit"``, ``"contiguous"``, or a `Placement`.
    priority
        The order of the queue: ``"fifo"``, ``"multifactor"`` with options as in
        ``"multifactor:age=1000,regime=limits"``, or such an object.
    predictor
        How long the dispatcher takes jobs to run: ``"user"`` (their wall times), ``"oracle"`` (their run times),
        ``"last-two"``, ``"heuristic"``, or a `JobPredictor`.
    overrun
        What becomes of a job whose run time is longer than its wall time: ``"clip"`` ends it there, ``"allow"`` lets it
        run.
    node_failure
        What becomes of the jobs of a node that fails: ``"requeue"`` or ``"fail"``.
    instant
        When events of one instant are decided on: ``"together"``, after all of them; or ``"one-by-one"``: expected ends
        first, then each submission, then each early end, with a decision after every one. The second is what pyss does,
        whose scheduler is called by each event and knows of the others only what it expects.
    keep_nodes
        Whether to write down where jobs ran.

    Raises
    ------
    InvalidInput
        When a name is not known.
    """

    placement: Any = "first-fit"
    priority: Any = "fifo"
    predictor: Any = "user"
    overrun: str = "clip"
    node_failure: str = "requeue"
    instant: str = "together"
    keep_nodes: bool = True

    def __post_init__(self) -> None:
        for name, known in (
            ("overrun", ("clip", "allow")),
            ("node_failure", ("requeue", "fail")),
            ("instant", ("together", "one-by-one")),
        ):
            if getattr(self, name) not in known:
                raise UnknownName(name, getattr(self, name), known)
        if not isinstance(self.model, Fifo | Multifactor):
            raise InvalidInput(f"priority must be fifo or multifactor, not {self.priority!r}")

    @cached_property
    def model(self) -> Fifo | Multifactor:
        """The order of the queue."""
        model: Fifo | Multifactor = PRIORITIES.create(self.priority)
        return model

    @cached_property
    def method(self) -> Placement:
        """How nodes are chosen."""
        method: Placement = PLACEMENTS.create(self.placement)
        return method

    @property
    def native(self) -> int | None:
        """Code of the compiled placement, or None for one of Python's."""
        return getattr(self.method, "native", None)

    @cached_property
    def learner(self) -> JobPredictor | None:
        """What predicts run times as jobs come and go, or None where that is settled from the start."""
        if self.predictor in ("user", "oracle"):
            return None
        from asa.lab.core.registry import PREDICTORS

        learner: JobPredictor = PREDICTORS.create(self.predictor)
        return learner
