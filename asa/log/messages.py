"""Messages for people: what a program prints while it runs, and the log that each run keeps of itself.

Every module logs to the logger of its own name (``asa...``, ``executors...``, ``coscheduler...``): commands with exit
code and time, connections, transitions, refusals and retries, and never a secret.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.errors import AsaWarning, InvalidInput

if TYPE_CHECKING:
    from argparse import ArgumentParser

LOGGERS = ("asa", "executors", "coscheduler")
LEVELS = ("debug", "info", "warning", "error")
VARIABLE = "ASA_LOG_LEVEL"
"""Environment variable: the least level of messages that go into the log of a run, ``info`` unless it is set."""

for _name in LOGGERS:  # what is said after a run's log was closed is not for the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())

_run: ContextVar[Path | None] = ContextVar("run", default=None)
"""The log of the run that this thread works for."""

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"


def notify(line: str) -> None:
    """Print a line on standard error, at once, where standard error is still open."""
    with suppress(OSError):
        print(f"asa: {line}", file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Warn of what is seldom meant, once for each place in the user's program; a run's log has it, too."""
    logging.getLogger(__name__).warning("%s", line)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in LOGGERS:
        level, frame = level + 1, frame.f_back
    warnings.warn(line, AsaWarning, stacklevel=level)


def level_of(name: str, what: str) -> int:
    """The number of a level of `logging`.

    Parameters
    ----------
    what
        What the name was given as, for the error.

    Raises
    ------
    InvalidInput
        When the name is none of `LEVELS`.

    Examples
    --------
    >>> level_of("debug", "--log-level")
    10
    """
    if name.lower() not in LEVELS:
        raise InvalidInput(f"{what} {name!r}: one of {', '.join(LEVELS)} expected")
    return int(getattr(logging, name.upper()))


def add_log_level(parser: ArgumentParser, default: str | None = None) -> None:
    """Declare the option whose value `log_to_terminal` takes."""
    shown = "print messages of this level and above while it runs" + (f" ({default})" if default else "")
    parser.add_argument("--log-level", choices=LEVELS, default=default, help=shown)


@contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Append messages to a file that only its owner may read, but for those that are `logged_in` another run's.

    A file that cannot be written (a full disk) ends the log with a line on standard error, and nothing else.
    """
    level = level_of(os.environ.get(VARIABLE, "info"), f"environment variable {VARIABLE}")
    others = [each.level for each in _ours(logging.getLogger(LOGGERS[0]))]
    with _attached(_RunLog(path), min([level, *others])):
        yield


@contextmanager
def logged_in(path: Path) -> Iterator[None]:
    """Messages of this thread meanwhile, and of threads that it gives its context, belong to the run with this log."""
    token = _run.set(path)
    try:
        yield
    finally:
        _run.reset(token)


@contextmanager
def log_to_terminal(name: str) -> Iterator[None]:
    """Print messages of this level and above on standard error."""
    with _attached(_Messages(sys.stderr), level_of(name, "--log-level")):
        yield


class _Messages(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler of ours; `before` has the levels that the user's program had given to the loggers."""

    before: Mapping[str, int] = {}


def _ours(logger: logging.Logger) -> list[_Messages]:
    return [handler for handler in logger.handlers if isinstance(handler, _Messages)]


@contextmanager
def _attached(handler: _Messages, level: int) -> Iterator[None]:
    """Pass messages to the handler meanwhile; loggers create those that it wants, or that the user's program wants."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    handler.before = next((each.before for each in _ours(loggers[0])), {each.name: each.level for each in loggers})
    for logger in loggers:
        logger.addHandler(handler)
        _set_level(logger, handler.before)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            _set_level(logger, handler.before)
        handler.close()


def _set_level(logger: logging.Logger, before: Mapping[str, int]) -> None:
    wanted = [handler.level for handler in _ours(logger)]
    given = before[logger.name]
    logger.setLevel(min([*wanted, *([given] if given else [])], default=given))


class _RunLog(_Messages):
    def __init__(self, path: Path) -> None:
        self._path = path
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        super().__init__(os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace"))
        self.addFilter(lambda _: _run.get() in (None, path))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Stop writing, and print why."""
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self.setLevel(logging.CRITICAL + 1)
        notify(f"the log {self._path} ends here: {error}")

    def close(self) -> None:
        try:
            self.stream.close()
        except OSError as error:
            notify(f"the log {self._path} ends here: {error}")
        super().close()
