"""Questions to PBS, how they are put, and what its error messages mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from asa.backends.asking import Ask, Asking, Messages, of_known

MESSAGES = Messages(
    no_answer=re.compile(
        r"cannot connect to server|connection (refused|reset|timed out)|no route to host|communication failure"
        r"|server (is )?(busy|shutting down)|premature end|end of file|timed? ?out|errno=1500[78]",
        re.IGNORECASE,
    ),
    prefix=re.compile(r"^(qsub|qstat|qalter|qdel|qselect|pbsnodes): "),
    ended=re.compile(r"unknown job id|job has finished|invalid state for job", re.IGNORECASE),
)
_UNKNOWN = re.compile(r"unknown job id:?\s*(\S+)", re.IGNORECASE)


class Commands:
    """PBS through qsub, qstat, qselect, qalter, qdel and pbsnodes.

    Parameters
    ----------
    ask
        How a command is run.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = Asking(ask, MESSAGES)

    def submit(self, options: Sequence[str], script: str) -> str:
        """What qsub prints."""
        return self._ask(["qsub", *options], script)

    def jobs(self, ids: Sequence[str]) -> str:
        """All that is known of these jobs, ended ones included; "" when none of them is known."""
        return of_known(ids, lambda some: self._ask(["qstat", "-x", "-f", "-F", "json", *some]), _UNKNOWN)

    def named(self, name: str) -> list[str]:
        """Ids of the user's jobs of this name, ended ones included."""
        return self._ask(["qselect", "-x", "-N", name]).split()

    def alter(self, job: str, options: Sequence[str]) -> None:
        """Change a job."""
        self._ask(["qalter", *options, job])

    def delete(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended, or that nobody knows, are passed over."""
        if ids:
            self._ask(["qdel", *ids], unless=MESSAGES.only_ended)

    def server(self) -> str:
        """The server's settings."""
        return self._ask(["qstat", "-B", "-f", "-F", "json"])

    def queue(self, name: str) -> str:
        """A queue's settings."""
        return self._ask(["qstat", "-Q", "-f", "-F", "json", name])

    def nodes(self) -> str:
        """All nodes."""
        return self._ask(["pbsnodes", "-a", "-F", "json"])
