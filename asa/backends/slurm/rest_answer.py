"""What slurmrestd's HTTP answers mean: what was asked for, try again, or no. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from asa.backends.slurm import failures
from asa.backends.slurm.failures import SiteRefusal
from asa.core.errors import BackendError

INVALID_JOB_ID, ALREADY_DONE, NO_ENTRY, NOTHING_FOUND = 2017, 2021, 9002, 9003

_UNSPECIFIED = -1  # what 22.05 says when the controller is silent, and when it does not accept the token
_COMMUNICATION = range(1000, 2000)  # Slurm's own protocol
_NOT_AUTHENTIC = 1007
_NO_DATABASE = 7000
_CANNOT_PARSE = 9001
_OVERLOADED = (408, 429, 502, 503, 504)
_SHOWN = 200  # letters of an answer that is no JSON


class NoSuchPage(BackendError):
    """The server does not speak this version of the interface, or lacks a part of it."""


class Unauthorized(BackendError):
    """The server does not know who is asking."""


class Silent(BackendError):
    """The controller gave slurmrestd no usable answer; 22.05 says the same when the controller rejects the token."""


class Denied(SiteRefusal):
    """Slurm said no; `numbers` are those of its errors."""

    def __init__(self, reason: str, message: str, numbers: frozenset[int]) -> None:
        super().__init__(reason, message)
        self.numbers = numbers


def content(status: int, text: str, asked: str) -> Mapping[str, Any]:
    """The JSON object of an answer.

    Parameters
    ----------
    status
        HTTP's.
    asked
        The question, for messages.

    Raises
    ------
    NoSuchPage, Unauthorized, Silent, Denied
        As their names say; otherwise a `BackendError`, ``transient`` when the same call may be made again later.
    """
    if status in (401, 403):
        raise Unauthorized(f"{asked}: {text.strip()[:_SHOWN] or 'not authorized'} (HTTP {status})")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    errors = answer.get("errors") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or (status >= 400 and not errors):
        if status == 404:
            raise NoSuchPage(f"{asked}: there is no such page (HTTP 404)")
        said = f"HTTP {status}, {text.strip()[:_SHOWN]!r}"
        raise BackendError(f"{asked}: {said}: expected JSON from slurmrestd", transient=status in _OVERLOADED)
    if not errors or answer.get("job_id"):  # a submitted job may come with remarks, such as that it is held
        return answer
    raise _failure(status, errors, asked)


def _failure(status: int, errors: Sequence[Mapping[str, Any]], asked: str) -> BackendError:
    numbers = frozenset(map(_number, errors))
    reason = "\n".join(dict.fromkeys(filter(None, map(_words, errors)))) or "no reason given"
    message = f"{asked}: {reason}"
    if _NOT_AUTHENTIC in numbers:
        return Unauthorized(message)
    if numbers == {_UNSPECIFIED}:
        return Silent(message, transient=True)
    if status in _OVERLOADED or all(map(_no_answer, errors)):
        return BackendError(message, transient=True)
    if status == 404 and not numbers & {INVALID_JOB_ID, NO_ENTRY, NOTHING_FOUND}:
        return NoSuchPage(message)
    return Denied(reason, message, numbers)


def _number(error: Mapping[str, Any]) -> int:
    found = error.get("error_number", error.get("error_code", error.get("errno", 0)))
    return found if isinstance(found, int) else 0


def _no_answer(error: Mapping[str, Any]) -> bool:
    number = _number(error)
    return number in _COMMUNICATION or number == _NO_DATABASE or failures.no_answer(_words(error))


def _words(error: Mapping[str, Any]) -> str:
    """The telling part of an error: Slurm's general words for it are left out where there are better ones."""
    general, particular = error.get("error") or "", error.get("description") or ""
    if not particular or general in particular:
        return particular or general
    return particular if _number(error) in (_UNSPECIFIED, _CANNOT_PARSE) else f"{general} ({particular})"
