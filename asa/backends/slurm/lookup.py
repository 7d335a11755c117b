"""How jobs stand: the controller's queue first, and the accounting for what has left it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from asa.backends import batch
from asa.backends.slurm import identity, states
from asa.backends.slurm.record import JobRecord
from asa.backends.slurm.transport import Transport
from asa.core.job import Dependency, DependencyKind, JobHandle, JobStatus


def in_queue(slurm: Transport, handles: Sequence[JobHandle]) -> dict[JobHandle, JobRecord]:
    """What the controller has of these jobs."""
    return identity.match(handles, slurm.queue(identity.keys(handles)))


def query(slurm: Transport, handles: Sequence[JobHandle], now: float) -> list[JobStatus]:
    """One status per handle, in order, at the time `now` [s since the epoch]."""
    queued = in_queue(slurm, handles)
    gone = [handle for handle in handles if handle not in queued]
    accounted = identity.match(gone, slurm.accounting(identity.keys(gone)))
    return [states.status(handle, queued.get(handle), accounted.get(handle), now) for handle in handles]


def find(slurm: Transport, tokens: Sequence[str]) -> dict[str, JobHandle]:
    """Jobs by the token they were submitted under; a token that no job carries is left out.

    An array that was left half made, by a call without an answer or a driver that died, is cancelled, and left out.
    """
    queued = slurm.queue_by_name(tokens)
    halves = _half_made(tokens, queued)
    slurm.cancel(sorted(halves))
    found = _named(tokens, queued, halves)
    missing = [token for token in tokens if token not in found]
    return found | _named(missing, slurm.accounting_by_name(missing), halves)


def _half_made(tokens: Sequence[str], records: Sequence[JobRecord]) -> set[str]:
    """Ids of arrays of which several elements have one name: that of the first, until they are given their own."""
    names = {record.key: record.name for record in records if record.name in tokens}
    elements = Counter((key.partition("_")[0], name) for key, name in names.items())
    return {job_id for (job_id, _), count in elements.items() if count > 1}


def _named(tokens: Sequence[str], records: Sequence[JobRecord], without: Collection[str]) -> dict[str, JobHandle]:
    """Handles of the jobs of these names; of several, that which has not ended, and then the one submitted first.

    In the accounting, elements of an array that were not given their own names have the first one's.
    """
    wanted, found = set(tokens), dict[str, JobHandle]()
    ordered = sorted(
        (states.state_of(record).final, handle.submitted, handle.array_index or 0, at)
        for at, record in enumerate(records)
        for handle in [identity.handle_of(record)]
        if record.name in wanted and handle.job_id not in without
    )
    for *_, at in ordered:
        found.setdefault(records[at].name, identity.handle_of(records[at]))
    return found


def unfulfilled(
    slurm: Transport, dependencies: Sequence[Dependency], queued: Mapping[JobHandle, JobRecord], now: float
) -> tuple[Dependency, ...]:
    """Dependencies that are not fulfilled yet; `queued` is what the controller has of the jobs that they name.

    Slurm takes a job that it has forgotten for one that ended well, so those are judged here.

    Raises
    ------
    SiteRefusal
        When one can never be fulfilled.
    """
    there = [item for item in dependencies if item.on in queued]
    gone = [item for item in dependencies if item.on not in queued and item.kind is DependencyKind.AFTER_OK]
    return (*there, *batch.unfulfilled(gone, lambda handles: query(slurm, handles, now)))
