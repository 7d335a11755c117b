"""ASA's pytest plugin: the fixture `simulated_cluster`, for tests of workflows and strategies.

Installing ASA is enough to have it. See ``docs/howto/test-your-workflow.md``. pytest loads this module whatever the
tests are, so what it needs of the laboratory is imported by the first cluster that is made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from asa.core.event import Event
    from asa.metrics.workflow import RunSummary
    from asa.workflows.run import Run


@pytest.fixture(name="simulated_cluster")
def simulated_cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., SimulatedCluster]:
    """Make a simulated cluster: ``simulated_cluster(nodes=4, cores_per_node=8, load=0.7, seed=1)``.

    Its ``run(workflow, strategy=...)`` runs a workflow there in virtual time and returns ``value``, ``events`` and
    ``summary``; its ``backend`` goes into ``asa.run(backend=...)``.
    """
    return partial(SimulatedCluster, tmp_path_factory.mktemp("simulated-cluster"))


@dataclass(frozen=True)
class SimulatedRun:
    """A run that is over.

    Parameters
    ----------
    events
        All that happened, in order; times are those of the simulated cluster [s].
    """

    run: Run
    events: tuple[Event, ...]
    summary: RunSummary

    @property
    def value(self) -> Any:
        return self.run.result()


class SimulatedCluster:
    """A cluster that other people use, too, in virtual time.

    Parameters
    ----------
    load
        How much of it other users ask for; 0 for no other users.
    seed
        Of their jobs: the same seed gives the same queue.
    options
        Others of `asa.lab.backend.scene.SimulationOptions`. With ``site=`` or ``trace=``, the four above but the seed
        are not used.

    Examples
    --------
    >>> import asa
    >>> @asa.stage(cores=8, walltime="1h", run_time="10m")
    ... def project(image):
    ...     return f"{image} projected"
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     run = SimulatedCluster(Path(directory), load=0).run(project.map(["a", "b"]))
    ...     run.value, run.summary.makespan_s
    (['a projected', 'b projected'], 600.0)
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 4,
        cores_per_node: int = 8,
        load: float = 0.7,
        seed: int = 1,
        **options: Any,
    ) -> None:
        from asa.lab.backend.simulated import Simulated

        machine = {"nodes": nodes, "cores": cores_per_node, "load": load}
        own = options.get("site") or options.get("trace")
        self.backend = Simulated(**(options if own else machine | options), seed=seed)
        self._directory = directory

    def run(self, workflow: Any, strategy: Any = None, **options: Any) -> SimulatedRun:
        """Run a workflow to the end of its last job.

        Every run begins at the same moment of the same queue, with nothing learned, so that runs can be compared.
        """
        from asa.workflows import run as runs

        state = Path(tempfile.mkdtemp(prefix="run-", dir=self._directory))
        settings = {"check": False, "strategy": strategy, "state": state, **options}
        run = runs.run(workflow, backend=self.backend.copy(), **settings)
        run.wait()
        return SimulatedRun(run, tuple(event for _, event in run.events()), run.summary)
