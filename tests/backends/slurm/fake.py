"""A Slurm that exists only here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from asa.backends.slurm.words import JobRecord, NodeGroup, SiteRefusal, VisibleJob, state_of
from asa.core.errors import BackendError
from asa.core.job import JobHandle

NOW = 5000.0
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


class FakeSlurm:
    """A transport to a controller and an accounting that are two dictionaries."""

    def __init__(self, *, arrays: bool = True) -> None:
        self.arrays = arrays
        self.queued: dict[str, JobRecord] = {}
        self.accounted: dict[str, JobRecord] = {}
        self.settings = {"ClusterName": "asa", "EnforcePartLimits": "NO", "PriorityType": "priority/basic"}
        self.number = 0
        self.calls: list[str] = []
        self.scripts: list[str] = []
        self.options: list[list[str]] = []
        self.updates: list[tuple[str, list[str]]] = []
        self.cancelled: list[str] = []
        self.slurm_version = (22, 5, 8)
        self.visible: list[VisibleJob] = []
        self.hidden = False
        self.unshown: dict[str, int] = {}  # by key: how many answers about the queue will lack it
        self.where = {"PartitionName": "main", "Default": "YES", "MaxTime": "01:00:00", "Nodes": "n[1-4]"}
        self.before_update: dict[str, BackendError] = {}  # by key; raised once, without a change
        self.after_update: dict[str, BackendError] = {}  # by key; raised once, although it is changed
        self.before_submit: dict[str, BackendError] = {}  # by job name; raised once, without a job
        self.after_submit: dict[str, BackendError] = {}  # by job name; raised once, although there is a job
        self.user, self.questions = "ann", 0
        self.accounts: dict[str, list[dict[str, str]]] = {}  # rows of sacctmgr by what is shown; none: refused
        self.most_jobs: int | None = None
        self.says = "AssocMaxSubmitJobLimit\nBatch job submission failed: " + POLICY  # of one job too many

    def name(self) -> str:
        return "a fake"

    def version(self) -> tuple[int, ...]:
        return self.slurm_version

    def submit(self, options: Sequence[str], script: str, withheld: Sequence[str] = ()) -> str:
        self.calls.append("submit")
        name = next(option.removeprefix("--job-name=") for option in options if option.startswith("--job-name="))
        if name in self.before_submit:
            raise self.before_submit.pop(name)
        array = next((option for option in options if option.startswith("--array=")), "")
        last = int(array.removeprefix("--array=0-").removesuffix("%1")) if array else None
        there = sum(not state_of(record).final for record in self.queued.values())
        if self.most_jobs is not None and there + (last or 0) >= self.most_jobs:
            raise SiteRefusal(self.says)
        self.number += 1
        self.options.append(list(options))
        self.scripts.append(script)
        number = str(self.number)
        for key in [number] if last is None else [f"{number}_{at}" for at in range(last + 1)]:
            self.queued[key] = JobRecord(key, name, "PENDING", submitted=NOW + 1)
        if name in self.after_submit:
            raise self.after_submit.pop(name)
        return str(self.number)

    def submission(self, options: Sequence[str]) -> list[str]:
        return ["sbatch", *options]

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        self.calls += ["queue"] if keys else []
        self.questions += bool(keys)
        asked = [key for key in self.queued if {key, key.partition("_")[0]}.intersection(keys)]
        away = [key for key in asked if self.unshown.get(key, 0) > 0]
        self.unshown |= {key: self.unshown[key] - 1 for key in away}
        return [self.queued[key] for key in asked if key not in away]

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return list(self.queued.values())

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        self.calls += ["accounting"] if keys else []
        return [record for key, record in self.accounted.items() if key in keys]

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return [record for record in self.accounted.values() if record.name in names]

    def update(self, key: str, settings: Sequence[str]) -> None:
        if key in self.before_update:
            raise self.before_update.pop(key)
        self.updates.append((key, list(settings)))
        for setting in settings:
            if setting.startswith("JobName="):
                self.queued[key] = replace(self.queued[key], name=setting.removeprefix("JobName="))
        if key in self.after_update:
            raise self.after_update.pop(key)

    def visible_jobs(self, partitions: Sequence[str]) -> list[VisibleJob]:
        if self.hidden:
            raise SiteRefusal("Access/permission denied", "squeue: Access/permission denied")
        return [job for job in self.visible if job.partition in partitions]

    def cancel(self, keys: Sequence[str]) -> None:
        self.cancelled += keys
        for key, record in self.queued.items():
            if {key, key.partition("_")[0]}.intersection(keys):
                self.queued[key] = replace(record, word="CANCELLED")

    def configuration(self) -> dict[str, str]:
        if not self.settings:
            raise SiteRefusal("Access/permission denied", "scontrol: Access/permission denied")
        return self.settings

    def partitions(self) -> list[dict[str, str]]:
        return [self.where]

    def accounting_settings(self, what: Sequence[str], fields: Sequence[str]) -> list[dict[str, str]]:
        self.calls.append("sacctmgr " + " ".join(what))
        if not self.accounts:
            raise SiteRefusal("Access/permission denied", "sacctmgr: Access/permission denied")
        return [{name: row.get(name, "") for name in fields} for row in self.accounts[what[0]]]

    def nodes(self, partition: str) -> list[NodeGroup]:
        return [NodeGroup("main", 4, 8, 2**32, 0, "idle")]

    def end(self, handle: JobHandle, word: str) -> None:
        """The job ends and is forgotten by the controller."""
        record = self.queued.pop(handle.job_id)
        self.accounted[handle.job_id] = replace(record, word=word, start=NOW + 2, end=NOW + 3, nodes=("n1",))
