"""What a batch job runs on each of its nodes: ``python -P -m executors.mesos.agent``, with the options of `asa agent`.

One Python for all three of agent, shim and supervisor: the shim is forked as soon as what it and the supervisor need is
loaded, and forks the supervisor. The agent's own modules, and what it learns later, are not theirs.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def main() -> int:
    """The program."""
    gc.disable()  # what is loaded stays
    from executors import supervisor, worker_pool  # noqa: F401
    from executors.mesos.agent.shim import ForkedShim

    gc.freeze()
    shim = ForkedShim({(sys.executable, "-P", "-m", supervisor.__name__): supervisor.main})
    from executors.mesos.agent import command

    return command.main(shim=shim)


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # a full disk, say, must not make it another exit code
            stream.flush()
    os._exit(code)  # an allocation is charged for until then, and nothing is left to be done
