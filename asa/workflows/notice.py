"""A notice when a run has ended, however: a command that is run, or a mail that is sent."""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from asa.core.errors import InvalidInput, cause
from asa.core.event import RunEnded
from asa.log.messages import warn
from asa.log.rundir import RunDirectory

NOTICE_S = 60.0
"""How long the command, or sendmail, may take [s]."""

_ADDRESS = re.compile(r"\w[\w.+-]*@\w[\w.-]*", re.ASCII)
_SENDMAIL_PATHS = ("/usr/sbin", "/usr/lib")

_log = logging.getLogger(__name__)


def check_notice(notify: str, environ: Mapping[str, str]) -> None:
    """Refuse what could not be done at a run's end.

    Raises
    ------
    InvalidInput
        When there is no such program; when it is a mail address, and there is no sendmail here.
    """
    words = _words(notify)
    if not words:
        raise InvalidInput("notify is empty: give a command to run when the run has ended, or a mail address")
    if _is_address(words):
        if not _ADDRESS.fullmatch(words[0]):
            raise InvalidInput(f"notify={notify!r} is no mail address: write it like name@example.org")
        if _sendmail(environ) is None:
            raise InvalidInput(
                f"notify={notify!r} is a mail address, and there is no sendmail on this machine to send mail with: "
                "give a command instead, which gets the run's name and outcome"
            )
    elif shutil.which(words[0], path=environ.get("PATH")) is None:
        raise InvalidInput(f"notify={notify!r}: there is no program {words[0]!r} on PATH, or it cannot be executed")


def send_notice(
    notify: str, run: RunDirectory, outcome: str, ended: RunEnded | None, hint: str, secrets: Sequence[str]
) -> None:
    """Give notice that a run has ended. What goes wrong with that is a warning.

    Parameters
    ----------
    outcome
        How it has ended, in a word.
    ended
        Its last event but ends of jobs; None when its driver ended without.
    hint
        How to go on.
    secrets
        Names of variables that the command is not to have.
    """
    words, why = _words(notify), ended.message.partition("\n")[0] if ended else ""
    variables = {name: value for name, value in os.environ.items() if name not in secrets}
    variables |= {"ASA_RUN": run.name, "ASA_OUTCOME": outcome, "ASA_MESSAGE": why, "ASA_STATE_DIR": str(run.state)}
    text = None
    if _is_address(words):
        text = _mail(words[0], run.name, outcome, why, "" if outcome == "succeeded" else hint)
        words = [_sendmail(variables) or "sendmail", "-i", "--", words[0]]
    else:
        words += [run.name, outcome]
    try:
        done = subprocess.run(
            words,
            input=text or "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=NOTICE_S,
            check=False,
            env=variables,
            start_new_session=True,  # Ctrl-C is not for it
        )
        wrong = f"ended with {done.returncode}: {done.stdout.strip()[-500:]}" if done.returncode else ""
    except subprocess.TimeoutExpired:
        wrong = f"was still running after {NOTICE_S:g} s, and was ended"
    except (OSError, ValueError) as error:
        wrong = f"could not be started: {cause(error) if isinstance(error, OSError) else error}"
    if wrong:
        warn(f"no notice was given that run {run.name} has ended: {words[0]} {wrong}")
    else:
        _log.info("gave notice with %s that the run has ended", words[0])


def _mail(address: str, run: str, outcome: str, why: str, hint: str) -> str:
    from email.message import EmailMessage  # here: few runs ask for it

    mail = EmailMessage()
    mail["To"], mail["Subject"], mail["Auto-Submitted"] = address, f"ASA: run {run} {outcome}", "auto-generated"
    mail.set_content("\n".join([f"run {run}: {outcome}", *filter(None, (why, hint))]) + "\n")
    return mail.as_string()


def _words(notify: str) -> list[str]:
    try:
        return shlex.split(notify)
    except ValueError as error:
        raise InvalidInput(f"notify={notify!r} cannot be split into words: {error}") from None


def _is_address(words: Sequence[str]) -> bool:
    return len(words) == 1 and "@" in words[0] and "/" not in words[0]


def _sendmail(environ: Mapping[str, str]) -> str | None:
    path = os.pathsep.join([*filter(None, [environ.get("PATH")]), *_SENDMAIL_PATHS])
    return shutil.which("sendmail", path=path)
