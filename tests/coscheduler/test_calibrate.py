"""Constants of contention from runs made by the simulated world, by fake nodes, and on this machine."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pytest

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput, StateError, UnknownName
from coscheduler.calibrate import (
    AloneRun,
    ContentionCalibration,
    JobFailed,
    PairRun,
    calibrate,
    check_shares,
    chosen,
    fit,
    predict,
)
from coscheduler.cli import CalibrateContention
from coscheduler.nouns import WaitingJob
from coscheduler.queuefile import QueuedCommand
from coscheduler.real.machine import ContainerProgram
from coscheduler.workload import PAPER_LIKE, Contention, named
from tests.coscheduler.fake_machine import FakeMachine, needs_weights, nodes

pytestmark = pytest.mark.slow

APPLICATIONS = (
    AloneRun("busy", "busy-8", 8, 1800.0, 0.99, 1.0, 0.1),
    AloneRun("alternating", "alternating-8", 8, 1200.0, 0.5, 0.5, 0.1),
    AloneRun("sequential", "sequential-4", 4, 2400.0, 0.2, 0.0, 0.05),
    AloneRun("single", "single-1", 1, 600.0, 0.4, 0.0, 0.05),
)


def simulated(contention: Contention, applications: tuple[AloneRun, ...] = APPLICATIONS) -> list[PairRun]:
    """Pairs as they would be measured if the simulated world were the real one."""
    found = []
    for host in applications:
        for guest in applications:
            if guest.cores <= host.cores:
                for share, hard in ((0.05, False), (0.5, False), (0.3, True)):
                    slower = predict(host, guest, share, contention, hard=hard)
                    times = slower[0] * host.run_time_s, slower[1] * guest.run_time_s
                    found.append(PairRun(host, guest, share, hard, *times, host.cpu / slower[0], guest.cpu / slower[1]))
    return found


# ----------------------------------------------------------- the fit


@pytest.mark.parametrize("tax", [0.63, 0.875, 0.97, 1.0])
def test_a_known_tax_is_recovered(tax: float) -> None:
    found = fit(simulated(Contention(tax)))
    assert found.tax == pytest.approx(tax, abs=5e-4)
    assert found.thrash is None
    assert found.error < 1e-3


def test_so_is_what_too_little_memory_costs() -> None:
    greedy = AloneRun("greedy", "greedy-8", 8, 1500.0, 0.95, 1.0, 0.93)
    pairs = simulated(Contention(0.9, 0.25), (*APPLICATIONS, greedy))
    assert 0 < sum(pair.is_crowded for pair in pairs) < len(pairs)
    found = fit(pairs)
    assert found.tax == pytest.approx(0.9, abs=5e-4)
    assert found.thrash == pytest.approx(0.25, abs=5e-4)
    assert found.error < 1e-3
    with pytest.raises(InvalidInput, match="none has enough memory"):
        fit([pair for pair in pairs if pair.is_crowded])


def test_what_no_tax_explains_is_left_as_the_error() -> None:
    pairs = simulated(Contention(0.9))
    mean = fit(pairs)
    noisy = [
        PairRun(p.host, p.guest, p.share, p.hard, p.host_s * 1.1, p.guest_s / 1.1, p.host_cpu, p.guest_cpu)
        for p in pairs
    ]
    found = fit(noisy)
    assert mean.error < 1e-3 < 0.08 < found.error < 0.1
    assert [host > guest for host, guest in found.predicted] == [host > guest for host, guest in mean.predicted]


def test_less_than_one_core_is_used_all_the_time() -> None:
    busy, _, sequential, single = (each.load("job") for each in APPLICATIONS)
    assert [phase.demand for phase in busy.phases] == [0.99]
    assert [phase.demand for phase in sequential.phases] == [0.2]
    assert [phase.demand for phase in single.phases] == [0.4]
    assert AloneRun("idle", "idle", 2, 10.0, 0.0, 0.0, 0.0).load("job").cpu_s < 0.1
    assert AloneRun("fat", "fat", 2, 10.0, 1.0, 1.0, 1.3).load("job").memory == 1


# ----------------------------------------------------------- constants by name


def written(path: Path, data: Any) -> str:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_measured_constants_are_read_from_files(tmp_path: Path) -> None:
    one = written(tmp_path / "one.json", {"tax": 0.9, "thrash": 0.3})
    assert named(one) == Contention(0.9, 0.3)
    assert named(written(tmp_path / "two.json", {"tax": 1, "thrash": None})) == Contention(1.0, PAPER_LIKE.thrash)
    with pytest.raises(UnknownName, match=r"did you mean 'measured'\? Known: FILE.json, measured, paper-like$"):
        named("measures")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("{", "Expected a file of asa calibrate-contention"),
        ([1], "it has no 'tax'"),
        ({"thrash": 0.4}, "it has no 'tax'"),
        ({"tax": 1.5}, r"bad.json: tax is 1.5"),
        ({"tax": "0.9"}, "tax is '0.9': expected a number"),
        ({"tax": 0.9, "thrash": True}, "thrash is True: expected a number"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path: Path, data: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        named(written(tmp_path / "bad.json", data))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none.json: .*No such file"):
        named(str(tmp_path / "none.json"))


# ----------------------------------------------------------- runs on fake nodes


def command(name: str, cores: int, application: str | None = None, *, exclusive: bool = False) -> QueuedCommand:
    return QueuedCommand(WaitingJob(name, application or name, cores, 100.0, 300.0, exclusive), f"run {name}")


def on(machine: FakeMachine, jobs: list[QueuedCommand], directory: Path, **options: Any) -> ContentionCalibration:
    return calibrate(jobs, machine, directory, options.pop("shares", (0.05,)), clock=machine.clock, **options)


def test_each_is_run_alone_and_with_each_that_is_no_larger(tmp_path: Path) -> None:
    times = {"1-alone": 100.0, "2-alone": 50.0}
    times |= {"3-host": 110.0, "3-guest": 190.0, "4-host": 120.0, "4-guest": 75.0, "5-host": 55.0, "5-guest": 90.0}
    machine, lines = FakeMachine(nodes(2), times), list[str]()
    found = on(machine, [command("wide", 2), command("narrow", 1)], tmp_path, progress=lines.append)
    assert [(each.application, each.cores) for each in found.applications] == [("wide", 2), ("narrow", 1)]
    assert [each.run_time_s for each in found.applications] == pytest.approx([100.0, 50.0])
    assert [each.cpu for each in found.applications] == pytest.approx([1.0, 1.0])
    assert [(pair.host.job, pair.guest.job) for pair in found.pairs] == [
        ("wide", "wide"), ("wide", "narrow"), ("narrow", "narrow"),
    ]  # fmt: skip
    assert [each for pair in found.pairs for each in pair.slowdowns] == pytest.approx([1.1, 1.9, 1.2, 1.5, 1.1, 1.8])
    assert len(lines) == 5
    assert lines[3] == "4 of 5: wide with narrow as its guest (0.05 as a weight): 120.0 s, 75.0 s"
    assert list(tmp_path.iterdir()) == []
    data = json.loads(json.dumps(found.to_json()))
    assert set(data) == {"date", "machine", "applications", "pairs", "tax", "thrash", "error"}
    assert data["thrash"] is None
    assert data["pairs"][1]["guest"] == "narrow"
    assert data["pairs"][1]["guest_slowdown"] == pytest.approx(1.5)
    assert data["pairs"][1]["predicted_guest_slowdown"] == found.fit.predicted[1][1]
    assert "thrash: not measured" in found.text()


def test_means_are_taken_and_quotas_come_after_weights(tmp_path: Path) -> None:
    pair = {"host": 110.0, "guest": 200.0}
    times = {"1-alone": 90.0, "6-alone": 110.0}
    times |= {f"{run}-{role}": pair[role] + 10 * (run > 5) for run in (2, 3, 4, 5, 7, 8, 9, 10) for role in pair}
    limits = dict[str, float]()

    class Noting(FakeMachine):
        def start(self, container: str, node: str, program: ContainerProgram, request: float, limit: float) -> None:
            limits[program.environment["ASA_JOB"]] = limit
            super().start(container, node, program, request, limit)

    machine = Noting(nodes(1), times)
    found = on(machine, [command("one", 1)], tmp_path, shares=(0.1, 0.5), hard=True, repeat=2)
    assert found.applications[0].run_time_s == pytest.approx(100.0)
    assert [(each.share, each.hard) for each in found.pairs] == [(0.1, False), (0.5, False), (0.1, True), (0.5, True)]
    assert [each.slowdowns for each in found.pairs] == [pytest.approx((1.15, 2.05))] * 4
    assert (limits["3-guest"], limits["4-guest"], limits["5-guest"]) == (1.0, 0.1, 0.5)


def test_a_tax_at_the_edge_is_not_to_be_trusted(tmp_path: Path) -> None:
    times = {"1-alone": 100.0, "2-host": 900.0, "2-guest": 900.0}
    found = on(FakeMachine(nodes(1), times), [command("one", 1)], tmp_path)
    assert found.fit.tax == pytest.approx(0.5, abs=1e-3)
    assert "at the edge of what was looked at (0.5 to 1): do not trust it" in found.text()


def test_when_a_job_fails_its_output_is_kept(tmp_path: Path) -> None:
    times = {"1-alone": 10.0, "2-host": 20.0, "2-guest": 10.0}
    machine = FakeMachine(nodes(1), times, problems={"2-guest": "Command exited with status 3"})
    told = r"one with one as its guest .*: job 'job' has failed: Command exited with status 3; its output is in "
    with pytest.raises(JobFailed, match=told):
        on(machine, [command("job", 1, "one")], tmp_path)
    assert sorted(each.name for each in tmp_path.glob("2/*")) == ["2-guest", "2-host"]
    assert not (tmp_path / "1").exists()


def test_a_node_that_is_lost_ends_it(tmp_path: Path) -> None:
    class Losing(FakeMachine):
        def start(self, container: str, node: str, program: ContainerProgram, request: float, limit: float) -> None:
            super().start(container, node, program, request, limit)
            if program.environment["ASA_JOB"] == "2-guest":
                self.lose(node)

    machine = Losing(nodes(2), {"1-alone": 10.0, "2-host": 20.0, "2-guest": 10.0})
    with pytest.raises(StateError, match=r"one with one as its guest .*: a node was lost meanwhile. .* begin anew"):
        on(machine, [command("one", 1)], tmp_path)


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"job 'job' ran for 0.5 s alone, .* expected 1.5 s at least"):
        on(FakeMachine(nodes(1), {"1-alone": 0.5}), [command("job", 1)], tmp_path)
    machine = FakeMachine(nodes(1), {"1-alone": 10.0})
    with pytest.raises(InvalidInput, match="run 0 times"):
        on(machine, [command("job", 1)], tmp_path, repeat=0)
    with pytest.raises(InvalidInput, match=r"share is 0.97: expected a number from 0.05 to 0.95"):
        on(machine, [command("job", 1)], tmp_path, shares=(0.5, 0.97))
    with pytest.raises(InvalidInput, match="no share"):
        check_shares([])
    assert machine.past == []


def test_the_first_of_each_application_that_may_share_is_chosen() -> None:
    jobs = [command("a", 1, "x", exclusive=True), command("b", 1, "x"), command("c", 2, "y"), command("d", 1, "x")]
    assert [job.request.name for job in chosen(jobs)] == ["b", "c"]
    with pytest.raises(InvalidInput, match="all 1 jobs of the queue are exclusive"):
        chosen(jobs[:1])


# ----------------------------------------------------------- on this machine

COUNT = "sleep 1; i=0; while [ $i -lt 1800000 ]; do i=$((i+1)); done"
QUEUE = f"""
cores = 2
[[jobs]]
name = "wide"
cores = 2
walltime = "1m"
command = "{COUNT}"
[[jobs]]
name = "narrow"
cores = 1
walltime = "1m"
command = "{COUNT}"
"""


def asked(*words: str) -> CommandResult:
    command, parser = CalibrateContention(), argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args(words))


def test_what_is_asked_for_is_checked_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    queue = written(tmp_path / "queue.toml", QUEUE)
    large = written(tmp_path / "large.toml", QUEUE.replace("cores = 1", "cores = 3"))
    for words, told in (
        ((queue, "--shares", "0.05,half"), "--shares 'half' is not a share"),
        ((queue, "--shares", "0.01"), "share is 0.01"),
        ((queue, "--repeat", "0"), "--repeat 0"),
        ((queue, "--nodes", "3"), "--nodes 3: 2 cores cannot be shared out to so many alike nodes: give 1 or 2"),
        ((queue, "--output", str(tmp_path / "found.txt")), "end the name with .json"),
        ((queue, "--output", str(tmp_path / "none" / "found.json")), "there is no directory"),
        ((large,), "'narrow' asks for 3 cores: the machine has 2"),
        ((str(tmp_path / "none.toml"),), "No such file"),
    ):
        with pytest.raises(InvalidInput, match=told):
            asked(*words)
    assert list(tmp_path.glob("state/cosched/*")) == []


def test_a_busy_machine_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    queue = written(tmp_path / "queue.toml", QUEUE)
    told = []
    for load in (0.0, 1000.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        with pytest.raises(InvalidInput, match="--nodes 3"):
            asked(queue, "--nodes", "3")
        told.append("this machine is not idle (load 1e+03 on" in capsys.readouterr().err)
    assert told == [False, True]


@needs_weights
def test_a_real_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    out = tmp_path / "found.json"
    found = asked(written(tmp_path / "queue.toml", QUEUE), "--nodes", "2", "--shares", "0.05", "--output", str(out))
    assert found.exit_code == 0
    assert json.loads(out.read_text()) == found.data
    assert named(str(out)).tax == found.data["tax"]
    alone = {each["application"]: each for each in found.data["applications"]}
    assert set(alone) == {"wide", "narrow"}
    assert all(0.1 < each["cpu"] <= 1 and 0 < each["memory"] < 1 for each in alone.values())
    pairs = {(pair["host"], pair["guest"]): pair for pair in found.data["pairs"]}
    assert set(pairs) == {("wide", "wide"), ("wide", "narrow"), ("narrow", "narrow")}
    # guests have next to nothing while their host runs, and so they end last
    assert all(pair["guest_s"] > pair["host_s"] for pair in pairs.values())
    assert 0.5 < found.data["tax"] <= 1
    assert "5 of 5: narrow with narrow as its guest" in capsys.readouterr().err
    assert list(tmp_path.glob("state/cosched/*")) == []


def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> str:
    """The file of a queue of one job."""
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    job = f'cores = 1\n[[jobs]]\nname = "one"\ncores = 1\nwalltime = "1m"\ncommand = "{script}"\n'
    return written(tmp_path / "queue.toml", job)


def test_what_cannot_be_written_in_the_end_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found.json").symlink_to("/dev/full")
    queue = short(tmp_path, monkeypatch, "sleep 1.6")
    found = asked(queue, "--shares", "0.05", "--output", str(tmp_path / "found.json"))
    assert found.exit_code == 1
    assert found.data["pairs"] and "thrash: not measured" in found.text
    assert found.text.endswith(f"--output {tmp_path}/found.json cannot be written: No space left on device")


def test_the_output_of_a_job_that_failed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobFailed, match="job 'one' has failed: Command exited with status 3"):
        asked(short(tmp_path, monkeypatch, "echo 'oh no' >&2; exit 3"), "--shares", "0.05")
    (said,) = tmp_path.glob("state/cosched/*/1/*/*/stderr.0")
    assert said.read_text() == "oh no\n"
