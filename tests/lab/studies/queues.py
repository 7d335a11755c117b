"""A site small enough to be simulated in no time, busy enough that jobs wait."""

from __future__ import annotations

from asa.lab.studies.scene import Queue
from asa.lab.traces.mixture import JobClass
from asa.lab.traces.site import Site


def small_site(priority: str = "fifo", load: float = 0.8) -> Site:
    classes = (
        JobClass(0.7, (1, 2, 4), (3600.0, 7200.0), (0.0, 0.3, 0.7, 1.0), (1, 3)),
        JobClass(0.3, (8, 16), (3600.0, 10800.0), (0.1, 0.4, 0.8, 1.0)),
    )
    return Site("small", nodes=4, cores_per_node=16, load=load, classes=classes, priority=priority)


def small_queue(seed: int = 0, regime: str | None = None, **options: float) -> Queue:
    given = {"warmup": 2.0, "days": 4.0, "learning": 1.0, "every_s": 3600.0} | options
    return Queue(small_site(), regime, seed, **given)
