"""``asa torture``: schedules of the whole system under faults, in virtual time."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from asa.core.command import CommandResult, duration, positive
from asa.core.units import brief
from asa.log.messages import notify

_CHUNK = 10
_CHUNKS_EACH = 20
"""Schedules that a process goes through at a time, and how often, before a fresh one takes over."""


class Torture:
    """Run whole systems under faults: drivers, hub, supervisors and logs as they are, machines that are simulated."""

    help = "test ASA itself: the whole system under seeded faults, in virtual time"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--site", choices=_SITES, default="runs", help="what is run: " + _SITES_HELP)
        add("--seed", type=int, default=0, metavar="N", help="of the first schedule; later ones follow (0)")
        add("--schedules", type=positive, metavar="N", help="how many (100 unless --time says how long)")
        add("--time", type=duration, metavar="T", help="begin no schedule after so long, such as 5m or 8h")
        add("--processes", type=positive, metavar="N", help="how many at a time (one for each CPU)")
        add("--until-failure", action="store_true", help="end with the first schedule that fails")
        add("--shrink", action="store_true", help="look for the smallest schedule that fails like the first failure")

    def run(self, options: argparse.Namespace) -> CommandResult:
        most = options.schedules or (100 if options.time is None else sys.maxsize)
        processes = options.processes or len(os.sched_getaffinity(0))
        began = time.monotonic()
        until = None if options.time is None else began + options.time
        done, resumes, virtual_s = 0, 0, 0.0
        struck: Counter[str] = Counter()
        failed: dict[int, list[str]] = {}
        for results in _all_results(options.site, options.seed, most, processes, until):
            for seed, violations, kinds, restarts, lasted_s in results:
                done, resumes, virtual_s = done + 1, resumes + restarts, virtual_s + lasted_s
                struck.update(kinds)
                if violations:
                    failed[seed] = violations
                    notify(f"seed {seed}: {violations[0]}")
            if failed and options.until_failure:
                break
        lines = [
            f"{done} schedules, {sum(struck.values())} faults, {resumes} resumes, {brief(virtual_s)} of virtual time "
            f"in {brief(time.monotonic() - began)}: {len(failed)} failed",
            *(f"  {count:7d}  {kind}" for kind, count in struck.most_common()),
        ]
        for seed in sorted(failed):
            lines.append(f"seed {seed}:")
            lines += [f"  {violation}" for violation in failed[seed]]
        data = {
            "schedules": done,
            "resumes": resumes,
            "virtual_s": virtual_s,
            "faults": dict(struck),
            "failed": [{"seed": seed, "violations": failed[seed]} for seed in sorted(failed)],
        }
        if failed and options.shrink:
            with _pool(options.site, 1) as pool:
                case, violations = pool.submit(_shrunk, options.site, min(failed)).result()
            lines += [f"smaller than seed {min(failed)}, and fails, too:", f"  {violations[0]}", f"  {case}"]
            data["smaller"] = case
        return CommandResult(data, "\n".join(lines), 1 if failed else 0)


_SITES = {
    "runs": "coscheduler.torture.case",
    "mesos": "coscheduler.torture.mesos",
    "named": "coscheduler.torture.named",
}
_SITES_HELP = (
    "workflows on a cluster (runs, the default), a pool's master, agents and frameworks (mesos), or workflows in a "
    "named pool (named)"
)

Result = tuple[int, list[str], dict[str, int], int, float]


def _all_results(site: str, first: int, most: int, processes: int, until: float | None) -> Iterator[list[Result]]:
    """Of schedules from this seed on, in the order in which they end."""
    with _pool(site, processes) as pool:
        seed, end = first, first + most
        running: set[Future[list[Result]]] = set()
        while True:
            while len(running) < processes and seed < end and (until is None or time.monotonic() < until):
                size = min(_CHUNK, end - seed)
                running.add(pool.submit(_results, site, range(seed, seed + size), until))
                seed += size
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()


@contextmanager
def _pool(site: str, processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes in which the order of sets is always the same: else no seed would replay."""
    before = dict(os.environ)
    os.environ.update(PYTHONHASHSEED="0", ASA_LOG_LEVEL="warning")
    try:
        with ProcessPoolExecutor(
            processes, get_context("spawn"), _prepare, (site,), max_tasks_per_child=_CHUNKS_EACH
        ) as pool:
            yield pool
    finally:
        os.environ.clear()
        os.environ.update(before)


def _prepare(site: str) -> None:
    """Make a process ready for schedules: what is loaded stays, and is not looked through after each of them."""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # what simulated programs print, all the time
    _schedules(site)
    gc.collect()
    gc.freeze()


def _schedules(site: str) -> Any:
    """The module that draws schedules of this kind and runs them."""
    return importlib.import_module(_SITES[site])


def _results(site: str, seeds: Sequence[int], until: float | None) -> list[Result]:
    schedules = _schedules(site)
    found: list[Result] = []
    for seed in seeds:
        if until is not None and time.monotonic() >= until:
            break
        outcome = schedules.run(schedules.draw(seed))
        found.append((seed, outcome.violations, dict(outcome.struck), outcome.resumes, outcome.seconds))
    return found


def _shrunk(site: str, seed: int) -> tuple[str, list[str]]:
    """The smallest schedule found that fails like this one, and how it fails: numbers may differ."""
    schedules = _schedules(site)

    def kinds(case: Any) -> set[str]:
        return {re.sub(r"\d+", "", violation) for violation in schedules.run(case).violations}

    drawn = schedules.draw(seed)
    first = kinds(drawn)
    case = schedules.shrink(drawn, lambda other: not first.isdisjoint(kinds(other)))
    return repr(case), schedules.run(case).violations
