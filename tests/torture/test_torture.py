"""`asa torture` from inside and outside: schedules hold, replay, and see what is broken; the smallest is found."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asa.cli.main import main
from asa.core.event import TaskFailed
from asa.testing.simulation import KEPT_ALIVE_S, START_S, SimulatedProcess, SimulatedSelector, Simulation, Stuck
from coscheduler.torture import case as cases
from coscheduler.torture import command
from coscheduler.torture.case import FAULTS, Case, Fault, LastingStage, StageShape, draw, evaluate, run, shrink, smaller
from executors import hub
from tests.torture import mutations, real

STEPS = (
    StageShape(True, 4, (), 2, 1, 600.0),
    StageShape(False, 2, (0,), 1, 1, 600.0),
    StageShape(True, 0, (1, 0), 4, 2, 600.0),
)
QUIET = Case(7, (STEPS,), ("per-stage",), 8, "fifo", (0.0, 30.0), 0.3, 60.0, ())


def at(kind: str, *times: float, which: int = 0, share: float = 0.3) -> tuple[Fault, ...]:
    return tuple(Fault(kind, time, which, share) for time in times)


def with_faults(*faults: Fault, **changes: Any) -> Case:
    return replace(QUIET, faults=tuple(sorted(faults, key=lambda fault: fault.at)), **changes)


# ---------------------------------------------------------------- schedules


def test_a_schedule_without_faults() -> None:
    outcome = run(QUIET)
    assert (outcome.violations, outcome.resumes) == ([], 0)
    assert 30.0 < outcome.seconds < 600.0


@pytest.mark.parametrize("seed", range(6))
def test_what_is_drawn_holds(seed: int) -> None:
    assert run(draw(seed)).violations == []


def test_a_schedule_goes_the_same_way_each_time() -> None:
    case = with_faults(*at("driver dies", 5.0, 40.0), *at("worker dies", 33.0), *at("connection stalled", 36.0))
    once, again, other = (run(each, fingerprint=True) for each in (case, case, replace(case, seed=8)))
    assert once == again
    assert once.fingerprint != other.fingerprint


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_each_kind_of_fault_strikes_and_is_survived(kind: str) -> None:
    outcome = run(with_faults(*at(kind, 0.5, 20.0, 31.0, 33.0, 36.0, which=5)))
    assert outcome.violations == []
    assert outcome.struck[kind] >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        1573,  # a node whose clock was ahead by a wall time paused tasks with checkpoints at once
        2632,  # what nodes reported in the moment in which their job ended was read from files again: two results
        2004421,  # of jobs whose submission got no answer, those whose turn came later were submitted again unasked
        2002775,  # many lessons in a row, on a slow disk, kept nodes waiting for a minute
        2006186,  # a driver handed its run over, and then asked a slow controller what there was to learn
        2007189,  # power failed: that a job had been parked was forgotten, and it waited for ever
        3205463,  # the first of a job array grew, and one behind it found room before
        3200101,  # the login node's clock was ahead by a wall time: allocations were over when they started
    ],
)
def test_seeds_that_have_found_a_fault(seed: int) -> None:
    assert main(["torture", "--seed", str(seed), "--schedules", "1", "--processes", "1"]) == 0


FOUND = {
    # Seed 20616: the next driver waited for nodes that never came back until the wall time was over, and blamed it.
    "a supervisor that hangs, and then its driver dies": with_faults(
        *at("supervisor hangs", 31.0, share=0.9), *at("driver dies", 36.0)
    ),
    # A parked job stayed in the queue for ever: its cancellation waited behind changes of others for longer than a
    # driver waited for the end of its jobs.
    "a cancellation behind slow changes": with_faults(
        *at("controller slow", 1.0, share=1.0), strategies=("hold:technique=parked,grace_s=20",), waits=(5.0,)
    ),
    # Both wrote into one log: tasks ran twice, jobs were waited for that had ended.
    "two drivers of one run": with_faults(*at("two drivers", 2.0, 31.0, 34.0)),
    # The parked place of a task's next allocation stayed parked when its turn came.
    "a task with checkpoints and parked places": with_faults(
        workflows=((StageShape(True, 1, (), 2, 1, 120.0),),),
        strategies=("hold:technique=parked,grace_s=20",),
        lasting=(LastingStage(0, 0, 1.5, 50.0),),
    ),
    # How long a task ran that was lost with its node was not counted: its time did not add up.
    "a task with checkpoints whose node is lost": with_faults(
        *at("job cancelled", 60.0, 150.0),
        workflows=((StageShape(True, 1, (), 2, 1, 120.0),),),
        lasting=(LastingStage(0, 0, 1.9, 3.0),),
    ),
    # The login node lost the end of the log, and new jobs got the names of forgotten ones.
    "a power failure after a submission": with_faults(*at("power fails", 1.0, 31.0, 33.0, share=1.0)),
    # The clock was set back: nothing was asked of the batch system until it had come that far again; later, hub and
    # runner disagreed about the time, and each allocation seemed to be over when its node joined.
    "a clock that is set back": with_faults(*at("clock jumps", 20.0, share=0.0), *at("driver dies", 25.0)),
    # The driver died while its job was on its way; the next one looked for it too early, and took it for lost.
    "a job that arrives after its driver has died": with_faults(
        *at("controller slow", 0.0, share=0.5), *at("driver dies", 0.5, share=0.0), waits=(0.0,)
    ),
    # A node did not find the new driver in its grace; what its tasks had returned meanwhile was in a file, and they ran
    # again.
    "outcomes that a node kept until its end": Case(
        772,
        (
            (
                StageShape(False, 2, (), 2, 2, 3600.0),
                StageShape(True, 2, (0,), 4, 4, 600.0),
                StageShape(False, 3, (), 1, 1, 600.0),
                StageShape(False, 1, (0, 1, 2), 2, 1, 600.0),
                StageShape(False, 2, (0,), 1, 1, 600.0),
                StageShape(False, 2, (), 4, 4, 600.0),
                StageShape(False, 1, (3, 4), 4, 1, 600.0),
            ),
        ),
        ("hold:technique=aged-afterok,lead_s=30",),
        4,
        "accrue-always",
        (0.0, 0.0),
        5.0,
        30.0,
        (
            Fault("controller away", 59.537, 418, 0.5574),
            Fault("files late", 141.823, 279, 0.8105),
            Fault("driver dies", 146.693, 359, 0.2242),
        ),
    ),
    # Orders went back to a driver that had not yet said which of the last one's it wants: they were nowhere.
    "orders that go back while a driver takes over": Case(
        478,
        (
            (
                StageShape(True, 3, (), 1, 1, 3600.0),
                StageShape(True, 27, (0,), 1, 1, 3600.0),
                StageShape(False, 1, (0, 1), 1, 1, 600.0),
                StageShape(False, 1, (1,), 2, 1, 600.0),
                StageShape(False, 4, (), 4, 1, 3600.0),
                StageShape(False, 4, (0, 4), 1, 1, 3600.0),
                StageShape(True, 4, (), 2, 2, 3600.0),
                StageShape(True, 6, (6,), 4, 4, 120.0),
            ),
        ),
        ("big-job",),
        16,
        "accrue-always",
        (8.317841571425816, 0.0, 552.9930975184152),
        0.3,
        60.0,
        (Fault("power fails acting", 144.638, 620, 0.166),),
        lasting=(LastingStage(0, 7, 2.3344356838753226, 3.0),),
    ),
    # The results of a task and of one that it had added were lost: what the second one had added stayed in the run.
    "stages that were added by one that is gone": Case(
        113555,
        (
            (
                StageShape(False, 4, (), 4, 4, 3600.0),
                StageShape(False, 4, (0,), 1, 1, 3600.0),
                StageShape(False, 28, (0, 1), 1, 1, 3600.0),
                StageShape(False, 4, (0, 1, 2), 2, 1, 3600.0),
                StageShape(False, 6, (0, 1, 3), 4, 1, 600.0),
            ),
        ),
        ("asa:dependency=upfront",),
        4,
        "accrue-always",
        (0.0, 496.77612902874824, 20.032527711305406),
        0.0,
        60.0,
        (
            Fault("files late", 28.632, 98, 0.3013),
            Fault("power fails", 35.942, 435, 0.7387),
            Fault("result damaged", 187.571, 112, 0.2874),
            Fault("result damaged", 253.17, 601, 0.8883),
        ),
        growing=((0, 0), (0, 3), (0, 4)),
    ),
    # A stage had begun when a result that it was made of was lost; its new job was parked, and stayed so.
    "a parked job of a stage that had begun": Case(
        1334,
        (
            (
                StageShape(True, 1, (), 1, 1, 120.0),
                StageShape(True, 3, (0,), 4, 4, 600.0),
                StageShape(True, 3, (0, 1), 2, 2, 600.0),
                StageShape(False, 3, (0, 2), 4, 4, 120.0),
            ),
        ),
        ("hold:technique=parked,grace_s=20",),
        8,
        "fifo",
        (2.592512602421704,),
        5.0,
        300.0,
        (Fault("network cut", 54.69, 588, 0.8887), Fault("result damaged", 114.884, 710, 0.4258)),
    ),
}
"""What `asa torture` has found, made smaller."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    for seed in (FOUND[name].seed, 0, 1):
        assert run(replace(FOUND[name], seed=seed)).violations == []


def test_a_dropped_safeguard_is_seen_and_the_case_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = hub.lost_event

    def blamed(*arguments: Any) -> TaskFailed:
        return replace(lost(*arguments), infrastructure=False)

    monkeypatch.setattr(hub, "lost_event", blamed)
    monkeypatch.setattr(cases, "RESUMES_MOST", 0)
    case = with_faults(*at("supervisor dies", 31.5, 33.0), *at("disk slow", 5.0), *at("answers lost", 2.0))

    def fails(other: Case) -> bool:
        return bool(run(other).violations)

    assert fails(case)
    small = shrink(smaller, case, fails)
    assert fails(small)
    assert {fault.kind for fault in small.faults} == {"supervisor dies"}
    assert len(small.faults) == 1
    assert eval(repr(small), vars(cases)) == small


def test_each_mutation_still_fits() -> None:
    """What it drops is in the product, once."""
    counts = {one.name: (mutations.ROOT / one.path).read_text().count(one.old) for one in mutations.MUTATIONS}
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_the_oracle_is_plain_python() -> None:
    assert evaluate(STEPS) == [[1, 4, 7, 10], [22, 23], [22 * 3 + 1 + 22, 23 * 3 + 1 + 22]]


# ---------------------------------------------------------------- the command


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    assert main(["torture", "--schedules", "4", "--processes", "2", "--json", str(out)]) == 0
    assert capsys.readouterr().out.startswith("4 schedules, ")
    found = json.loads(out.read_text())
    assert (found["schedules"], found["failed"]) == (4, [])
    struck = sum((run(draw(seed)).struck for seed in range(4)), start=type(run(QUIET).struck)())
    assert found["faults"] == dict(struck)


def test_a_fresh_process_takes_over_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "EACH", 2)
    found = list(command.all_results("runs", 0, 5, 2, None))
    assert sorted(found) == [(seed, [], dict(each.struck), each.resumes, each.seconds)
                             for seed in range(5) for each in [run(draw(seed))]]  # fmt: skip
    assert not active_children()


def test_processes_that_are_done_leave_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "EACH", 1)
    opened = [len(os.listdir("/proc/self/fd")) for _ in command.all_results("runs", 0, 4, 1, None)]
    assert opened[-1] <= opened[0]


def test_a_process_that_dies_fails_its_schedule_only(monkeypatch: pytest.MonkeyPatch) -> None:
    results = command.all_results("runs", 0, 3, 1, None)
    assert next(results)[:2] == (0, [])
    give = command.Process.give

    def killed(self: Any, *given: Any) -> None:
        give(self, *given)
        if self.seed == 1:
            active_children()[0].kill()

    monkeypatch.setattr(command.Process, "give", killed)
    assert [each[:2] for each in results] == [(1, ["its process has died"]), (2, [])]


def test_a_process_that_is_stopped_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    results = command.all_results("runs", 0, 10**6, 1, time.monotonic() + 1000.0)
    assert next(results)[:2] == (0, [])
    (process,) = active_children()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    times = itertools.count(time.monotonic(), 300.0)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(command, "POLL_S", 0.1)
    monkeypatch.setattr(command, "POLLS", 3)
    assert [each[:2] for each in results] == [(1, ["it has not ended long after the time was over"])]
    assert not active_children()


def test_ctrl_c_ends_it_with_what_has_been_found(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    give = command.Process.give

    def interrupted(self: Any, *given: Any) -> None:
        if given[1] == 2:
            raise KeyboardInterrupt
        give(self, *given)

    monkeypatch.setattr(command.Process, "give", interrupted)
    assert main(["torture", "--schedules", "100", "--processes", "1"]) == 130
    assert re.search("2 schedules, .*: 0 failed; interrupted\n", capsys.readouterr().err)
    assert not active_children()


def test_the_time_goes_on_while_all_of_it_is_stopped() -> None:
    words = [sys.executable, "-m", "asa", "torture", "--time", "6s", "--processes", "2"]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    time.sleep(3.0)
    os.killpg(started.pid, signal.SIGSTOP)
    time.sleep(5.0)
    os.killpg(started.pid, signal.SIGCONT)
    try:
        said, _ = started.communicate(timeout=60.0)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
    assert re.match(r"\d+ schedules, .*: 0 failed", said)


@pytest.mark.parametrize("words", [["--schedules", "0"], ["--time", "soon"], ["--processes", "-1"]])
def test_numbers_out_of_range(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["torture", *words])
    assert words[0] in capsys.readouterr().err


# ---------------------------------------------------------------- what it stands on


def programs(simulation: Simulation, *calls: Any, machine: str = "here") -> list[SimulatedProcess]:
    processes = [SimulatedProcess(f"p{number}", machine) for number in range(len(calls))]
    for process, call in zip(processes, calls, strict=True):
        simulation.start(process, call, "main")
    return processes


def test_nothing_of_a_killed_process_goes_on() -> None:
    simulation, said = Simulation(1), list[str]()

    def victim() -> None:
        try:
            simulation.sleep(10.0)
            said.append("woke")
        finally:
            said.append("cleaned up")

    (process,) = programs(simulation, victim)
    process.at_death.append(lambda: said.append("dead"))
    simulation.call_at(START_S + 5.0, lambda: simulation.kill(process))
    simulation.run(lambda: False, START_S + 20.0)
    assert said == ["dead"]
    simulation.close()


def test_a_simulation_in_which_all_wait_for_one_another_is_stuck() -> None:
    simulation = Simulation(1)
    programs(simulation, lambda: simulation.wait(lambda: False))
    with pytest.raises(Stuck, match="every thread waits"):
        simulation.run(lambda: False)
    simulation.close()


def test_what_a_program_raises_comes_out() -> None:
    simulation = Simulation(1)
    programs(simulation, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        simulation.run(lambda: False, START_S + 1.0)
    simulation.close()


@pytest.mark.parametrize("trouble", ["none", "cut", "long cut", "stalled", "killed", "machine lost"])
def test_bytes_arrive_in_order_or_the_connection_breaks(trouble: str) -> None:
    simulation, sent, heard = Simulation(3), bytes(range(256)) * 40, bytearray()
    one, other = SimulatedProcess("one", "a"), SimulatedProcess("other", "b")
    near, far = simulation.network.connect(one, other)
    ended: list[float | str] = []

    def sender() -> None:
        left = sent
        while left:
            try:
                left = left[near.send(left[:700]) :]
            except BlockingIOError:
                pass
            except OSError:
                return
            simulation.sleep(1.0)
        near.close()

    def reader() -> None:
        selector = SimulatedSelector(simulation)
        selector.register(far, 1)
        while True:
            selector.select()
            try:
                piece = far.recv(1 << 16)
            except OSError as error:
                ended.extend([simulation.now - START_S, type(error).__name__])
                return
            if not piece:
                ended.extend([simulation.now - START_S, "end"])
                return
            heard.extend(piece)

    simulation.start(one, sender, "sender")
    simulation.start(other, reader, "reader")
    act = {
        "none": lambda: None,
        "cut": lambda: simulation.network.cut("a", "b", 5.0),
        "long cut": lambda: simulation.network.cut("a", "b", 3 * KEPT_ALIVE_S),
        "stalled": lambda: simulation.network.stall(one),
        "killed": lambda: simulation.kill(one),
        "machine lost": lambda: (simulation.network.lose("a"), simulation.kill(one)),
    }[trouble]
    simulation.call_at(START_S + 3.5, act)
    simulation.run(lambda: bool(ended), START_S + 1000.0)
    assert ended, "the reader waits for ever"
    assert sent.startswith(bytes(heard))
    whole = trouble in ("none", "cut")
    assert (bytes(heard) == sent) is whole
    assert ended[1] == ("end" if whole or trouble == "killed" else "TimeoutError")
    assert float(ended[0]) <= 3.5 + 4 * KEPT_ALIVE_S + math.ceil(len(sent) / 700)
    simulation.close()


# ---------------------------------------------------------------- in real time


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_a_trial_on_real_processes(
    wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    trial = replace(real.draw(45, "local"), faults=at("driver stopped", 1.0), seconds=((2.0,) * 6,) * 3)
    monkeypatch.setattr(real, "draw", lambda *_arguments: trial)
    if wrong:
        monkeypatch.setattr(real, "evaluate", lambda steps: [*evaluate(steps)[:-1], [-1]])
    assert real.main(["--seed", "45", "--trials", "1", "--where", "local"]) == wrong
    said = capsys.readouterr().out
    assert "driver stopped" in said
    assert ("has a wrong result" in said) is wrong
    assert len(list(tmp_path.glob("*/seed-45"))) == wrong, "what failed is kept"
