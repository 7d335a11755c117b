"""A Flux that exists only here: it reads command lines, and prints what Flux prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from asa.backends.batch import CommandError
from asa.core.clock import ManualClock
from asa.core.errors import BackendError
from asa.core.job import (
    Dependency,
    DependencyKind,
    JobChanges,
    JobHandle,
    JobRequest,
    JobState,
    JobStatus,
    Refused,
    Resources,
)
from asa.testing.backend_fake import FakeBatch
from asa.testing.backends import run_of

LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_FIRST = 91_088_924_704_768


def f58(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = LETTERS[digit] + text
    return "ƒ" + (text or "1")


class FakeFlux:
    """Commands in, text out; behind them a batch system in virtual time."""

    def __init__(self, clock: ManualClock, cores: int = 4) -> None:
        self.clock, self.cores = clock, cores
        self.batch = FakeBatch(clock, cores=cores, run=run_of)
        self.submitted: dict[str, tuple[JobHandle, JobRequest]] = {}
        self.said: list[list[str]] = []

    def __call__(self, argv: Sequence[str], stdin: str) -> str:
        assert argv[0] == "flux" and not stdin
        self.said.append(list(argv))
        answer: str = getattr(self, argv[1])(list(argv[2:]))
        return answer

    def fail(self, program: str, text: str) -> CommandError:
        return CommandError(["flux"], "ended with exit code 1", returncode=1, stderr=f"flux-{program}: ERROR: {text}\n")

    # ------------------------------------------------------------ commands

    def submit(self, words: list[str]) -> str:
        cut = words.index("--")
        given: dict[str, str] = {}
        waits: list[Dependency] = []
        for word in words[:cut]:
            name, _, value = word.partition("=")
            if name == "--dependency":
                kind, _, job = value.partition(":")
                waits.append(Dependency(self.submitted[job][0], DependencyKind(kind)))
            given[name] = value
        nodes = int(given["--nodes"])
        assert given["--ntasks"] == given["--nodes"]
        begin = given.get("--begin-time")
        request = JobRequest(
            token=given["--job-name"],
            resources=Resources(nodes * int(given["--cores-per-task"]), nodes if nodes > 1 else None),
            walltime_s=float(given["--time-limit"].removesuffix("s")),
            argv=tuple(words[cut + 1 :]),
            dependencies=tuple(waits),
            begin=self.clock.now() + float(begin.strip("+s")) if begin else None,
        )
        (outcome,) = self.batch.submit([request])
        if isinstance(outcome, Refused):
            raise self.fail("submit", outcome.reason)
        number = _FIRST + int(outcome.job_id)
        self.submitted[str(number)] = outcome, request
        return f58(number) + "\n"

    def jobs(self, words: list[str]) -> str:
        assert words[:2] == ["--json", "-a"]
        name = next((word.removeprefix("--name=") for word in words if word.startswith("--name=")), None)
        ids = [word for word in words[2:] if not word.startswith("-")]
        if name is not None:
            ids = [job for job, (handle, _) in self.submitted.items() if handle.token == name]
        unknown = [job for job in ids if job not in self.submitted]
        if unknown:
            raise self.fail("jobs", "\nflux-jobs: ERROR: ".join(f"JobID {job} unknown" for job in unknown))
        told = [self.attributes(job) for job in ids]
        return json.dumps(told[0] if len(told) == 1 and name is None else {"jobs": told})

    def update(self, words: list[str]) -> str:
        job, setting = words
        changes = JobChanges(walltime_s=float(setting.removeprefix("duration=").removesuffix("s")))
        try:
            self.batch.update(self.submitted[job][0], changes)
        except BackendError as error:
            raise self.fail("update", str(error)) from error
        return ""

    def cancel(self, words: list[str]) -> str:
        self.batch.cancel([self.submitted[job][0] for job in words])
        return ""

    def resource(self, words: list[str]) -> str:
        assert words[0] == "list" and words[-1] == "{state} {nnodes} {ncores} {ngpus}"
        return f"free 1 {self.cores} 0\nallocated 0 0 0\n"

    # ------------------------------------------------------------- answers

    def attributes(self, job: str) -> dict[str, Any]:
        handle, request = self.submitted[job]
        (status,) = self.batch.query([handle])
        waits = status.reason in ("Dependency", "BeginTime")
        state = {JobState.PENDING: "DEPEND" if waits else "SCHED", JobState.RUNNING: "RUN"}.get(
            status.state, "INACTIVE"
        )
        found: dict[str, Any] = {
            "id": int(job),
            "name": handle.token,
            "state": state,
            "t_submit": handle.submitted,
            "t_depend": handle.submitted,
            "urgency": 16,
            "ntasks": 1,
            "ncores": request.resources.cores,
            "duration": request.walltime_s,
            "annotations": {},
            "exception": {"occurred": False},
            "dependencies": ["begin-time=9"] if status.reason == "BeginTime" else ["after-success=1"] if waits else [],
        }
        if status.started is not None:
            found |= {"t_run": status.started, "nodelist": "n[1]", "ranks": "0"}
        return found | self.end(status) if status.state.final else found

    def end(self, status: JobStatus) -> dict[str, Any]:
        result = {
            JobState.COMPLETED: "COMPLETED",
            JobState.TIMEOUT: "TIMEOUT",
            JobState.CANCELLED: "CANCELED",
        }.get(status.state, "FAILED")
        found: dict[str, Any] = {"result": result, "t_cleanup": status.ended, "t_inactive": status.ended}
        if status.state is JobState.CANCELLED and status.started is None and "never" in status.reason.lower():
            note = "dependency can never be satisfied"
            found |= {"result": "FAILED", "exception": {"occurred": True, "type": "dependency", "note": note}}
        if status.exit_code is not None:
            found["returncode"] = status.exit_code
        return found
