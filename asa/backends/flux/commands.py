"""Questions to Flux, how they are put, and what its error messages mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from asa.backends.asking import Ask, Asking, Messages, of_known

MESSAGES = Messages(
    no_answer=re.compile(
        r"unable to connect to flux|flux_open|connection (refused|reset|timed out)|no route to host|host is unreachable"
        r"|broken pipe|operation timed out|resource temporarily unavailable",
        re.IGNORECASE,
    ),
    prefix=re.compile(r"^flux-\w+: (ERROR: )?"),
    ended=re.compile(r"unknown|not found|inactive|no such", re.IGNORECASE),
)
_RESOURCES = "{state} {nnodes} {ncores} {ngpus}"
_UNKNOWN = re.compile(r"(?:jobid|job|id) (\S+?):? (?:unknown|not found)|unknown (?:job )?id:? (\S+)", re.IGNORECASE)


class Commands:
    """Flux through the ``flux`` program.

    Parameters
    ----------
    ask
        How a command is run.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = Asking(ask, MESSAGES)

    def submit(self, words: Sequence[str]) -> str:
        """What ``flux submit`` prints."""
        return self._ask(words)

    def jobs(self, ids: Sequence[str]) -> str:
        """All that is known of these jobs; "" when none of them is known."""
        return of_known(ids, lambda some: self._ask(["flux", "jobs", "--json", "-a", *some]), _UNKNOWN)

    def named(self, name: str) -> str:
        """The user's jobs of this name, ended ones included."""
        return self._ask(["flux", "jobs", "--json", "-a", "--count=0", f"--name={name}"])

    def limit(self, job: str, duration: str) -> None:
        """Change a job's wall time."""
        self._ask(["flux", "update", job, f"duration={duration}"])

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended, or that nobody knows, are passed over."""
        if ids:
            self._ask(["flux", "cancel", *ids], unless=MESSAGES.only_ended)

    def resources(self, queue: str | None) -> str:
        """Nodes, cores and GPUs by state."""
        where = [f"--queue={queue}"] if queue else []
        return self._ask(["flux", "resource", "list", "-s", "free,allocated", "-n", *where, "-o", _RESOURCES])
