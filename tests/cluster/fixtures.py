"""Pytest fixtures. A test module asks for them with ``pytest_plugins = ("tests.cluster.fixtures",)``.

PYTEST_DONT_REWRITE: nothing is asserted here, and a search for doctests imports this module before it is asked for.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import host
from tests.cluster.cluster import Cluster, load, running


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real Slurm cluster with four nodes of eight cores.

    It is the one whose slurm.conf ``ASA_TEST_SLURM_CONF`` names (``python -m tests.cluster up`` prints it);
    without that variable, one is started for this run of the tests. A test leaves all nodes idle and no job.
    """
    named = os.environ.get("ASA_TEST_SLURM_CONF")
    if named:
        yield load(Path(named).parent.parent)
        return
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    with running(host.configure(tmp_path_factory.mktemp("slurm"))) as cluster:
        yield cluster
