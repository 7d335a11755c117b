"""What estimators know when runs begin, where they learn from jobs of all sizes together and see the queue."""

from __future__ import annotations

import numpy as np

from asa.core.job import Resources
from asa.core.registry import is_pooled
from asa.lab.studies.accuracy import in_turn
from asa.lab.studies.queue_seen import QueueLog
from asa.lab.studies.scene import Scene
from asa.lab.studies.waits_seen import Record, contexts
from asa.lab.virtual import MemoryWaits


def learned(scene: Scene, estimator: str, seed: int) -> MemoryWaits:
    """What an estimator has learned from the probes that had started when runs begin.

    Estimators that are kept for each geometry learn waits alone (`Scene.learned`); pooled ones learn those of all kinds
    in the order of their starts, with what could be seen of the queue at their submission, which a run tells them too.
    """
    if not is_pooled(estimator):
        return scene.learned(estimator, seed)
    waits = MemoryWaits(estimator, seed)
    if probes := seen(scene):
        pooled = waits.of(Resources(cores=probes[0].size), probes[0].context.walltime_s)
        in_turn(
            probes,
            lambda place: pooled.predict(probes[place].context),
            lambda place, said: pooled.learn(probes[place].wait_s, said, probes[place].context),
            until=scene.engine.now,
        )
    return waits


def seen(scene: Scene) -> list[Record]:
    """The probes of a scene in order of submission, the smallest first.

    Each stands for the first job of another user: none of its own waits or runs.
    """
    queue, capacity = QueueLog.by(scene.engine.schedule(), scene.engine.now), scene.engine.cluster.cores
    found: list[Record] = []
    for kind, probes in scene.probes.items():
        times, none = np.array([probe.submitted for probe in probes]), np.zeros(len(probes))
        known = contexts(
            queue,
            queue.at(times),
            np.full(len(probes), kind.cores),
            np.full(len(probes), kind.walltime_s),
            capacity,
            epoch=0.0,
            plan=True,
            pending_s=none.tolist(),
            own_queued=none.astype(int).tolist(),
            own_backlog_s=none.tolist(),
            own_cores=none.astype(int).tolist(),
        )
        found += [
            Record(kind.cores, probe.submitted, probe.wait_s, context)
            for probe, context in zip(probes, known, strict=True)
        ]
    return sorted(found, key=lambda record: (record.submitted, record.size))
