"""Machines and workloads of the CP dispatching paper, or what there is of them.

Its Eurora log was never published; `asa.lab.traces.eurora` makes one up. That of its other machine,
KIT ForHLR II, is public.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.traces.eurora import eurora, eurora_machine
from asa.lab.traces.load import load_trace

THIN, THIN_CORES, FAT, FAT_CORES = 1152, 20, 21, 48
"""KIT ForHLR II, after section 4: nodes of each kind, and their cores. Its log tells neither memory nor GPUs."""


@dataclass(frozen=True)
class Case:
    """What is simulated: its name, what is submitted, and the machine."""

    name: str
    workload: Workload
    cluster: Cluster


def case(trace: str | None = None, *, from_day: float = 0.0, to_day: float = 1.0, seed: int = 0) -> Case:
    """Some days of a log, or of a workload like Eurora's.

    Parameters
    ----------
    trace
        A log. One of a machine of 24,048 cores is taken for KIT ForHLR II's. None: a quarter like Eurora's.
    from_day, to_day
        Jobs submitted in these days, counted in 24 hours from the log's first submission.
    seed
        Of the workload like Eurora's.

    Raises
    ------
    InvalidInput
        When no job is submitted in these days, or the log cannot be read.
    """
    if trace is None:
        found = Case("like Eurora's", eurora(seed=seed), eurora_machine())
    else:
        log, name = load_trace(trace), Path(trace).name
        found = Case(name, log.workload, log.machine())
        if found.cluster.cores == THIN * THIN_CORES + FAT * FAT_CORES:
            found = Case(name, on_nodes(log.workload, THIN_CORES), kit())
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

    >>> made = on_nodes(Workload.of(submit=[0, 1, 2], run=[1, 1, 1], cores=[3, 40, 64]), 20)
    >>> made.units.tolist(), made.cores.tolist()
    ([1, 2, 4], [3, 40, 64])
    """
    units = -(-workload.cores // cores)
    each = -(-workload.cores // units)
    kinds, kind = np.unique(each, return_inverse=True)
    return replace(
        workload, units=units, kind=kind, demands=kinds[:, None], resources=("cores",), per_node=np.zeros_like(units)
    )
