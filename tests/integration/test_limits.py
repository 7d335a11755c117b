"""A site whose accounting enforces limits, as an ordinary user meets them: kept to, waited for, or refused by name."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from asa.core.event import AllocationStarted, JobEnded, SubmitRefused, Submitted, Submitting, TaskDone
from tests.cluster import accounting, host, layout
from tests.cluster.cluster import Cluster, running
from tests.cluster.config import ACCOUNT, ORDINARY_USERS
from tests.cluster.processes import wait_until
from tests.integration.conftest import leave_nothing
from tests.integration.shell import Shell, python_for

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

OTHER, USER = ORDINARY_USERS
FLOW = Path(__file__).with_name("place_flows.py")
# Of the strategies those that do not look at the whole queue, which the first time takes a user minutes of compiling.
RUN = ("run", f"{FLOW}:chain", "--quiet", "--backend", "slurm:poll_s=1", "--executor", "local", "--set", "seconds=.5")
NO_LIMITS = ("MaxSubmitJobs=-1", "MaxJobs=-1", "MaxWall=-1", "GrpTRES=cpu=-1")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of two users whose base directory they may enter."""
    if (reason := host.obstacle(database=True, rest=True)) is not None:
        pytest.skip(reason)
    accounting.make_users(ORDINARY_USERS)
    if python_for(USER) is None:
        version = ".".join(map(str, sys.version_info[:2]))
        pytest.skip(f"no Python {version} that an ordinary user can run on this checkout")
    wanted = {"regime": "limits", "database": True, "rest": True, "users": ORDINARY_USERS}
    config = host.configure(None, nodes=2, cores_per_node=4, **wanted)
    try:
        with running(config) as cluster:
            yield cluster
    finally:
        layout.remove(config)


@pytest.fixture
def shell(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Shell]:
    """A shell of an ordinary user in a folder of their own; limits and jobs are gone afterwards."""
    folder = Path(cluster.config.base, "home")
    folder.mkdir()
    shutil.chown(folder, USER)
    found = Shell(cluster, folder, user=USER)
    yield found
    leave_nothing(found)
    limit(cluster, "user", USER, *NO_LIMITS)
    limit(cluster, "account", ACCOUNT, *NO_LIMITS)
    shutil.rmtree(folder)


def limit(cluster: Cluster, kind: str, name: str, *settings: str) -> None:
    cluster.run("sacctmgr", "--immediate", "--quiet", "modify", kind, name, "set", *settings, check=False)


def sleeper(cluster: Cluster, *options: str) -> str:
    """A job of the same user that ASA knows nothing of."""
    wanted = ("--parsable", "--output=/dev/null", "--time=10", *options, "--wrap=sleep 600")
    return cluster.run("sbatch", *wanted, user=USER).strip()


def starts(shell: Shell) -> list[str]:
    """The stages whose allocations started, in that order."""
    asked = {event.allocation: event.stages[0] for event in shell.events(Submitting)}
    events = sorted(shell.events(AllocationStarted), key=lambda event: event.started)
    return [asked[event.allocation] for event in events]


@pytest.mark.parametrize("strategy", ["hold", "asa:dependency=upfront"])
def test_more_stages_than_jobs_may_be_in_the_queue(shell: Shell, strategy: str) -> None:
    limit(shell.cluster, "user", USER, "MaxSubmitJobs=4")
    found = {each["what"]: each["found"] for each in shell.asa("doctor", "--backend", "slurm").data["rows"]}
    assert found["slurm: limits"] == f"MaxSubmitJobs=4 of user {USER} in account {ACCOUNT}"
    done = shell.asa(*RUN, "--set", "stages=12", "--strategy", strategy, timeout=280)
    assert done.code == 0, done.err
    assert starts(shell) == [f"stage{number}" for number in range(12)], "in order, each once"
    assert not shell.events(SubmitRefused), "nothing is sent that would be refused"
    count = most = 0
    for event in sorted(shell.events(Submitted, JobEnded), key=lambda event: event.at):
        count += 1 if isinstance(event, Submitted) else -1
        most = max(most, count)
    assert most == 4, "as many places are held as may be"


def test_other_jobs_of_the_user_fill_the_limit(shell: Shell) -> None:
    limit(shell.cluster, "user", USER, "MaxSubmitJobs=4")
    others = [sleeper(shell.cluster) for _ in range(4)]
    with shell.started(*RUN, "--strategy", "hold") as driver:
        shell.await_events(SubmitRefused, 5)
        said = shell.beside("explain", shell.run).out
        assert "takes no more jobs for now, asked again in" in said
        assert "AssocMaxSubmitJobLimit: its user has as many jobs in the queue as the account allows" in said
        shell.cluster.run("scancel", others[0], user=USER)
        shell.await_events(TaskDone, 1)
        shell.cluster.run("scancel", *others[1:], user=USER)
        done = shell.ended(driver, 150)
    assert done.code == 0, done.err
    assert starts(shell) == [f"stage{number}" for number in range(4)]
    assert all(event.later for event in shell.events(SubmitRefused))


@pytest.mark.parametrize(
    ("kind", "name", "setting", "said"),
    [
        ("account", ACCOUNT, "GrpTRES=cpu=3", f"GrpTRES=cpu=3 of account {ACCOUNT}"),
        ("user", USER, "MaxTRESPerJob=cpu=3", f"MaxTRESPerJob=cpu=3 of user {USER} in account {ACCOUNT}"),
        ("user", USER, "MaxWall=00:02:00", f"MaxWall=00:02:00 of user {USER} in account {ACCOUNT}"),
    ],
)
def test_what_could_never_start_is_refused_before_anything_runs(
    shell: Shell, kind: str, name: str, setting: str, said: str
) -> None:
    limit(shell.cluster, kind, name, setting)
    try:
        done = shell.asa(*RUN, "--set", "cores=4", "--set", "walltime=3m", "--strategy", "hold")
        assert done.code != 0 and said in done.err
        assert not shell.events(Submitted)
    finally:
        limit(shell.cluster, kind, name, *(["MaxTRESPerJob=cpu=-1"] if "PerJob" in setting else NO_LIMITS))


def test_slurmrestd_does_not_say_which_limit_and_a_full_one_is_waited_for_all_the_same(shell: Shell) -> None:
    limit(shell.cluster, "user", USER, "MaxSubmitJobs=2")
    others = [sleeper(shell.cluster) for _ in range(2)]
    backend = f"slurm:poll_s=1,rest=http://127.0.0.1:{shell.cluster.config.ports.slurmrestd}"
    with shell.started(*RUN, "--strategy", "asa-naive", "--backend", backend) as driver:
        shell.await_events(SubmitRefused, 2)
        assert "takes no more jobs for now, asked again in" in shell.beside("explain", shell.run).out
        shell.cluster.run("scancel", *others, user=USER)
        done = shell.ended(driver, 150)
    assert done.code == 0, done.err
    assert starts(shell) == [f"stage{number}" for number in range(4)]


def test_a_job_that_waits_for_a_limit_is_explained(shell: Shell) -> None:
    limit(shell.cluster, "user", USER, "MaxJobs=1")
    other = sleeper(shell.cluster)
    shell.await_job(other, "RUNNING")
    with shell.started(*RUN, "--strategy", "asa-naive") as driver:
        shell.await_events(Submitted, 1)
        meant = "AssocMaxJobsLimit: its user has as many jobs running as the account allows"
        assert wait_until(lambda: meant in shell.beside("explain", shell.run).out, 30)
        shell.cluster.run("scancel", other, user=USER)
        assert shell.ended(driver, 150).code == 0


def test_limits_of_a_qos_count_before_those_of_the_account(shell: Shell) -> None:
    run = shell.cluster.run
    run("sacctmgr", "--immediate", "--quiet", "add", "qos", "tight", "MaxSubmitJobsPerUser=2", "MaxTRESPerUser=cpu=3")
    limit(shell.cluster, "user", USER, "qos+=tight")
    limit(shell.cluster, "user", USER, "MaxSubmitJobs=40")
    found = {each["what"]: each["found"] for each in shell.asa("doctor", "--backend", "slurm:qos=tight").data["rows"]}
    assert found["slurm:qos=tight: limits"] == "MaxSubmitJobsPerUser=2 of QOS tight; MaxTRESPerUser=cpu=3 of QOS tight"
    refused = shell.asa(*RUN, "--set", "cores=4", "--backend", "slurm:poll_s=1,qos=tight")
    assert refused.code != 0 and "MaxTRESPerUser=cpu=3 of QOS tight" in refused.err
    done = shell.asa(*RUN, "--strategy", "hold", "--backend", "slurm:poll_s=1,qos=tight")
    assert done.code == 0, done.err
    assert not shell.events(SubmitRefused)
