"""The contention-aware rule: guests take what hosts leave, and start only where little harm is expected.

Jobs alternate between parallel stages, in which they want most of their cores, and sequential ones, in which they want
a single one. What each is doing when is not known in advance; how much of the time is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.estimators.checks import check_count, check_positive, read
from coscheduler.nouns import (
    ALONE,
    FLOOR,
    ON_TIME,
    Evict,
    LazyReason,
    RunningJobs,
    SetShare,
    SharedRun,
    SharingDecision,
    SharingView,
    StartGuest,
    WaitingJob,
)
from coscheduler.profiles import Profiles
from coscheduler.sharing.promise import Promise
from coscheduler.sharing.starter import FIRST_FIT, Starter, check_share, open_hosts
from coscheduler.workload import PAPER_LIKE


@dataclass(frozen=True, eq=False, slots=True)
class JobColumns:
    """Jobs, waiting or running; arrays of shape (n,).

    Parameters
    ----------
    cores, memory
        Of the allocation, and what is used of the memory that belongs to as many cores, in the same unit.
    parallel
        Share of the time alone in parallel stages.
    demand
        Cores wanted in these.
    left_s, total_s
        What is left of the run time, at the present pace, and all of it [s].
    slack_s
        By how much the run may become longer until it exceeds the wall time [s].
    """

    cores: Floats
    memory: Floats
    parallel: Floats
    demand: Floats
    left_s: Floats
    total_s: Floats
    slack_s: Floats


@dataclass(frozen=True, eq=False, slots=True)
class PairPrediction:
    """Of each waiting job with each host; arrays of shape (k, p).

    Parameters
    ----------
    harm
        Sum of what is added to the slowdowns of all concerned.
    own
        What is added to the guest's alone.
    rate
        The guest's speed on its host's cores, 1 on its own.
    saved
        Work of the guest that takes no cores of its own [core-seconds].
    host_rate
        The host's speed meanwhile, 1 without this guest.
    together_s
        How long the two share cores [s].
    legal
        Whether the cores and the memory suffice.
    late
        Whether a job is expected to exceed its wall time.
    """

    harm: Floats
    own: Floats
    rate: Floats
    saved: Floats
    host_rate: Floats
    together_s: Floats
    legal: Bools
    late: Bools


def predict_pairs(
    jobs: JobColumns, company: JobColumns, place: Ints, share: Floats, tax: float, seen: Floats | None = None
) -> PairPrediction:
    """Pairs of k waiting jobs with p hosts.

    Parameters
    ----------
    jobs
        The waiting ones.
    company
        The hosts, then their guests: n jobs.
    place
        For each of the company: which of the p hosts it runs on, itself for a host; shape (n,).
    share
        For each of the company: its share of its host's cores once a further guest is there, shape (n,).
    tax
        Speed that is left for each further job on the same cores, as in `coscheduler.workload.Contention`.
    seen
        Speeds of the hosts beside such guests as they were measured, NaN where none was; shape (k, p).
    """
    members = np.bincount(place)
    hosts = len(members)
    stretch, busy = _newcomer(jobs, company, place, share, tax)
    want, cores = jobs.demand[:, None], company.cores[:hosts]
    # The company is slower while they and the guest are in parallel stages.
    granted = np.maximum((share * cores[place])[None, :], cores[place][None, :] - want)
    slow = busy[:, place] * np.minimum(1, granted / company.demand) + 1 - busy[:, place]
    theirs = (company.parallel / slow + 1 - company.parallel) / tax
    if seen is not None:
        theirs[:, :hosts] = np.where(np.isnan(seen), theirs[:, :hosts], 1 / np.maximum(seen, 1e-3))

    together = np.minimum(company.left_s[:hosts] * theirs[:, :hosts], jobs.total_s[:, None] * stretch)
    lost = together * (1 - 1 / stretch)
    their_loss = np.minimum(together[:, place], company.left_s * theirs) * (1 - 1 / theirs)
    own = lost / jobs.total_s[:, None]
    harm = own + _sums(their_loss / company.total_s, place, hosts)
    theirs_late = (their_loss > np.maximum(company.slack_s, 0.0)).astype(np.float64)
    late = (lost > jobs.slack_s[:, None]) | (_sums(theirs_late, place, hosts) > 0)
    memory = jobs.memory[:, None] + np.bincount(place, company.memory)
    room = 2 * cores - np.bincount(place, company.cores)  # the host's, less those of its guests
    legal = (jobs.cores[:, None] <= room) & (memory <= cores * (1 + 1e-9))
    saved = jobs.cores[:, None] * together / stretch
    return PairPrediction(harm, own, 1 / stretch, saved, 1 / theirs[:, :hosts], together, legal, late)


def _newcomer(jobs: JobColumns, company: JobColumns, place: Ints, share: Floats, tax: float) -> tuple[Floats, Floats]:
    """How much longer the guests would take, and for which share of it they would be in parallel stages; (k, p)."""
    members = np.bincount(place)
    cores = company.cores[: len(members)]
    quota = (1 - np.bincount(place, share)) * cores  # what the others leave to the newcomer in any case
    busiest = np.zeros(len(members))
    np.maximum.at(busiest, place, np.where(company.parallel > 0, company.demand, 1.0))
    quiet = np.ones(len(members))  # probability that no job there is in a parallel stage
    np.multiply.at(quiet, place, 1 - company.parallel)
    crowded, calm = np.maximum(quota, cores - busiest), np.maximum(quota, cores - members)
    want, parallel = jobs.demand[:, None], jobs.parallel[:, None]
    busy_s = parallel / ((1 - quiet) * np.minimum(1, crowded / want) + quiet * np.minimum(1, calm / want))
    calm_s = (1 - parallel) / ((1 - quiet) * np.minimum(1, crowded) + quiet)
    return np.asarray((busy_s + calm_s) / tax**members), np.asarray(busy_s / (busy_s + calm_s))


def _sums(values: Floats, place: Ints, hosts: int) -> Floats:
    """Sums over those on the same host, shape (k, p) from (k, n)."""
    if len(place) == hosts:  # there are no guests yet
        return values
    found = np.zeros((len(values), hosts))
    np.add.at(found.T, place, values.T)
    return found


HOSTS_MOST = 128
"""Hosts that are considered at a time: each pair with a waiting job is predicted in full, in a millisecond together."""


class HostColumns(NamedTuple):
    """Hosts that may take a guest, then the guests that they have: rows of the view, and for each which host it runs on
    (the place of that host among them); and their columns."""

    rows: Ints
    place: Ints
    crowd: JobColumns


def waiting(jobs: Sequence[WaitingJob], profiles: Profiles) -> JobColumns:
    """Columns of k waiting jobs; `slack_s` is what the wall time leaves above the run time that is expected."""
    parallel, demand, memory = profiles.arrays((job.application, job.cores) for job in jobs)
    cores = np.array([job.cores for job in jobs], dtype=np.float64)
    total_s = np.array([profiles.run_time(job.application, job.cores, job.walltime_s) for job in jobs])
    slack_s = np.array([job.walltime_s for job in jobs]) - total_s
    return JobColumns(cores, memory * cores, parallel, np.maximum(demand * cores, 1.0), total_s, total_s, slack_s)


def left_s(view: SharingView, profiles: Profiles) -> tuple[Floats, Floats]:
    """What is left of each running job's wall time and, at its pace, of its run time [s]; shapes (n,).

    By the definition of happiness, the time that is left is the rest of the wall time over the happiness. A job that
    does not report its progress counts as just on time: of that one, what is left of its expected run time is taken.
    """
    running = view.running
    elapsed = view.now - running.started
    rest = np.maximum(running.walltime - elapsed, 0.0)
    left = rest / np.maximum(running.states.happiness, 1e-6)
    for row in np.flatnonzero(running.states.happiness == ON_TIME).tolist():
        application, cores = running.applications[running.application[row]], int(running.cores[row])
        expected = profiles.run_time(application, cores, float(running.walltime[row])) - elapsed[row]
        if 0 < expected < rest[row]:
            left[row] = expected
    return rest, left


def roomiest(view: SharingView, hosts: Ints, profiles: Profiles) -> Ints:
    """Of these hosts the `HOSTS_MOST` that will leave most of their cores idle."""
    if len(hosts) <= HOSTS_MOST:
        return hosts
    parallel, demand = _uses(view.running, hosts, profiles)
    idle = view.running.cores[hosts] * (1 - parallel * demand) * left_s(view, profiles)[1][hosts]
    return np.sort(hosts[np.argpartition(-idle, HOSTS_MOST)[:HOSTS_MOST]])


def company(view: SharingView, hosts: Ints, profiles: Profiles) -> HostColumns:
    """Columns of these hosts and their guests; memory as it was measured."""
    running = view.running
    place_of = np.full(len(running), -1)
    place_of[hosts] = np.arange(len(hosts))
    guests = np.flatnonzero((running.host != ALONE) & (place_of[running.host] >= 0))
    rows = np.concatenate([hosts, guests])
    parallel, demand = _uses(running, rows, profiles)
    cores = running.cores[rows].astype(np.float64)
    rest, left = (column[rows] for column in left_s(view, profiles))
    crowd = JobColumns(
        cores=cores,
        memory=running.states.memory[rows] * cores,
        parallel=parallel,
        demand=np.maximum(demand * cores, 1.0),
        left_s=left,
        total_s=view.now - running.started[rows] + left,
        slack_s=rest - left,
    )
    return HostColumns(rows, np.concatenate([np.arange(len(hosts)), place_of[running.host[guests]]]), crowd)


def _uses(running: RunningJobs, rows: Ints, profiles: Profiles) -> Floats:
    """Parallel share and demand of these running jobs, shape (2, k); each application and size is looked up once."""
    span = int(running.cores.max(initial=0)) + 1
    codes, place = np.unique(running.application[rows] * span + running.cores[rows], return_inverse=True)
    kinds = ((running.applications[code // span], code % span) for code in codes.tolist())
    return profiles.arrays(kinds)[:2, place]


def mean_area(view: SharingView, jobs: JobColumns, profiles: Profiles) -> float:
    """Mean of cores times run time of the running jobs and of these waiting ones [core-seconds]."""
    running = view.running
    areas = running.cores * (view.now - running.started + left_s(view, profiles)[1])
    return float(np.concatenate([areas, jobs.cores * jobs.total_s]).mean())


LATE, VERY_LATE, EASE = 1.0, 0.9, 1.1
"""Happiness of a host below which its guests get the least share, below which the last of them goes, and above which
they get back what they had."""


def guard(view: SharingView, share: float) -> list[Evict | SetShare]:
    """Decisions that protect hosts; `share` is what guests have while all is well.

    Memory counts as it was measured: together, host and guests may use no more than belongs to the host's cores. The
    guest that was started last goes first.
    """
    running = view.running
    guests = np.flatnonzero(running.host != ALONE)
    if not len(guests):
        return []
    used = running.states.memory * running.cores
    together = used + np.bincount(running.host[guests], used[guests], minlength=len(running))
    happy = running.states.happiness
    decisions: list[Evict | SetShare] = []
    for host in np.unique(running.host[guests]).tolist():
        mine = guests[running.host[guests] == host].tolist()
        active = [row for row in mine if running.share[row]]  # those that are stopped harm nobody but by their memory
        why = {"host": running.names[host], "happiness": None if np.isinf(happy[host]) else float(happy[host])}
        if together[host] > running.cores[host] * (1 + 1e-9):
            why |= {"memory": float(together[host] / running.cores[host])}
            decisions.append(Evict(_last(running, mine), why))
        elif active and happy[host] < VERY_LATE:
            decisions.append(Evict(_last(running, active), why))
        elif happy[host] < LATE:
            decisions += _shares(view, active, FLOOR, why)
        elif happy[host] > EASE:
            decisions += _shares(view, active, share, why)
    return decisions


def _last(running: RunningJobs, guests: Iterable[int]) -> str:
    """The one of these that was started last."""
    return running.names[max(guests, key=lambda row: (running.started[row], row))]


def _shares(view: SharingView, guests: list[int], share: float, why: dict[str, object]) -> list[SetShare]:
    running = view.running
    return [SetShare(running.names[row], share, why) for row in guests if abs(running.share[row] - share) > 1e-9]


_NEW = 0.3  # weight of one more observation
_BOUNDS = (0.25, 4.0)
_FORGIVEN = 0.02  # of the distance to 1, at each refusal


class Residuals:
    """A factor on the harm that is predicted, for each pair of a host's and a guest's application; 1 at first.

    A pair that has once done badly would never be tried again, and nothing more be learned about it: each refusal moves
    its factor a little towards 1, until it is tried again.

    Examples
    --------
    >>> residuals = Residuals()
    >>> residuals.learn(("blast", "montage"), predicted=0.1, harm=0.3)
    >>> round(residuals["blast", "montage"], 2)
    1.6
    >>> for _ in range(100):
    ...     residuals.refused(("blast", "montage"))
    >>> round(residuals["blast", "montage"], 2)
    1.08
    """

    def __init__(self) -> None:
        self._factors: dict[tuple[str, str], float] = {}

    def __getitem__(self, pair: tuple[str, str]) -> float:
        return self._factors.get(pair, 1.0)

    def table(self, running: RunningJobs, hosts: Ints, guests: Sequence[str]) -> Floats:
        """Factors of guests of these applications with each of the hosts (rows of `running`), shape (k, p)."""
        kinds = list(dict.fromkeys(guests))
        found = np.array([[self[host, guest] for host in running.applications] for guest in kinds])
        rows = np.array([kinds.index(guest) for guest in guests])
        return np.asarray(found[rows[:, None], running.application[hosts]])

    def learn(self, pair: tuple[str, str], predicted: float, harm: float) -> None:
        low, high = _BOUNDS
        ratio = min(high, max(low, harm / predicted))
        self._factors[pair] = (1 - _NEW) * self[pair] + _NEW * ratio

    def refused(self, pair: tuple[str, str]) -> None:
        """The pair was not tried, because of the harm."""
        if self[pair] > 1:
            self._factors[pair] += _FORGIVEN * (1 - self[pair])

    def state(self) -> dict[str, Any]:
        return {"pairs": [[*pair, factor] for pair, factor in self._factors.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._factors = {(host, guest): float(factor) for host, guest, factor in read(state, "pairs")}


ORDERS = ("queue", "longest")
GUESTS_MOST = 16
"""Waiting jobs that are considered as guests at a time: each pair with a host is predicted in full, and a decision
should take a millisecond."""

RUNS_LEAST = 0.25
"""Share of its time on a host that a guest is expected to run, at least: it is stopped for the rest."""


@dataclass(frozen=True, slots=True)
class ScavengerOptions:
    """What the rule goes by.

    Parameters
    ----------
    share
        Weight of a guest, of its host's cores, in [`FLOOR`, 1 - `FLOOR`]; what the host leaves is the guest's anyway.
    min_rate
        Slowest that a guest may be expected to be, its speed alone being 1; in (0, 1).
    worth
        What work saved is worth: a guest is admitted when the mean slowdown of all jobs is expected to rise by at most
        this many per cent for each per cent of all work that will take no cores of its own; beside a host with a bound,
        when the host is expected to lose at most this many core-seconds, 1 at most, for each that is saved; above 0.
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

    Where a host has a bound on its slowdown, that protects it: see `Promise`. A guest comes if it is expected to save
    more work than the host loses until nothing more may be lost; neither wall times nor slowdowns count.

    What applications do is learned from jobs that ended, and before the first has ended from those that run; how well
    two of them get on is learned for each pair, as a factor on the harm that is expected. Guests of a host that gets
    late have the least share, and in the end none; where memory runs short, the guest goes.

    Raises `UnknownName` when there is no such option.

    Parameters
    ----------
    options
        Fields of `ScavengerOptions`.
    """

    keeps_bounds = True

    def __init__(self, **options: Any) -> None:
        known = [each.name for each in fields(ScavengerOptions)]
        for name in options:
            if name not in known:
                raise UnknownName("option of sharing rule 'scavenger':", name, known)
        self.options = ScavengerOptions(**options)
        self._starter = Starter(self.options.queue)
        self.profiles, self._residuals, self._promise = Profiles(), Residuals(), Promise()
        self._predicted: dict[str, float] = {}
        self._shared: dict[str, list[tuple[str, str]]] = {}
        self._run_times: dict[str, float] = {}  # of waiting jobs, until more is known

    def decide(self, view: SharingView) -> list[SharingDecision]:
        """Protect hosts, start what fits, then find guests."""
        self.profiles.watch(view)
        starts, rest = self._starter.starts(view, self._ordered(view))
        begin = {start.job for start in starts}
        taken = sum(job.cores for job in view.queue if job.name in begin) if begin else 0
        idle = replace(view, free=view.free - taken)  # for guests that are stopped
        kept = self._promise.watch(idle, self.profiles, lambda: left_s(view, self.profiles)[1], self.options.share)
        guarded = {each.guest: each for each in guard(view, self.options.share)}
        guarded |= {each.guest: each for each in kept if not isinstance(guarded.get(each.guest), Evict)}
        jobs = [job for job in rest if not job.exclusive][:GUESTS_MOST]
        hosts = self._hosts(view, guarded.values())
        guests = self._guests(view, jobs, hosts) if jobs and len(hosts) else []
        decisions = [*guarded.values(), *starts, *guests]
        return [*decisions, *self._promise.decided(view, decisions)]

    def learn(self, run: SharedRun) -> None:
        self.profiles.learn(run)
        self._run_times.clear()
        predicted, pairs = self._predicted.pop(run.job, 0.0), self._shared.pop(run.job, [])
        if run.slowdown is not None and predicted > 0:
            for pair in pairs:
                self._residuals.learn(pair, predicted, run.slowdown - 1)

    def state(self) -> dict[str, Any]:
        shared = {name: [list(pair) for pair in pairs] for name, pairs in self._shared.items()}
        pending = {"foreseen": dict(self._predicted), "shared": shared, **self._promise.pending()}
        return {**self.profiles.state(), **self._residuals.state(), **self._promise.state(), "pending": pending}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.profiles.restore(state)
        self._run_times.clear()
        self._residuals.restore(state)
        self._promise.restore(state)
        if "pending" in state:
            pending = state["pending"]
            self._predicted = dict(read(pending, "foreseen"))
            self._shared = {name: [(host, guest) for host, guest in pairs] for name, pairs in pending["shared"].items()}
            self._promise.restore_pending(pending)

    def _ordered(self, view: SharingView) -> tuple[WaitingJob, ...]:
        if self.options.order == "queue":
            return view.queue
        known = self._run_times
        for job in view.queue:
            if job.name not in known:
                known[job.name] = self.profiles.run_time(job.application, job.cores, job.walltime_s)
        return tuple(sorted(view.queue, key=lambda job: -known[job.name]))

    def _hosts(self, view: SharingView, guarded: Collection[SharingDecision]) -> Ints:
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
        hosts = roomiest(view, hosts, self.profiles)
        crowd, there = waiting(jobs, self.profiles), company(view, hosts, self.profiles)
        share = view.running.share[there.rows]
        share[: len(hosts)] -= self.options.share
        kinds = [job.application for job in jobs]
        seen = self._promise.speeds(view.running, hosts, kinds)
        pairs = predict_pairs(crowd, there.crowd, there.place, share, self.options.tax, seen)
        harm = pairs.harm * self._residuals.table(view.running, hosts, kinds)
        gain = pairs.saved / mean_area(view, crowd, self.profiles)
        bounded = np.isfinite(view.running.bound[hosts])
        hosts_left_s = there.crowd.left_s[: len(hosts)]
        stay_s = self._promise.stay_s(view, hosts, hosts_left_s, pairs.host_rate, pairs.together_s)
        saved = np.where(bounded, crowd.cores[:, None] * stay_s * pairs.rate, pairs.saved)
        lost = np.where(bounded, view.running.cores[hosts] * stay_s * (1 - pairs.host_rate), 0.0)
        possible = pairs.legal & (pairs.rate >= self.options.min_rate) & (bounded | ~pairs.late)
        possible &= (stay_s > 0) & (stay_s >= RUNS_LEAST * pairs.together_s)
        worth = self.options.worth
        taken = possible & np.where(bounded, lost <= min(1.0, worth) * saved, harm <= worth * gain)
        refused = possible & ~taken
        self._promise.refused(view.running, hosts, kinds, refused & bounded)
        self._forgive(view, jobs, hosts, refused & ~bounded)
        left = np.where(taken, saved - lost, 0.0)
        numbers = {"rate": pairs.rate, "harm": harm, "gain": gain, "saved": saved, "lost": lost}
        decisions: list[SharingDecision] = []
        while (best := int(left.argmax())) >= 0 and left.flat[best] > 0:
            job, place = divmod(best, len(hosts))
            left[job, :] = left[:, place] = 0.0
            host = int(hosts[place])
            self._remember(view.running, jobs[job], host, float(pairs.own[job, place]), float(pairs.harm[job, place]))
            why = self._reason(view, host, numbers, (job, place))
            decisions.append(StartGuest(jobs[job].name, view.running.names[host], self.options.share, why=why))
        return decisions

    def _reason(self, view: SharingView, host: int, found: Mapping[str, Floats], pair: tuple[int, int]) -> LazyReason:
        return LazyReason(
            lambda: (
                {name: float(values[pair]) for name, values in found.items()}
                | {"state": view.running.states.record(host)}
            )
        )

    def _remember(self, running: RunningJobs, job: WaitingJob, host: int, own: float, harm: float) -> None:
        """What is predicted for a guest, and for its host, to be compared with what happens."""
        name = running.names[host]
        pair = (running.applications[int(running.application[host])], job.application)
        for who, expected in ((job.name, own), (name, harm - own)):
            self._predicted[who] = self._predicted.get(who, 0.0) + expected
            self._shared.setdefault(who, []).append(pair)

    def _forgive(self, view: SharingView, jobs: list[WaitingJob], hosts: Ints, refused: Bools) -> None:
        running, kinds = view.running, sorted({job.application for job in jobs})
        guest = np.array([kinds.index(job.application) for job in jobs])
        codes = running.application[hosts] * len(kinds) + guest[:, None]
        for code in np.unique(codes[refused]).tolist():
            host, kind = divmod(code, len(kinds))
            self._residuals.refused((running.applications[host], kinds[kind]))
