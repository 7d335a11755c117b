"""Experts that want to know what became of their votes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from asa.core.ports import Expert
from asa.core.sharing import JobStates


@runtime_checkable
class LearningExpert(Expert, Protocol):
    """An expert that learns; `vote` changes nothing."""

    def learn(self, states: JobStates, action: int, loss: float) -> None:
        """Jobs in these states gave the action of this number, and lost `loss` in [0, 1] each."""

    def state(self) -> dict[str, Any]:
        """All that was learned, as JSON-able values."""

    def restore(self, state: Mapping[str, Any]) -> None: ...
