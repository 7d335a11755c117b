"""Is a bound kept by CPU pressure alone, or by counted instructions, for hosts that report no progress?

Guests slow hosts down by amounts that no rule knows beforehand: by taking their CPUs, which pressure shows, or by
caches and memory bandwidth, which it does not. In half of a job's phases a thread that waits holds up all others, as
at barriers. With `--spread` phases execute a different number of instructions a second each, from 1 to so many times
as many.

    python -m benchmarks.cosched_pressure --seeds 40
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coscheduler.drive import drive
from coscheduler.history import SharedQueue
from coscheduler.nouns import BY_INSTRUCTIONS, BY_PRESSURE, BY_PROGRESS, ON_TIME, SharingView
from coscheduler.registry import SHARING_RULES
from coscheduler.workload import CLUSTERS, Contention, Load, hidden_interference, hide, paper_queue
from coscheduler.world import SimulatedWorld


class SilentWorld(SimulatedWorld):
    """A simulated world in which no job reports its progress."""

    def advance(self) -> SharingView | None:
        """As in any, but for reports."""
        view = super().advance()
        if view is None:
            return None
        running = view.running
        happiness = np.where(running.states.elapsed < 1, ON_TIME, 0.0)
        states = replace(running.states, happiness=happiness)
        return replace(view, running=replace(running, states=states, done=np.full(len(running), np.nan)))


def jobs(
    cores: int, seed: int, bound: float, *, cpus: bool, by: str, spread: float
) -> tuple[Sequence[Load], Contention]:
    """The paper's queue, and interference that is for CPUs, or not."""
    rng = np.random.default_rng(seed)
    contention = replace(hidden_interference(rng), waits=cpus)
    loads = []
    for load in (hide(each, rng) for each in paper_queue(cores, rng)):
        parts = tuple(
            part._replace(coupled=bool(rng.random() < 0.5), bandwidth=0.0 if cpus else part.bandwidth)
            for part in load.phases
        )
        if spread > 1:
            parts = tuple(part._replace(instructions=spread ** rng.random()) for part in parts)
        loads.append(replace(load, phases=parts, request=replace(load.request, bound=bound, bound_by=by)))
    return loads, contention


def run(
    rule: str, seed: int, cores: int, bound: float, *, cpus: bool, by: str, silent: bool, spread: float
) -> SharedQueue:
    """A queue under a rule; with `silent` no job reports."""
    loads, contention = jobs(cores, seed, bound, cpus=cpus, by=by, spread=spread)
    world = (SilentWorld if silent else SimulatedWorld)(loads, cores, contention, pressure=True)
    drive(world, SHARING_RULES.create(rule))
    return world.result()


def main() -> None:
    """Print a line for each kind of contention and of evidence."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cosched_pressure")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--bound", type=float, default=0.1)
    parser.add_argument("--spread", type=float, default=1.0)
    options = parser.parse_args()
    for cpus in (True, False):
        print("contention for CPUs" if cpus else "contention for caches and memory bandwidth", flush=True)
        for silent, by in ((False, BY_PROGRESS), *((True, by) for by in (BY_PROGRESS, BY_PRESSURE, BY_INSTRUCTIONS))):
            slowdowns: list[float] = []
            shared_h: list[float] = []
            for cores in CLUSTERS:
                for seed in range(options.seeds):
                    found = run(
                        "scavenger", seed, cores, options.bound, cpus=cpus, by=by, silent=silent, spread=options.spread
                    )
                    slowdowns += [job.host_slowdown for job in found.jobs if not np.isnan(job.host_slowdown)]
                    stays = [stay for job in found.jobs for stay in job.stays if stay.host and stay.share]
                    shared_h.append(sum(stay.until - stay.since for stay in stays) / 3600)
            broken = sum(each > 1 + options.bound + 1e-9 for each in slowdowns)
            worst = f", the slowest {max(slowdowns) - 1:.0%} slower" if slowdowns else ""
            what = f"{'silent' if silent else 'reports'}, by {by}"
            shared = f"{np.mean(shared_h):.2f} h of guests in a queue"
            print(
                f"  {what}: {broken} of {len(slowdowns)} hosts beyond {options.bound:.0%}{worst}; {shared}", flush=True
            )


if __name__ == "__main__":
    main()
