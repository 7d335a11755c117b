"""A bound on the slowdown of hosts: what each has lost to its guests so far, and what it may still lose.

While a host is alone, its progress reports say how long its work takes; while it has guests, how much of the time is
lost. A guest is admitted if what is expected of the pair fits into the bound, and stopped before the loss can have
passed it; it goes on when the host may lose more. What slows the host down need not be known: CPU, caches, bandwidth,
or a phase that no counter shows.

How long a host waits for CPUs is a second account, in the same terms: a second in which it does not wait is a second of
progress. For a host that reports, what its mean thread waits is lost at least, and either account stops a guest. For
one that does not, and whose bound is on contention for CPUs only, all time in which any thread waits counts as lost.

A host that does not report may go by the instructions that it executes instead: these are its progress then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from coscheduler.nouns import (
    ALONE,
    LOOK_S,
    Evict,
    LookAgain,
    RunningJobs,
    SetShare,
    SharingDecision,
    SharingView,
    StartGuest,
)
from coscheduler.profiles import Profiles

SURE = 3.0
"""Standard deviations by which an account must be within its bound."""
LOOKS = 5
"""Reports of a host alone before it may have guests."""
ALONE_S = 10.0
"""Time between looks at a host that may not have guests yet [s]."""
TRIAL_S = 5.0
"""Least that a host may still lose for a guest to be admitted [s]."""
RESUME_S = 20.0
"""Least that it may lose for a guest that was stopped to go on [s]."""
NOISE, _NOISE_LOOKS = 1e-3, 10
"""Variance of the run time of a host's whole work, as a share of its square, before any was seen: worth ten looks."""
SPREAD = 0.05
"""Standard deviation of a run time that was learned from other jobs, as a share of it."""
_KEPT = 0.995
"""What is kept of the knowledge about a pair at each refusal: in the end it is tried again."""
_NOISE_MOST = 200  # looks that what is known of an application's noise counts as, at most
_NOISES = ("noise", "waited_most_noise", "waited_least_noise", "instructions_noise")
_ACCOUNTS = ("accounts", "waited_most", "waited_least", "instructions")
_LEAST_S, _MOST_S = 10.0, 7200.0
"""Times together that count: less than this is no knowledge about a pair, and more than that counts as that [s]."""


@dataclass(slots=True)
class Account:
    """A host with a bound, as far as it was seen.

    Parameters
    ----------
    application
        The host's.
    at, done
        When it has reported last [s], and the share of its work that was done by then.
    alone_s, alone_done
        Time that it was seen alone [s], and the share of its work done meanwhile.
    shared_s, shared_done
        The same with guests.
    squares, looks
        Sum, over its reports alone but the first, of squared errors of prediction, each divided by what its variance
        would be if that of the whole work were 1; and how many reports these were.
    guests
        Applications of the guests that it had after the last look.
    pair_s, pair_done
        Time, and share of its work done, with just these.
    known_s
        Run time alone that was learned from other jobs [s]; 0 where none was.
    """

    application: str
    at: float
    done: float
    alone_s: float = 0.0
    alone_done: float = 0.0
    shared_s: float = 0.0
    shared_done: float = 0.0
    squares: float = 0.0
    looks: int = 0
    guests: tuple[str, ...] = ()
    pair_s: float = 0.0
    pair_done: float = 0.0
    known_s: float = 0.0

    def look(self, now: float, done: float) -> None:
        """Take in what was reported; the time since the last look was spent with `guests`."""
        over_s, more = now - self.at, max(0.0, done - self.done)
        if self.guests:
            self.shared_s, self.shared_done = self.shared_s + over_s, self.shared_done + more
            self.pair_s, self.pair_done = self.pair_s + over_s, self.pair_done + more
        elif more > 0:
            if self.alone_done > 0:
                error = over_s * self.alone_done / self.alone_s - more
                self.squares += error**2 / (more * (1 + more / self.alone_done))
                self.looks += 1
            self.alone_s, self.alone_done = self.alone_s + over_s, self.alone_done + more
        else:
            return  # this time belongs to the next report
        self.at, self.done = now, self.done + more


_NONE = Account("", 0.0, 0.0)


class Balance(NamedTuple):
    """What accounts come to; arrays of shape (p,). Where waiting for CPUs is the evidence, the work is a second of it.

    Parameters
    ----------
    bound
        As a share of the time alone.
    work_s
        How long the whole work takes alone [s].
    alone_s
        Time without guests [s].
    shared
        Share of the work done with guests.
    lost_s
        Time lost to them [s]: more than 0 means slower than alone.
    noise
        Variance of the run time of the whole work, as a share of its square.
    weight
        Inverse of the variance of `work_s`, as a share of its square.
    open
        Whether there were enough reports.
    """

    bound: Floats
    work_s: Floats
    alone_s: Floats
    shared: Floats
    lost_s: Floats
    noise: Floats
    weight: Floats
    open: Bools

    def where(self, chosen: Bools | Sequence[bool], other: Balance) -> Balance:
        """The other, for the chosen hosts."""
        return Balance(*(np.where(chosen, theirs, mine) for mine, theirs in zip(self, other, strict=True)))

    def slack_s(self, more_s: Floats | float = 0.0, lost_s: Floats | float = 0.0) -> Floats:
        """What may still be lost once guests have stayed `more_s` longer and `lost_s` of that is lost [s].

        The loss is taken to be `SURE` standard deviations more than it seems: those of the work done with guests, and
        those of how long that takes alone. What may be lost until the next look is taken off.
        """
        shared = self.shared + (more_s - lost_s) / self.work_s
        error = self.work_s * np.sqrt(self.noise * shared + shared**2 / self.weight)
        allowed = self.bound * (self.alone_s + self.work_s * shared)
        return np.asarray(allowed - (self.lost_s + lost_s) - SURE * error - LOOK_S)


class HostAccounts:
    """Accounts of hosts by one kind of evidence, and how noisy it is for each application."""

    def __init__(self) -> None:
        self.of: dict[str, Account] = {}
        self.noise: dict[str, tuple[float, float]] = {}

    def look(self, name: str, now: float, done: float, began: tuple[float, float], application: str) -> Account:
        """Take in how much a host has done by now; a new account begins then, with so much done."""
        account = self.of.setdefault(name, Account(application, *began))
        account.look(now, done)
        return account

    def close(self, name: str) -> None:
        """A host has ended, or goes by other evidence."""
        account = self.of.pop(name)
        squares, looks = self._seen_noise(account)
        share = min(1.0, _NOISE_MOST / looks)
        self.noise[account.application] = (share * squares, share * looks)

    def balance(self, names: Sequence[str], bound: Floats) -> Balance:
        """What the accounts of these hosts come to; those without one are not open."""
        accounts = [self.of.get(name) or _NONE for name in names]
        work_s, noise, weight = np.array([self.work(account) for account in accounts]).reshape(-1, 3).T
        shared = np.array([account.shared_done for account in accounts])
        return Balance(
            bound=np.where(np.isfinite(bound), bound, 0.0),
            work_s=work_s,
            alone_s=np.array([account.alone_s for account in accounts]),
            shared=shared,
            lost_s=np.array([account.shared_s for account in accounts]) - work_s * shared,
            noise=noise,
            weight=weight,
            open=np.array([account.looks >= LOOKS for account in accounts], dtype=np.bool_),
        )

    def work(self, account: Account) -> tuple[float, float, float]:
        """How long the whole work takes alone [s], the variance of such times, and the weight of the estimate.

        Both variances are shares of the square. What was seen of the host alone, and what other jobs took, count by the
        inverse of their variances.
        """
        squares, looks = self._seen_noise(account)
        noise = squares / looks
        seen, known = account.alone_done / noise, SPREAD**-2 if account.known_s else 0.0
        if not seen + known:
            return 1.0, noise, 1.0  # unknown
        mine_s = account.alone_s / account.alone_done if account.alone_done else 0.0
        return (seen * mine_s + known * account.known_s) / (seen + known), noise, seen + known

    def _seen_noise(self, account: Account) -> tuple[float, float]:
        """Sum of the squared errors of an application's reports, this host's included, and how many these were."""
        squares, looks = self.noise.get(account.application, (NOISE * _NOISE_LOOKS, _NOISE_LOOKS))
        return squares + account.squares, looks + account.looks

    def pending(self) -> dict[str, Any]:
        return {name: asdict(account) for name, account in self.of.items()}

    def restore(self, noise: Mapping[str, Sequence[float]]) -> None:
        self.noise = {name: (squares, looks) for name, (squares, looks) in noise.items()}

    def restore_pending(self, accounts: Mapping[str, Mapping[str, Any]]) -> None:
        self.of = {name: Account(**{**each, "guests": tuple(each["guests"])}) for name, each in accounts.items()}


class Promise:
    """Accounts of all hosts with a bound, and how fast hosts were beside which guests."""

    def __init__(self) -> None:
        self._progress, self._waited_most, self._waited_least = HostAccounts(), HostAccounts(), HostAccounts()
        self._instructions = HostAccounts()
        self._silent = self._waited_most, self._instructions  # what a host goes by that does not report: one of these
        self._guests: set[str] = set()
        self._since: float | None = None  # of what was before nothing is known
        self._speeds: dict[tuple[str, str], tuple[float, float]] = {}

    def watch(
        self, view: SharingView, profiles: Profiles, left: Callable[[], Floats], share: float
    ) -> list[Evict | SetShare]:
        """Take in what was reported; the guests that have to stop, or go, and those that may go on, with this share.

        The last one of a host whose account is used up, or would be before one of the two has ended, is stopped; where
        that is not possible it is evicted. `left` says how much of its run time is left to each running job, shape (n,)
        [s].
        """
        running = view.running
        self._since = view.now if self._since is None else self._since
        guests: dict[int, list[int]] = {}
        stopped: dict[int, list[int]] = {}
        for guest in np.flatnonzero(running.host != ALONE).tolist():
            kind = guests if running.share[guest] else stopped
            kind.setdefault(int(running.host[guest]), []).append(guest)
        rows = np.flatnonzero((running.host == ALONE) & np.isfinite(running.bound)).tolist()
        for name in {name for each in self._kinds for name in each.of} - {running.names[row] for row in rows}:
            self._close(name)
        for row in rows:
            self._look(view, row, guests.get(row, ()), profiles)
        self._guests = {running.names[row] for row in np.flatnonzero(running.host != ALONE).tolist()}
        found = self._stopped(view, profiles, stopped, left, share)
        hosts = [row for row in rows if row in guests and self._account(running.names[row])]
        if not hosts:
            return found
        balance = self.balance(running, np.array(hosts))
        last = [max(guests[row], key=lambda guest: (running.started[guest], guest)) for row in hosts]
        left_s = left()
        more_s = np.minimum(left_s[hosts], left_s[last])
        lost_s = more_s * (1 - self._hopeful(running, hosts, balance))
        spent = balance.slack_s() <= 0
        if not view.stops:
            spent |= balance.slack_s(more_s, lost_s) < 0
        for place in np.flatnonzero(spent).tolist():
            why = {
                "host": running.names[hosts[place]],
                "lost": float(balance.lost_s[place]),
                "expected": float(lost_s[place]),
                "bound": float(balance.bound[place]),
                **self._waited(running.names[hosts[place]]),
            }
            name = running.names[last[place]]
            found.append(SetShare(name, 0.0, why) if view.stops else Evict(name, why))
        return found

    def _stopped(
        self,
        view: SharingView,
        profiles: Profiles,
        stopped: Mapping[int, Sequence[int]],
        left: Callable[[], Floats],
        share: float,
    ) -> list[Evict | SetShare]:
        """Of guests that are stopped, by host, those that may go on, and those that end sooner on cores of their own,
        from their beginning."""
        running = view.running
        hosts = [row for row in stopped if self._account(running.names[row])]
        found: list[Evict | SetShare] = []
        if not hosts:
            return found
        balance, left_s, free = self.balance(running, np.array(hosts)), left(), view.free
        for host, slack_s in zip(hosts, balance.slack_s().tolist(), strict=True):
            guest, cores = stopped[host][0], int(running.cores[stopped[host][0]])
            application = running.applications[running.application[guest]]
            done_s = running.done[guest] * profiles.run_time(application, cores, float(running.walltime[guest]))
            why = {"host": running.names[host]}
            if cores <= free and done_s < left_s[host]:
                free -= cores
                found.append(Evict(running.names[guest], why))
            elif slack_s >= RESUME_S:
                found.append(SetShare(running.names[guest], share, why))
        return found

    def _hopeful(self, running: RunningJobs, hosts: Sequence[int], balance: Balance) -> Floats:
        """Speeds that these hosts may have beside their present guests, shape (p,): a standard deviation above what
        was seen, at most 1; 1 where that was for less than `TRIAL_S`."""
        accounts = [self._account(running.names[row]) or _NONE for row in hosts]
        seen_s = np.array([account.pair_s for account in accounts])
        done = np.array([account.pair_done for account in accounts])
        error = np.sqrt(balance.noise * done + done**2 / balance.weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            speed = balance.work_s * (done + error) / seen_s
        return np.asarray(np.where(seen_s >= TRIAL_S, np.minimum(1.0, speed), 1.0))

    def speeds(self, running: RunningJobs, hosts: Ints, guests: Sequence[str]) -> Floats | None:
        """Speeds of hosts (p rows) beside guests of these applications (k), as far as such pairs have shared cores.

        Shape (k, p), 1 being the speed alone; NaN for pairs of which nothing is known. None where all are.
        """
        if not self._speeds:
            return None
        found = np.full((len(guests), len(hosts)), np.nan)
        for place, row in enumerate(hosts.tolist()):
            host = running.applications[running.application[row]]
            for kind, guest in enumerate(guests):
                seen_s, alone_s = self._speeds.get((host, guest), (0.0, 0.0))
                if seen_s >= _LEAST_S:
                    found[kind, place] = min(1.0, alone_s / seen_s)
        return found

    def stay_s(self, view: SharingView, hosts: Ints, left_s: Floats, host_rate: Floats, together_s: Floats) -> Floats:
        """For how long each guest (k) may run beside each host (p rows) within its bound, shape (k, p) [s]; 0: not now.

        Where guests can be stopped, that is until the host has lost what it may lose now, and what it earns in the rest
        of its run time; else one comes only if all that it is expected to cost fits.

        Parameters
        ----------
        left_s
            What is left of each host's run time, shape (p,) [s].
        host_rate, together_s
            The host's expected speed beside each guest, and for how long they would share cores [s]; shape (k, p).
        """
        bounded = np.isfinite(view.running.bound[hosts])
        if not bounded.any():
            return together_s
        balance = self.balance(view.running, hosts)
        slack_s = balance.slack_s()
        if view.stops:
            with np.errstate(divide="ignore", invalid="ignore"):
                fits_s = np.minimum(together_s, (slack_s + balance.bound * left_s) / (1 - host_rate))
        else:
            fits_s = np.where(balance.slack_s(together_s, together_s * (1 - host_rate)) >= 0, together_s, 0.0)
        return np.where(bounded, np.where(balance.open & (slack_s >= TRIAL_S), fits_s, 0.0), together_s)

    def refused(self, running: RunningJobs, hosts: Ints, guests: Sequence[str], pairs: Bools) -> None:
        """These guests (by application, of k) did not come to these hosts (p rows) for what the pair is known to cost,
        shape (k, p): that counts a little less from now on."""
        kinds = {
            (running.applications[running.application[hosts[at]]], guests[kind]) for kind, at in np.argwhere(pairs)
        }
        for pair in kinds & self._speeds.keys():
            seen_s, alone_s = self._speeds[pair]
            self._speeds[pair] = (_KEPT * seen_s, _KEPT * alone_s)

    def decided(self, view: SharingView, decisions: Iterable[SharingDecision]) -> list[LookAgain]:
        """Take note of guests that come and go now; when to ask again, so that no account is used up unseen."""
        running = view.running
        places = {name: row for row, name in enumerate(running.names)}
        kinds = {job.name: job.application for job in view.queue}
        for decision in decisions:
            match decision:
                case StartGuest(host=host) if account := self._account(host):
                    self._change(host, (*account.guests, kinds[decision.job]))
                case Evict(guest=guest):
                    self._have(running, places[guest], runs=False)
                case SetShare(guest=guest, share=share):
                    self._have(running, places[guest], runs=share > 0)
        known = {name for each in self._kinds for name in each.of}
        rows = [row for row, name in enumerate(running.names) if name in known]
        if not rows:
            return []
        balance = self.balance(running, np.array(rows))
        waits = []
        for row, slack_s, ready in zip(rows, balance.slack_s().tolist(), balance.open.tolist(), strict=True):
            if (self._account(running.names[row]) or _NONE).guests:
                waits.append(max(LOOK_S, slack_s))
            elif not ready:
                waits.append(ALONE_S)
        return [LookAgain(view.now + min(waits))] if waits else []

    def _have(self, running: RunningJobs, guest: int, *, runs: bool) -> None:
        """From now on a guest (its row) runs, or does not."""
        host = running.names[running.host[guest]]
        account = self._account(host)
        if account is not None and runs != (running.share[guest] > 0):
            kind, guests = running.applications[running.application[guest]], list(account.guests)
            (guests.append if runs else guests.remove)(kind)
            self._change(host, tuple(guests))

    def balance(self, running: RunningJobs, hosts: Ints) -> Balance:
        """What the accounts of these hosts come to; those without one are not open.

        Of a host that reports it is that of its progress, or of its waiting, whichever may lose less.
        """
        names, bound = [running.names[row] for row in hosts.tolist()], running.bound[hosts]
        found = self._progress.balance(names, bound)
        for each in self._silent:
            if each.of:
                found = found.where([name in each.of for name in names], each.balance(names, bound))
        if not self._waited_least.of:
            return found
        beside = self._waited_least.balance(names, bound)
        return found.where(beside.open & (beside.slack_s() < found.slack_s()), beside._replace(open=found.open))

    @property
    def _kinds(self) -> tuple[HostAccounts, ...]:
        return self._progress, self._waited_most, self._waited_least, self._instructions

    def _evidence(self, name: str) -> HostAccounts:
        """Where the account is that a host goes by, if it has one."""
        return next((kind for kind in self._silent if name in kind.of), self._progress)

    def _account(self, name: str) -> Account | None:
        """The account that a host goes by; None where there is no evidence."""
        return self._evidence(name).of.get(name)

    def _waited(self, name: str) -> dict[str, float]:
        """For which share of its time with these guests a host has waited for CPUs, where that is known."""
        return {
            kind: 1 - account.pair_done / account.pair_s
            for kind, each in zip(_ACCOUNTS[1:3], self._kinds[1:3], strict=True)
            if (account := each.of.get(name)) is not None and account.pair_s
        }

    def _look(self, view: SharingView, row: int, guests: Sequence[int], profiles: Profiles) -> None:
        running, name = view.running, view.running.names[row]
        done, (least_s, most_s) = float(running.done[row]), running.unhindered[row].tolist()
        began, application = float(running.started[row]), running.applications[running.application[row]]
        if any(name in each.of and each.of[name].at < began for each in self._kinds):
            self._close(name)  # it was lost with a node, and began anew
        # its work so far was done as a guest, or beside guests perhaps, before another co-scheduler took over
        unseen = name in self._guests or (self._since is not None and began < self._since)
        had = self._account(name)
        if not np.isnan(done):
            late = unseen or any(kind.of[name].shared_s > 0 for kind in self._silent if name in kind.of)
            account = self._progress.look(name, view.now, done, (view.now, done) if late else (began, 0.0), application)
            account.known_s = profiles.known_run_time(application, int(running.cores[row])) or 0.0
            for kind in self._silent:
                if name in kind.of:
                    kind.close(name)
            if not np.isnan(most_s):
                self._waited_least.look(name, view.now, most_s, (view.now, most_s), application)
        elif running.by_pressure[row] and not np.isnan(least_s):
            self._waited_most.look(name, view.now, least_s, (view.now, least_s), application)
        elif not np.isnan(executed := float(running.instructions[row])):
            self._instructions.look(name, view.now, executed, (view.now, executed), application)
        elif had is not None:
            had.look(view.now, had.done)  # its node does not answer: while it has guests, that is lost
        if self._account(name):
            self._change(name, tuple(running.applications[running.application[guest]] for guest in guests))

    def _change(self, host: str, guests: tuple[str, ...]) -> None:
        """From now on the host has guests of these applications."""
        self._learn_pair(host, guests)
        for account in (each.of[host] for each in self._kinds if host in each.of):
            if guests != account.guests:
                account.guests, account.pair_s, account.pair_done = guests, 0.0, 0.0

    def _close(self, name: str) -> None:
        """A host has ended, or runs no more."""
        self._learn_pair(name)
        for each in self._kinds:
            if name in each.of:
                each.close(name)

    def _learn_pair(self, host: str, guests: tuple[str, ...] | None = None) -> None:
        """What was seen of a host with its guest until now, unless it keeps the same `guests`."""
        account = self._account(host)
        if account is not None and len(account.guests) == 1 and account.pair_s > 0 and guests != account.guests:
            pair = (account.application, account.guests[0])
            seen_s, alone_s = self._speeds.get(pair, (0.0, 0.0))
            work_s = self._evidence(host).work(account)[0]
            seen_s, alone_s = seen_s + account.pair_s, alone_s + work_s * account.pair_done
            share = min(1.0, _MOST_S / seen_s)
            self._speeds[pair] = (share * seen_s, share * alone_s)

    def state(self) -> dict[str, Any]:
        """What was learned of pairs and applications, JSON-able."""
        return {
            "speeds": [[*pair, *times] for pair, times in self._speeds.items()],
            **{
                kind: {application: list(seen) for application, seen in each.noise.items()}
                for kind, each in zip(_NOISES, self._kinds, strict=True)
            },
        }

    def pending(self) -> dict[str, Any]:
        """The accounts, JSON-able."""
        return {
            **{kind: each.pending() for kind, each in zip(_ACCOUNTS, self._kinds, strict=True)},
            "guests": sorted(self._guests),
            "since": self._since,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` has returned."""
        self._speeds = {(host, guest): (seen, alone) for host, guest, seen, alone in state.get("speeds", [])}
        for kind, each in zip(_NOISES, self._kinds, strict=True):
            each.restore(state.get(kind, {}))

    def restore_pending(self, state: Mapping[str, Any]) -> None:
        """Take over what `pending` has returned."""
        for kind, each in zip(_ACCOUNTS, self._kinds, strict=True):
            each.restore_pending(state.get(kind, {}))
        self._guests, self._since = set(state.get("guests", [])), state.get("since")
