"""What matters to planning of a site under PBS. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from asa.backends.pbs.parse import Attributes, document, seconds, size
from asa.core.job import Capabilities, QueueRegime, Resources

_AWAY = ("down", "offline", "unknown", "stale", "provisioning")


def server(text: str) -> tuple[str, Attributes]:
    """The server's name and settings, from ``qstat -B -f -F json``."""
    return next(iter(document(text, "Server").items()), ("pbs", {}))


def capabilities(
    name: str, queue: str, settings: Attributes, of_queue: Attributes, nodes: Iterable[Attributes], *, poll_s: float
) -> Capabilities:
    """What a server, its settings, those of a queue, and its nodes amount to.

    The regime is the strictest: a job that waits for another is not eligible, and gathers no eligible time.
    """
    able = [node for node in nodes if not any(word in str(node.get("state", "")) for word in _AWAY)]
    rooms = [node.get("resources_available", {}) for node in able]
    cores = [int(room.get("ncpus", 0)) for room in rooms]
    memory = [size(room.get("mem")) for room in rooms]
    largest = None
    if sum(cores):
        known = [amount for amount in memory if amount is not None]
        whole = sum(known) if len(known) == len(memory) else None
        largest = Resources(sum(cores), None, whole, sum(int(room.get("ngpus", 0)) for room in rooms))
    details = {"reached through": "PBS's commands", "version": str(settings.get("pbs_version", "?"))}
    if str(settings.get("job_history_enable", "")).lower() != "true":
        details["job history"] = "off: jobs that have ended count as lost; ask the site for job_history_enable"
    return Capabilities(
        site=name,
        partition=queue,
        regime=QueueRegime.LIMITS,
        largest=largest,
        cores_per_node=max(cores, default=None),
        longest_s=seconds(of_queue.get("resources_max", {}).get("walltime")),
        poll_s=poll_s,
        details=details,
    )
