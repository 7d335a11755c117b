"""What an error message of Slurm means: try again, the site says no, or something is broken."""

from __future__ import annotations

import re

from asa.backends.command import CommandError
from asa.core.errors import BackendError

_TRANSIENT = re.compile(
    r"unable to contact slurm controller|unable to contact slurmctld|unable to contact slurmdbd|socket timed out"
    r"|connection (refused|reset|timed out)|communications? \w+ failure|transport endpoint is not connected"
    r"|resource temporarily unavailable|temporarily unable|zero bytes were transmitted|no route to host"
    r"|network is unreachable|rate limit|limit(ed|ing)? rpc|in standby mode|not in (a )?primary|database is busy"
    r"|problem talking to the database|error connecting to the database|munge .*socket",
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)
_ENDED_JOB = re.compile(r"already (finished|completing)|invalid job id|job/step already", re.IGNORECASE)
_NO_ERROR = re.compile(r"\bno error$", re.IGNORECASE)
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|slurm accounting.*disabled", re.IGNORECASE)
_BROKEN = re.compile(
    r"configuration (source|file)|fetch config|shared librar|(find|load|initialize) \S*plugin", re.IGNORECASE
)
_PREFIX = re.compile(r"^\s*\w+: (error|fatal): |^sbatch: ")


class SiteRefusal(BackendError):
    """The site turned a call down for good; `reason` is its own words, the message tells more where there is more."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def translate(error: CommandError) -> BackendError:
    """The error that a failed Slurm command amounts to.

    ``transient`` when Slurm did not answer, `SiteRefusal` when it said no; otherwise (program missing, configuration
    not found) the error itself.
    """
    if error.transient or error.returncode is None:
        return error
    if no_answer(error.stderr):
        return BackendError(str(error), transient=True)
    if not error.stderr.strip() or _BROKEN.search(error.stderr):
        return error
    return SiteRefusal(site_message(error.stderr), str(error))


def site_message(stderr: str) -> str:
    """The words of the site without the commands' prefixes.

    >>> print(site_message("sbatch: error: Batch job submission failed: Invalid qos specification"))
    Batch job submission failed: Invalid qos specification
    """
    return "\n".join(_PREFIX.sub("", line) for line in stderr.strip().splitlines())


def no_answer(text: str) -> bool:
    """Whether these words of Slurm say that a daemon did not answer."""
    return bool(_TRANSIENT.search(text))


def unknown_job(error: CommandError) -> bool:
    """Whether the controller does not know the only job it was asked for."""
    return bool(_UNKNOWN_JOB.search(error.stderr))


def ended_job(error: CommandError) -> bool:
    """Whether a cancelled job had ended already, or is not known any more."""
    lines = error.stderr.strip().splitlines()
    return bool(lines) and all(_ENDED_JOB.search(line) for line in lines)


def for_the_others(reason: str) -> bool:
    """Whether a change of a whole array was made, save for elements that have ended.

    >>> for_the_others("29_0: Job has already finished\\n29_1-2: No error")
    True
    """
    lines = reason.splitlines()
    return any(map(_NO_ERROR.search, lines)) and all(
        _NO_ERROR.search(line) or _ENDED_JOB.search(line) for line in lines
    )


def no_accounting(error: CommandError) -> bool:
    """Whether the site keeps no accounting."""
    return bool(_NO_ACCOUNTING.search(error.stderr))
