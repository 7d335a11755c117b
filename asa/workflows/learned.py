"""What a user's runs have learned about a site, as a run needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from asa.core.context import Context
from asa.core.geometry import Geometry, geometry_of
from asa.core.job import Capabilities, JobRequest, QueueRegime, Resources
from asa.core.ports import RunTimePredictor
from asa.core.stage import StageState
from asa.log.store import LearnedStore
from asa.workflows.state import State

if TYPE_CHECKING:
    from asa.estimators.waits import Waits


class Learned:
    """Waits and run times of a site. Opened when first needed: importing what it takes costs more than a short run.

    Parameters
    ----------
    path
        The store, shared by all runs.
    estimator
        Spec of what learns the waits.
    site
        The site.
    """

    def __init__(self, path: Path, estimator: str, site: Capabilities) -> None:
        self._path, self._estimator, self._site = path, estimator, site

    def predict(
        self, resources: Resources, walltime_s: float, context: Context, quantiles: Sequence[float | None] = (None,)
    ) -> list[float]:
        """Expected waits [s] of a job of this size, one for each quantile."""
        return self._waits.predict(self._geometry(resources, walltime_s), context, quantiles)

    def learn(
        self, job: JobRequest, wait_s: float, predicted_s: float | None = None, context: Context | None = None
    ) -> None:
        """This job waited `wait_s` [s]; counts once, by its token."""
        self._waits.learn(self._geometry(job.resources, job.walltime_s), job.token, wait_s, predicted_s, context)

    def run_time(self, workflow: str) -> Callable[[str, float], float]:
        """Predicts the run time [s] of a stage of `workflow` from its name and wall time [s]."""
        if self._site.regime is QueueRegime.IMMEDIATE:  # nothing is planned with run times where nothing waits
            return lambda _stage, walltime_s: walltime_s
        return lambda stage, walltime_s: self._run_times.predict(f"{self._site.site} {workflow} {stage}", walltime_s)

    def learn_run_times(self, run: State, workflow: str) -> None:
        """Remember how long the stages of a run took; not of a resumed one, where they seem longer."""
        if self._site.regime is not QueueRegime.IMMEDIATE:
            for name, stage in run.stages.items():
                if stage.state is StageState.DONE and stage.started is not None and stage.ended is not None:
                    self._run_times.learn(f"{self._site.site} {workflow} {name}", stage.ended - stage.started)

    def close(self) -> None:
        """Let go of the store, if it was opened."""
        if (store := vars(self).get("_store")) is not None:
            store.close()

    def _geometry(self, resources: Resources, walltime_s: float) -> Geometry:
        return geometry_of(self._site.site, self._site.partition, resources.cores, walltime_s)

    @cached_property
    def _store(self) -> LearnedStore:
        return LearnedStore(self._path)

    @cached_property
    def _waits(self) -> Waits:
        from asa.estimators.waits import Waits

        return Waits(self._store, self._estimator)

    @cached_property
    def _run_times(self) -> RunTimePredictor:
        from asa.estimators.runtimes import LastTwo

        return LastTwo(self._store)
