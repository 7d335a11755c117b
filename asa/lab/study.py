"""What studies of the papers share: figures, intervals over seeds, timed decisions, and days of a log."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asa.core.arrays import Floats
from asa.core.decision import DispatchDecision
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.traces.eurora import eurora, eurora_machine
from asa.lab.traces.load import load_trace


@dataclass(frozen=True)
class Figure:
    """Rows of a study, and how they are shown."""

    rows: Any
    lines: Callable[[Any], list[dict[str, Any]]]
    picture: Callable[[Any, str | Path], None]

    def draw(self, path: str | Path) -> None:
        self.picture(self.rows, path)

    def to_json(self) -> dict[str, Any]:
        """The rows, JSON-able; a figure can be made from them again."""
        if hasattr(self.rows, "to_json"):
            return dict(self.rows.to_json())
        return {"rows": [row.to_json() if hasattr(row, "to_json") else asdict(row) for row in self.rows]}

    def table(self) -> list[dict[str, Any]]:
        return self.lines(self.rows)


def read_rows(
    path: str | Path, kind: Callable[..., Any], written: str = "asa figure --json writes of this figure"
) -> list[Any]:
    """Rows of this kind in a file that ``asa figure --json`` wrote, or what errors say was `written`.

    Raises
    ------
    InvalidInput
        When it cannot be read, or holds none, or others.
    """
    try:
        rows = [kind(**values) for values in json.loads(Path(path).read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what {written}: {error}") from error
    if not rows:
        raise InvalidInput(f"{path} has no rows")
    return rows


RESAMPLES = 2000
LEVEL = 0.95

Statistic = Callable[[Floats], Floats]
"""From values of shape (..., seeds, n) to a number for each of the first axes, shape (...)."""


@dataclass(frozen=True)
class Estimate:
    """A number found from several seeds, and the confidence interval around it; None where one seed tells nothing.

    >>> print(Estimate(1234.5, 1000.0, 1500.0), Estimate(0.5), Estimate(7.0, 7.0, 7.0))
    1234 [1000, 1500] 0.5 7
    """

    value: float
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """The three numbers; None for what is not a number."""
        found = {"value": self.value, "low": self.low, "high": self.high}
        return {name: value if value is not None and np.isfinite(value) else None for name, value in found.items()}

    def __str__(self) -> str:
        shown = [_short(part) for part in (self.value, self.low, self.high) if part is not None]
        return shown[0] if len(set(shown)) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def estimate(statistic: Statistic, values: Floats, *, seed: int = 0) -> Estimate:
    """A statistic of values, shape (seeds, n), and its interval at the level of `LEVEL`.

    Percentile bootstrap: seeds are drawn anew with replacement `RESAMPLES` times, all that belongs to a seed together,
    so that what was compared in pairs stays paired. With ten seeds it is somewhat too narrow (it covers about 90 %).

    References
    ----------
    B. Efron and R. Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.

    Examples
    --------
    >>> print(estimate(lambda values: values.mean((-2, -1)), np.array([[1.0], [2.0], [3.0], [4.0]])))
    2.5 [1.5, 3.5]
    """
    if values.ndim != 2 or not len(values):
        raise InvalidInput(f"values of shape {values.shape}: one row for each of one or more seeds expected")
    found = float(statistic(values))
    if len(values) == 1 or not np.isfinite(found):
        return Estimate(found)
    rng = np.random.default_rng(seed)
    drawn = statistic(values[rng.integers(len(values), size=(RESAMPLES, len(values)))])
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Estimate(found, low, high)


def reaches(found: Sequence[Estimate]) -> Floats:
    """How far intervals reach below and above their values, shape (2, n); 0 where there is none.

    >>> reaches([Estimate(3.0, 2.0, 5.0), Estimate(4.0)]).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    ends = [(each.value if end is None else end) - each.value for each in found for end in (each.low, each.high)]
    sides: Floats = np.maximum(np.reshape(ends, (-1, 2)).T * [[-1.0], [1.0]], 0.0)
    return sides


def percent(found: Estimate, above: float = 0.0) -> str:
    """A share and its interval in per cent, counted from `above`, as the ASA paper prints them.

    >>> percent(Estimate(1.02, 0.99, 1.05), above=1.0), percent(Estimate(0.5)), percent(Estimate(math.nan))
    ('+2.0 % [-1.0, +5.0]', '+50.0 %', '-')
    """
    if not math.isfinite(found.value):
        return "-"
    value, low, high = (
        None if part is None else f"{100 * (part - above):+.1f}".replace("-0.0", "+0.0")
        for part in (found.value, found.low, found.high)
    )
    return f"{value} %" if low is None or low == value == high else f"{value} % [{low}, {high}]"


def _short(value: float) -> str:
    if np.isnan(value):  # a ratio to nothing
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


Made = TypeVar("Made")


def clocked(call: Callable[..., Made], *given: Any) -> tuple[Made, float, float]:
    """What a call returns, how long it takes [s], and the processor time of all threads meanwhile [s].

    >>> found, seconds, cpu_s = clocked(max, 2, 3)
    >>> found, seconds > 0, cpu_s >= 0
    (3, True, True)
    """
    cpu, began = time.process_time(), time.perf_counter()
    found = call(*given)
    seconds = time.perf_counter() - began
    return found, seconds, time.process_time() - cpu


class DecisionTime(NamedTuple):
    """A decision of a dispatcher."""

    waiting: int
    decided: int
    seconds: float
    cpu_s: float


class TimedDispatcher:
    """A dispatcher whose decisions are timed. Simulators ask it at the same instants as the one inside."""

    def __init__(self, rule: Any) -> None:
        self._rule, self.timings = rule, list[DecisionTime]()
        self.needs_estimates = getattr(rule, "needs_estimates", False)
        self.window = getattr(rule, "window", 0.0)

    def decide(self, view: Any) -> Sequence[DispatchDecision]:
        found: Sequence[DispatchDecision]
        found, seconds, cpu_s = clocked(self._rule.decide, view)
        self.timings.append(DecisionTime(len(view.waiting), len(found), seconds, cpu_s))
        return found


THIN, THIN_CORES, FAT, FAT_CORES = 1152, 20, 21, 48
"""KIT ForHLR II, after section 4: nodes of each kind, and their cores. Its log tells neither memory nor GPUs."""


@dataclass(frozen=True)
class LogCase:
    """What is simulated: its name, what is submitted, and the machine.

    Parameters
    ----------
    epoch
        Time [s since the epoch] at which the workload's clock reads 0; NaN where nothing tells.
    """

    name: str
    workload: Workload
    cluster: Cluster
    epoch: float = math.nan


def log_case(trace: str | None = None, *, from_day: float = 0.0, to_day: float = 1.0, seed: int = 0) -> LogCase:
    """Some days of a log, or of a workload like Eurora's.

    Parameters
    ----------
    trace
        A log. One of a machine of 24,048 cores is taken for KIT ForHLR II's. None: a quarter like Eurora's.
    from_day, to_day
        Jobs submitted in these days, counted in 24 hours from the log's first submission.

    Raises
    ------
    InvalidInput
        When no job is submitted in these days, or the log cannot be read.
    """
    if trace is None:
        found = LogCase("like Eurora's", eurora(seed=seed), eurora_machine())
    else:
        log, name = load_trace(trace), Path(trace).name
        found = LogCase(name, log.workload, log.machine(), log.epoch)
        if found.cluster.cores == THIN * THIN_CORES + FAT * FAT_CORES:
            found = replace(found, workload=on_nodes(log.workload, THIN_CORES), cluster=kit())
    first = float(found.workload.submit[0]) if len(found.workload) else 0.0
    chosen = found.workload.between(first + from_day * DAY, first + to_day * DAY)
    if not len(chosen):
        raise InvalidInput(f"{found.name}: no job is submitted from day {from_day:g} until before day {to_day:g}")
    return replace(found, workload=chosen)


def kit() -> Cluster:
    """KIT ForHLR II: thin nodes, and then fat ones."""
    return Cluster(np.array([[THIN_CORES]] * THIN + [[FAT_CORES]] * FAT))


def on_nodes(workload: Workload, cores: int) -> Workload:
    """Jobs of single cores as jobs of as few units as fit on nodes of so many cores, all alike; none gets smaller.
    All are rigid.

    >>> made = on_nodes(Workload.of(submit=[0, 1, 2], run=[1, 1, 1], cores=[3, 40, 64]), 20)
    >>> made.units.tolist(), made.cores.tolist()
    ([1, 2, 4], [3, 40, 64])
    """
    units = -(-workload.cores // cores)
    each = -(-workload.cores // units)
    kinds, kind = np.unique(each, return_inverse=True)
    return replace(
        workload,
        units=units,
        kind=kind,
        demands=kinds[:, None],
        resources=("cores",),
        per_node=np.zeros_like(units),
        moldable=None,
    )


def need(*libraries: str) -> None:
    """Refuse to go on without these libraries, before anything begins.

    Raises
    ------
    InvalidInput
        When one is not installed; says how to install it.
    """
    for name in libraries:
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"{name} is not installed: pip install 'asa-hpc[learn]'")
