"""The questions that are put to Slurm, whatever carries them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from asa.backends.slurm.record import JobRecord, NodeGroup, VisibleJob


class Transport(Protocol):
    """A way to talk to one Slurm cluster as one user.

    Jobs are named by keys: an id, or ``ID_INDEX``. Every method raises `BackendError`, ``transient`` when Slurm did not
    answer; a `SiteRefusal` when it said no. `arrays` tells whether elements of job arrays can be changed singly.
    """

    arrays: bool

    def name(self) -> str:
        """What Slurm is reached through, for people."""

    def version(self) -> tuple[int, ...]: ...
    def submit(self, options: Sequence[str], script: str) -> str:
        """Submit a batch job with these sbatch options; returns its id."""

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        """Those of these jobs that the controller knows, and perhaps more of the user's."""

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        """The user's jobs of these names that the controller knows, and perhaps more of the user's."""

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        """Those of these jobs that the accounting knows; none where there is no accounting."""

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        """The user's jobs of these names that the accounting knows."""

    def everyone(self, partitions: Sequence[str]) -> list[VisibleJob]:
        """Anybody's jobs in these partitions that wait or hold nodes."""

    def update(self, key: str, settings: Sequence[str]) -> None:
        """Change a job; settings are scontrol's ``Name=value``."""

    def cancel(self, keys: Sequence[str]) -> None:
        """End jobs; those that have ended, or that nobody knows, are passed over in silence."""

    def configuration(self) -> dict[str, str]:
        """The controller's settings by name."""

    def partitions(self) -> list[dict[str, str]]:
        """Settings of each partition by name, as scontrol calls them."""

    def nodes(self, partition: str) -> list[NodeGroup]:
        """Nodes of these partitions (names with commas between)."""
