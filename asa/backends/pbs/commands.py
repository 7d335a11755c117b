"""Questions to PBS, how they are put, and what its error messages mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from asa.backends.command import CommandError, run
from asa.core.errors import BackendError

Ask = Callable[[Sequence[str], str], str]
"""What a command prints, from its words and its standard input; raises `CommandError`."""

_TRANSIENT = re.compile(
    r"cannot connect to server|connection (refused|reset|timed out)|no route to host|communication failure"
    r"|server (is )?(busy|shutting down)|premature end|end of file|timed? ?out|errno=1500[78]",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"unknown job id:?\s*(\S+)", re.IGNORECASE)
_PASSED = re.compile(r"unknown job id|job has finished|invalid state for job", re.IGNORECASE)
_PREFIX = re.compile(r"^(qsub|qstat|qalter|qdel|qselect|pbsnodes): ", re.MULTILINE)


class Refusal(BackendError):
    """The site turned a call down for good; `reason` is its own words."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def by_subprocess(timeout_s: float) -> Ask:
    """Commands as they are found in PATH, each of which may take so long [s]."""
    return lambda argv, stdin: run(argv, timeout_s=timeout_s, stdin=stdin).stdout


class Commands:
    """PBS through qsub, qstat, qselect, qalter, qdel and pbsnodes.

    Parameters
    ----------
    ask
        How a command is run.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask_plainly = ask

    def submit(self, options: Sequence[str], script: str) -> str:
        """What qsub prints."""
        return self._ask(["qsub", *options], script)

    def jobs(self, ids: Sequence[str]) -> str:
        """All that is known of these jobs, ended ones included; "" when none of them is known.

        One question; one more where the server knows some not, because then it may say nothing of the others.
        """
        left = list(dict.fromkeys(ids))
        while left:
            try:
                return self._ask(["qstat", "-x", "-f", "-F", "json", *left])
            except Refusal as error:
                unknown = set(_UNKNOWN.findall(error.reason))
                known = [job for job in left if job not in unknown]
                if len(known) == len(left):
                    raise
                left = known
        return ""

    def named(self, name: str) -> list[str]:
        """Ids of the user's jobs of this name, ended ones included."""
        return self._ask(["qselect", "-x", "-N", name]).split()

    def alter(self, job: str, options: Sequence[str]) -> None:
        """Change a job."""
        self._ask(["qalter", *options, job])

    def delete(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended, or that nobody knows, are passed over."""
        if ids:
            try:
                self._ask(["qdel", *ids])
            except Refusal as error:
                if not all(_PASSED.search(line) for line in error.reason.splitlines()):
                    raise

    def server(self) -> str:
        """The server's settings."""
        return self._ask(["qstat", "-B", "-f", "-F", "json"])

    def queue(self, name: str) -> str:
        """A queue's settings."""
        return self._ask(["qstat", "-Q", "-f", "-F", "json", name])

    def nodes(self) -> str:
        """All nodes."""
        return self._ask(["pbsnodes", "-a", "-F", "json"])

    def _ask(self, argv: Sequence[str], stdin: str = "") -> str:
        try:
            return self._ask_plainly(argv, stdin)
        except CommandError as error:
            if error.transient or error.returncode is None or not error.stderr.strip():
                raise
            if _TRANSIENT.search(error.stderr):
                raise BackendError(str(error), transient=True) from error
            raise Refusal(_PREFIX.sub("", error.stderr.strip()), str(error)) from error
