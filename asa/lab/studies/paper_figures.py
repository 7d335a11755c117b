"""``asa figure asa-makespan`` and ``asa-corehours``: the paper's 54 runs, over several seeds, as its figures."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from asa.core.errors import InvalidInput
from asa.core.job import QueueRegime
from asa.lab.studies.compare import compare
from asa.lab.studies.compare_row import Row
from asa.lab.studies.figures_asa import AsaFigure, corehours_figure, makespan_figure
from asa.lab.studies.published import SCALES, STRATEGIES_SHOWN

REGIME = QueueRegime.ACCRUE_ALWAYS.value
"""The paper's strategy gains by job dependencies: it can only have been run where dependent jobs age."""


def asa_makespan(*, seeds: int = 10, seed: int = 0, source: str | None = None) -> AsaFigure:
    """Figures 6 to 8.

    Parameters
    ----------
    seeds, seed
        How many queues of each system, and the first one's seed.
    source
        What ``asa compare --json`` wrote; its rows are drawn, and nothing is run.
    """
    return makespan_figure(_rows(seeds, seed, source))


def asa_corehours(*, seeds: int = 10, seed: int = 0, source: str | None = None) -> AsaFigure:
    """Figure 9; takes what `asa_makespan` takes."""
    return corehours_figure(_rows(seeds, seed, source))


def _rows(seeds: int, seed: int, source: str | None) -> Sequence[Row]:
    if source is not None:
        return read_rows(source)
    processes = len(os.sched_getaffinity(0))
    return compare(
        systems=tuple(SCALES),
        strategies=STRATEGIES_SHOWN,
        regimes=(REGIME,),
        seeds=seeds,
        seed=seed,
        oracle=False,
        processes=processes,
    ).rows


def read_rows(path: str | Path) -> list[Row]:
    """The rows of the first regime in a file that ``asa compare --json`` wrote.

    Raises
    ------
    InvalidInput
        When it cannot be read, or holds none.
    """
    try:
        rows = [Row.from_json(values) for values in json.loads(Path(path).read_text())["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is not what asa compare --json writes: {error}") from error
    if not rows:
        raise InvalidInput(f"{path} has no rows")
    return [row for row in rows if row.regime == rows[0].regime]
