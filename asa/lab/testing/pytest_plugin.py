"""ASA's pytest plugin: the fixture `simulated_cluster`, for tests of workflows and strategies.

Installing ASA is enough to have it. See ``docs/howto/test-your-workflow.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from asa.lab.testing.simulated import SimulatedCluster


@pytest.fixture(name="simulated_cluster")
def simulated_cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SimulatedCluster]:
    """Make a simulated cluster: ``simulated_cluster(nodes=4, cores_per_node=8, load=0.7, seed=1)``.

    Its ``run(workflow, strategy=...)`` runs a workflow there in virtual time and returns ``value``, ``events`` and
    ``summary``; its ``backend`` goes into ``asa.run(backend=...)``.
    """
    from asa.lab.testing.simulated import SimulatedCluster  # here: pytest loads this module whatever the tests are

    return partial(SimulatedCluster, tmp_path_factory.mktemp("simulated-cluster"))
