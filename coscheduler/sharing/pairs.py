"""What would come of each waiting job as a guest of each host: by how much everybody there would be slower.

Jobs alternate between parallel stages, in which they want most of their cores, and sequential ones, in which they want
a single one. What each is doing when is not known in advance; how much of the time is. All at once, as matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asa.core.arrays import Bools, Floats, Ints


@dataclass(frozen=True, eq=False, slots=True)
class Crowd:
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
class Pairs:
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
    legal
        Whether the cores and the memory suffice, and nobody is expected to exceed its wall time.
    """

    harm: Floats
    own: Floats
    rate: Floats
    saved: Floats
    legal: Bools


def foresee(jobs: Crowd, company: Crowd, place: Ints, share: Floats, tax: float) -> Pairs:
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
        Speed that is left for each further job on the same cores, as in `coscheduler.contention.Contention`.
    """
    members = np.bincount(place)
    hosts = len(members)
    stretch, busy = _newcomer(jobs, company, place, share, tax)
    want, cores = jobs.demand[:, None], company.cores[:hosts]
    # The company is slower while they and the guest are in parallel stages.
    granted = np.maximum((share * cores[place])[None, :], cores[place][None, :] - want)
    slow = busy[:, place] * np.minimum(1, granted / company.demand) + 1 - busy[:, place]
    theirs = (company.parallel / slow + 1 - company.parallel) / tax

    together = np.minimum(company.left_s[:hosts] * theirs[:, :hosts], jobs.total_s[:, None] * stretch)
    lost = together * (1 - 1 / stretch)
    their_loss = np.minimum(together[:, place], company.left_s * theirs) * (1 - 1 / theirs)
    own = lost / jobs.total_s[:, None]
    harm = own + _sums(their_loss / company.total_s, place, hosts)
    theirs_late = (their_loss > np.maximum(company.slack_s, 0.0)).astype(np.float64)
    late = (lost > jobs.slack_s[:, None]) | (_sums(theirs_late, place, hosts) > 0)
    memory = jobs.memory[:, None] + np.bincount(place, company.memory)
    room = 2 * cores - np.bincount(place, company.cores)  # the host's, less those of its guests
    legal = (jobs.cores[:, None] <= room) & (memory <= cores * (1 + 1e-9)) & ~late
    return Pairs(harm, own, 1 / stretch, jobs.cores[:, None] * together / stretch, legal)


def _newcomer(jobs: Crowd, company: Crowd, place: Ints, share: Floats, tax: float) -> tuple[Floats, Floats]:
    """How much longer the guests would take, and for which share of it they would be in parallel stages; (k, p)."""
    members = np.bincount(place)
    cores = company.cores[: len(members)]
    quota = (1 - np.bincount(place, share)) * cores  # what the others leave to the newcomer in any case
    busiest = np.zeros(len(members))
    np.maximum.at(busiest, place, np.where(company.parallel > 0, company.demand, 1.0))
    quiet = np.ones(len(members))  # probability that nobody there is in a parallel stage
    np.multiply.at(quiet, place, 1 - company.parallel)
    crowded, calm = np.maximum(quota, cores - busiest), np.maximum(quota, cores - members)
    want, parallel = jobs.demand[:, None], jobs.parallel[:, None]
    busy_s = parallel / ((1 - quiet) * np.minimum(1, crowded / want) + quiet * np.minimum(1, calm / want))
    calm_s = (1 - parallel) / ((1 - quiet) * np.minimum(1, crowded) + quiet)
    return np.asarray((busy_s + calm_s) / tax**members), np.asarray(busy_s / (busy_s + calm_s))


def _sums(values: Floats, place: Ints, hosts: int) -> Floats:
    """Sums over those on the same host, shape (k, p) from (k, n)."""
    if len(place) == hosts:  # nobody has guests yet
        return values
    found = np.zeros((len(values), hosts))
    np.add.at(found.T, place, values.T)
    return found
