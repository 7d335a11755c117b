"""``asa figure tjap-...``: figures and tables of the topology-aware allocation paper, and its closed loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.core.workload import Workload
from asa.lab.studies.figure import Figure, read_rows
from asa.lab.studies.tjap_case import epochs, moved, workload
from asa.lab.studies.tjap_loop import LoopRow, in_windows, loop, row, run
from asa.lab.studies.tjap_picture import draw_change, draw_figure_6, draw_gain
from asa.lab.studies.tjap_tables import STEPS, gain_table, loop_table, pair, table_6, windows_table
from asa.lab.studies.tjap_windows import DRIVER, WindowsRow, on_windows
from asa.lab.training.windows import GEOMETRIES, recorded

SEQ = "nwp:method=seq"
FORESIGHTED = (
    "nwp:method=together,fade=120,leaf=0.1,pod=0.015",
    "nwp:method=together,fade=100,leaf=0.08,pod=0.003",
)
"""With what was found by evolution strategies on other epochs of the authors' workload: one for each geometry."""
LOOP = (
    SEQ,
    "nwp:method=sa,as_published=yes",
    "nwp:method=sa",
    "nwp:method=scas",
    "nwp:method=dcas-alns,iterations=1000",
    "nwp:method=free,iterations=300",
    "nwp:method=free,iterations=100,leaf=0.07,pod=0.007",
    *FORESIGHTED,
)
TABLE_3 = (
    "seq",
    "sa:as_published=yes,iterations=500",
    "sa:as_published=yes,iterations=1000",
    "sa:iterations=500",
    "nsa",
)
TABLE_4 = ("seq", "scas", "nsa", "dcas-alns", "free")
LENGTHS = (10, 20, 30, 40, 50, 60)
"""Windows of figure 6 [s]."""
EPOCHS, JOBS = 10, 300
"""Epochs, and jobs of one in figure 6."""


def tjap_loop(
    *,
    source: str | None = None,
    trace: str | None = None,
    dispatchers: Sequence[str] = LOOP,
    epochs_shown: int = EPOCHS,
    overestimate: float = 1.0,
    seed: int = 0,
) -> Figure:
    """Each dispatcher on clusters of its own, in both geometries, against the first one.

    Parameters
    ----------
    source
        What this figure wrote with ``--json``; its rows are shown, and nothing is run.
    trace
        The authors' workload; None for one that is made up in the same way.
    dispatchers
        Specs; the first one is what the others are compared with.
    epochs_shown
        How many epochs, from the workload's begin.
    overestimate
        Requested times are up to so many times the run times, each equally likely; 1: they are the run times. >= 1.
    seed
        Of the workload, and of what is overestimated.
    """
    if source is not None:
        return Figure(read_rows(source, LoopRow), loop_table, draw_change)
    if not overestimate >= 1:
        raise InvalidInput(f"run times overestimated {overestimate:g} times: at least 1 expected")
    jobs = workload(trace, seed=seed)
    factors = np.random.default_rng(seed).uniform(1.0, overestimate, len(jobs))
    chosen = list(epochs(replace(jobs, walltime=jobs.walltime * factors), 0, epochs_shown))
    rows = [each for geometry in GEOMETRIES.values() for each in loop(chosen, dispatchers, geometry)]
    return Figure(rows, loop_table, draw_change)


def tjap_6(
    *,
    source: str | None = None,
    trace: str | None = None,
    method: str = "free:iterations=300",
    epochs_shown: int = EPOCHS,
    seed: int = 0,
) -> Figure:
    """Figure 6: FCFS and EASY backfilling, job by job on the first idle nodes, and windows of 10 to 60 s.

    Parameters
    ----------
    source, trace, epochs_shown, seed
        As of `tjap_loop`.
    method
        What places the jobs of a window, a spec.
    """
    if source is not None:
        return Figure(read_rows(source, LoopRow), table_6, draw_figure_6)
    jobs, geometry = workload(trace, seed=seed), GEOMETRIES["code"]
    nwp = f"nwp:method={method.replace(':', ',')}"
    dispatchers = {"fcfs": "fcfs", "easy": "easy"}
    dispatchers |= {f"nwp {length} s": in_windows(nwp, geometry, length) for length in LENGTHS}
    rows = []
    for epoch in range(epochs_shown):
        here = three_hundred(jobs, epoch)
        for name, spec in dispatchers.items():
            rows.append(row(name, geometry, epoch, run(spec, here, warm=epoch == 0)))
    return Figure(rows, table_6, draw_figure_6)


def three_hundred(jobs: Workload, epoch: int) -> Workload:
    """The jobs of an epoch of figure 6, as the authors' code cuts them; see `asa.lab.studies.tjap_case.epochs`.

    Raises
    ------
    InvalidInput
        When the workload ends before.
    """
    if len(jobs) < (epoch + 1) * JOBS:
        raise InvalidInput(f"the workload has {len(jobs)} jobs: epoch {epoch} takes those up to {(epoch + 1) * JOBS}")
    here = jobs.take(np.arange(epoch * JOBS, (epoch + 1) * JOBS))
    return moved(here, float(here.submit[0]) - 0.5)


def tjap_table3(**options: Any) -> Figure:
    """Table III: simulated annealing and the neural method; takes what `same_windows` takes."""
    return Figure(same_windows(TABLE_3, **options), windows_table, draw_change)


def tjap_table4(**options: Any) -> Figure:
    """Table IV: the proven best of neighbours, which the paper has SCIP find; takes what `same_windows` takes."""
    return Figure(same_windows(TABLE_4, **options), windows_table, draw_change)


def tjap_5(**options: Any) -> Figure:
    """Figure 5: the neural method against plain annealing of twice its iterations; takes what `same_windows` takes.

    The paper has six networks; here it is the one that ships with ASA.
    """
    rows = same_windows([method for steps in STEPS for method in pair(steps)], **options)
    return Figure(rows, gain_table, draw_gain)


def same_windows(
    methods: Sequence[str],
    *,
    source: str | None = None,
    trace: str | None = None,
    epochs_shown: int = EPOCHS,
    seed: int = 0,
) -> list[WindowsRow]:
    """Placement methods on the windows of one cluster, in the geometry of the authors' code; see `tjap_loop`."""
    if source is not None:
        return read_rows(source, WindowsRow)
    geometry = GEOMETRIES["code"]
    jobs = epochs(workload(trace, seed=seed), 0, epochs_shown)
    driver = PLACEMENT_METHODS.create(DRIVER)
    return on_windows((recorded(each, geometry, driver) for each in jobs), methods)
