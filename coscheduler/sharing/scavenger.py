"""The contention-aware rule: guests take what hosts leave, and come only where little harm is expected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.estimators.checks import check_count, check_positive, read
from coscheduler.contention import PAPER_LIKE
from coscheduler.nouns import (
    FLOOR,
    Evict,
    Reason,
    RunningJobs,
    SharedRun,
    SharingDecision,
    SharingView,
    StartGuest,
    WaitingJob,
)
from coscheduler.profiles import Profiles
from coscheduler.sharing.crowd import company, mean_area, roomiest, waiting
from coscheduler.sharing.guard import LATE, guard
from coscheduler.sharing.pairs import foresee
from coscheduler.sharing.residuals import Residuals
from coscheduler.sharing.starter import FIRST_FIT, Starter, check_share, open_hosts

ORDERS = ("queue", "longest")
CANDIDATES = 16
"""Waiting jobs that are considered as guests at a time: each pair with a host is foreseen in full, and a decision is to
take a millisecond."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the rule goes by.

    Parameters
    ----------
    share
        Weight of a guest, of its host's cores, in [`FLOOR`, 1 - `FLOOR`]; what the host leaves is the guest's anyway.
    min_rate
        Slowest that a guest may be expected to be, its speed alone being 1; in (0, 1).
    worth
        What work saved is worth: a guest is admitted when the mean slowdown of all jobs is expected to rise by at most
        this many per cent for each per cent of all work that will take no cores of its own; above 0.
    guests
        Most guests of a host, 1 or more.
    order
        Of those that wait: ``"queue"``, or ``"longest"`` for those first that are expected to run longest.
    queue
        See `Starter`.
    tax
        Speed that is expected to be left for each further job on the same cores, in (0, 1].
    """

    share: float = 0.05
    min_rate: float = 0.7
    worth: float = 1.25
    guests: int = 1
    order: str = "longest"
    queue: str = FIRST_FIT
    tax: float = PAPER_LIKE.tax

    def __post_init__(self) -> None:
        check_share(self.share)
        for name in ("min_rate", "tax"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}: expected a number above 0, at most 1")
        check_positive(self.worth, "worth")
        check_count(self.guests, "guests", at_least=1)
        if self.share * self.guests > 1 - FLOOR:
            raise InvalidInput(f"{self.guests} guests of {self.share:g} each leave their host less than {FLOOR:g}")
        if self.order not in ORDERS:
            raise UnknownName("order", self.order, ORDERS)


class Scavenger:
    """Guests have a small weight, and are admitted where the work saved is worth the harm expected.

    What applications do is learned from jobs that ended, and before the first has ended from those that run; how well
    two of them get on is learned for each pair, as a factor on the harm that is expected. Guests of a host that gets
    late have the least share, and in the end none; where memory runs short, the guest goes.

    Parameters
    ----------
    options
        Fields of `Options`.

    Raises
    ------
    UnknownName
        When there is no such option.
    """

    def __init__(self, **options: Any) -> None:
        known = [each.name for each in fields(Options)]
        for name in options:
            if name not in known:
                raise UnknownName("option of sharing rule 'scavenger':", name, known)
        self.options = Options(**options)
        self._starter = Starter(self.options.queue)
        self._profiles, self._residuals = Profiles(), Residuals()
        self._foreseen: dict[str, float] = {}
        self._shared: dict[str, list[tuple[str, str]]] = {}
        self._run_times: dict[str, float] = {}  # of waiting jobs, until more is known

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """Protect hosts, start what fits, then find guests."""
        self._profiles.watch(view)
        guarded = guard(view, self.options.share)
        starts, rest = self._starter.starts(view, self._ordered(view))
        jobs = [job for job in rest if not job.exclusive][:CANDIDATES]
        hosts = self._hosts(view, guarded)
        guests = self._guests(view, jobs, hosts) if jobs and len(hosts) else []
        return [*guarded, *starts, *guests]

    def learn(self, run: SharedRun) -> None:
        """A job has ended."""
        self._profiles.learn(run)
        self._run_times.clear()
        foreseen, pairs = self._foreseen.pop(run.job, 0.0), self._shared.pop(run.job, [])
        if run.slowdown is not None and foreseen > 0:
            for pair in pairs:
                self._residuals.learn(pair, foreseen, run.slowdown - 1)

    def state(self) -> dict[str, Any]:
        """Return what is known of applications and pairs, and what is foreseen for running jobs."""
        shared = {name: [list(pair) for pair in pairs] for name, pairs in self._shared.items()}
        pending = {"foreseen": dict(self._foreseen), "shared": shared}
        return {**self._profiles.state(), **self._residuals.state(), "pending": pending}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what another has learned."""
        self._profiles.restore(state)
        self._run_times.clear()
        self._residuals.restore(state)
        if "pending" in state:
            pending = state["pending"]
            self._foreseen = dict(read(pending, "foreseen"))
            self._shared = {name: [(host, guest) for host, guest in pairs] for name, pairs in pending["shared"].items()}

    def _ordered(self, view: SharingView) -> tuple[WaitingJob, ...]:
        if self.options.order == "queue":
            return view.queue
        known = self._run_times
        for job in view.queue:
            if job.name not in known:
                known[job.name] = self._profiles.run_time(job.application, job.cores, job.walltime_s)
        return tuple(sorted(view.queue, key=lambda job: -known[job.name]))

    def _hosts(self, view: SharingView, guarded: list[SharingDecision]) -> Ints:
        """Rows of the hosts that may take one more: not late, and not such as have just lost a guest."""
        running, hosts = view.running, open_hosts(view.running, self.options.guests)
        room = running.share[hosts] - self.options.share >= FLOOR - 1e-9
        hosts = hosts[room & (running.states.happiness[hosts] >= LATE)]
        if any(isinstance(each, Evict) for each in guarded):
            rows = {name: row for row, name in enumerate(running.names)}
            left = {int(running.host[rows[each.guest]]) for each in guarded if isinstance(each, Evict)}
            hosts = np.array([row for row in hosts.tolist() if row not in left], dtype=np.int64)
        return hosts

    def _guests(self, view: SharingView, jobs: list[WaitingJob], hosts: Ints) -> list[SharingDecision]:
        """Pairs that are worth it, those that save most work first; a job and a host once each."""
        hosts = roomiest(view, hosts, self._profiles)
        crowd, there = waiting(jobs, self._profiles), company(view, hosts, self._profiles)
        share = view.running.share[there.rows]
        share[: len(hosts)] -= self.options.share
        pairs = foresee(crowd, there.crowd, there.place, share, self.options.tax)
        harm = pairs.harm * self._residuals.table(view.running, hosts, [job.application for job in jobs])
        gain = pairs.saved / mean_area(view, crowd, self._profiles)
        possible = pairs.legal & (pairs.rate >= self.options.min_rate)
        worth = possible & (harm <= self.options.worth * gain)
        self._forgive(view, jobs, hosts, possible & ~worth)
        left = np.where(worth, pairs.saved, 0.0)
        decisions: list[SharingDecision] = []
        while (best := int(left.argmax())) >= 0 and left.flat[best] > 0:
            job, place = divmod(best, len(hosts))
            left[job, :] = left[:, place] = 0.0
            host = int(hosts[place])
            self._remember(view.running, jobs[job], host, float(pairs.own[job, place]), float(pairs.harm[job, place]))
            why = self._reason(view, host, {"rate": pairs.rate, "harm": harm, "gain": gain}, (job, place))
            decisions.append(StartGuest(jobs[job].name, view.running.names[host], self.options.share, why=why))
        return decisions

    def _reason(self, view: SharingView, host: int, found: Mapping[str, Floats], pair: tuple[int, int]) -> Reason:
        return Reason(
            lambda: (
                {name: float(values[pair]) for name, values in found.items()}
                | {"state": view.running.states.record(host)}
            )
        )

    def _remember(self, running: RunningJobs, job: WaitingJob, host: int, own: float, harm: float) -> None:
        """What is foreseen for a guest, and for its host, to be compared with what comes of it."""
        name = running.names[host]
        pair = (running.applications[int(running.application[host])], job.application)
        for who, expected in ((job.name, own), (name, harm - own)):
            self._foreseen[who] = self._foreseen.get(who, 0.0) + expected
            self._shared.setdefault(who, []).append(pair)

    def _forgive(self, view: SharingView, jobs: list[WaitingJob], hosts: Ints, refused: Bools) -> None:
        running, kinds = view.running, sorted({job.application for job in jobs})
        guest = np.array([kinds.index(job.application) for job in jobs])
        codes = running.application[hosts] * len(kinds) + guest[:, None]
        for code in np.unique(codes[refused]).tolist():
            host, kind = divmod(code, len(kinds))
            self._residuals.refused((running.applications[host], kinds[kind]))
