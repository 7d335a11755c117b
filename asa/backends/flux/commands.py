"""Questions to Flux, how they are put, and what its error messages mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from asa.backends.command import CommandError, run
from asa.core.errors import BackendError

Ask = Callable[[Sequence[str]], str]
"""What a command prints, from its words; raises `CommandError`."""

_RESOURCES = "{state} {nnodes} {ncores} {ngpus}"
_TRANSIENT = re.compile(
    r"unable to connect to flux|flux_open|connection (refused|reset|timed out)|no route to host|host is unreachable"
    r"|broken pipe|operation timed out|resource temporarily unavailable",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"(?:jobid|job|id) (\S+?):? (?:unknown|not found)|unknown (?:job )?id:? (\S+)", re.IGNORECASE)
_PASSED = re.compile(r"unknown|not found|inactive|no such", re.IGNORECASE)
_PREFIX = re.compile(r"^flux-\w+: (ERROR: )?", re.MULTILINE)


class Refusal(BackendError):
    """Flux turned a call down for good; `reason` is its own words."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def by_subprocess(timeout_s: float) -> Ask:
    """Commands as they are found in PATH, each of which may take so long [s]."""
    return lambda argv: run(argv, timeout_s=timeout_s).stdout


class Commands:
    """Flux through the ``flux`` program.

    Parameters
    ----------
    ask
        How a command is run.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask_plainly = ask

    def submit(self, words: Sequence[str]) -> str:
        """What ``flux submit`` prints."""
        return self._ask(words)

    def jobs(self, ids: Sequence[str]) -> str:
        """All that is known of these jobs; "" when none of them is known.

        One question; one more where Flux knows some not, because then it may say nothing of the others.
        """
        left = list(dict.fromkeys(ids))
        while left:
            try:
                return self._ask(["flux", "jobs", "--json", "-a", *left])
            except Refusal as error:
                unknown = {word for match in _UNKNOWN.findall(error.reason) for word in match}
                known = [job for job in left if job not in unknown]
                if len(known) == len(left):
                    raise
                left = known
        return ""

    def named(self, name: str) -> str:
        """The user's jobs of this name, ended ones included."""
        return self._ask(["flux", "jobs", "--json", "-a", "--count=0", f"--name={name}"])

    def limit(self, job: str, duration: str) -> None:
        """Change a job's wall time."""
        self._ask(["flux", "update", job, f"duration={duration}"])

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs; those that have ended, or that nobody knows, are passed over."""
        if ids:
            try:
                self._ask(["flux", "cancel", *ids])
            except Refusal as error:
                if not all(_PASSED.search(line) for line in error.reason.splitlines()):
                    raise

    def resources(self, queue: str | None) -> str:
        """Nodes, cores and GPUs by state."""
        where = [f"--queue={queue}"] if queue else []
        return self._ask(["flux", "resource", "list", "-s", "free,allocated", "-n", *where, "-o", _RESOURCES])

    def _ask(self, argv: Sequence[str]) -> str:
        try:
            return self._ask_plainly(argv)
        except CommandError as error:
            if error.transient or error.returncode is None or not error.stderr.strip():
                raise
            if _TRANSIENT.search(error.stderr):
                raise BackendError(str(error), transient=True) from error
            raise Refusal(_PREFIX.sub("", error.stderr.strip()), str(error)) from error
