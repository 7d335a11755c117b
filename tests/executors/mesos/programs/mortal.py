"""Runs a part of a pool that is killed, as by ``kill -9``, once it comes to a certain point.

    mortal.py FILE (master | agent | framework | executor) ARGUMENTS

The point is in the file, at the start or when SIGUSR1 comes, and the file is removed then. It is written ``before
MODULE:CLASS.METHOD WORD ...`` or ``after ...``: a call whose arguments have all these words in them. At SIGUSR2 it
writes what all its threads are at to standard error.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def arm(file: Path) -> None:
    when, where, *words = file.read_text().split()
    module, _, path = where.partition(":")
    kind, _, name = path.partition(".")
    owner = getattr(importlib.import_module(module), kind)
    method = getattr(owner, name)

    @functools.wraps(method)
    def mortal(self: Any, *arguments: Any, **named: Any) -> Any:
        meant = all(word in repr((arguments, named)) for word in words)
        if meant and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = method(self, *arguments, **named)
        if meant:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, mortal)
    file.unlink()


def load(which: str) -> Callable[..., int | None]:
    """What it runs; whatever that loads late, for the sake of the command line, is loaded here."""
    if which in ("framework", "executor"):
        from tests.executors.mesos import ledger

        return ledger.main if which == "framework" else ledger.execute
    importlib.import_module("executors.mesos.master.server" if which == "master" else "executors.mesos.agent.service")
    if which == "agent":
        from executors.mesos.agent.command import main as run_agent

        return lambda *words: run_agent(words)
    from executors.mesos.master_command import MasterCommand

    parser, command = argparse.ArgumentParser(), MasterCommand()
    command.configure(parser)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return lambda *words: command.run(parser.parse_args(words)).exit_code


def main(file: str, which: str, *words: str) -> int | None:
    faulthandler.register(signal.SIGUSR2)
    if Path(file).exists():
        arm(Path(file))
    run = load(which)
    # Not earlier: the signal may come at once, and a module that is just being loaded has none of its classes yet.
    signal.signal(signal.SIGUSR1, lambda number, frame: arm(Path(file)))
    return run(*words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
