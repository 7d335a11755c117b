"""slurmrestd on a real cluster, over a Unix socket and over TCP with a token: the conformance suite, and trouble.

The version of the interface that is spoken by itself has all of it; of others that the server offers, jobs and answers
are tried.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm import rest as spoken_rest
from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.commands import SlurmCommands, parse_version
from asa.backends.slurm.rest import VERSIONS, RestServer, SlurmRest, Tokens
from asa.backends.slurm.rest_parse import NoSuchPage
from asa.backends.slurm.words import JobRecord
from asa.core.clock import SystemClock
from asa.core.errors import BackendError
from asa.core.job import JobChanges, JobHandle, JobRequest, JobState, Refused, Resources
from asa.security.files import write_private
from asa.testing.backends import BatchSemantics, RealPrograms, TestedSite
from tests.cluster import daemons, faults, host, layout, processes
from tests.cluster.cluster import Cluster, running
from tests.cluster.config import REST_USER

pytestmark = [pytest.mark.slurm, pytest.mark.root]

LOCAL = "slurmrestd-local"
MOST_OFFERED = 4  # versions of the interface in one slurmrestd, of those that are spoken


def socket(cluster: Cluster) -> Path:
    return Path(cluster.config.base, "rest", "socket")


def address(cluster: Cluster) -> str:
    return f"http://127.0.0.1:{cluster.config.ports.slurmrestd}"


def version(cluster: Cluster) -> tuple[int, ...]:
    return parse_version(cluster.run("sbatch", "--version"))


def start_local(cluster: Cluster) -> None:
    """Start a slurmrestd on a Unix socket. It runs as the caller and takes no token; only in a test may that be root.

    From 26.05 on not even there: that one wants a token.
    """
    socket(cluster).unlink(missing_ok=True)
    socket(cluster).parent.mkdir(exist_ok=True)
    argv, where = [daemons.program("slurmrestd"), "-a"], f"unix:{socket(cluster)}"
    if version(cluster) < (26, 5):
        argv += ["rest_auth/local", where]
        daemons.spawn(cluster.config, LOCAL, argv, SLURMRESTD_SECURITY="disable_user_check")
    else:
        shutil.chown(socket(cluster).parent, REST_USER)
        argv += ["rest_auth/jwt", "-u", REST_USER, where]
        daemons.spawn(cluster.config, LOCAL, argv, SLURM_JWT="daemon")
    daemons.await_ready(cluster.config, LOCAL, socket(cluster).exists, timeout=10)


def new_token(cluster: Cluster, lifespan_s: int = 3600) -> bytes:
    return cluster.run("scontrol", "token", "username=root", f"lifespan={lifespan_s}").encode()


@pytest.fixture(scope="module")
def served() -> Iterator[Cluster]:
    """A cluster with both kinds of slurmrestd; unanswered calls are given up soon."""
    reason = host.obstacle(database=True, rest=True)
    if reason is not None:
        pytest.skip(reason)
    # Every directory above the cluster's has to let slurmrestd's user pass, which pytest's own do not.
    config = host.configure(None, database=True, rest=True, settings=(("MessageTimeout", "2"),))
    try:
        with running(config) as cluster:
            start_local(cluster)
            try:
                yield cluster
            finally:
                daemons.stop(config, [LOCAL], grace=5)
    finally:
        layout.remove(config)


@pytest.fixture
def token(served: Cluster, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURM_CONF", str(served.config.slurm_conf))
    path = tmp_path_factory.mktemp("secret") / "token"
    write_private(path, new_token(served))
    return path


@pytest.fixture
def local(served: Cluster, token: Path) -> Iterator[Slurm]:
    yield Slurm("main", rest=str(socket(served)), poll_s=0.1)
    served.run("scancel", f"--user={os.geteuid()}")


@pytest.fixture
def remote(served: Cluster, token: Path) -> Iterator[Slurm]:
    yield Slurm("main", rest=address(served), rest_token=token, poll_s=0.1)
    served.run("scancel", f"--user={os.geteuid()}")


@pytest.fixture(scope="module")
def offered(served: Cluster) -> list[int]:
    """Versions of the interface that the running server says it has, of those that are spoken; the preferred one first.

    v0.0.45 is 45.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(served.config.slurm_conf))
        server = RestServer(str(socket(served)), Tokens("root", None, os.environ, 10.0, time.time))
        found = []
        for number in VERSIONS:
            with suppress(NoSuchPage):
                server.ask("GET", "slurm", f"v0.0.{number}", "ping")
                found.append(number)
    return found


@pytest.fixture
def spoken(offered: list[int]) -> int:
    """The version that is spoken in a test."""
    return offered[0]


@pytest.fixture(params=["local", pytest.param("remote", marks=pytest.mark.slow)])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> TestedSite:
    return to_be_tested(request.getfixturevalue(request.param), tmp_path)


def to_be_tested(backend: Slurm, tmp_path: Path) -> TestedSite:
    return TestedSite(
        backend, SystemClock(), tmp_path, run_s=1.2, resolution_s=1.0, walltime_s=120, shortest_s=60, patience_s=60
    )


def job(*argv: str, **fields: Any) -> JobRequest:
    plain = JobRequest(f"rest-{time.time_ns()}", Resources(), 300.0, argv or ("true",), workdir="/")
    return replace(plain, **fields)


def submit(backend: Slurm, request: JobRequest) -> JobHandle:
    (outcome,) = backend.submit([request])
    assert isinstance(outcome, JobHandle), outcome
    return outcome


def state(backend: Slurm, handle: JobHandle) -> JobState:
    return backend.query([handle])[0].state


def reach(backend: Slurm, handle: JobHandle, wanted: JobState) -> None:
    assert processes.wait_until(lambda: state(backend, handle) is wanted, 40), backend.query([handle])


def by_key(records: list[JobRecord]) -> dict[str, JobRecord]:
    return {record.key: record for record in records}


class TestRest(BatchSemantics, RealPrograms):
    """The wall time is Slurm's own doing: that its end is told as such is seen once, and the rest in test_live.py."""

    test_a_job_out_of_wall_time_leaves_no_process = None

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("site", ["local"], indirect=True)
    def test_a_job_that_reaches_its_wall_time_is_ended(self, site: TestedSite) -> None:
        super().test_a_job_that_reaches_its_wall_time_is_ended(site)


class TestAnswers:
    def test_answers_are_those_of_the_commands(self, served: Cluster, local: Slurm) -> None:
        handles = [submit(local, job()), submit(local, job("sh", "-c", "exit 3")), submit(local, job(begin=2e9))]
        reach(local, handles[0], JobState.COMPLETED)
        reach(local, handles[1], JobState.FAILED)
        local.cancel(handles[2:])
        reach(local, handles[2], JobState.CANCELLED)
        server = RestServer(str(socket(served)), Tokens("root", None, os.environ, 10.0, time.time))
        rest, commands = SlurmRest(server, "root", 10.0, os.environ), SlurmCommands(None, 10.0, os.environ)
        keys, names = [handle.job_id for handle in handles], [handle.token for handle in handles]

        assert rest.version() == commands.version()
        assert by_key(rest.queue(keys)) == by_key(commands.queue(keys))
        assert rest.queue(keys[:1]) == commands.queue(keys[:1])
        assert set(commands.queue_by_name(names)) <= set(rest.queue_by_name(names))
        # For a second or so a short job is called "allocation" in the accounting.
        assert processes.wait_until(lambda: len(rest.accounting_by_name(names)) == 3, 20)
        accounted = by_key(rest.accounting(keys))
        for told in commands.accounting(keys):
            mine = accounted[told.key]
            assert mine.word == told.word.partition(" ")[0]
            hidden = told.word == "FAILED" and version(served) < (23, 11)
            assert mine.exit_code == (None if hidden else told.exit_code)
            cpus = told.cpus if told.nodes else mine.cpus  # sacct has those asked for where the job never ran
            assert mine == replace(told, word=mine.word, exit_code=mine.exit_code, reason=mine.reason, cpus=cpus)
        assert by_key(rest.accounting_by_name(names)) == accounted
        assert rest.queue(["99999999"]) == rest.accounting(["99999999"]) == rest.accounting_by_name(["nobody"]) == []
        rest.cancel(["99999999", keys[0]])

    def test_capabilities_are_those_of_the_commands(self, served: Cluster, local: Slurm, spoken: int) -> None:
        served.await_nodes()  # none is completing, which the two say in different words
        mine, theirs = local.capabilities(), Slurm("main", poll_s=0.1).capabilities()
        assert mine.details["reached through"] == f"slurmrestd at {socket(served)}, v0.0.{spoken}"
        words = "reached through", "partition main"
        same = {name: text for name, text in mine.details.items() if name not in words}
        assert same == {name: text for name, text in theirs.details.items() if name not in words}
        assert replace(mine, details={}, arrays=True) == replace(theirs, details={})
        assert not mine.arrays

    def test_the_view_of_the_queue_is_that_of_the_commands(self, served: Cluster, local: Slurm) -> None:
        whole = Resources(8 * len(served.nodes), nodes=len(served.nodes))
        first = submit(local, job("sleep", "60", resources=whole))
        reach(local, first, JobState.RUNNING)
        second = submit(local, job(resources=whole))
        assert processes.wait_until(lambda: bool(local.query([second])[0].ages_since), 20)
        mine, theirs = local.look(), Slurm("main").look()
        assert mine is not None
        assert theirs is not None
        assert mine == replace(theirs, now=mine.now)
        assert mine.capacity == whole
        assert [item.key for item in mine.running] == [first.job_id]
        assert [(item.key, item.walltime_s, item.user) for item in mine.queue] == [(second.job_id, 300.0, "root")]

    def test_a_job_is_parked_and_unparked(self, local: Slurm) -> None:
        begin = time.time() + 3
        handle, later = submit(local, job(begin=begin)), submit(local, job(begin=begin + 1))
        local.update(handle, JobChanges(parked=True))
        reach(local, later, JobState.COMPLETED)
        assert state(local, handle) is JobState.PENDING
        local.update(handle, JobChanges(parked=False))
        reach(local, handle, JobState.COMPLETED)

    def test_the_sites_own_words_when_it_refuses(self, served: Cluster, token: Path) -> None:
        later = version(served) >= (23, 11)
        for options, words in (
            ({"partition": "nosuch"}, "Invalid partition name"),
            ({"constraint": "big"}, "Invalid feature"),
            ({"signal": "USR1@60"} if later else {"contiguous": True}, "cannot be given through slurmrestd v0.0."),
        ):
            (outcome,) = Slurm(**{"rest": str(socket(served))} | options).submit([job()])
            assert isinstance(outcome, Refused)
            assert words in outcome.reason

    def test_options_environment_and_lines_of_the_template(
        self, served: Cluster, local: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_JWT", "not.for.jobs")
        monkeypatch.setenv("WORD", "two words\nand a line")
        template = "#!/bin/sh\n#SBATCH --nice=7 -C ''\n#SBATCH --comment 'in the template'\n{{program}}\n"
        output = tmp_path / "output"
        backend = Slurm("share", rest=str(socket(served)), template=template, nice=10)
        shell = 'echo "$WORD" "$SLURM_JWT" "$SLURM_SUBMIT_DIR" $(umask)'
        handle = submit(backend, job("sh", "-c", shell, output=str(output)))
        reach(backend, handle, JobState.COMPLETED)
        shown = served.run("scontrol", "--oneliner", "show", "job", handle.job_id)
        assert "Comment=in the template" in shown and "Nice=10" in shown and "Partition=share" in shown
        mask = os.umask(0o022)
        os.umask(mask)
        assert output.read_text() == f"two words\nand a line  {Path.cwd()} {mask:04o}\n"

    def test_a_waiting_job_on_whole_nodes_can_be_made_smaller(self, served: Cluster, local: Slurm) -> None:
        handle = submit(local, job(resources=Resources(32, nodes=4, memory=2**30), begin=time.time() + 3600))
        local.update(handle, JobChanges(resources=Resources(8, nodes=2, memory=2**29), walltime_s=600.0))
        shown = served.job(handle.job_id)
        assert (shown["NumNodes"], shown["NumCPUs"], shown["NumTasks"]) == ("2-2", "8", "8")
        assert (shown["MinCPUsNode"], shown["MinMemoryNode"], shown["TimeLimit"]) == ("4", "256M", "00:10:00")


class TestOtherVersions(BatchSemantics, TestAnswers):
    """Those that are offered and not spoken by themselves: how jobs are written and read differs between them."""

    test_a_job_that_reaches_its_wall_time_is_ended = None

    @pytest.fixture(params=range(1, MOST_OFFERED), ids=lambda place: f"version {place + 1}")
    def spoken(self, request: pytest.FixtureRequest, offered: list[int], monkeypatch: pytest.MonkeyPatch) -> int:
        if request.param >= len(offered):
            pytest.skip(f"this slurmrestd offers no more versions of the interface that are spoken than {len(offered)}")
        number = offered[request.param]
        monkeypatch.setattr(spoken_rest, "VERSIONS", (number,))
        return number

    @pytest.fixture
    def local(self, spoken: int, local: Slurm) -> Slurm:
        return local

    @pytest.fixture
    def site(self, local: Slurm, tmp_path: Path) -> TestedSite:
        return to_be_tested(local, tmp_path)


def test_the_version_that_is_spoken_is_the_newest_that_both_sides_know(served: Cluster, offered: list[int]) -> None:
    newest = {(22, 5): 38, (23, 2): 38, (23, 11): 40, (24, 5): 41, (24, 11): 42, (25, 5): 43, (25, 11): 44}
    assert offered[0] == newest.get(version(served)[:2], 45)
    assert len(offered) <= MOST_OFFERED


class TestTrouble:
    def test_a_token_that_is_wrong(self, served: Cluster, token: Path) -> None:
        write_private(token, b"x.y.z")
        with pytest.raises(BackendError, match="token of user root is not accepted") as caught:
            Slurm(rest=address(served), rest_token=token).capabilities()
        assert not caught.value.transient
        assert "x.y.z" not in str(caught.value)

    def test_a_token_that_expires_and_is_replaced(self, served: Cluster, remote: Slurm, token: Path) -> None:
        handle = submit(remote, job(begin=2e9))
        write_private(token, new_token(served, lifespan_s=1))
        time.sleep(2.1)
        with pytest.raises(BackendError, match="not accepted") as caught:
            Slurm(rest=address(served), rest_token=token).query([handle])
        assert not caught.value.transient
        write_private(token, new_token(served))
        assert state(remote, handle) is JobState.PENDING

    def test_a_run_waits_for_the_new_token(self, served: Cluster, token: Path) -> None:
        write_private(token, new_token(served, lifespan_s=2))
        backend = Slurm(rest=address(served), rest_token=token)
        handle = submit(backend, job(begin=2e9))
        time.sleep(3.1)
        with pytest.raises(BackendError, match="not accepted") as caught:
            backend.query([handle])
        assert caught.value.transient
        write_private(token, new_token(served))
        backend.cancel([handle])
        assert state(backend, handle) is JobState.CANCELLED

    def test_a_token_is_asked_for_where_none_is_given(
        self, served: Cluster, token: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = new_token(served, lifespan_s=1).decode().strip().partition("=")[2]
        time.sleep(2.1)
        monkeypatch.setenv("SLURM_JWT", old)
        assert Slurm(rest=address(served)).capabilities().site == "asa"

    def test_a_server_that_restarts(self, served: Cluster, local: Slurm) -> None:
        handle = submit(local, job(begin=2e9))
        daemons.stop(served.config, [LOCAL], grace=5)
        try:
            with pytest.raises(BackendError, match=r"Connection refused|No such file") as caught:
                local.query([handle])
        finally:
            start_local(served)
        assert caught.value.transient
        assert state(local, handle) is JobState.PENDING

    def test_a_controller_that_is_down(self, served: Cluster, local: Slurm) -> None:
        handle = submit(local, job(begin=2e9))
        request = job(begin=2e9)
        daemons.stop(served.config, ["slurmctld"], grace=10)
        try:
            for call in (lambda: local.query([handle]), lambda: local.submit([request])):
                with pytest.raises(BackendError) as caught:
                    call()
                assert caught.value.transient
        finally:
            faults.restart_controller(served)
            served.await_nodes()
        assert state(local, handle) is JobState.PENDING
        assert submit(local, request).token == request.token
