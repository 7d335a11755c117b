"""The transport that asks slurmrestd."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asa.backends.slurm import commands, rest_job, rest_parse
from asa.backends.slurm.cli import Commands
from asa.backends.slurm.failures import SiteRefusal
from asa.backends.slurm.record import JobRecord, NodeGroup, VisibleJob
from asa.backends.slurm.rest_answer import ALREADY_DONE, INVALID_JOB_ID, NO_ENTRY, NOTHING_FOUND, Denied, NoSuchPage
from asa.backends.slurm.rest_http import Server
from asa.core.errors import BackendError, InvalidInput

VERSIONS = (38, *range(rest_job.OLDEST_TYPED, 50))
"""Versions of the interface, in the order in which they are tried: the oldest first, because it changes no more."""

ITEMS_AT_ONCE = 200
"""Jobs named in one question to the accounting; slurmrestd takes no address longer than about 80 KiB."""

_SECRET = ("SLURM_JWT",)
_HOST = re.compile(r"[^(,\s]+")


class Rest:
    """Slurm through slurmrestd; a `Transport`.

    What slurmrestd does not tell, the controller's configuration, is asked of scontrol where there is one that speaks
    to the same controller.

    Parameters
    ----------
    server
        Who is asked.
    user
        The user's name in Slurm.
    timeout_s
        How long scontrol may take [s].
    environment
        Environment of the caller, which jobs inherit.
    """

    arrays = False  # v0.0.38 says that a changed element was not changed, and does change it but for its name

    def __init__(self, server: Server, user: str, timeout_s: float, environment: Mapping[str, str]) -> None:
        self._server, self._user, self._timeout_s = server, user, timeout_s
        self._environment = environment
        self._version: int | None = None

    def name(self) -> str:
        """The server, and the version of the interface that is spoken with it."""
        return f"slurmrestd at {self._server.name}" + (f", v0.0.{self._version}" if self._version else "")

    def version(self) -> tuple[int, ...]:
        return rest_parse.version(self._ping())

    def submit(self, options: Sequence[str], script: str) -> str:
        inherited = _for_job(self._environment)
        try:
            job = rest_job.submission(options, script, inherited, self._spoken())
        except InvalidInput as error:
            raise SiteRefusal(str(error)) from error
        answer = self._slurm("POST", "job/submit", body=job)
        if not answer.get("job_id"):
            raise BackendError(f"slurmrestd answered a submission with {answer!r}: expected a job id")
        return str(answer["job_id"])

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        if not keys:
            return []
        jobs = {key.partition("_")[0] for key in keys}
        page = f"job/{jobs.pop()}" if len(jobs) == 1 else "jobs"
        wanted = set(keys)
        answer = self._slurm("GET", page, unless=(INVALID_JOB_ID, NO_ENTRY))
        return [record for record in rest_parse.queue(answer, self._user) if record.key in wanted]

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return rest_parse.queue(self._slurm("GET", "jobs"), self._user) if names else []

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        return [
            record
            for some in commands.portions(keys, ITEMS_AT_ONCE)
            for record in self._accounts({"step": ",".join(some)})
        ]

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        when = {"start_time": commands.HORIZON, "end_time": "now", "state": commands.ANY_STATE}
        return [
            r
            for some in commands.portions(names, ITEMS_AT_ONCE)
            for r in self._accounts(when | {"job_name": ",".join(some)})
        ]

    def everyone(self, partitions: Sequence[str]) -> list[VisibleJob]:
        wanted = set(partitions)
        jobs = rest_parse.everyone(self._slurm("GET", "jobs"))
        return [job for job in jobs if not wanted.isdisjoint(job.partition.split(","))]

    def update(self, key: str, settings: Sequence[str]) -> None:
        self._slurm("POST", f"job/{key}", body=rest_job.changes(settings, self._spoken()))

    def cancel(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._slurm("DELETE", f"job/{key}", unless=(INVALID_JOB_ID, ALREADY_DONE))

    def configuration(self) -> dict[str, str]:
        """The controller's settings, from scontrol; slurmrestd has no page for them."""
        unknown = f"{self.name()} does not tell Slurm's configuration"
        # Without a token, because an old one would keep scontrol from saying who is asking in the usual way.
        environment = {name: value for name, value in self._environment.items() if name not in _SECRET}
        try:
            found = Commands(None, self._timeout_s, environment).configuration()
        except BackendError as error:
            raise SiteRefusal(unknown, f"{unknown}, and neither does scontrol: {error}") from error
        controllers = {match[0] for name, value in found.items() if "Host" in name and (match := _HOST.match(value))}
        if not controllers.issuperset(rest_parse.hosts(self._ping())):
            raise SiteRefusal(unknown, f"{unknown}, and scontrol speaks to another controller")
        return found

    def partitions(self) -> list[dict[str, str]]:
        return rest_parse.partitions(self._slurm("GET", "partitions"))

    def nodes(self, partition: str) -> list[NodeGroup]:
        return rest_parse.nodes(self._slurm("GET", "nodes"), partition.split(","))

    def _ping(self) -> Mapping[str, Any]:
        """The answer to ``ping``, in the first version that the server speaks."""
        for version in VERSIONS if self._version is None else (self._version,):
            try:
                answer = self._server.ask("GET", "slurm", f"v0.0.{version}", "ping")
            except NoSuchPage:
                continue
            self._version = version
            return answer
        self._version = None
        raise BackendError(f"slurmrestd at {self._server.name} speaks none of v0.0.38 to v0.0.{VERSIONS[-1]}")

    def _spoken(self) -> int:
        if self._version is None:
            self._ping()
        assert self._version is not None
        return self._version

    def _slurm(
        self, method: str, page: str, *, body: Mapping[str, Any] | None = None, unless: Sequence[int] = ()
    ) -> Mapping[str, Any]:
        """What the controller says; nothing when it says no with one of the errors of `unless`."""
        try:
            return self._server.ask(method, "slurm", f"v0.0.{self._spoken()}", page, body=body)
        except Denied as error:
            if error.numbers.intersection(unless):
                return {}
            raise

    def _accounts(self, query: Mapping[str, str]) -> list[JobRecord]:
        """Jobs in the accounting; none where slurmrestd knows of no accounting."""
        try:
            answer = self._server.ask("GET", "slurmdb", f"v0.0.{self._spoken()}", "jobs", query=query)
        except NoSuchPage:
            return []
        except Denied as error:
            if NOTHING_FOUND in error.numbers:
                return []
            raise
        return rest_parse.accounting(answer, self._user)


def _for_job(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment as sbatch would hand it on, without the token."""
    own = {"SLURM_SUBMIT_DIR": os.getcwd(), "SLURM_UMASK": _umask()}
    found = own | commands.submission_environment(inherited)
    return {name: value for name, value in found.items() if name not in _SECRET and _plain(name + value)}


def _umask() -> str:
    """This process's umask, read where that does not change it."""
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^Umask:\s*(\d+)", status, re.MULTILINE)
    return match[1] if match else "0077"


def _plain(text: str) -> bool:
    """Whether JSON can carry it."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
