"""The books of one's own jobs on a simulated machine: taken, refused, changed, found again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from asa.backends.queue import throttle_problem
from asa.core.errors import InvalidInput
from asa.core.job import Dependency, DependencyKind, JobChanges, JobHandle, JobRequest, JobState, Refused
from asa.lab.backend.jobs import Array, Job, node_names, shape_of, state_of
from asa.lab.backend.places import settle
from asa.lab.core.cluster import Cluster
from asa.lab.simulator import edits
from asa.lab.simulator.engine import Engine


@dataclass
class Books:
    """Jobs by id and by token, those that have not ended apart.

    Parameters
    ----------
    cluster
        The machine.
    single_cores
        Whether jobs take single cores there; see `asa.lab.backend.jobs.shape_of`.
    longest_s
        Longest wall time that is allowed [s].
    """

    cluster: Cluster
    single_cores: bool
    longest_s: float
    live: dict[str, Job] = field(default_factory=dict)
    tokens: dict[str, Job] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)

    def find(self, handle: JobHandle) -> Job | None:
        """The job of a handle, or None when its id, token and time of submission belong to no job."""
        job = self._jobs.get(handle.job_id)
        return job if job and job.handle == handle else None

    def submit(self, engine: Engine, requests: Sequence[JobRequest]) -> list[JobHandle | Refused]:
        """Put jobs into the queue, as soon as time passes; their programs run until they are ended."""
        arrays: dict[str, list[Job]] = {}
        return [self._submit(engine, request, arrays) for request in requests]

    def _submit(self, engine: Engine, request: JobRequest, arrays: dict[str, list[Job]]) -> JobHandle | Refused:
        try:
            self._check_walltime(request.walltime_s)
            shape = shape_of(request.resources, self.cluster, self.single_cores)
            after = self._rows(request.dependencies)
        except InvalidInput as error:
            return Refused(request.token, f"job {request.token!r} {error}")
        row = edits.submit(
            engine,
            run=math.inf,
            walltime=request.walltime_s,
            units=shape.units,
            need=shape.need,
            per_node=shape.per_node,
            after=after,
            begin=-math.inf if request.begin is None else request.begin,
        )
        engine.state.fates["stop"][row] = request.walltime_s  # even where other people's jobs may run on
        job = Job(row, request, JobHandle(str(row), request.token, engine.now))
        if request.array:
            elements = arrays.setdefault(request.array, [])
            job.handle = replace(job.handle, array_index=len(elements))
            job.array = elements[0].array if elements else Array(row)
            elements.append(job)
        self._jobs[job.handle.job_id] = self.live[job.handle.job_id] = self.tokens[request.token] = job
        return job.handle

    def change(self, engine: Engine, job: Job, changes: JobChanges) -> None:
        """Change a job that waits, or the throttle of its array.

        Raises
        ------
        InvalidInput
            When the machine could never run it as changed, or when there is no throttle to change; then nothing is.
        """
        lives = any(other.array is job.array and not state_of(engine, other).final for other in self.live.values())
        if problem := throttle_problem(changes.throttle, job.array is not None, lives):
            raise InvalidInput(problem)
        after = None if changes.dependencies is None else self._rows(changes.dependencies)
        units = None
        if changes.resources is not None:
            shape, now = (shape_of(needs, self.cluster, self.single_cores) for needs in (changes.resources, job.needs))
            if replace(shape, units=now.units) != now:
                raise InvalidInput(f"may have more or fewer units of {now.need}, not others")
            units = shape.units
        if changes.walltime_s is not None:
            self._check_walltime(changes.walltime_s)
            edits.set_walltime(engine, job.row, changes.walltime_s)
            engine.state.fates["stop"][job.row] = changes.walltime_s
        if units is not None:
            edits.set_units(engine, job.row, units)
        if after is not None:
            edits.set_dependencies(engine, job.row, after)
        if changes.begin is not None:
            edits.set_begin(engine, job.row, changes.begin)
        if changes.throttle is not None and job.array is not None:
            job.array.throttle = changes.throttle
        if changes.parked is False and job.parked:
            edits.unbar(engine, job.row)
        job.parked = job.parked if changes.parked is None else changes.parked
        settle(engine, self.live.values())
        kept = {item.name: getattr(changes, item.name) for item in fields(JobRequest) if hasattr(changes, item.name)}
        job.request = replace(job.request, **{name: value for name, value in kept.items() if value is not None})

    def news(self, engine: Engine) -> list[Job]:
        """Jobs whose state has changed since the last call; what is to be held back from now on, is."""
        settle(engine, self.live.values())
        changed = []
        for job in list(self.live.values()):
            state, restarts = state_of(engine, job), int(engine.state.jobs["restarts"][job.row])
            if (state, restarts) != (job.state, job.restarts):
                job.state, job.restarts = state, restarts
                changed.append(job)
                if state.final:
                    del self.live[job.handle.job_id]
                elif state is JobState.RUNNING:
                    job.nodes = node_names(engine, job)
        return changed

    def _check_walltime(self, walltime_s: float) -> None:
        if not 0 < walltime_s <= self.longest_s:
            raise InvalidInput(f"has a wall time of {walltime_s!r} s: above 0, up to {self.longest_s:g} expected")

    def _rows(self, dependencies: Sequence[Dependency]) -> list[tuple[int, DependencyKind]]:
        rows = []
        for dependency in dependencies:
            if (job := self.find(dependency.on)) is None:
                raise InvalidInput(f"depends on job {dependency.on.job_id}, which is not known here")
            rows.append((job.row, dependency.kind))
        return rows
