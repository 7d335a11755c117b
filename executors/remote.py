"""The remote shell of MPI launchers: ``python -m executors.remote DIRECTORY TICKET HOST COMMAND...``.

``mpirun`` starts it, once for each other node, where it would start ``ssh``. It asks the driver, who asks the node's
supervisor, to run the command, and ends as it ends. When this ends first, the command is ended::

    first node                               driver         another node of the order
    -----------------------------------      -----------    ---------------------------------
    supervisor
      worker (launch.py)
        mpirun
          ranks
          remote shell (here)   -- Ask -->   Hub (hub.py)   -- Start -->   supervisor
                              <- Stopped --                <- Stopped --     Daemons (daemons.py)
                                                                               orted, or its like
                                                                                 ranks
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress

from asa.log.proc import environment
from executors.surroundings import elsewhere
from executors.transport import connect
from executors.wire import Ask, Refused, Stopped

_FAILED = 255


def main(directory: str, ticket: int, host: str, command: str) -> int:
    """Have a command run on another node; its exit code, 128 + n if signal n ended it.

    If it cannot be run, or nobody knows any more what becomes of it, the launcher is told to end, and the exit code
    is 255.

    Parameters
    ----------
    directory
        The run's directory.
    ticket
        Of the order that the launcher belongs to.
    host
        The node.
    command
        As a shell understands it.
    """
    try:
        channel = connect(directory)
        channel.send(Ask(ticket, host, command, elsewhere(os.environ)))
        while True:
            select.select([channel], [channel] if channel.unsent else [], [])
            channel.flush()
            for message in channel.receive():
                if isinstance(message, Stopped):
                    return message.code if message.code >= 0 else 128 - message.code
                if isinstance(message, Refused):
                    raise ConnectionAbortedError(message.reason)
    except (OSError, ValueError) as error:
        print(f"asa: no remote shell on {host}: {error}", file=sys.stderr)
        _end_launcher()
        return _FAILED


def _end_launcher() -> None:
    """MPICH's would wait for a daemon that is no more. If it has ended itself, our parent is a stranger."""
    parent = os.getppid()
    if os.environb[b"HYDRA_LAUNCHER_EXEC"] in (environment(parent) or b""):
        with suppress(OSError):
            os.kill(parent, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], " ".join(sys.argv[4:])))
