from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_until
from tests.integration.shell import Shell


@pytest.fixture
def shell(slurm_cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    """A shell in a folder of its own; no job is left behind, whatever the test did."""
    shell = Shell(slurm_cluster, tmp_path)
    yield shell
    leave_nothing(shell)


def leave_nothing(shell: Shell) -> None:
    """Cancel every job, and wait until all have ended."""
    if left := shell.queue():
        shell.cluster.run("scancel", *left)
    assert wait_until(lambda: not shell.queue(), 30)
