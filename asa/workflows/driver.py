"""Drivers apart from the terminal: a process in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from asa.core.errors import StateError
from asa.log.rundir import RunDirectory
from asa.workflows.run import Run

PIPE = "ASA_STARTED_PIPE"
"""Variable of a driver that another process waits for: the number of the pipe to that one."""
STARTED = b"started"
"""What a driver writes to the pipe that it was given, once it drives its run."""
_SAID_MOST = 4000


def resume_command(run: RunDirectory, *options: str) -> list[str]:
    """The command line of a driver of this run, with these options of ``asa resume``.

    ``-P``: a file in the working directory must not pose as a module of ours.
    """
    return [sys.executable, "-P", "-m", "asa", "resume", run.name, *options]


def detach(run: RunDirectory, options: Sequence[str]) -> int:
    """Start a driver that ends neither with this process nor with the terminal; its process id, once it drives the run.

    What it prints goes to a file in the run's directory.

    Parameters
    ----------
    options
        Of its ``asa resume``.

    Raises
    ------
    StateError
        When it does not come to drive the run; the message is what it has printed.
    KeyboardInterrupt
        When that came while it started: it has ended then, too.
    """
    output = os.open(run.driver_output, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    before = os.fstat(output).st_size
    ours, theirs = os.pipe()
    hung_up = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which it inherits: some shells send it to all they started
    try:
        driver = subprocess.Popen(
            resume_command(run, *options),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[theirs],
            start_new_session=True,
            env=os.environ | {"ASA_STATE_DIR": str(run.state), PIPE: str(theirs)},
        )
    except BaseException:
        os.close(ours)
        os.close(output)
        raise
    finally:
        os.close(theirs)
        signal.signal(signal.SIGHUP, hung_up)
    try:
        with open(ours, "rb") as pipe:
            if pipe.read(len(STARTED)) == STARTED:
                driver.returncode = 0  # not waited for, and not warned of
                return driver.pid
        driver.wait()
        said = os.pread(output, _SAID_MOST, max(before, os.fstat(output).st_size - _SAID_MOST))
        words_said = said.decode(errors="replace").strip().removeprefix("asa: ").removeprefix("error: ")
        raise StateError(words_said or f"the driver of run {run.name} ended with {driver.returncode}, and said nothing")
    except KeyboardInterrupt:
        driver.terminate()
        driver.wait()
        raise
    finally:
        os.close(output)


def pipe_to_starter() -> int | None:
    """The pipe to the process that has started this one and waits until it drives a run, if one does; asked once."""
    number = os.environ.pop(PIPE, "")  # no job or task is to have it
    return int(number) if number else None


def say_started(run: Run, pipe: int | None) -> None:
    """Tell the process at the other end, if there is one, once the run has a driver."""
    if pipe is not None:
        run.await_driver()
        with suppress(OSError):  # it has been interrupted
            os.write(pipe, STARTED)
        os.close(pipe)
