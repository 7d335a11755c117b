"""How well waits in the simulated queues of two sites are foretold, with feedback as late as it comes, as tables.

    python -m benchmarks.forecast --seeds 4

Probes of three sizes are submitted every half hour; after three days of learning, they count. `planned` is the batch
system's own expectation, `requested` a forecast in which jobs use all of their wall times, `run times known` one that
knows how long every job will run, but not which jobs will come. The others see cores, wall times, order and expected
ends, as `squeue` shows them, and no more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.ports import Estimator
from asa.core.registry import DISPATCHERS, ESTIMATORS
from asa.core.units import DAY
from asa.lab.asa_paper.probes import ForecastWait, JobKind, PollingForecast, forecast_waits
from asa.lab.asa_paper.replay import replay
from asa.lab.backend.scene import SimulationOptions
from asa.lab.dispatchers.backfill import rule_of
from asa.lab.simulator.engine import Engine
from asa.lab.traces.site import site as model
from benchmarks.measure import show

CORES = {"hpc2n": (28, 56, 112), "uppmax": (160, 320, 640)}
WALLTIME_S = 3600.0
WARMUP, LEARNING, AFTER = 7.0, 3.0, 6.0
"""How long the queue fills, how long is learned before it counts, how long others come after the last probe [days]."""

HOUR = 3600.0
BASES = ("zero", "last", "median", "fixed-share", "context")


def site(name: str, seed: int, days: float, every_s: float) -> list[ForecastWait]:
    """Probes of one workload."""
    options = SimulationOptions(site=name, seed=seed, warmup=WARMUP, days=LEARNING + days + AFTER)
    scene = options.scene()
    rule = rule_of(scene.dispatcher)
    times = np.arange(WARMUP * DAY, (WARMUP + LEARNING + days) * DAY, every_s).tolist()
    engine = Engine(scene.workload, scene.cluster, options.settings(scene))
    return forecast_waits(engine, rule, [JobKind(cores, WALLTIME_S) for cores in CORES[name]], times)


def estimators(dispatcher: Any) -> dict[str, Callable[[int], Estimator]]:
    """What is compared: those that see waits only, and forecasts."""
    known = [name for name in BASES if name in ESTIMATORS.names()]
    return {
        **{name: partial(_create, name) for name in known},
        "requested": lambda seed: PollingForecast(seed=seed, dispatcher=dispatcher, runs="requested", step=0),
        "forecast, 1 future": lambda seed: PollingForecast(seed=seed, dispatcher=dispatcher, futures=1),
        "forecast, uncorrected": lambda seed: PollingForecast(seed=seed, dispatcher=dispatcher, step=0),
        "forecast": lambda seed: PollingForecast(seed=seed, dispatcher=dispatcher),
    }


def _create(name: str, seed: int) -> Estimator:
    estimator: Estimator = ESTIMATORS.create(name, seed=seed)
    return estimator


def row(what: str, said: list[Floats], waits: list[Floats], seconds_a_job: float = float("nan")) -> dict[str, Any]:
    """One line: means over all jobs, and the standard error of the mean error over the workloads."""
    errors = [np.abs(a - b).mean() / HOUR for a, b in zip(said, waits, strict=True)]
    every, true = np.concatenate(said), np.concatenate(waits)
    return {
        "estimator": what,
        "mean error [h]": float(np.mean(errors)),
        "+-": float(np.std(errors, ddof=1) / len(errors) ** 0.5) if len(errors) > 1 else float("nan"),
        "bias [h]": float((every - true).mean()) / HOUR,
        "log10 error": float(np.abs(np.log10((every + 60) / (true + 60))).mean()),
        "not over": float((every <= true + 60).mean()),
        "ms a job": 1e3 * seconds_a_job,
    }


def compare(name: str, seeds: range, days: float, every_s: float) -> None:
    """One site: the table."""
    probes = {seed: site(name, seed, days, every_s) for seed in seeds}
    first = int(len(probes[seeds[0]]) * LEARNING / (LEARNING + days))
    counted = [found[first:] for found in probes.values()]
    waits = [np.array([each.record.wait_s for each in found]) for found in counted]
    rows = [
        row("run times known", [np.array([each.runs_known_s for each in found]) for found in counted], waits),
        row("planned", [np.array([each.record.context.planned_s for each in found]) for found in counted], waits),
    ]
    for what, make in estimators(DISPATCHERS.create(model(name).dispatcher)).items():
        begin = time.perf_counter()
        said = [
            replay(make, [each.record for each in found], seed=seed).predicted[first:] for seed, found in probes.items()
        ]
        rows.append(row(what, said, waits, (time.perf_counter() - begin) / sum(map(len, probes.values()))))
        print(what, file=sys.stderr, flush=True)
    mean = float(np.concatenate(waits).mean()) / HOUR
    show(f"{name}: {sum(map(len, waits))} probes in {len(seeds)} workloads, mean wait {mean:.3f} h", rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", nargs="+", choices=list(CORES), default=list(CORES))
    parser.add_argument("--seeds", type=int, default=4, help="workloads of each site")
    parser.add_argument("--days", type=float, default=7.0, help="for how long probes count")
    parser.add_argument("--every", type=float, default=1800.0, help="time between them [s]")
    options = parser.parse_args()
    for name in options.sites:
        compare(name, range(1, options.seeds + 1), options.days, options.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
