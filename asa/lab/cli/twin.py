"""``asa twin``: what other dispatchers would do to a queue as it is now, and to one's own jobs."""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.allocations.budget import QUERY, SharedBudget
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.commands import own_name
from asa.core.command import CommandResult, fitted, positive, seconds, table
from asa.core.errors import BackendError, InvalidInput
from asa.core.ports import Backend, CountsQuestions, VirtualBackend
from asa.core.registry import BACKENDS, DISPATCHERS
from asa.core.units import DAY, HOUR, brief
from asa.lab.core.signals import ends_on_signals
from asa.log.rundir import state_directory
from asa.report.outputs import check_outputs
from asa.report.words import counted
from asa.security.files import write_private

if TYPE_CHECKING:  # NumPy is for those who look, not for those who ask for help
    from asa.lab.forecast.twin import Snapshot

SHOWN, DRAWN, NAMED = 20, 6, 3
"""Own jobs that are shown to people, and that are drawn, and things left out that are named; ``--json`` has all."""

EXACT = 2000
"""Waiting jobs times nodes up to which each node is looked at; beyond that, like nodes are one."""

SLOW, MANY, INSTEAD = "conservative", 700, "backfill:depth=10"
"""Where there are kinds of nodes or partitions, one dispatcher takes six times as long as the others: 1.2 s for 1,000
waiting jobs, growing with their cube. With more than so many jobs another is compared in its place."""

_log = logging.getLogger(__name__)


class TwinCommand:
    """Say what other dispatchers would do to a queue as it is now; nothing is submitted or changed."""

    help = "say what other dispatchers would do to a queue as it is now, and to your jobs"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--backend", default="slurm", metavar="SPEC", help="whose queue, as for asa run; one that shows it (slurm)")
        add(
            "--dispatcher",
            metavar="NAME[:OPTIONS]",
            action="append",
            help="backfilling rules to try, repeated or with commas (fcfs, easy, conservative, "
            "easy:order=sjf,threshold=60h and easy++)",
        )
        add("--user", metavar="NAME", help="whose jobs are shown one by one (yours)")
        add("--every", type=seconds, metavar="S", help="look again after so long, such as 60 or 5m, until Ctrl-C")
        add("--looks", type=positive, metavar="N", help="with --every: look so many times")
        add("--picture", metavar="OUT", help="draw it: .png, .pdf or .svg")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        """Look, once or again and again; the last result."""
        check_outputs(options, picture="picture")
        if options.looks and options.every is None:
            raise InvalidInput(f"--looks {options.looks}: give --every as well, the time between two looks")
        if options.every is not None and not 0 < options.every <= 365 * DAY:
            raise InvalidInput(f"--every {options.every:g}: more than 0 s, and at most a year, expected")
        from asa.lab.dispatchers.backfill import rule_of
        from asa.lab.forecast.twin import COMPARED

        names = DISPATCHERS.split(options.dispatcher) if options.dispatcher else list(COMPARED)
        for name in names:
            rule_of(name)  # a wrong one is refused before anything is asked of the batch system
        looks = 1 if options.every is None else options.looks
        backend: Backend = BACKENDS.create(options.backend)
        result: CommandResult | None = None
        try:
            looker = _Looker(backend, options.backend)
            for seen in itertools.count(1):
                snapshot = looker.look(patient=result is not None)
                if snapshot is not None:
                    result = self._say(snapshot, names, options, virtual=looker.virtual)
                    if seen == looks:
                        return result
                    _publish(result, options.json)
                elif seen == looks:
                    break
                looker.wait(options.every)
        except KeyboardInterrupt as interrupt:
            if result is None or interrupt.args:  # else it is Ctrl-C, by which one leaves
                raise
        finally:
            backend.close()
        assert result is not None  # the first look answers, or raises
        return CommandResult(result.data, "")  # which was shown already

    def _say(
        self, seen: Snapshot, names: Sequence[str], options: argparse.Namespace, *, virtual: bool
    ) -> CommandResult:
        data = outlook(seen, names, options.user or own_name())
        if options.picture:
            draw(data, options.picture)
        return CommandResult(data, _text(data, virtual=virtual))


class _Looker:
    """Looks at a queue no more often than the budget of scheduler calls allows."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name = backend, name
        self._clock = backend.enter() if isinstance(backend, VirtualBackend) else None
        self.virtual = self._clock is not None
        self._budget = None if self.virtual else SharedBudget.of(state_directory())
        self._slurm, self._without = None, ""
        if isinstance(backend, Slurm):
            from asa.lab.forecast.slurm_queue import SlurmQueue

            self._slurm = SlurmQueue(backend.prints, lambda: time.time())

    def look(self, *, patient: bool) -> Snapshot | None:
        """The queue; None when a patient one was not answered this time.

        Raises
        ------
        BackendError
            When the batch system does not answer, or shows no queue.
        """
        asked = self._questions()
        if self._budget is not None:
            self._budget.wait(QUERY)
        try:
            return self._snapshot()
        except BackendError as error:
            if not (patient and error.transient):
                raise
            _log.warning("the batch system does not answer, asked again later: %s", error)
            return None
        finally:
            if self._budget is not None and (more := self._questions() - asked - 1) > 0:
                self._budget.charge(QUERY, time.time(), more)

    def _snapshot(self) -> Snapshot:
        from asa.lab.backend.simulated import Simulated
        from asa.lab.forecast.twin import Snapshot

        if isinstance(self._backend, Simulated):
            return Snapshot.of_engine(self._backend.engine)
        if self._slurm is not None:
            try:
                return self._slurm.look()
            except (BackendError, InvalidInput) as error:
                if isinstance(error, BackendError) and error.transient:
                    raise
                self._slurm, self._without = None, f" ({str(error).splitlines()[0]:.200})"
        view = self._backend.look()
        if view is None:
            raise BackendError(
                f"backend {self._name!r} shows no queue of other users: slurm does where the site lets it, and sim:"
            )
        return replace(Snapshot.of_view(view.plain()), left_out=(f"nodes, partitions and limits{self._without}",))

    def wait(self, seconds: float) -> None:
        """Let time pass [s], that of the queue."""
        if self._clock is None:
            time.sleep(seconds)
        else:
            self._clock.wait(threading.Event(), self._clock.now() + seconds)

    def _questions(self) -> int:
        return self._backend.questions if isinstance(self._backend, CountsQuestions) else 0


def outlook(seen: Snapshot, dispatchers: Sequence[str], user: str) -> dict[str, Any]:
    """What these dispatchers would do to a queue, for ``--json``: `rows`, one for each; and `jobs` of a user's.

    Times are [s] as the snapshot counts, and `starts_in_s` from now on; None for a job that never starts.
    """
    from asa.lab.forecast.twin import COMPARED, Twin

    waiting = len(seen.keys) - seen.running
    alike = seen.cluster.uniform and len(seen.cluster.resources) == 1 and not seen.cluster.partitions
    if waiting * seen.cluster.nodes > EXACT and not alike:
        seen = replace(seen.coarse(), left_out=(*seen.left_out, "on which of like nodes a job is"))
        if waiting > MANY and tuple(dispatchers) == COMPARED:
            dispatchers = [INSTEAD if name == SLOW else name for name in COMPARED]
            seen = replace(seen, left_out=(f"{SLOW}, which takes seconds (--dispatcher {SLOW})", *seen.left_out))
    twin, first, work = Twin.of(seen), seen.running, seen.jobs
    found = [twin.under(name) for name in dispatchers]
    jobs = []
    for place in range(len(work) - first):
        row = first + place
        if not user or work.label("user", row) != user:
            continue
        starts_in = {each.dispatcher: float(each.starts[place] - seen.now) for each in found}
        jobs.append({
            "job": seen.keys[row], "name": work.label("name", row), "cores": int(work.cores[row]),
            "limit_s": float(seen.walltime_s[row]), "submitted": float(seen.submitted[row]),
            "waits_for": twin.waits_for(place),
            "starts_in_s": {name: None if at != at else at for name, at in starts_in.items()},
        })  # fmt: skip
    return {
        "at": seen.now, "cores": seen.cluster.cores, "cores_used": seen.cores_used, "running": first,
        "waiting": len(work) - first, "without_limit": sum(map(math.isnan, work.walltime[first:].tolist())),
        "run_times": "limits", "rows": [each.to_json() for each in found], "user": user, "jobs": jobs,
        "left_out": list(seen.left_out),
    }  # fmt: skip


def _text(data: Mapping[str, Any], *, virtual: bool) -> str:
    at = f"{brief(data['at'])} of virtual time" if virtual else time.strftime("%F %T", time.localtime(data["at"]))
    lines = [
        f"{at}: {counted(data['waiting'], 'job')} waiting, {data['running']:,} running on {data['cores_used']:,} of "
        f"{counted(data['cores'], 'core')}",
        "",
    ]
    rows = [
        {
            "dispatcher": row["dispatcher"],
            "mean wait": _span(row["mean_wait_s"], "-"),
            "90 % within": _span(row["p90_wait_s"], "-"),
            "longest": _span(row["max_wait_s"], "-"),
        }
        for row in data["rows"]
    ]
    lines += [table(rows, "no dispatcher"), ""]
    lines += _of_own_jobs(data)
    if never := data["rows"][0]["never"]:
        lines.append(f"{counted(never, 'job')} larger than the machine, or a limit of it: in no mean.")
    if data["without_limit"]:
        lines.append(f"{counted(data['without_limit'], 'job')} without a limit: taken to run for the longest one here.")
    lines.append(
        "Run times are not known: each job is taken to run until its limit. Most end before: waits will be shorter.\n"
        "Not counted: jobs that are held or wait for others, and jobs that are still to come."
    )
    if left_out := data["left_out"]:
        more = f", and {len(left_out) - NAMED} more: --json has all" if len(left_out) > NAMED else ""
        lines.append(f"Left out: {'; '.join(left_out[:NAMED])}{more}.")
    return fitted("\n".join(lines))


def _of_own_jobs(data: Mapping[str, Any]) -> list[str]:
    user, jobs = data["user"], data["jobs"]
    if not jobs:
        return [f"No job of {user} waits.", ""]
    rows = []
    for job in sorted(jobs, key=_soonest)[:SHOWN]:
        starts = {name: _span(at) for name, at in job["starts_in_s"].items()}
        rows.append(
            {
                "job": job["job"],
                "cores": job["cores"],
                "limit": _span(job["limit_s"]),
                "waits for": job["waits_for"],
                **starts,
            }
        )
    more = [f"... and {len(jobs) - SHOWN} more: --json has all"] if len(jobs) > SHOWN else []
    return [f"Jobs of {user} start in", table(rows, ""), *more, ""]


def _soonest(job: Mapping[str, Any]) -> float:
    return min((at for at in job["starts_in_s"].values() if at is not None), default=float("inf"))


def _span(seconds: float | None, none: str = "never") -> str:
    return none if seconds is None else brief(seconds)


def _publish(result: CommandResult, destination: str | None) -> None:
    """Show what was found while it goes on; on standard output, JSON stands alone at the end."""
    if destination == "-":
        return
    if destination:
        write_private(Path(destination), (json.dumps(result.data, indent=2) + "\n").encode())
    print(f"{result.text}\n", flush=True)


def draw(data: Mapping[str, Any], path: str) -> None:
    """Draw mean, 90 % quantile and longest of the waits, and when own jobs start, a bar for each dispatcher."""
    from asa.lab.report.charts import Bar, BarPart, Panel, save_stacked

    def bars(group: str, hours: Mapping[str, float | None]) -> list[Bar]:
        """One for each dispatcher; none for what never comes."""
        places = enumerate(hours.items())
        return [Bar(group, "", (BarPart(at / HOUR, name, k),)) for k, (name, at) in places if at is not None]

    panels = [
        Panel(title, "hours", bars("", {row["dispatcher"]: row[key] for row in data["rows"]}))
        for title, key in (
            ("mean wait", "mean_wait_s"),
            ("90 % wait less", "p90_wait_s"),
            ("longest wait", "max_wait_s"),
        )
    ]
    first = sorted(data["jobs"], key=_soonest)[:DRAWN]
    own = [each for job in first for each in bars(str(job["job"]), job["starts_in_s"])]
    save_stacked([panels[:2], [panels[2], Panel(f"until jobs of {data['user']} start", "hours", own)]], path)
