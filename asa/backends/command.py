"""Programs run as subprocesses and waited for: argument list in, what it printed out. No shell is involved."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from asa.core.errors import BackendError

_LAST_LINES = 8
_REAP_S = 2.0  # a killed program's output may be held open by a descendant in a process group of its own


@dataclass(frozen=True, slots=True)
class Completed:
    """What a program that ended with status 0 printed."""

    stdout: str
    stderr: str


class CommandError(BackendError):
    """A program that could not be run, did not end in time, or ended with another status than 0.

    Parameters
    ----------
    argv
        What was run.
    problem
        What went wrong, in a few words.
    returncode
        Its exit status; None when it never ended by itself.
    stderr
        What it said.
    transient
        True when it ran out of time: it may have done its work all the same.
    """

    def __init__(
        self,
        argv: Sequence[str],
        problem: str,
        *,
        returncode: int | None = None,
        stderr: str = "",
        transient: bool = False,
    ) -> None:
        words = "\n".join(stderr.strip().splitlines()[-_LAST_LINES:])
        super().__init__(f"{shlex.join(argv)}: {problem}" + (f":\n{words}" if words else ""), transient=transient)
        self.argv, self.returncode, self.stderr = tuple(argv), returncode, stderr


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
) -> Completed:
    """Run a program to its end.

    It gets a session of its own, so that Ctrl-C in the terminal does not end it half-way through a submission.

    Parameters
    ----------
    argv
        Program, looked up in the PATH of `environment`, and arguments.
    timeout_s
        How long it may take [s]; it and its children are killed then.
    stdin
        What it reads from standard input.
    environment
        Its environment; None for the caller's own, as it is.

    Raises
    ------
    CommandError
        When the program is missing, takes too long or ends with another status than 0.

    Examples
    --------
    >>> run(["cat"], timeout_s=5, stdin="hello").stdout
    'hello'
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CommandError(
            argv, f"no program {argv[0]!r} in PATH: is it installed on this machine, or is a module to be loaded first?"
        ) from error
    except OSError as error:
        raise CommandError(argv, f"cannot be run: {error.strerror}") from error
    with process:
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            problem = f"no answer within {timeout_s:g} s"
            raise CommandError(argv, problem, stderr=_kill(process), transient=True) from error
        except BaseException:
            _kill(process)
            raise
    if process.returncode != 0:
        status = f"status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise CommandError(argv, f"ended with {status}", returncode=process.returncode, stderr=stderr)
    return Completed(stdout, stderr)


def _kill(process: subprocess.Popen[str]) -> str:
    """End a program and its children; returns what it had said until then."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_REAP_S)[1]
    except subprocess.TimeoutExpired:
        return ""
