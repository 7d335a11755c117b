"""One simulation in a process of its own, for `benchmarks.simulator` to weigh; prints a line of JSON.

    python -m benchmarks.simulator_once log PATH DISPATCHER
    python -m benchmarks.simulator_once synthetic JOBS WORKLOADS
    python -m benchmarks.simulator_once saturated DISPATCHER

Times in it are the processor's, not the wall's: the machine may have other things to do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.metrics.schedule import summarise
from asa.lab.simulator.engine import Engine
from asa.lab.traces.lublin import lublin
from asa.lab.traces.swf import load_swf

CORES, LOAD = 1024, 0.7
"""Of the machine that synthetic jobs run on: its cores, and the offered load."""

WAITING, MORE, WIDE, MOST = 10_000, 2000, 4096, 3000
"""Of the saturated queue: jobs that wait at least, jobs more at first, cores of the machine, decisions looked at."""


def log(path: str, dispatcher: str) -> dict[str, Any]:
    """All jobs of an SWF log, those cancelled before they ran among them, on nodes of one core."""
    trace = load_swf(path, cancelled=True)
    assert trace.cluster is not None
    return simulated([trace.workload], trace.cluster, dispatcher)


def synthetic(jobs: str, workloads: str) -> dict[str, Any]:
    """Workloads of the Lublin-Feitelson model, one after the other, under EASY."""
    made = (lublin(int(jobs), CORES, seed=k, load=LOAD, estimates="uniform:5") for k in range(int(workloads)))
    return simulated(made, Cluster.of(CORES), "easy")


def simulated(workloads: Iterable[Workload], cluster: Cluster, dispatcher: str) -> dict[str, Any]:
    """What `asa simulate` does, with the loops timed."""
    rule: Any = DISPATCHERS.create(dispatcher)
    loop, jobs, waits = 0.0, 0, 0.0
    for workload in workloads:
        engine = Engine(workload, cluster)
        engine.dispatch(rule.native, most=0)  # compiles, or loads what has been compiled
        begun = time.process_time()
        engine.dispatch(rule.native)
        loop += time.process_time() - begun
        summary = summarise(engine.schedule())
        jobs += summary["jobs"]
        waits += summary["jobs"] * summary["mean_wait_s"]
    return {"jobs": jobs, "loop_s": loop, "mean_wait_s": waits / jobs}


def saturated(dispatcher: str) -> dict[str, Any]:
    """Milliseconds of decisions while 10,000 jobs wait at least: they are there at once, others come as jobs end."""
    jobs = lublin(WAITING + 2 * MORE, WIDE, seed=1, estimates="uniform:5")
    pause = float(jobs.run @ jobs.cores) / len(jobs) / WIDE
    submit = np.maximum(0.0, np.arange(len(jobs)) - (WAITING + MORE)) * pause
    engine = Engine(replace(jobs, submit=submit), Cluster.of(WIDE))
    spent = [1000 * seconds for seconds in islice(decisions(engine, DISPATCHERS.create(dispatcher)), MOST)]
    median, most = np.percentile(spent, (50, 99)).tolist()
    return {"decisions": len(spent), "median": median, "99 %": most, "max": max(spent)}


def decisions(engine: Engine, rule: Any) -> Iterator[float]:
    """Seconds of each decision until fewer jobs wait; of a compiled rule with what follows until the next one."""
    compiled = getattr(rule, "native", None) is not None
    if compiled:
        engine.dispatch(rule.native, most=0)
    else:
        rule.decide(engine.advance())
    while engine.state.world[0]["waiting"] >= WAITING:
        begun = time.process_time()
        if compiled:
            engine.dispatch(rule.native, most=1)
            spent = time.process_time() - begun
        else:
            chosen = rule.decide(engine.view())
            spent = time.process_time() - begun
            engine.apply(chosen)
            engine.advance()
        yield spent


if __name__ == "__main__":
    kinds: dict[str, Callable[..., dict[str, Any]]] = {"log": log, "synthetic": synthetic, "saturated": saturated}
    print(json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))
