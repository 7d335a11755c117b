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
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any

from asa.core.command import INTERRUPTED, CommandResult, duration, positive
from asa.core.units import brief
from asa.log.messages import notify

EACH = 200
"""Schedules that a process goes through before a fresh one takes over."""
POLL_S, POLLS = 5.0, 60
"""With ``--time``: seconds between polls, and polls in a row without a result, once the time is over, after which the
schedules that still run have failed. Polls are counted, not time: this process may be stopped for a while."""


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
        interrupted = ""
        try:
            with closing(all_results(options.site, options.seed, most, processes, until)) as results:
                for seed, violations, kinds, restarts, lasted_s in results:
                    done, resumes, virtual_s = done + 1, resumes + restarts, virtual_s + lasted_s
                    struck.update(kinds)
                    if violations:
                        failed[seed] = violations
                        notify(f"seed {seed}: {violations[0]}")
                    if failed and options.until_failure:
                        break
        except KeyboardInterrupt:
            interrupted = "; interrupted"
        lines = [
            f"{done} schedules, {sum(struck.values())} faults, {resumes} resumes, {brief(virtual_s)} of virtual time "
            f"in {brief(time.monotonic() - began)}: {len(failed)} failed{interrupted}",
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
        if failed and options.shrink and not interrupted:
            with closing(Process(options.site)) as process:
                process.give(_shrunk, min(failed))
                found = process.answer()
            if found is None:
                lines.append(f"no smaller schedule than seed {min(failed)}: the process that looked for one has died")
            else:
                case, violations = found
                lines += [f"smaller than seed {min(failed)}, and fails, too:", f"  {violations[0]}", f"  {case}"]
                data["smaller"] = case
        return CommandResult(data, "\n".join(lines), INTERRUPTED if interrupted else 1 if failed else 0)


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

_SPAWN = get_context("spawn")


class Process:
    """A process that goes through schedules, and ends with this one.

    The order of sets in it is always the same: else no seed would replay.
    """

    def __init__(self, site: str) -> None:
        self.given, self.seed = 0, 0
        self.connection, end = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(end, site), daemon=True)
        with _environment(PYTHONHASHSEED="0", PYTHONSAFEPATH="1", ASA_LOG_LEVEL="warning"):
            self._process.start()
        end.close()

    def give(self, call: Callable[[str, int], Any], seed: int) -> None:
        """Have it call this with its site and a seed."""
        self.given, self.seed = self.given + 1, seed
        with suppress(OSError):  # it has died, as its answer says
            self.connection.send((call, seed))

    def answer(self) -> Any:
        """What the call has returned; None where the process has died."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.given = EACH
            return None

    def failed(self, why: str) -> Result:
        """The result of a schedule without one."""
        return self.seed, [why], {}, 0, 0.0

    def close(self) -> None:
        """End it, whatever it does."""
        self.connection.close()
        self._process.kill()
        self._process.join()
        self._process.close()


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def all_results(site: str, first: int, most: int, processes: int, until: float | None) -> Generator[Result, None, None]:
    """Of schedules from this seed on, in the order in which they end; none begins after a time [s, monotonic].

    This is no `ProcessPoolExecutor`: one with `max_tasks_per_child` may forget to replace a process, until none is left
    (https://github.com/python/cpython/issues/115634).
    """
    seeds, idle, silent = iter(range(first, first + most)), list[Process](), 0
    working: dict[Any, Process] = {}
    try:
        while True:
            while len(working) < processes and (until is None or time.monotonic() < until):
                if (seed := next(seeds, None)) is None:
                    break
                process = idle.pop() if idle else Process(site)
                working[process.connection] = process
                process.give(_result, seed)
            if not working:
                return
            ended = wait(working, None if until is None else POLL_S)
            is_over = until is not None and time.monotonic() >= until
            silent = silent + 1 if is_over and not ended else 0
            if silent > POLLS:
                for process in working.values():
                    yield process.failed("it has not ended long after the time was over")
                return
            for connection in ended:
                process = working.pop(connection)
                result = process.answer() or process.failed("its process has died")
                if process.given < EACH:
                    idle.append(process)
                else:
                    process.close()
                yield result
    finally:
        for process in (*working.values(), *idle):
            process.close()


def _serve(connection: Any, site: str) -> None:
    """The loop of a worker process; it ends when the pipe is closed."""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # what simulated programs print, all the time
    _schedules(site)
    gc.collect()
    gc.freeze()  # what is loaded stays, and is not looked through after each schedule
    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        while True:
            call, seed = connection.recv()
            connection.send(call(site, seed))


def _schedules(site: str) -> Any:
    """The module that draws schedules of this kind and runs them."""
    return importlib.import_module(_SITES[site])


def _result(site: str, seed: int) -> Result:
    schedules = _schedules(site)
    try:
        outcome = schedules.run(schedules.draw(seed))
    except Exception as error:  # of what checks it
        return seed, [f"{type(error).__name__}: {error}"], {}, 0, 0.0
    return seed, outcome.violations, dict(outcome.struck), outcome.resumes, outcome.seconds


def _shrunk(site: str, seed: int) -> tuple[str, list[str]]:
    """The smallest schedule found that fails like this one, and how it fails: numbers may differ."""
    from coscheduler.torture.case import shrink

    schedules = _schedules(site)

    def violations(case: Any) -> list[str]:
        try:
            return list(schedules.run(case).violations)
        except Exception as error:  # of what checks it, as in `_result`
            return [f"{type(error).__name__}: {error}"]

    def kinds(case: Any) -> set[str]:
        return {re.sub(r"\d+", "", violation) for violation in violations(case)}

    drawn = schedules.draw(seed)
    first = kinds(drawn)
    case = shrink(schedules.smaller, drawn, lambda other: not first.isdisjoint(kinds(other)))
    return repr(case), violations(case)
