"""Command lines, refusals and a job script that really runs."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from asa.backends import pbs
from asa.backends.pbs import Pbs
from asa.backends.pbs import PbsOptions as Options
from asa.core.clock import ManualClock
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import Dependency, JobChanges, JobHandle, JobRequest, JobState, QueueRegime, Refused, Resources
from asa.core.registry import BACKENDS
from asa.core.units import MIB
from tests.backends.pbs.fake import FakePbs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000.0)


@pytest.fixture
def fake(clock: ManualClock) -> FakePbs:
    return FakePbs(clock)


@pytest.fixture
def cluster(fake: FakePbs, clock: ManualClock) -> Pbs:
    return Pbs(clock=clock, ask=fake)


def request(token: str = "asa-1", cores: int = 1, nodes: int | None = None, **fields: object) -> JobRequest:
    return JobRequest(token, Resources(cores, nodes), 60.0, ("sh", "-c", "sleep 9; exit 0"), **fields)  # type: ignore[arg-type]


def test_a_submission_in_words() -> None:
    wanted = Options(queue="short", account="p123", chunk="model=bro", extra="-M 'a b' -m n")
    asked = JobRequest("asa-1", Resources(16, 2, 3 * MIB + 1, 4), 5400.5, ("true",), begin=0.0)
    words = pbs.qsub_options(asked, wanted)
    assert words[:10] == [
        "-N", "asa-1", "-l", "select=2:ncpus=8:mem=2mb:ngpus=2:model=bro", "-l", "place=scatter", "-l",
        "walltime=01:30:01", "-j", "oe",
    ]  # fmt: skip
    assert words[-8:] == ["-q", "short", "-A", "p123", "-M", "a b", "-m", "n"]


@pytest.mark.parametrize("extra", ["-N mine", "-lwalltime=1", "-W depend=1"])
def test_what_asa_says_itself_cannot_be_said_twice(extra: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be passed through"):
        Pbs(extra=extra)


def test_a_token_that_is_no_name_is_refused(cluster: Pbs) -> None:
    with pytest.raises(InvalidInput, match="a letter expected first"):
        cluster.submit([request("1-asa")])


def test_the_site(cluster: Pbs) -> None:
    found = cluster.capabilities()
    assert (found.site, found.partition, found.regime) == ("pbs1", "workq", QueueRegime.LIMITS)
    assert (found.largest, found.cores_per_node) == (Resources(4, None, 32 * 2**30), 4)
    assert found.longest_s == 3600.0 and "job history" not in found.details


def test_what_never_fits_is_refused_in_words(cluster: Pbs) -> None:
    long = JobRequest("asa-2", Resources(1), 7200.0, ("true",))
    outcomes = cluster.submit([request(cores=8), long, request("asa-3", array="a")])
    assert [isinstance(outcome, Refused) for outcome in outcomes] == [True] * 3
    reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, Refused)]
    assert "has room for 4 cores" in reasons[0] and "02:00:00" in reasons[1] and "no job arrays" in reasons[2]


def test_one_question_for_all_and_one_more_for_the_unknown(cluster: Pbs, fake: FakePbs) -> None:
    handles = [handle for handle in cluster.submit([request("a"), request("b")]) if isinstance(handle, JobHandle)]
    fake.said.clear()
    cluster.query(handles)
    assert len(fake.said) == 1
    gone = JobHandle("77.pbs1", "c", 0.0)
    states = [status.state for status in cluster.query([handles[0], gone, handles[1]])]
    assert states == [JobState.RUNNING, JobState.LOST, JobState.RUNNING] and len(fake.said) == 3


def test_a_job_after_one_that_failed_is_refused(cluster: Pbs, clock: ManualClock) -> None:
    bad = JobRequest("bad", Resources(1), 60.0, ("sh", "-c", "sleep 1; exit 3"))
    (failed,) = cluster.submit([bad])
    assert isinstance(failed, JobHandle)
    clock.wait(threading.Event(), clock.now() + 20)
    (outcome,) = cluster.submit([request(dependencies=(Dependency(failed),))])
    assert isinstance(outcome, Refused) and "which ended as failed" in outcome.reason


def test_throttles_and_parking_are_not_there(cluster: Pbs) -> None:
    (handle,) = cluster.submit([request()])
    assert isinstance(handle, JobHandle)
    for changes in (JobChanges(throttle=2), JobChanges(parked=True)):
        with pytest.raises(BackendError, match="neither throttles nor parking"):
            cluster.update(handle, changes)


def test_the_script_runs_its_program(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    words = ("printf", "%s|", "two words", "", "'\"`$HOME`", "*", "grün", "two\nlines")
    asked = JobRequest("a", Resources(), 60.0, words, str(tmp_path / "a b"), str(tmp_path / "out put"))
    subprocess.run(["sh"], input=pbs.job_script(asked, Options(setup=("pwd",))), text=True, check=True, cwd="/")
    assert (tmp_path / "out put").read_text() == f"{tmp_path / 'a b'}\n" + "|".join(words[2:]) + "|"


def test_the_script_of_several_nodes_starts_it_on_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = tmp_path / "pbsdsh"
    shell.write_text('#!/bin/sh\nshift\nfor node in 1 2; do (cd / && env -i NODE=$node "$@"); done\n')
    shell.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = ("sh", "-c", 'echo "$NODE $PWD $1"', "-", "x  y")
    asked = JobRequest("a", Resources(4, 2), 60.0, words, str(tmp_path), str(tmp_path / "out"))
    subprocess.run(["sh"], input=pbs.job_script(asked, Options()), text=True, check=True)
    assert (tmp_path / "out").read_text() == f"1 {tmp_path} x  y\n2 {tmp_path} x  y\n"


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_it_speaks_to_programs_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cluster = BACKENDS.create("pbs:queue=short,timeout_s=20")
    with pytest.raises(BackendError, match="no program 'qstat' in PATH"):
        cluster.capabilities()
    program(tmp_path / "qstat", "echo 'qstat: cannot connect to server pbs1 (errno=15010)' >&2; exit 255")
    with pytest.raises(BackendError) as caught:
        cluster.query([JobHandle("1.pbs1", "a", 0.0)])
    assert caught.value.transient
    program(tmp_path / "qstat", 'case "$*" in *-B*) echo \'{"Server":{"pbs1":{}}}\';; *) echo \'{"Queue":{}}\';; esac')
    program(tmp_path / "pbsnodes", "echo '{}'")
    program(tmp_path / "qsub", "cat >script; echo 'qsub: Unauthorized Request' >&2; exit 159")
    monkeypatch.chdir(tmp_path)
    assert cluster.submit([request()]) == [Refused("asa-1", "Unauthorized Request")]
    assert (tmp_path / "script").read_text().startswith("#!/bin/sh\n")
    assert "job history" in cluster.capabilities().details


def test_changes_in_words() -> None:
    wanted = JobChanges(5400.5, Resources(4, 2), (), begin=0.0)
    words = pbs.qalter_options(wanted, now=0.0, chunk="model=bro")
    assert words[:6] == ["-l", "select=2:ncpus=2:model=bro", "-l", "place=scatter", "-l", "walltime=01:30:01"]
    assert words[6:8] == ["-W", "depend="] and words[8] == "-a"
    assert pbs.qalter_options(JobChanges(), now=0.0) == []


def test_no_change_is_no_question(cluster: Pbs, fake: FakePbs) -> None:
    _, handle = cluster.submit([request("a", cores=4), request("b", cores=4)])
    assert isinstance(handle, JobHandle)
    fake.said.clear()
    cluster.update(handle, JobChanges())
    assert not any("qalter" in " ".join(map(str, said)) for said in fake.said)
    cluster.update(handle, JobChanges(walltime_s=90.0))
    assert any("walltime=00:01:30" in " ".join(map(str, said)) for said in fake.said)


def test_a_server_without_a_name_is_called_pbs() -> None:
    assert pbs.parse_server('{"Server": {}}') == ("pbs", {})
    assert pbs.parse_server('{"Server": {"pbs1": {"pbs_version": "23"}}}') == ("pbs1", {"pbs_version": "23"})
