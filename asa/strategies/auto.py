"""The strategy that chooses by what the site's queue allows."""

from __future__ import annotations

from typing import Any

from asa.strategies.hold import Hold
from asa.strategies.staggered import Staggered


class Auto(Hold):
    """Hold places where the site allows it, stagger requests where it does not.

    Parameters
    ----------
    technique, lead_s, grace_s
        As in `Hold`.
    options
        The others are those of `Staggered`.
    """

    def __init__(self, *, technique: str = "auto", lead_s: float = 0.0, grace_s: float = 300.0, **options: Any) -> None:
        otherwise = Staggered(grace_s=grace_s, **options)
        super().__init__(technique=technique, lead_s=lead_s, grace_s=grace_s, otherwise=otherwise)
