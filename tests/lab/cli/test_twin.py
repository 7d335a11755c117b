"""``asa twin``, over a simulated queue, over a Slurm that exists only here, and over a real one."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pwd
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asa.backends.slurm.backend import Slurm
from asa.backends.slurm.words import VisibleJob
from asa.cli.main import main
from asa.core.clock import ManualClock
from asa.core.command import CommandResult
from asa.core.errors import BackendError, InvalidInput
from asa.core.job import JobHandle, JobRequest, JobState, Resources
from asa.lab.cli import twin
from asa.lab.cli.twin import TwinCommand
from asa.lab.core.cluster import Cluster as Machine
from asa.lab.core.cluster import Partition, Qos
from asa.lab.core.workload import Workload
from asa.lab.forecast.twin import COMPARED, Snapshot
from tests.backends.slurm.fake import NOW, FakeSlurm
from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_until
from tests.integration.replay import SCHEDULER
from tests.integration.test_simulator_against_slurm import arranged, live

pytest_plugins = ("tests.cluster.fixtures",)
QUEUE = "sim:uppmax,warmup=10"

RUNS = VisibleJob("1", "", "bob", "main", "RUNNING", "", 9, 24, 3, 600.0, 90.0, NOW + 60, ("n1", "n2", "n3"))
WAITS = VisibleJob("2", "wide", "bob", "main", "PENDING", "Resources", 9, 32, 4, 600.0, NOW - 40, None)
OWN = VisibleJob("3", "mine", "ann", "main", "PENDING", "Priority", 8, 8, 1, 60.0, NOW - 10, None)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def fake() -> FakeSlurm:
    made = FakeSlurm()
    made.visible = [RUNS, WAITS, OWN, replace(OWN, key="4", reason="Dependency"), replace(OWN, key="5", limit=None)]
    return made


def look(backend: Any, **options: Any) -> CommandResult:
    given = {"backend": backend, "dispatcher": None, "user": "ann", "every": None, "looks": None, "picture": None}
    return TwinCommand().run(argparse.Namespace(**given | {"json": None} | options))


# -- What it says ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [2, 3])
def test_conservative_is_compared_unless_many_jobs_wait_or_it_is_named(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin, "EXACT", 0)
    monkeypatch.setattr(twin, "MANY", 2)
    jobs = Workload.of(submit=[0.0] * waiting, run=[9.0] * waiting, walltime=[9.0] * waiting, cores=[1] * waiting)
    machine = replace(Machine.of(2), partitions={"a": Partition((0,)), "b": Partition((0, 1))})
    seen = Snapshot(0.0, machine, jobs, jobs.submit, jobs.submit[:0], (), tuple(range(waiting)))
    data = twin.outlook(seen, COMPARED, "ann")
    assert ("conservative" in [row["dispatcher"] for row in data["rows"]]) == (waiting == 2)
    assert len(data["rows"]) == len(COMPARED)
    assert any("conservative" in each for each in data["left_out"]) == (waiting == 3)
    named = twin.outlook(seen, ["conservative"], "ann")
    assert [row["mean_wait_s"] for row in named["rows"]] == [[4.5, 9.0][waiting - 2]]


def test_a_simulated_queue_in_words_as_json_and_as_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, out = tmp_path / "queue.png", tmp_path / "queue.json"
    argv = ["twin", "--backend", QUEUE, "--user", "1", "--json", str(out), "--picture", str(picture)]
    assert main(argv) == 0
    said, data = capsys.readouterr().out, json.loads(out.read_text())
    assert [row["dispatcher"] for row in data["rows"]] == list(COMPARED)
    assert data["waiting"] == 53
    assert len(data["jobs"]) == 5
    assert all(list(job["starts_in_s"]) == list(COMPARED) for job in data["jobs"])
    assert "53 jobs waiting, 361 running on 9,709 of 9,720 cores" in said
    assert "Jobs of 1 start in" in said
    assert "each job is taken to run until its limit" in said
    assert all(name in said for name in COMPARED)
    assert picture.stat().st_size > 10_000
    means = {row["dispatcher"]: row["mean_wait_s"] for row in data["rows"]}
    assert means["easy"] < means["fcfs"]


def test_slurm_s_queue_and_ones_own_jobs(fake: FakeSlurm) -> None:
    found = look(Slurm(transport=fake, clock=ManualClock(NOW)), dispatcher=["fcfs,easy"])
    data = found.data
    assert (data["at"], data["waiting"], data["running"], data["cores_used"], data["cores"]) == (NOW, 3, 1, 24, 32)
    starts = {job["job"]: job["starts_in_s"] for job in data["jobs"]}
    # Job 4 waits for another and is left out; job 5 has no limit, and is taken to need the longest one, 600 s.
    assert starts == {"3": {"fcfs": 660.0, "easy": 0.0}, "5": {"fcfs": 660.0, "easy": 660.0}}
    assert [(row["mean_wait_s"], row["never"]) for row in data["rows"]] == [((100 + 670 + 670) / 3, 0), (260.0, 0)]
    assert data["without_limit"] == 1
    assert "1 job without a limit" in found.text
    assert "3 jobs waiting" in found.text


def test_dispatchers_that_differ_in_their_last_option_have_a_column_each(fake: FakeSlurm, tmp_path: Path) -> None:
    rules = [f"backfill:depth=1,order=sjf,threshold={hours}h" for hours in (24, 60)]
    found = look(
        Slurm(transport=fake, clock=ManualClock(NOW)), dispatcher=[",".join(rules)], picture=str(tmp_path / "x.png")
    )
    assert all(found.text.count(rule) == 2 for rule in rules), found.text


def test_who_has_no_job_is_told_so(fake: FakeSlurm) -> None:
    fake.visible = [RUNS]
    found = look(Slurm(transport=fake, clock=ManualClock(NOW)), user="eve")
    assert "No job of eve waits." in found.text
    assert {row["mean_wait_s"] for row in found.data["rows"]} == {None}


def test_jobs_larger_than_the_machine_are_told(fake: FakeSlurm) -> None:
    fake.visible = [RUNS, replace(OWN, cores=64, nodes=8)]
    found = look(Slurm(transport=fake, clock=ManualClock(NOW)))
    assert "1 job larger than the machine, or a limit" in found.text
    assert "never" in found.text


# -- Again and again ---------------------------------------------------------------------------------------------------


class Sleeps:
    """Time that passes at once; after so many waits, it raises KeyboardInterrupt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.now, self.slept, self._most = 1000.0, list[float](), most
        monkeypatch.setattr(twin.time, "time", lambda: self.now)
        monkeypatch.setattr(twin.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if seconds:
            self.slept.append(seconds)
        if len(self.slept) >= self._most:
            raise KeyboardInterrupt


def test_it_looks_again_and_ends_cleanly(
    fake: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps, out = Sleeps(monkeypatch, most=3), tmp_path / "now.json"
    found = look(Slurm(transport=fake, clock=ManualClock(NOW)), every=60.0, json=str(out))
    assert sleeps.slept == [60.0] * 3
    assert (found.exit_code, found.text) == (0, "")
    assert capsys.readouterr().out.count("3 jobs waiting") == 3
    assert json.loads(out.read_text()) == found.data


def test_the_budget_of_calls_is_kept_to(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_SCHEDULER_BUDGET", "query=60,burst=2")
    sleeps = Sleeps(monkeypatch, most=1000)
    look(Slurm(transport=fake, clock=ManualClock(NOW)), every=1.0, looks=12)
    assert sleeps.now - 1000.0 >= 9 * 60.0, "two at once, and then one a minute"


def test_a_controller_that_does_not_answer_for_a_while_ends_nothing(
    fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    Sleeps(monkeypatch, most=1000)
    answers = iter([None, BackendError("timed out", transient=True), None])

    def visible_jobs(_partitions: Any) -> list[VisibleJob]:
        if (trouble := next(answers)) is not None:
            raise trouble
        return fake.visible

    monkeypatch.setattr(fake, "visible_jobs", visible_jobs)
    found = look(Slurm(transport=fake, clock=ManualClock(NOW)), every=60.0, looks=3)
    assert found.data["waiting"] == 3
    assert next(answers, "none") == "none"


def test_a_look_without_an_answer_shows_nothing_twice(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, trouble = Slurm(transport=fake, clock=ManualClock(NOW)), BackendError("timed out", transient=True)

    def refuses(_partitions: Any) -> list[VisibleJob]:
        raise trouble

    def fails_from_now_on(seconds: float) -> None:
        if seconds:
            monkeypatch.setattr(fake, "visible_jobs", refuses)

    monkeypatch.setattr(twin.time, "sleep", fails_from_now_on)
    found = look(slurm, every=60.0, looks=2)
    assert (found.data["waiting"], found.text) == (3, "")
    with pytest.raises(BackendError, match="timed out"):
        look(slurm, every=60.0)


def test_who_ends_it_by_a_signal_is_told_so(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(seconds: float) -> None:
        if seconds:
            raise KeyboardInterrupt("SIGTERM")

    monkeypatch.setattr(twin.time, "sleep", ends)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        look(Slurm(transport=fake, clock=ManualClock(NOW)), every=60.0)


def test_in_virtual_time_the_queue_goes_on_between_two_looks(capsys: pytest.CaptureFixture[str]) -> None:
    found = look(QUEUE, every=3600.0, looks=3)
    assert found.data["at"] == 10 * 86400.0 + 2 * 3600.0
    said = capsys.readouterr().out
    assert "10 d of virtual time" in said
    assert "10 d 1 h of virtual time" in said


@pytest.mark.parametrize(("words", "seconds"), [("60", 60.0), ("0.5", 0.5), ("90s", 90.0), ("1m", 60.0)])
def test_the_time_between_two_looks_is_in_seconds_unless_it_has_a_unit(words: str, seconds: float) -> None:
    parser = argparse.ArgumentParser()
    TwinCommand().configure(parser)
    assert parser.parse_args(["--every", words]).every == seconds


def test_every_so_many_seconds_as_a_user_types_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["twin", "--backend", QUEUE, "--dispatcher", "easy", "--every", "3600", "--looks", "2"]) == 0
    assert "10 d 1 h of virtual time" in capsys.readouterr().out
    for words in ("0", "-60", "nan", "1:30"):
        with pytest.raises(SystemExit):
            main(["twin", "--backend", QUEUE, f"--every={words}"])
        assert "argument --every" in capsys.readouterr().err
    assert main(["twin", "--backend", QUEUE, "--every", "99999999999"]) == 1, "no clock can sleep so long"
    assert "--every 1e+11: more than 0 s, and at most a year, expected" in capsys.readouterr().err


# -- What is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, fake: FakeSlurm) -> None:
    slurm = Slurm(transport=fake, clock=ManualClock(NOW))
    with pytest.raises(InvalidInput, match="give --every as well"):
        look(slurm, looks=3)
    with pytest.raises(InvalidInput, match="--every 0"):
        look(slurm, every=0.0)
    with pytest.raises(InvalidInput, match="no backfilling rule"):
        look(slurm, dispatcher=["listplan"])
    with pytest.raises(InvalidInput, match="there is no directory"):
        look(slurm, picture=str(tmp_path / "none" / "x.png"))
    fake.hidden = True
    with pytest.raises(BackendError, match="shows no queue of other users"):
        look(slurm)


# -- Slurm itself ------------------------------------------------------------------------------------------------------


@pytest.mark.slurm
def test_a_real_queue(slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.config.slurm_conf))
    monkeypatch.setenv("ASA_SCHEDULER_BUDGET", "off")
    slurm = Slurm(partition="main")
    whole = slurm.capabilities().largest
    assert whole is not None
    sizes = {"all": (Resources(whole.cores), 120.0), "one": (Resources(1), 60.0)}
    handles = []
    for name, (size, walltime_s) in sizes.items():
        token = f"{name}-{secrets.token_hex(4)}"
        (made,) = slurm.submit([JobRequest(token, size, walltime_s, ("sleep", "60"), str(tmp_path))])
        assert isinstance(made, JobHandle)
        handles.append(made)
    try:
        first, second = handles
        assert wait_until(lambda: slurm.query([first])[0].state is JobState.RUNNING, 60)
        (job,) = look(slurm, user=pwd.getpwuid(os.geteuid()).pw_name).data["jobs"]
        assert job["job"] == second.job_id
        assert all(0 < at <= 121 for at in job["starts_in_s"].values())
    finally:
        slurm.cancel(handles)


MACHINE = dataclasses.replace(
    Machine.of(4),
    partitions={"main": Partition((0, 1, 2, 3), max_time_s=86400.0), "upper": Partition((3,), max_time_s=86400.0)},
    qos={"normal": Qos(), "few": Qos(max_jobs_per_user=1)},
)
RUN = (("--constraint=fast", 20), ("--partition=upper", 25), ("--qos=few", 30))
"""What three jobs ask for, and their limits [min]; three others ask for the same, and wait."""


@pytest.fixture
def blocked() -> Iterator[Cluster]:
    own = {"AccountingStorageEnforce": "limits,qos", "SchedulerParameters": SCHEDULER}
    with arranged(MACHINE, {"features": ("fast", "slow", "slow", "slow")}, **own) as cluster:
        yield cluster


@live
def test_jobs_wait_for_a_feature_a_partition_and_a_limit_as_on_a_live_cluster(
    blocked: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of four nodes is free all the time, and would do for any of them."""
    monkeypatch.setenv("SLURM_CONF", str(blocked.config.slurm_conf))
    monkeypatch.setenv("ASA_SCHEDULER_BUDGET", "off")

    def submit(asked: str, minutes: int) -> str:
        words = "--nodes=1", asked, f"--time={minutes}", "--output=/dev/null", "--chdir=/", "--wrap=sleep 600"
        return blocked.run("sbatch", "--parsable", *words, user="daemon").strip()

    numbers = [submit(*each) for each in RUN]
    assert wait_until(lambda: all(blocked.job(number)["JobState"] == "RUNNING" for number in numbers), 60)
    waiting = [submit(asked, 10) for asked, _ in RUN]
    reasons = ["Resources", "Resources", "QOSMaxJobsPerUserLimit"]
    assert wait_until(lambda: blocked.job(waiting[2])["Reason"] == reasons[2], 60)
    slurm = Slurm()
    data = look(slurm, user="daemon", dispatcher=["fcfs,easy"]).data
    assert slurm.questions == 7
    jobs = {job["job"]: job for job in data["jobs"]}
    assert [*jobs] == waiting
    assert [jobs[number]["waits_for"] for number in waiting] == ["nodes", "nodes", "limit of user daemon of QOS 'few'"]
    for number, (_, minutes) in zip(waiting, RUN, strict=True):
        for at in jobs[number]["starts_in_s"].values():
            assert 60 * minutes - 120 < at <= 60 * minutes
    assert (data["cores"], data["cores_used"], data["running"]) == (4, 3, 3)
    assert [row["never"] for row in data["rows"]] == [0, 0]
    blocked.run("scontrol", "update", f"NodeName={blocked.nodes[0]}", "State=DRAIN", "Reason=test")
    again = look(slurm, user="daemon", dispatcher=["easy"]).data
    assert slurm.questions == 14, "another command reads the machine anew"
    first = {job["job"]: job["starts_in_s"]["easy"] for job in again["jobs"]}
    assert first[waiting[0]] is None, "no other node has the feature"
    assert first[waiting[1]] is not None
