"""A PBS that exists only here: it reads command lines and scripts, and prints what PBS prints."""

from __future__ import annotations

import json
import shlex
import time
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

SERVER = "pbs1"
_LETTERS = {JobState.PENDING: "Q", JobState.RUNNING: "R"}


class FakePbs:
    """Commands in, text out; behind them a batch system in virtual time."""

    def __init__(self, clock: ManualClock, cores: int = 4) -> None:
        self.clock = clock
        self.batch = FakeBatch(clock, cores=cores, run=run_of)
        self.jobs: dict[str, tuple[JobHandle, JobRequest]] = {}
        self.said: list[list[str]] = []
        self.scripts: list[str] = []

    def __call__(self, argv: Sequence[str], stdin: str) -> str:
        self.said.append(list(argv))
        answer: str = getattr(self, argv[0])(list(argv[1:]), stdin)
        return answer

    def fail(self, program: str, text: str, code: int = 1) -> CommandError:
        return CommandError([program], f"ended with exit code {code}", returncode=code, stderr=f"{program}: {text}\n")

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
        (outcome,) = self.batch.submit([request])
        if isinstance(outcome, Refused):
            raise self.fail("qsub", outcome.reason)
        job = f"{outcome.job_id}.{SERVER}"
        self.jobs[job] = outcome, request
        self.scripts.append(script)
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
        unknown = [job for job in rest if job not in self.jobs]
        if unknown:
            raise self.fail("qstat", "\nqstat: ".join(f"Unknown Job Id {job}" for job in unknown), 153)
        return self.document("Jobs", {job: self.attributes(job) for job in rest})

    def qselect(self, words: list[str], _stdin: str) -> str:
        assert words[:2] == ["-x", "-N"]
        return "".join(f"{job}\n" for job, (handle, _) in self.jobs.items() if handle.token == words[2])

    def qalter(self, words: list[str], _stdin: str) -> str:
        given = dict(self.options(words[:-1]))
        changes = JobChanges(
            walltime_s=self.walltime(given["walltime"]) if "walltime" in given else None,
            resources=self.resources(given["select"]) if "select" in given else None,
            dependencies=self.dependencies(given["depend"]) if "depend" in given else None,
            begin=self.moment(given["-a"]) if "-a" in given else None,
        )
        try:
            self.batch.update(self.jobs[words[-1]][0], changes)
        except BackendError as error:
            raise self.fail("qalter", str(error)) from error
        return ""

    def qdel(self, words: list[str], _stdin: str) -> str:
        self.batch.cancel([self.jobs[job][0] for job in words])
        return ""

    def pbsnodes(self, words: list[str], _stdin: str) -> str:
        assert words == ["-a", "-F", "json"]
        cores = self.batch.capabilities().largest
        assert cores is not None
        room = {"ncpus": cores.cores, "mem": "32gb", "host": "n1"}
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
        return tuple(Dependency(self.jobs[job][0], DependencyKind(kind)) for kind, job in items)

    def moment(self, text: str) -> float:
        return time.mktime(time.strptime(text, "%Y%m%d%H%M.%S"))

    # ------------------------------------------------------------- answers

    def document(self, key: str, table: dict[str, Any]) -> str:
        head = {"timestamp": int(self.clock.now()), "pbs_version": "22.05.11", "pbs_server": SERVER}
        return json.dumps(head | {key: table})

    def attributes(self, job: str) -> dict[str, Any]:
        handle, request = self.jobs[job]
        (status,) = self.batch.query([handle])
        letter = _LETTERS.get(status.state, "F")
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
            found |= self.end(status)
        return found

    def end(self, status: JobStatus) -> dict[str, Any]:
        assert status.ended is not None
        found: dict[str, Any] = {"obittime": self.text(status.ended)}
        if status.started is not None:
            codes = {JobState.TIMEOUT: -29, JobState.CANCELLED: 271}
            found["Exit_status"] = codes.get(status.state, status.exit_code)
            found["resources_used"] = {"walltime": f"00:00:{int(status.ended - status.started) % 60:02}"}
        return found

    def text(self, at: float) -> str:
        return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(at))
