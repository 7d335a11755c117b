"""Waits of probes in a simulated queue, each with what could be seen of the queue when it was submitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.backend.options import Options
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.simulator.engine import Engine
from asa.lab.studies.probes import Kind, watch
from asa.lab.studies.published import SCALES
from asa.lab.studies.queue_seen import QueueLog
from asa.lab.studies.waits_seen import Record, contexts

WALLTIME_S = 3600.0
"""Wall time of the probes [s]."""

_SHARES = (0.01, 0.03, 0.06)


def probed(
    site: Any,
    cores: tuple[int, ...] = (),
    *,
    jobs: int = 2000,
    every_s: float = 600.0,
    warmup: float = 7.0,
    seed: int = 0,
) -> list[Record]:
    """Probes of several sizes, submitted together every few minutes to copies of a machine, which do not disturb it.

    Parameters
    ----------
    site
        A site model: its name, a file that holds one, or a `Site`.
    cores
        Sizes of the probes; the scales of the paper on its systems, otherwise 1 %, 3 % and 6 % of the machine.
    jobs
        How many of each.
    every_s
        Time between them [s].
    warmup
        How long the queue fills first [days].
    seed
        Of other people's jobs.

    Raises
    ------
    InvalidInput
        When there are no probes, there is no such site, or its dispatcher is not a compiled rule.
    """
    if jobs < 1 or not every_s > 0:
        raise InvalidInput(f"jobs={jobs}, every_s={every_s:g}: at least one probe, and time between them, expected")
    options = Options(site=site, seed=seed, warmup=warmup, days=jobs * every_s / DAY + 1.0)
    made = options.scene()
    rule = rule_of(made.dispatcher)
    capacity = made.cluster.cores
    sizes = cores or SCALES.get(made.name.removeprefix("sim-"), tuple(max(1, round(s * capacity)) for s in _SHARES))
    engine = Engine(made.workload, made.cluster, options.settings(made))
    times: Floats = made.start + every_s * np.arange(jobs, dtype=np.float64)
    found = watch(engine, rule, [Kind(size, WALLTIME_S) for size in sizes], times.tolist())
    others = QueueLog.by(engine.schedule(), float(times[-1]))
    records = []
    for kind, probes in found.items():
        wait = np.array([probe.wait_s for probe in probes])
        own = _own(times, wait, kind)
        mine = own.submissions(np.arange(jobs))
        seen = contexts(
            others,
            others.at(times),
            own.cores,
            own.walltime,
            capacity,
            epoch=0.0,
            pending_s=own.oldest(mine).tolist(),
            alike_queued=own.queued(mine).tolist(),
            own_queued=own.queued(mine).tolist(),
            own_backlog_s=(own.backlog(mine) / capacity).tolist(),
            own_cores=own.busy(mine).tolist(),
            plan=True,
        )
        records += [
            Record(kind.cores, context.at, waited, context) for context, waited in zip(seen, wait.tolist(), strict=True)
        ]
    return sorted(records, key=lambda record: (record.submitted, record.size))


def _own(times: Floats, wait: Floats, kind: Kind) -> QueueLog:
    """The probes of one kind as a queue of their own."""
    count: Ints = np.full(len(times), kind.cores, dtype=np.int64)
    start = times + wait
    walltime = np.full(len(times), kind.walltime_s)
    return QueueLog(times, start, start, count, walltime, np.zeros(len(times), dtype=np.int64))
