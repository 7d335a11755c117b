"""What nodes draw: the model of their power that a site, or a user, declares."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import parse_spec
from asa.core.units import check_number

KWH = 3.6e6
"""A kilowatt-hour [J]."""


@dataclass(frozen=True)
class NodePower:
    """What each of equal nodes draws: `idle_w` with no core busy, `busy_w` with all; between them by busy cores.

    Parameters
    ----------
    idle_w, busy_w
        Power [W]; 0 <= idle_w <= busy_w.
    off_w
        Power of a node that is powered down [W]; in [0, idle_w]. None: nodes stay on.
    off_after_s
        How long a node is idle before it is powered down [s]; >= 0 (Slurm's SuspendTime).

    Raises
    ------
    InvalidInput
        When a value is out of its bounds.

    References
    ----------
    X. Fan, W.-D. Weber and L. A. Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007: power grows
    in proportion to the use of processors.
    """

    idle_w: float
    busy_w: float
    off_w: float | None = None
    off_after_s: float = 0.0

    def __post_init__(self) -> None:
        check_number("idle_w", self.idle_w, 0)
        check_number("busy_w", self.busy_w, self.idle_w)
        check_number("off_after_s", self.off_after_s, 0)
        if self.off_w is not None:
            check_number("off_w", self.off_w, 0)
            if self.off_w > self.idle_w:
                raise InvalidInput(f"off_w={self.off_w:g}: at most the {self.idle_w:g} W of an idle node expected")

    @classmethod
    def of(cls, text: str) -> NodePower:
        """What ``idle_w=90,busy_w=350`` says.

        Raises
        ------
        InvalidInput
            When a value is missing, no number, or out of its bounds.
        UnknownName
            When there is no such value.

        Examples
        --------
        >>> NodePower.of("idle_w=90,busy_w=350,off_w=9,off_after_s=600")
        NodePower(idle_w=90, busy_w=350, off_w=9, off_after_s=600)
        """
        return cls(**_values(text, [item.name for item in fields(cls)]))

    @classmethod
    def of_cores(cls, text: str) -> tuple[NodePower, int]:
        """What ``idle_w=90,busy_w=350,cores=48`` says, with the cores of a node; raises as `of`."""
        given = _values(text, ["idle_w", "busy_w", "cores"])
        cores = given.pop("cores", None)
        check_number("cores", cores, 1, whole=True)
        return cls(**given), cores

    def joules(self, cores: int, held_core_s: float, busy_core_s: float) -> float:
        """Energy of a part of nodes of so many cores [J]: cores that were held, of which some were busy [core-s].

        >>> NodePower(idle_w=100, busy_w=300).joules(cores=10, held_core_s=40.0, busy_core_s=20.0)
        800.0
        """
        return (self.idle_w * held_core_s + (self.busy_w - self.idle_w) * busy_core_s) / cores


def _values(text: str, known: list[str]) -> dict[str, Any]:
    given = parse_spec(f":{text}")[1]
    if unknown := given.keys() - set(known):
        raise UnknownName("value of a node's power", min(unknown), known)
    if not {"idle_w", "busy_w"} <= given.keys():
        raise InvalidInput(f"power {text!r}: idle_w= and busy_w= in watts expected, as in idle_w=90,busy_w=350")
    return given
