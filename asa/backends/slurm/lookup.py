"""How jobs stand: the controller's queue first, and the accounting for what has left it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from asa.backends.slurm import identity, states
from asa.backends.slurm.failures import SiteRefusal
from asa.backends.slurm.record import JobRecord
from asa.backends.slurm.transport import Transport
from asa.core.job import Dependency, DependencyKind, JobHandle, JobState, JobStatus


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
    """Jobs by the token they were submitted under; a token that no job carries is left out."""
    found = _named(tokens, slurm.queue_by_name(tokens))
    missing = [token for token in tokens if token not in found]
    return found | _named(missing, slurm.accounting_by_name(missing))


def _named(tokens: Sequence[str], records: Sequence[JobRecord]) -> dict[str, JobHandle]:
    """Handles of the jobs of these names; of several, that which has not ended, and then the one submitted first.

    Elements of an array that were not given their own names have the first one's.
    """
    wanted, found = set(tokens), dict[str, JobHandle]()
    ordered = sorted(
        (states.state_of(record).final, handle.submitted, handle.array_index or 0, at)
        for at, record in enumerate(records)
        for handle in [identity.handle_of(record)]
    )
    for *_, at in ordered:
        if records[at].name in wanted:
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
    needed = [item.on for item in dependencies if item.kind is DependencyKind.AFTER_OK]
    for status in query(slurm, [handle for handle in needed if handle not in queued], now):
        if status.state is not JobState.COMPLETED:
            name = f"{identity.key(status.handle)} ({status.handle.token})"
            reason = f"it was to follow job {name}, which ended as {status.state.value}"
            raise SiteRefusal(reason, reason)
    return tuple(item for item in dependencies if item.on in queued)
