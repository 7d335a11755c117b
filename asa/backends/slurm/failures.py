"""What an error message of Slurm means: try again, the site says no, or something is broken."""

from __future__ import annotations

import re

from asa.backends.asking import Messages
from asa.backends.asking import SiteRefusal as SiteRefusal
from asa.backends.command import CommandError

MESSAGES = Messages(
    no_answer=re.compile(
        r"unable to contact slurm controller|unable to contact slurmctld|unable to contact slurmdbd|socket timed out"
        r"|connection (refused|reset|timed out)|communications? \w+ failure|transport endpoint is not connected"
        r"|resource temporarily unavailable|temporarily unable|zero bytes were transmitted|no route to host"
        r"|network is unreachable|rate limit|limit(ed|ing)? rpc|in standby mode|not in (a )?primary|database is busy"
        r"|problem talking to the database|error connecting to the database|munge .*socket",
        re.IGNORECASE,
    ),
    prefix=re.compile(r"^\s*\w+: (error|fatal): |^sbatch: "),
    ended=re.compile(r"already (finished|completing)|invalid job id|job/step already", re.IGNORECASE),
    broken=re.compile(
        r"configuration (source|file)|fetch config|shared librar|(find|load|initialize) \S*plugin", re.IGNORECASE
    ),
)
_UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)
_NO_ERROR = re.compile(r"\bno error$", re.IGNORECASE)
_NO_ACCOUNTING = re.compile(r"accounting storage is disabled|slurm accounting.*disabled", re.IGNORECASE)


def no_answer(text: str) -> bool:
    """Whether these words of Slurm say that a daemon did not answer."""
    return bool(MESSAGES.no_answer.search(text))


def unknown_job(error: CommandError) -> bool:
    """Whether the controller does not know the only job it was asked for."""
    return bool(_UNKNOWN_JOB.search(error.stderr))


def for_the_others(reason: str) -> bool:
    """Whether a change of a whole array was made, save for elements that have ended.

    >>> for_the_others("29_0: Job has already finished\\n29_1-2: No error")
    True
    """
    lines = reason.splitlines()
    return any(map(_NO_ERROR.search, lines)) and all(
        _NO_ERROR.search(line) or MESSAGES.ended.search(line) for line in lines
    )


def no_accounting(error: CommandError) -> bool:
    """Whether the site keeps no accounting."""
    return bool(_NO_ACCOUNTING.search(error.stderr))
