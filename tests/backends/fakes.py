"""A Flux and a PBS that exist only here: they read command lines and scripts, and print what Flux and PBS print."""

from __future__ import annotations

import json
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
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


class FakeCommands(ABC):
    """Commands in, text out; behind them a batch system in virtual time."""

    def __init__(self, clock: ManualClock, cores: int = 4) -> None:
        self.clock, self.cores = clock, cores
        self.batch = FakeBatch(clock, cores=cores, run=run_of)
        self.submitted: dict[str, tuple[JobHandle, JobRequest]] = {}
        self.said: list[list[str]] = []
        self.hidden: dict[str, int] = {}  # by job: how many answers will lack it, although it is there

    def __call__(self, argv: Sequence[str], stdin: str) -> str:
        self.said.append(list(argv))
        words = list(argv)
        if words[0] == "env":  # which keeps variables from the command
            words = words[1 + 2 * words.count("-u") :]
        return self.answer(words, stdin)

    @abstractmethod
    def answer(self, argv: list[str], stdin: str) -> str:
        """What a command prints."""

    def fail(self, program: str, *lines: str, code: int = 1) -> CommandError:
        said = "".join(f"{program}: {line}\n" for line in lines)
        return CommandError([program], f"ended with exit code {code}", returncode=code, stderr=said)

    def put(self, program: str, request: JobRequest) -> JobHandle:
        (outcome,) = self.batch.submit([request])
        if isinstance(outcome, Refused):
            raise self.fail(program, outcome.reason)
        return outcome

    def change(self, program: str, job: str, changes: JobChanges) -> str:
        try:
            self.batch.update(self.submitted[job][0], changes)
        except BackendError as error:
            raise self.fail(program, str(error)) from error
        return ""

    def end(self, jobs: Sequence[str]) -> str:
        self.batch.cancel([self.submitted[job][0] for job in jobs])
        return ""

    def known(self, jobs: Sequence[str]) -> list[str]:
        """Those of these that are shown now."""
        away = [job for job in jobs if self.hidden.get(job, 0) > 0]
        self.hidden |= {job: self.hidden[job] - 1 for job in away}
        return [job for job in jobs if job in self.submitted and job not in away]

    def look(self, job: str) -> tuple[JobHandle, JobRequest, JobStatus]:
        handle, request = self.submitted[job]
        return handle, request, self.batch.query([handle])[0]


LETTERS = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_FIRST = 91_088_924_704_768


def f58(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 58)
        text = LETTERS[digit] + text
    return "ƒ" + (text or "1")


class FakeFlux(FakeCommands):
    def answer(self, argv: list[str], stdin: str) -> str:
        assert argv[0] == "flux" and not stdin
        answer: str = getattr(self, argv[1])(argv[2:])
        return answer

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
        for job in (item.on.job_id for item in waits if item.kind is DependencyKind.AFTER_OK):
            status = self.batch.query([next(handle for handle, _ in self.submitted.values() if handle.job_id == job)])[
                0
            ]
            if status.state.final and status.state is not JobState.COMPLETED:
                number = _FIRST + int(job)
                raise self.fail(
                    "flux-submit: ERROR", f"[Errno 22] dependency: afterok: job {number} failed or was canceled"
                )
        nodes = int(given["--nodes"])
        assert given["--ntasks"] == given["--nodes"]
        begin = given.get("--begin-time")
        request = JobRequest(
            token=given["--job-name"],
            resources=Resources(nodes * int(given["--cores-per-task"]), nodes if nodes > 1 else None),
            walltime_s=float(given["--time-limit"].removesuffix("s")),
            argv=tuple(words[cut + 5 :]),
            dependencies=tuple(waits),
            begin=self.clock.now() + float(begin.strip("+s")) if begin else None,
        )
        handle = self.put("flux-submit: ERROR", request)
        number = _FIRST + int(handle.job_id)
        self.submitted[str(number)] = handle, request
        return f58(number) + "\n"

    def jobs(self, words: list[str]) -> str:
        assert words[:2] == ["--json", "-a"]
        name = next((word.removeprefix("--name=") for word in words if word.startswith("--name=")), None)
        ids = [word for word in words[2:] if not word.startswith("-")]
        if name is not None:
            ids = [job for job, (handle, _) in self.submitted.items() if handle.token == name]
        shown = self.known(ids)
        if name is not None:
            ids = shown
        if unknown := [job for job in ids if job not in shown]:
            raise self.fail("flux-jobs: ERROR", *(f"JobID {job} unknown" for job in unknown))
        known = [self.attributes(job) for job in ids]
        return json.dumps(known[0] if len(known) == 1 and name is None else {"jobs": known})

    def update(self, words: list[str]) -> str:
        job, setting = words
        walltime_s = float(setting.removeprefix("duration=").removesuffix("s"))
        return self.change("flux-update: ERROR", job, JobChanges(walltime_s=walltime_s))

    def cancel(self, words: list[str]) -> str:
        return self.end(words)

    def resource(self, words: list[str]) -> str:
        assert words[0] == "list" and words[-1] == "{state} {nnodes} {ncores} {ngpus}"
        return f"free 1 {self.cores} 0\nallocated 0 0 0\n"

    # ------------------------------------------------------------- answers

    def attributes(self, job: str) -> dict[str, Any]:
        handle, request, status = self.look(job)
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
        return found | self.ended(status) if status.state.final else found

    def ended(self, status: JobStatus) -> dict[str, Any]:
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


SERVER = "pbs1"
_STATES = {JobState.PENDING: "Q", JobState.RUNNING: "R"}


class FakePbs(FakeCommands):
    def answer(self, argv: list[str], stdin: str) -> str:
        answer: str = getattr(self, argv[0])(argv[1:], stdin)
        return answer

    # ------------------------------------------------------------ commands

    def qsub(self, words: list[str], script: str) -> str:
        given = dict(self.options(words))
        lines = script.splitlines()
        assert lines[0] == "#!/bin/sh"
        request = JobRequest(
            token=given["-N"],
            resources=self.resources(given["select"]),
            walltime_s=self.walltime(given["walltime"]),
            argv=tuple(shlex.split(lines[-1])[1:]),
            dependencies=self.dependencies(given.get("depend", "")),
            begin=self.moment(given["-a"]) if "-a" in given else None,
        )
        handle = self.put("qsub", request)
        job = f"{handle.job_id}.{SERVER}"
        self.submitted[job] = handle, request
        return f"{job}\n"

    def qstat(self, words: list[str], _stdin: str) -> str:
        assert words[words.index("-F") + 1] == "json"
        rest = words[words.index("json") + 1 :]
        if "-B" in words:
            settings = {"default_queue": "workq", "pbs_version": "22.05.11", "job_history_enable": "True"}
            return self.document("Server", {SERVER: settings})
        if "-Q" in words:
            settings = {"queue_type": "Execution", "resources_max": {"walltime": "01:00:00"}}
            return self.document("Queue", {rest[0]: settings})
        shown = self.known(rest)
        if unknown := [job for job in rest if job not in shown]:
            raise self.fail("qstat", *(f"Unknown Job Id {job}" for job in unknown), code=153)
        return self.document("Jobs", {job: self.attributes(job) for job in rest})

    def qselect(self, words: list[str], _stdin: str) -> str:
        assert words[:2] == ["-x", "-N"]
        jobs = [job for job, (handle, _) in self.submitted.items() if handle.token == words[2]]
        return "".join(f"{job}\n" for job in self.known(jobs))

    def qalter(self, words: list[str], _stdin: str) -> str:
        given = dict(self.options(words[:-1]))
        changes = JobChanges(
            walltime_s=self.walltime(given["walltime"]) if "walltime" in given else None,
            resources=self.resources(given["select"]) if "select" in given else None,
            dependencies=self.dependencies(given["depend"]) if "depend" in given else None,
            begin=self.moment(given["-a"]) if "-a" in given else None,
        )
        return self.change("qalter", words[-1], changes)

    def qdel(self, words: list[str], _stdin: str) -> str:
        return self.end(words)

    def pbsnodes(self, words: list[str], _stdin: str) -> str:
        assert words == ["-a", "-F", "json"]
        room = {"ncpus": self.cores, "mem": "32gb", "host": "n1"}
        gone = {"state": "down,offline", "resources_available": {"ncpus": 512}}
        return self.document("nodes", {"n1": {"state": "free", "resources_available": room}, "n2": gone})

    # --------------------------------------------------------------- words

    def options(self, words: list[str]) -> Iterator[tuple[str, str]]:
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option in ("-l", "-W"):
                name, _, rest = value.partition("=")
                yield name, rest
            else:
                yield option, value

    def resources(self, select: str) -> Resources:
        count, *parts = select.split(":")
        found = dict(part.split("=") for part in parts)
        nodes = int(count)
        return Resources(nodes * int(found["ncpus"]), nodes if nodes > 1 else None)

    def walltime(self, text: str) -> float:
        hours, minutes, seconds = map(int, text.split(":"))
        return 3600.0 * hours + 60 * minutes + seconds

    def dependencies(self, text: str) -> tuple[Dependency, ...]:
        items = (item.split(":") for item in filter(None, text.split(",")))
        return tuple(Dependency(self.submitted[job][0], DependencyKind(kind)) for kind, job in items)

    def moment(self, text: str) -> float:
        return time.mktime(time.strptime(text, "%Y%m%d%H%M.%S"))

    # ------------------------------------------------------------- answers

    def document(self, key: str, table: dict[str, Any]) -> str:
        head = {"timestamp": int(self.clock.now()), "pbs_version": "22.05.11", "pbs_server": SERVER}
        return json.dumps(head | {key: table})

    def attributes(self, job: str) -> dict[str, Any]:
        handle, request, status = self.look(job)
        letter = _STATES.get(status.state, "F")
        if letter == "Q" and status.reason == "BeginTime":
            letter = "W"
        if letter == "Q" and status.reason == "Dependency":
            letter = "H"
        found: dict[str, Any] = {
            "Job_Name": handle.token,
            "Job_Owner": "me@login1",
            "job_state": letter,
            "queue": "workq",
            "server": SERVER,
            "ctime": self.text(handle.submitted),
            "mtime": self.text(self.clock.now()),
            "Resource_List": {"walltime": request.walltime_s},
            "substate": 91 if status.state is JobState.CANCELLED else 92 if letter == "F" else 42,
            "run_count": 1,
        }
        if status.eligible is not None:
            found["etime"] = self.text(status.eligible)
        if letter == "Q":
            found["comment"] = "Not Running: Insufficient amount of resource: ncpus"
        if letter == "H":
            found["depend"] = "afterok:1.pbs1@pbs1"
        if status.started is not None:
            found |= {"stime": self.text(status.started), "exec_host": "n1/0*4", "exec_vnode": "(n1:ncpus=4)"}
        if status.ended is not None:
            found |= self.ended(status)
        return found

    def ended(self, status: JobStatus) -> dict[str, Any]:
        assert status.ended is not None
        found: dict[str, Any] = {"obittime": self.text(status.ended)}
        if status.started is not None:
            codes = {JobState.TIMEOUT: -29, JobState.CANCELLED: 271}
            found["Exit_status"] = codes.get(status.state, status.exit_code)
            found["resources_used"] = {"walltime": f"00:00:{int(status.ended - status.started) % 60:02}"}
        return found

    def text(self, at: float) -> str:
        return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(at))
