"""Runs a part of a pool that is killed, as by ``kill -9``, once it comes to a certain point.

    mortal.py FILE (master | agent | framework | executor) ARGUMENTS

The point is in the file, at the start or when SIGUSR1 comes, and the file is removed then. It is written ``before
MODULE:CLASS.METHOD WORD ...`` or ``after ...``: a call whose arguments have all these words in them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import signal
import sys
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


def main(file: str, which: str, *words: str) -> int:
    signal.signal(signal.SIGUSR1, lambda number, frame: arm(Path(file)))
    if Path(file).exists():
        arm(Path(file))
    if which == "framework":
        from tests.executors.mesos import ledger

        ledger.main(*words)
        return 0
    if which == "executor":
        from tests.executors.mesos import ledger

        ledger.execute()
        return 0
    if which == "agent":
        from executors.mesos import agent_command

        return agent_command.main(words)
    from executors.mesos.master_command import MasterCommand

    parser, command = argparse.ArgumentParser(), MasterCommand()
    command.configure(parser)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return command.run(parser.parse_args(words)).exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
