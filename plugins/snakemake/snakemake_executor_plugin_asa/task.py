"""What a worker runs: one job of Snakemake's, as its own child, with Snakemake imported once for all of them."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_TAIL = 4000  # how much of a job's log is reported when it fails [bytes]


class Ended(NamedTuple):
    """How a job ended: exit code, negative for a signal; how long it ran [s]; the end of its log if it failed."""

    code: int
    seconds: float
    tail: str


def run_job(command: str, environment: Mapping[str, str], log: str) -> Ended:
    """Run the command that Snakemake gives for a job, with what it prints in the file `log`.

    Importing Snakemake takes longer than most of what it does for a job, so a worker imports it once, and each job is
    a fork of it. A command that is more than a plain call of this Python's Snakemake gets a shell.
    """
    began = time.monotonic()
    if (words := _own_call(command)) is not None:
        _import()
    sys.stdout.flush()
    sys.stderr.flush()
    if not (child := os.fork()):
        _become(command, words, environment, log)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code, time.monotonic() - began, _tail(log) if code else "")


@functools.cache
def _import() -> None:
    from snakemake.cli import get_argument_parser

    get_argument_parser()  # imports the plugins, too


def _own_call(command: str) -> list[str] | None:
    """Arguments of ``python -m snakemake``, with this Python; None where the command is anything else.

    >>> _own_call(f"{sys.executable} -m snakemake --target-jobs 'a:x=1 2'"), _own_call("cd /tmp && snakemake")
    (['--target-jobs', 'a:x=1 2'], None)
    """
    before, found, after = command.partition(f"{sys.executable} -m snakemake ")
    lexer = shlex.shlex(after, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = [*lexer]
    if not found or before.strip() or any(set(word) <= set("();<>|&") for word in words):
        return None
    return None if any(sign in after for sign in "$`\\") else words


def _become(command: str, words: Sequence[str] | None, environment: Mapping[str, str], log: str) -> None:
    """The child's part; never returns."""
    code = 1
    try:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)
        os.environ.update(environment)
        if words is None:
            os.execv("/bin/sh", ["sh", "-c", command])
        from snakemake.cli import main

        sys.argv = ["snakemake", *words]
        sys.path.insert(0, os.getcwd())  # as with python -m
        try:
            main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            print(end="", flush=True)
        os._exit(code)


def _tail(log: str) -> str:
    try:
        return Path(log).read_bytes()[-_TAIL:].decode(errors="replace").strip()
    except OSError as error:
        return f"({log} cannot be read: {error.strerror})"
