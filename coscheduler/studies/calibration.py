"""What was measured of jobs that share cores, and the constants that follow, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from asa.core.command import table
from coscheduler.contention import PAPER_LIKE
from coscheduler.studies.fit import LEAST_TAX, Alone, Fit, Pair

_AT_THE_EDGE = 2e-3


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, and what follows from it.

    Parameters
    ----------
    date
        In ISO 8601.
    cores, model
        Of the machine: processors that may be used, and their kind.
    applications
        Each alone.
    pairs, fit
        See `coscheduler.studies.fit`.
    """

    date: str
    cores: int
    model: str
    applications: tuple[Alone, ...]
    pairs: tuple[Pair, ...]
    fit: Fit

    def to_json(self) -> dict[str, Any]:
        """All of it, JSON-able; ``thrash`` is null where it was not measured."""
        return {
            "date": self.date,
            "machine": {"cores": self.cores, "model": self.model},
            "applications": [asdict(each) for each in self.applications],
            "pairs": [_pair(pair, foreseen) for pair, foreseen in self._predicted()],
            "tax": self.fit.tax,
            "thrash": self.fit.thrash,
            "error": self.fit.error,
        }

    def text(self) -> str:
        """The tables, for people."""
        alone = table([_alone_row(each) for each in self.applications], "")
        pairs = table([_pair_row(pair, foreseen) for pair, foreseen in self._predicted()], "")
        return "\n\n".join(
            [
                f"Alone, on {self.cores} processors ({self.model})\n{alone}",
                f"In pairs: slowdowns as measured, and as predicted with the constants below\n{pairs}",
                self._constants(),
            ]
        )

    def _predicted(self) -> Iterator[tuple[Pair, tuple[float, float]]]:
        return zip(self.pairs, self.fit.predicted, strict=True)

    def _constants(self) -> str:
        tax, thrash = self.fit.tax, self.fit.thrash
        at_the_edge = min(tax - LEAST_TAX, 1 - tax) < _AT_THE_EDGE
        edge = f", at the edge of what was looked at ({LEAST_TAX:g} to 1): do not trust it" if at_the_edge else ""
        missing = (
            f"not measured, for no pair wanted more memory than there is: paper-like's {PAPER_LIKE.thrash:g} stays"
        )
        return (
            f"tax: {tax:.4f}{edge}\n"
            f"thrash: {missing if thrash is None else f'{thrash:.4f}'}\n"
            f"error: {self.fit.error:.4f} (root mean square, of the logarithms of slowdowns)"
        )


def _pair(pair: Pair, foreseen: tuple[float, float]) -> dict[str, Any]:
    found = asdict(pair) | {"host": pair.host.application, "guest": pair.guest.application}
    found |= {"host_slowdown": pair.slowdowns[0], "guest_slowdown": pair.slowdowns[1]}
    return found | {"predicted_host_slowdown": foreseen[0], "predicted_guest_slowdown": foreseen[1]}


def _alone_row(alone: Alone) -> dict[str, Any]:
    return {
        "application": alone.application,
        "job": alone.job,
        "cores": alone.cores,
        "run time [s]": alone.run_time_s,
        "CPU [%]": round(100 * alone.cpu),
        "parallel [%]": round(100 * alone.parallel),
        "memory [%]": round(100 * alone.memory),
    }


def _pair_row(pair: Pair, foreseen: tuple[float, float]) -> dict[str, Any]:
    return {
        "host": pair.host.application,
        "guest": pair.guest.application,
        "share": pair.share,
        "as": "quota" if pair.hard else "weight",
        "host slower": round(pair.slowdowns[0], 3),
        "predicted": round(foreseen[0], 3),
        "guest slower": round(pair.slowdowns[1], 3),
        "as predicted": round(foreseen[1], 3),
        "CPU of the host [%]": round(100 * pair.host_cpu),
        "of the guest [%]": round(100 * pair.guest_cpu),
    }
