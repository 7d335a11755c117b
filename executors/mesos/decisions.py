"""What our framework decides, for a driver to carry out, and what it tells of gangs and crews."""

from __future__ import annotations

from typing import NamedTuple

from executors.mesos.codec import Message

NEVER_S = 3600.0 * 24 * 30


class Accept(NamedTuple):
    """Launch these tasks from one agent's offers."""

    offers: tuple[str, ...]
    tasks: tuple[Message, ...]


class Decline(NamedTuple):
    """Give offers back, not to be offered the same for `refuse_s` [s]."""

    offers: tuple[str, ...]
    refuse_s: float


class Kill(NamedTuple):
    """End a task."""

    task: str
    agent: str


class Reconcile(NamedTuple):
    """Say how these tasks, as (task, agent), stand; without any, all that there are of ours."""

    tasks: tuple[tuple[str, str], ...]


class Revive(NamedTuple):
    """All offers again, please."""


class Suppress(NamedTuple):
    """No offers for now."""


Call = Accept | Decline | Kill | Reconcile | Revive | Suppress


class Outcome(NamedTuple):
    """What became of a gang, of a lease, or of a crew's task on one agent.

    Parameters
    ----------
    key
        Of the gang, lease or crew.
    state
        ``started`` (all of it), ``retried`` (rolled back, waits again), ``leased``, ``finished`` or ``failed``.
    reason
        In words, for those that did not go well.
    agent
        For a crew's task, which agent.
    """

    key: str
    state: str
    reason: str = ""
    agent: str = ""
