"""Snakemake's executor on ASA: rules become tasks in few allocations, which are asked for ahead of need.

A pool of allocations is made for each partition, account and kind of node that rules name (`Place`), and what a job
needs decides which calls of the pool it is one of (`Shape`). After submissions the jobs that are not ready yet are read
from Snakemake's DAG and announced, with the time at which those before them will probably have ended.
"""

import math
import shutil
import statistics
import time
from collections import Counter
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from asa import AsaError
from asa.integrations.futures import PoolExecutor
from snakemake_executor_plugin_asa.task import Ended, run_job

_LOOK_S, _ANNOUNCE_S = 0.2, 5.0
_WALLTIME_S, _SPARE = 3600.0, 1.1
_MIB, _NAME = 2**20, "snakemake"
_GPUS = ("gpu", "gpus", "nvidia_gpu")


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text, "env_var": False, "required": False})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """What ``--asa-...`` sets; "" and 0 stand for defaults. Snakemake wants classes for types, and no unions."""

    backend: str = _setting("", "Where allocations come from: slurm, local:cores=8 ...; default slurm where sbatch is.")
    cores: int = _setting(0, "Cores of an allocation; default those of a whole node.")
    memory: str = _setting("", "Memory of an allocation, like 16GiB; default what usual jobs on all its cores need.")
    walltime: str = _setting("", "Wall time of an allocation, like 2h; default 1h, or more if a runtime asks for it.")
    allocations: int = _setting(0, "Allocations at most in each partition; default 8, on this machine 1.")
    idle: str = _setting("", "How long one is kept without work, like 2m; default as long as it waited in the queue.")
    executor: str = _setting("local", "How tasks run in allocations: local, or mesos, for agents on the nodes.")
    state: str = _setting("", "ASA's state directory; default as for asa run.")
    keep_logs: bool = _setting(False, "Keep the logs of jobs that succeed, too.")


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,  # they travel with the task: a command line can be read by all users
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=0,
)


class Place(NamedTuple):
    """Where allocations are asked for; "" for the site's default."""

    partition: str
    account: str
    qos: str
    constraint: str
    gpus: bool


class Shape(NamedTuple):
    """What a job needs: memory [MiB], 0 where nothing is said; run time at most [s], or None."""

    place: Place
    cores: int
    memory: int
    gpus: int
    runtime_s: float | None


def shape_of(job: Any) -> Shape:
    """What a job, or a group of jobs, needs; `WorkflowError` if an allocation of several cannot give that."""
    there = job.resources
    if there.get("mpi"):
        raise WorkflowError(f"{job.name}: a job with mpi= cannot share an allocation: have another executor run it")
    cores = max(1, _number(job, "cpus_per_task", job.threads))
    memory = _number(job, "mem_mb_per_cpu", 0) * cores or _number(job, "mem_mb", 0)
    gpus = max((_number(job, name, 0) for name in _GPUS), default=0)
    words = [str(there.get(name) or "") for name in ("slurm_partition", "slurm_account", "qos", "constraint")]
    runtime = _number(job, "runtime", 0)
    return Shape(Place(*words, gpus > 0), cores, _rounded(memory), gpus, 60.0 * runtime if runtime else None)


def _number(job: Any, name: str, otherwise: int) -> int:
    value = job.resources.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WorkflowError(f"{job.name}: {name} must be a number, not {value!r}")
    return math.ceil(value)


def _rounded(memory: int) -> int:
    """Memory [MiB] with three significant bits, rounded up: input files decide it, and each size is a name in reports.

    >>> _rounded(0), _rounded(1000), _rounded(1025), _rounded(7)
    (0, 1024, 1280, 7)
    """
    step = 1 << max(0, memory.bit_length() - 3)
    return -(-memory // step) * step


class Pool(NamedTuple):
    """Allocations of one size in one place."""

    place: Place
    calls: PoolExecutor

    def takes(self, shape: Shape) -> bool:
        """Whether an allocation has room for such a job, for as long as it may run."""
        there = self.calls.spec.resources
        return (
            self.place == shape.place
            and shape.cores <= there.cores
            and shape.gpus <= there.gpus
            and (there.memory is None or shape.memory * _MIB <= there.memory)
            and (shape.runtime_s or 0.0) <= self.calls.spec.walltime_s
        )


class Executor(RemoteExecutor):
    """Runs jobs as calls of `asa.PoolExecutor`; Snakemake makes one for each run."""

    def __post_init__(self) -> None:
        if self.workflow.remote_execution_settings.immediate_submit:
            raise WorkflowError("leave out --immediate-submit: ASA submits allocations, and waits for jobs in them")
        self.next_seconds_between_status_checks = _LOOK_S
        self.settings = self.workflow.executor_settings
        self._backend = self.settings.backend or ("slurm" if shutil.which("sbatch") else "local")
        self._logs = Path(self.workflow.workdir_init, ".snakemake", "asa", time.strftime("%Y%m%dT%H%M%S"))
        self._pools: list[Pool] = []
        self._sizes: dict[tuple[str, Shape], tuple[Pool, Any]] = {}
        self._seconds: dict[str, tuple[int, float]] = {}
        self._last: dict[str, tuple[str, Shape]] = {}
        self._announce_at, self._cores = 0.0, 1

    @property
    def cores(self) -> int:
        return self._cores

    def run_jobs(self, jobs: list[Any]) -> None:
        super().run_jobs(jobs)
        self._announce()

    def run_job(self, job: Any) -> None:
        shape = shape_of(job)
        self._cores = shape.cores
        log = self._logs / f"{job.name}-{job.jobid}-{job.attempt}.log"
        pool, calls = self._calls(job.name, shape)
        future = calls.submit(run_job, self.format_job_exec(job), dict(self.envvars()), str(log))
        info = SubmittedJobInfo(job, f"{pool.calls.name}/{calls.name}", {"future": future, "log": log})
        self.report_job_submission(info)

    def _calls(self, name: str, shape: Shape) -> tuple[Pool, Any]:
        """The pool, and its calls, that jobs of a rule with these needs are."""
        if (found := self._sizes.get((name, shape))) is None:
            pool = next((pool for pool in self._pools if pool.takes(shape)), None) or self._open(shape)
            number = sum(rule == name for rule, _ in self._sizes)
            needs = {"cores": shape.cores, "gpus": shape.gpus, "timeout": shape.runtime_s}
            needs["memory"] = f"{shape.memory}M" if shape.memory else None
            called = f"{name}-{number + 1}" if number or name == _NAME else name
            found = self._sizes[name, shape] = pool, pool.calls.sized(called, **needs)
        self._last[name] = name, shape
        return found

    def _open(self, shape: Shape) -> Pool:
        """A pool with room for jobs of this shape, and for all others there that are known of."""
        known = (self._shape(job) for job in self._pending())
        alike = [shape, *(each for each in known if each is not None and each.place == shape.place)]
        longest_s = max(each.runtime_s or 0.0 for each in alike)
        given = self.settings
        options: dict[str, Any] = {name: value for name, value in shape.place._asdict().items() if type(value) is str}
        options = {name: value for name, value in options.items() if value}
        options |= {"name": _NAME, "workdir": self.workflow.workdir_init, "executor": given.executor}
        options |= {"maximum": given.allocations or None, "idle": given.idle or None, "state": given.state or None}
        options["walltime"] = given.walltime or max(_WALLTIME_S, _SPARE * longest_s + 60.0)
        if shape.gpus:
            options |= {"gpus": max(each.gpus for each in alike), "cores": max(each.cores for each in alike)}
        if given.cores:
            options["cores"] = max(given.cores, shape.cores)
        if given.memory:
            options["memory"] = given.memory
        elif needing := [each for each in alike if each.memory]:
            options["memory"] = f"{max(each.memory for each in needing)}M"
            usual = statistics.median(each.memory / each.cores for each in needing)
            options["memory_per_core"] = f"{math.ceil(usual)}M"
        try:
            calls = PoolExecutor(self._backend, **options)
        except AsaError as error:
            raise WorkflowError(f"asa: no allocations can be asked for: {error}") from error
        pool = Pool(shape.place, calls)
        if not pool.takes(shape):
            calls.shutdown()
            raise WorkflowError(
                f"an allocation of {calls.spec.resources} for {calls.spec.walltime_s:.0f} s has no room for {shape}: "
                "raise --asa-cores, --asa-memory or --asa-walltime"
            )
        self._pools.append(pool)
        self.logger.info(f"ASA run {calls.name}: allocations of {calls.spec.resources}; asa status {calls.name}")
        return pool

    def _pending(self) -> dict[Any, set[Any]]:
        """Jobs and groups that have not ended, with those that they wait for, which come before."""
        dag, found = self.workflow.dag, dict[Any, set[Any]]()
        try:
            jobs = list(dag.needrun_jobs())
            one = {job: dag.get_job_group(job) if job.group is not None else job for job in jobs}
            for level in dag.toposorted(jobs):
                for job in level:
                    whole = one[job]
                    before = {one[other] for other in dag.dependencies[job] if other in one} - {whole}
                    found.setdefault(whole, set()).update(before)
        except (AttributeError, KeyError, TypeError) as error:  # another version's
            self.logger.debug(f"asa: what comes next is not read from the DAG: {error!r}")
            return {}
        return found

    def _shape(self, job: Any) -> Shape | None:
        """What a job needs, as far as it is known without its input."""
        try:
            return None if job.is_local else shape_of(job)
        except Exception:  # functions of the user's, about files that are not there yet
            return None

    def _announce(self) -> None:
        """Announce jobs that are not ready yet."""
        if (now := time.monotonic()) < self._announce_at:
            return
        self._announce_at = now + _ANNOUNCE_S
        starts: dict[Any, tuple[int, float]] = {}  # how many are before it in a row, and when the last of them ends
        moments: dict[int, dict[int, list[tuple[float, str]]]] = {}
        for job, before in self._pending().items():
            depth, at = -1, 0.0
            for other in before:
                deeper, began = starts.get(other, (0, 0.0))
                depth, at = max(depth, deeper), max(at, began + self._expected_s(other))
            starts[job] = depth + 1, at
            if depth < 0 or at == math.inf or job.is_local:
                continue
            if (last := self._last.get(job.name)) is None and (shape := self._shape(job)) is not None:
                self._calls(job.name, shape)
                last = self._last[job.name]
            if last is not None:
                pool, calls = self._sizes[last]
                moments.setdefault(self._pools.index(pool), {}).setdefault(depth, []).append((at, calls.name))
        for number, pool in enumerate(self._pools):
            levels = [tuple(zip(*jobs, strict=True)) for jobs in moments.get(number, {}).values()]
            pool.calls.expect(*((statistics.median(times), Counter(names)) for times, names in levels))

    def _expected_s(self, job: Any) -> float:
        """How long a job will take [s]: as others of its rule did, else as long as it may, which may be for ever."""
        if job.name in self._seconds:
            count, total_s = self._seconds[job.name]
            return total_s / count
        shape = self._shape(job)
        return math.inf if shape is None or shape.runtime_s is None else shape.runtime_s

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            if info.aux["future"].done():
                self._report(info)
            else:
                yield info

    def _report(self, info: SubmittedJobInfo) -> None:
        future, log = info.aux["future"], info.aux["log"]
        try:
            ended: Ended = future.result()
        except (AsaError, CancelledError) as error:  # its allocation or its time was over, or it cannot travel
            self.report_job_error(info, msg=f"{error or 'cancelled'}\n", aux_logs=[str(log)] if log.exists() else [])
            return
        if ended.code:
            how = f"killed by signal {-ended.code}" if ended.code < 0 else f"exit code {ended.code}"
            self.report_job_error(info, msg=f"{how}; the end of {log}:\n{ended.tail}\n", aux_logs=[str(log)])
            return
        count, total_s = self._seconds.get(info.job.name, (0, 0.0))
        self._seconds[info.job.name] = count + 1, total_s + ended.seconds
        if not self.settings.keep_logs:
            log.unlink(missing_ok=True)
        self.report_job_success(info)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """End what runs, with all allocations: Ctrl-C."""
        for pool in self._pools:
            pool.calls.terminate_workers()

    def shutdown(self) -> None:
        super().shutdown()
        for pool in self._pools:
            pool.calls.shutdown(wait=False)
        for pool in self._pools:
            pool.calls.shutdown()
