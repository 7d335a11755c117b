"""Questions to a batch system through its commands: how they are put, and what it means when one fails.

What is made of the answers stands in `asa.backends.batch`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asa.backends.command import CommandError, run
from asa.core.errors import BackendError

Ask = Callable[[Sequence[str], str], str]
"""What a command prints, from its words and its standard input; raises `CommandError`."""


class SiteRefusal(BackendError):
    """The site turned a call down for good; `reason` is its own words, the message tells more where there is more."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


def by_subprocess(timeout_s: float, environment: Mapping[str, str] | None = None) -> Ask:
    """Commands as they are found in PATH, each of which may take so long [s]; in the caller's environment when None."""
    return lambda argv, stdin: run(argv, timeout_s=timeout_s, stdin=stdin, environment=environment).stdout


@dataclass(frozen=True, slots=True)
class Messages:
    """How a batch system's error messages are read: patterns that are searched for.

    Parameters
    ----------
    no_answer
        A daemon did not answer: the same call may succeed later.
    prefix
        What stands before the site's own words in a line.
    ended
        A line says only that a job has ended, or that nobody knows it.
    broken
        The commands cannot work as they are installed, whatever is asked; or None.

    Examples
    --------
    >>> messages = Messages(re.compile("timed out"), re.compile("^qdel: "), re.compile("Unknown Job"))
    >>> print(messages.reason("qdel: Unauthorized Request\\nqdel: see the manual"))
    Unauthorized Request
    see the manual
    """

    no_answer: re.Pattern[str]
    prefix: re.Pattern[str]
    ended: re.Pattern[str]
    broken: re.Pattern[str] | None = None

    def meaning(self, error: CommandError) -> BackendError:
        """The error that a failed command amounts to.

        ``transient`` when there was no answer, `SiteRefusal` when the site said no; otherwise (program missing, out of
        time, without a word, broken) the error itself.
        """
        if error.transient or error.returncode is None:
            return error
        if self.no_answer.search(error.stderr):
            return BackendError(str(error), transient=True)
        if not error.stderr.strip() or (self.broken is not None and self.broken.search(error.stderr)):
            return error
        return SiteRefusal(self.reason(error.stderr), str(error))

    def reason(self, stderr: str) -> str:
        """The site's own words."""
        return "\n".join(self.prefix.sub("", line) for line in stderr.strip().splitlines())

    def only_ended(self, error: CommandError) -> bool:
        """Whether jobs that were to be ended had ended already, or are not known any more, and nothing else is wrong.

        Silence of a daemon may look like that: "flux_open: No such file".
        """
        lines = error.stderr.strip().splitlines()
        return bool(lines) and all(map(self.ended.search, lines)) and not self.no_answer.search(error.stderr)


@dataclass(frozen=True, slots=True)
class Asking:
    """Questions to a batch system, whose answers are understood.

    Parameters
    ----------
    run
        How a command is run.
    messages
        What its failures mean.
    """

    run: Ask
    messages: Messages

    def __call__(
        self, argv: Sequence[str], stdin: str = "", *, unless: Callable[[CommandError], bool] | None = None
    ) -> str:
        """What a command prints; "" when it fails in the way that `unless` knows to be no failure.

        Raises
        ------
        BackendError
            As `Messages.meaning` tells.
        """
        try:
            return self.run(argv, stdin)
        except CommandError as error:
            if error.returncode is not None and unless is not None and unless(error):
                return ""
            if (meaning := self.messages.meaning(error)) is error:
                raise
            raise meaning from error


def of_known(ids: Iterable[str], ask: Callable[[Sequence[str]], str], unknown: re.Pattern[str]) -> str:
    """What `ask` tells of these jobs; "" when none of them is known.

    One question; another without those that the batch system says it does not know (their ids are groups of `unknown`),
    because then it may say nothing of the others.

    Raises
    ------
    SiteRefusal
        When it says no, and not because of a job it does not know.
    """
    left = list(dict.fromkeys(ids))
    while left:
        try:
            return ask(left)
        except SiteRefusal as error:
            named = {word for match in unknown.finditer(error.reason) for word in match.groups()}
            if named.isdisjoint(left):
                raise
            left = [job for job in left if job not in named]
    return ""


def table(text: str, read: Callable[[Any], dict[str, Any]], system: str, expected: str) -> dict[str, Any]:
    """What `read` takes out of the JSON that was printed; {} when nothing was.

    Raises
    ------
    BackendError
        When it is no JSON, or `read` does not find in it what it looks for; `expected` says whose output would do.
    """
    if not text.strip():
        return {}
    try:
        return read(json.loads(text, strict=False))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BackendError(f"{system} printed what is no JSON ({type(error).__name__}: {error}): {expected}") from error
