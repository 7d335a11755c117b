"""The master of a pool that runs share: a process of its own, which whoever comes first starts and nobody must end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from asa.security.files import cannot
from asa.web.hosts import LOOPBACK
from executors.mesos.pool_directory import PoolDirectory

IDLE_S = 60.0
"""After how long without a run and an agent it ends [s]."""

LOG = "master.log"


def start_master(directory: PoolDirectory, *, local: bool) -> None:
    """Start one that outlives us; where there is one already, the new one ends at once.

    Parameters
    ----------
    local
        Whether all nodes are this machine.

    Raises
    ------
    StateError
        When its log in the pool's directory cannot be written.
    """
    words = [sys.executable, "-P", "-m", "asa", "master", "--directory", str(directory.path), "--idle", str(IDLE_S)]
    words += ["--host", LOOPBACK] if local else []
    path = directory.path / LOG
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise cannot("write", path, error) from error
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
        )
    finally:
        os.close(log)
    threading.Thread(target=process.wait, name="asa-master-end", daemon=True).start()  # so that it leaves no zombie
