"""What goes wrong: nodes fail, jobs end or vanish, the batch system refuses or does not answer, the driver dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import BackendError
from asa.core.event import (
    AllocationStarted,
    Cancelled,
    JobEnded,
    Learned,
    Requeued,
    RunEnded,
    RunState,
    SubmitRefused,
    Submitted,
    Submitting,
    TaskDone,
    TaskFailed,
    Trouble,
)
from asa.core.job import JobHandle, JobRequest, JobState, JobStatus, QueueRegime
from asa.core.task import Task
from asa.workflows.explain import explain
from tests.workflows.world import Crash, World, launches, square, squares, total


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "asa-naive"])
def test_node_failure(tmp_path: Path, strategy: str, silent: bool) -> None:
    world = World(tmp_path, total(squares(8)), strategy, run_time=lambda _task: 5.0, silent=silent)
    world.at(7.0, lambda: world.batch.fail("run.0"))
    assert world.succeed() == sum(x * x for x in range(8))
    assert world.states()[0] == "node_fail"
    assert all(event.infrastructure for event in world.events(TaskFailed))


def test_nodes_that_keep_failing_end_the_run_with_the_last_reason(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)), run_time=lambda _task: 5.0)

    def fail(event: Any) -> None:
        if isinstance(event, AllocationStarted):
            world.at(2.0, lambda: world.batch.fail(event.allocation))

    world.after_event = fail
    said = world.fail()
    assert "3 allocations in a row ended before they finished a task; the last: job 3 ended as node_fail" in said
    assert world.states() == ["node_fail"] * 3


@pytest.mark.parametrize("joins_s", [0.0, 3.0])
@pytest.mark.parametrize("pause_s", [0.0, 30.0])
def test_a_requeued_job_goes_on_when_it_starts_again(tmp_path: Path, joins_s: float, pause_s: float) -> None:
    """Also when the batch system was not asked between the end of the old and the start of the new one."""
    world = World(tmp_path, squares(12), run_time=lambda _task: 5.0, joins=lambda _token: joins_s, wait=10.0)

    world.at(18.0, lambda: world.batch.requeue_for("run.0", pause_s))
    world.succeed()
    assert world.states() == ["completed"], "one job does it all"
    assert len(world.events(Requeued)) == 1
    assert world.clock.now() - 1000.0 < 90.0
    assert [event.wait_s for event in world.events(Learned)] == [10.0], "the second wait is not the queue's"


def test_a_job_that_vanishes_counts_as_lost_and_is_replaced(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)), run_time=lambda _task: 10.0)
    world.at(12.0, lambda: world.batch.vanish("run.0"))
    assert world.succeed() == sum(x * x for x in range(8))
    lost = world.events(JobEnded)[0]
    assert (lost.allocation, lost.state) == ("run.0", JobState.LOST)


@pytest.mark.parametrize("strategy", ["asa:dependency=upfront", "asa:dependency=predicted", "cascade"])
def test_a_pending_job_that_vanishes_does_not_drag_its_successors_down(tmp_path: Path, strategy: str) -> None:
    """A job that waits for one that is not known any more is refused at once, well before that one counts as lost."""
    world = World(tmp_path, total(squares(4)), strategy, wait=100.0, run_time=lambda _task: 5.0)
    world.at(50.0, lambda: world.batch.vanish("run.0"))
    world.succeed()
    assert len(world.events(Submitting)) <= 5


@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront"])
@pytest.mark.parametrize("seconds", [50.0, 102.0, 125.0])
def test_a_job_cancelled_from_outside_is_asked_for_again(tmp_path: Path, strategy: str, seconds: float) -> None:
    """While it waits, before it was of use, and when some of its tasks are done."""
    world = World(tmp_path, total(squares(6)), strategy, wait=100.0, run_time=lambda _task: 20.0)
    world.at(seconds, lambda: world.batch.cancel([world.batch.find(["run.0"])["run.0"]]))
    world.succeed()
    assert "cancelled" in world.states()
    ends = Counter(event.index for event in world.events(TaskDone) if event.stage == "square")
    assert ends == dict.fromkeys(range(6), 1), "what was done is not done again"


@pytest.mark.parametrize("seconds", [10.0, 15.0])
def test_jobs_that_are_cancelled_from_outside_again_and_again_fail_their_stage(tmp_path: Path, seconds: float) -> None:
    """Also when each of them has done some tasks: whoever cancels them wants the run to stop."""
    world = World(tmp_path, total(squares(60)), wait=5.0, run_time=lambda _task: 6.0)

    def cancel() -> None:
        world.batch.cancel([request_status[1].handle for request_status in world.batch.jobs()])
        world.at(seconds, cancel)

    world.at(seconds, cancel)
    said = world.fail()
    assert said.startswith("stage 'square' failed: 3 of its jobs were cancelled, not by the run; the last: job ")
    assert said.endswith("skipped because of it: total"), "one failure, reported once"
    assert world.events(RunEnded)[-1].stage == "square"
    assert len(world.events(Submitting)) == 3


def test_a_waiting_job_cancelled_from_outside_while_its_predecessor_runs(tmp_path: Path) -> None:
    """It may have gone with the job it waited for, as far as is known; so it is asked for once more, on its own."""
    world = World(tmp_path, total(squares(6)), "asa:dependency=upfront", run_time=lambda _task: 10.0)
    world.at(15.0, lambda: world.batch.cancel([world.batch.find(["run.1"])["run.1"]]))
    world.succeed()
    assert [event.stages for event in world.events(Submitting)] == [("square",), ("total",), ("total",)]
    assert world.events(Submitting)[2].after == ()


def test_a_controller_that_forgets_for_a_while_that_it_started_a_job(tmp_path: Path) -> None:
    """It was killed, and its saved state was older than the start; the job's nodes know nothing of that."""
    world = World(tmp_path, square.options(walltime=600).map(range(24)), run_time=lambda task: 10.0)
    query = world.batch.query

    def forgetful(handles: Sequence[JobHandle]) -> list[JobStatus]:
        found = query(handles)
        if not 1030.0 <= world.clock.now() < 1090.0:
            return found
        running = JobState.RUNNING
        return [
            replace(item, state=JobState.PENDING, started=None) if item.state is running else item for item in found
        ]

    world.batch.query = forgetful  # type: ignore[method-assign]
    assert world.succeed() == [x * x for x in range(24)]
    assert len(world.events(Requeued)) == 1
    assert len(world.events(Submitting)) == 1


def test_a_job_requeued_while_no_driver_was_there_keeps_its_place(tmp_path: Path) -> None:
    world = World(tmp_path, squares(4), run_time=lambda _task: 5.0)
    with pytest.raises(Crash):
        world.drive(6)
    assert world.events(AllocationStarted)
    world.batch.requeue_for("run.0", 500.0)
    world.succeed()
    assert world.states() == ["completed"]
    assert len(world.events(Requeued)) == 1


# A batch system that refuses, or does not answer; supervisors that do not join.


AWAY = BackendError("slurm_load_jobs error: Unable to contact slurm controller", transient=True)


def test_a_refusal_ends_the_run_with_the_sites_own_words(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(4)), refuse=lambda _request: "sbatch: error: Invalid account")
    said = world.fail()
    assert said == (
        "stage 'square' failed: the batch system refused the job: sbatch: error: Invalid account\n"
        "skipped because of it: total"
    )
    assert len(world.events(Submitting)) == 1, "asking again would not help"


def test_the_refusal_of_a_later_stage_spares_the_earlier_ones(tmp_path: Path) -> None:
    def refuse(request: JobRequest) -> str | None:
        return "too few cores" if request.resources.cores == 1 else None

    world = World(tmp_path, total(squares(4)), "asa:dependency=upfront", refuse=refuse)
    said = world.fail()
    assert said == "stage 'total' failed: the batch system refused the job: too few cores"
    assert len(world.events(TaskDone)) == 4


def test_a_job_refused_only_because_of_its_dependency_is_asked_for_later(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        total(squares(4)),
        "asa:dependency=upfront",
        refuse=lambda request: "Job dependency problem" if request.dependencies else None,
        run_time=lambda _task: 10.0,
    )
    world.succeed()
    assert [event.after for event in world.events(Submitting)] == [(), ("run.0",), ()]


def chain(count: int = 12) -> asa.Node:
    """Stages of one task each, one after the other."""
    node = square.options(name="s0").map([0])
    for number in range(1, count):
        node = square.options(name=f"s{number}").map([number]).after(node)
    return node


class Crowd:
    """How many jobs of the run are in the queue: at most, and in the mean over time."""

    def __init__(self, world: World) -> None:
        self.most, self.job_s, self._count, self._since = 0, 0.0, 0, world.clock.now()
        world.after_event = self._note

    def _note(self, event: Any) -> None:
        self.job_s += self._count * (event.at - self._since)
        self._count += isinstance(event, Submitted) - isinstance(event, JobEnded)
        self._since, self.most = event.at, max(self.most, self._count)


HELD = ["hold", "auto", "hold:technique=parked"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("regime", [item for item in QueueRegime if item is not QueueRegime.IMMEDIATE])
@pytest.mark.parametrize("strategy", [*HELD, "asa", "asa:dependency=upfront", "asa-naive", "stagger", "per-stage"])
def test_more_stages_than_jobs_may_be_in_the_queue(
    tmp_path: Path, strategy: str, regime: QueueRegime, known: bool
) -> None:
    world = World(
        tmp_path, chain(), strategy, regime=regime, run_time=lambda _task: 40.0, wait=30.0, most_jobs=4, known=known
    )
    crowd = Crowd(world)
    assert world.succeed() == [121]
    assert crowd.most <= 4 or not known, "as far as it is known which have ended"
    if strategy in HELD or "upfront" in strategy:
        assert crowd.most >= 4, "places are held for as many as may be"
    if known:
        assert not world.events(SubmitRefused), "nothing is sent that would be refused"


@pytest.mark.parametrize("others", [3, 4])
@pytest.mark.parametrize("regime", [QueueRegime.FIFO, QueueRegime.LIMITS])
@pytest.mark.parametrize("strategy", ["hold", "per-stage"])
def test_other_jobs_of_the_user_fill_the_limit_for_a_while(
    tmp_path: Path, strategy: str, regime: QueueRegime, others: int
) -> None:
    world = World(tmp_path, chain(6), strategy, regime=regime, run_time=lambda _task: 40.0, most_jobs=4)
    world.batch.others = others
    said: list[str] = []
    world.at(200.0, lambda: said.append(explain(world.runner.plan, world.clock.now())))  # type: ignore[arg-type]
    world.at(1000.0, lambda: setattr(world.batch, "others", 0))
    assert world.succeed() == [25]
    tries = [event.at - 1000.0 for event in world.events(Submitting) if event.at < 2000.0]
    if others == 4:
        assert "takes no more jobs for now, asked again in" in said[0] and "as many jobs in the queue" in said[0]
        pauses = [later - at for at, later in pairwise(tries) if later > at]
        assert pauses == sorted(pauses) and pauses[:4] == [5.0, 10.0, 20.0, 40.0], "ever more slowly"
        assert min(event.at for event in world.events(Submitted)) <= 2000.0 + 600.0
    else:
        assert min(event.at for event in world.events(TaskDone)) < 1100.0, "one at a time"
    assert all(event.later for event in world.events(SubmitRefused))
    assert len(world.runner.plan.pool.ever) == len(world.events(Submitted)), "a report shows no job that never was"


def test_a_run_that_waits_for_room_can_be_cancelled_and_resumed(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(4)), "hold", most_jobs=2)
    world.batch.others = 2
    world.at(100.0, lambda: world.runner.cancel("enough"))
    assert world.drive() is RunState.CANCELLED
    assert world.clock.now() < 1110.0
    world.batch.others = 0
    assert world.succeed() == 14


@pytest.mark.parametrize("call", ["submit", "query", "cancel", "find"])
@pytest.mark.parametrize("times", [1, 6])
def test_a_batch_system_that_does_not_answer_for_a_while(tmp_path: Path, call: str, times: int) -> None:
    """Tasks go on meanwhile, and what was asked is done in the end, once."""
    world = World(tmp_path, total(squares(8)), "asa:dependency=upfront", run_time=lambda _task: 10.0)
    world.batch.break_next(call, AWAY, times=times)
    world.succeed()
    assert len(world.batch.jobs()) == 2


def test_trouble_is_explained_while_it_lasts(tmp_path: Path) -> None:
    world = World(tmp_path, squares(2), run_time=lambda _task: 30.0)
    world.batch.break_next("submit", AWAY, times=3)
    heard: list[list[str]] = []

    def ask() -> None:
        """The driver's own plan, and one that has nothing but the log."""
        plans = (world.runner.plan, world.replay())
        heard.append([explain(plan, world.clock.now()).splitlines()[-1] for plan in plans])

    for seconds in (0.5, 20.0):
        world.at(seconds, ask)
    world.succeed()
    first, later = heard
    assert first == [f"the batch system does not answer: {AWAY}"] * 2
    assert later[0] == later[1] and "running" in later[0]
    assert [event.error for event in world.events(Trouble)] == [str(AWAY), ""]


def test_a_submission_whose_answer_was_lost_is_not_repeated(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)))
    world.batch.break_next("submit", AWAY, times=2, after=True)
    world.succeed()
    assert [request.token for request, _ in world.batch.jobs()] == ["run.0", "run.1"]
    assert [event.handle.job_id for event in world.events(Submitted)] == ["1", "2"]


def test_a_supervisor_that_never_joins_ends_the_run(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(8)), joins=lambda _token: None)
    said = world.fail()
    assert "3 allocations in a row ended before they finished a task; the last: job 3 ended as timeout" in said
    assert f"its output is in {tmp_path}/run.2.out" in said, "which says why it did not join"


def test_a_supervisor_that_joins_after_its_release_goes_at_once(tmp_path: Path) -> None:
    """The second stage is done in the first one's allocation before its own node has joined."""
    joins = {"run.0": 0.0, "run.1": 20.0}
    world = World(
        tmp_path,
        total(squares(2)),
        "asa:dependency=none",
        predicted_wait_s=60.0,
        joins=joins.__getitem__,
        run_time=lambda task: 10.0 if task.stage == "square" else 2.0,
    )
    world.succeed()
    ended = {event.allocation: event for event in world.events(JobEnded)}
    assert ended["run.1"].state is JobState.COMPLETED
    assert ended["run.1"].at - 1000.0 < 35.0


def test_a_cancellation_that_a_dead_driver_had_announced_is_carried_out(tmp_path: Path) -> None:
    """It was logged, and then the driver died before the batch system was asked."""

    def fresh(name: str) -> World:
        (tmp_path / name).mkdir(mode=0o700)
        return World(
            tmp_path / name, total(squares(2)), "asa-naive:grace_s=10", predicted_wait_s=30.0, run_time=lambda _: 50.0
        )

    whole = fresh("whole")
    whole.drive()
    kinds = [type(event) for _, event in whole.log.read()]
    torn = fresh("torn")
    with pytest.raises(Crash):
        torn.drive(kinds.index(Cancelled) - 1, after=True)
    assert len(torn.events(Cancelled)) == 1
    withdrawn = torn.events(Cancelled)[0].allocation
    torn.succeed()
    states = {request.token: status.state for request, status in torn.batch.jobs()}
    assert states[withdrawn] is JobState.CANCELLED


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront"])
def test_a_driver_that_dies_at_any_event_costs_no_task(tmp_path: Path, strategy: str, after: bool) -> None:
    """What runs goes on, what ends meanwhile is kept: none of it begins again, if the next driver comes in time."""

    def fresh(name: str) -> World:
        Path(tmp_path, name).mkdir(mode=0o700)
        return World(Path(tmp_path, name), total(squares(10)), strategy, run_time=lambda task: 3.0 + task.index)

    whole = fresh("whole")
    whole.succeed()
    for at in range(whole.logged):
        for pause_s in (0.0, 6.0):
            torn = fresh(f"torn-{at}-{pause_s}")
            with pytest.raises(Crash):
                torn.drive(at, after=after)
            torn.clock.wait(threading.Event(), torn.clock.now() + pause_s)
            assert torn.succeed() == sum(x * x for x in range(10))
            again = [task for task, count in Counter(torn.nodes.begun).items() if count > 1]
            assert not again, f"begun again after a crash at event {at}"


def test_what_ended_without_a_driver_is_found_when_the_allocation_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path, total(squares(2)), run_time=lambda _task: 10.0)
    crash_after(world, 5.0)
    assert len(world.nodes.begun) == 2
    world.clock.wait(threading.Event(), world.clock.now() + 20.0)
    world.batch.fail("run.0")
    world.succeed()
    assert set(Counter(world.nodes.begun).values()) == {1}


class Unordered:
    """Something to map over that has another order each time, like a set of strings in another process."""

    turns = 0

    def __init__(self, *items: int) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        Unordered.turns += 1
        return iter(self.items if Unordered.turns % 2 else self.items[::-1])


@asa.stage(walltime=60)
def unordered() -> Unordered:
    return Unordered(*range(8))


def test_elements_keep_the_order_that_they_had_for_the_first_driver(tmp_path: Path) -> None:
    world = World(tmp_path, total(square.map(unordered())), run_time=lambda _task: 10.0)
    crash_after(world, 25.0)
    done = [event for event in world.events(TaskDone) if event.stage == "square"]
    assert 0 < len(done) < 8, "it died in the middle"
    assert world.succeed() == sum(x * x for x in range(8))
    assert set(Counter(world.nodes.begun).values()) == {1}, "what ran was the same task for the next driver"


UNORDERED = """
from pathlib import Path
import asa

@asa.stage
def letters(count):
    return {chr(97 + number) * 3 for number in range(count)}

@asa.stage
def shout(word, go):
    if word == "kkk" and not Path(go).exists():
        raise RuntimeError("not yet")
    return word.upper()

@asa.stage
def one(word, go):
    if word == "f" and not Path(go).exists():
        raise RuntimeError("not yet")
    return word

@asa.stage
def both(words, parts):
    return sorted(words) + sorted(parts)

go = str(Path(__file__).with_name("go"))
workflow = both(shout.map(letters(20), go=go), {one(letter, go) for letter in "abcdefgh"})
"""


def test_what_has_no_order_has_the_same_one_in_every_process_of_a_run(tmp_path: Path) -> None:
    """A set of strings, or of nodes, has another order in each process."""
    (tmp_path / "flow.py").write_text(UNORDERED)

    def run(seed: int, *words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PYTHONHASHSEED": str(seed), "ASA_STATE_DIR": str(tmp_path / "state")}
        argv = [sys.executable, "-m", "asa", *words, "--quiet"]
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)

    first = run(1, "run", "flow.py", "--name", "sets")
    assert first.returncode == 1 and "not yet" in first.stderr
    (tmp_path / "go").touch()
    (name,) = (path.name for path in (tmp_path / "state" / "runs").iterdir())
    second = run(2, "resume", name)
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip() == str([chr(65 + number) * 3 for number in range(20)] + list("abcdefgh"))


# Tasks and the wall time of their allocations.


def crash_after(world: World, seconds: float) -> None:
    """Have a driver of `world` die after so long [s]."""

    def crash() -> None:
        raise Crash

    world.at(seconds, crash)
    with pytest.raises(Crash):
        world.drive()


def one_longer(index: int, longer_s: float, others_s: float) -> Callable[[Task], float]:
    """Run times [s]: one task takes longer than the others."""
    return lambda task: longer_s if task.index == index else others_s


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("strategy", ["per-stage", "big-job", "asa:dependency=upfront", "cascade"])
def test_tasks_left_at_the_wall_time_are_run_in_a_new_allocation(tmp_path: Path, strategy: str, silent: bool) -> None:
    run_time = one_longer(2, 50.0, 10.0)
    world = World(tmp_path, total(squares(24)), strategy, run_time=run_time, silent=silent, wait=5.0)
    assert world.succeed() == sum(x * x for x in range(24))
    ends = [event.state for event in world.events(JobEnded)]
    assert len([state for state in ends if state in (JobState.COMPLETED, JobState.TIMEOUT)]) >= 2
    assert all(event.infrastructure for event in world.events(TaskFailed)), "no retry is used up"


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("tasks", [3, 4])
def test_a_task_cut_off_by_the_wall_time_is_run_again(tmp_path: Path, silent: bool, tasks: int) -> None:
    """Task 2 starts late and is still running when the wall time comes, alone or not; no fault of its own."""
    world = World(tmp_path, square.map(range(tasks)), run_time=one_longer(2, 50.0, 20.0), silent=silent)
    world.succeed()
    assert world.states()[0] == "timeout"
    assert launches(world)["square", 2] == 2


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("retries", [0, 1])
def test_a_task_longer_than_the_wall_time_fails_its_stage(tmp_path: Path, retries: int, silent: bool) -> None:
    stage = square.options(retries=retries, growth=1)
    world = World(tmp_path, total(stage.map(range(6))), run_time=one_longer(1, 61.0, 5.0), silent=silent)
    said = world.fail()
    assert "task 1 ran for 1 min and reached the wall time: raise walltime=" in said
    assert "skipped because of it: total" in said
    assert launches(world)["square", 1] == 1 + retries, "each try costs a whole wall time"


def test_tasks_almost_as_long_as_the_wall_time_all_run(tmp_path: Path) -> None:
    """Nothing would ever be launched after the first task if its length were held against fresh allocations."""
    world = World(tmp_path, square.map(range(6)), run_time=lambda _task: 58.0)
    world.succeed()
    assert world.states() == ["completed"] * 3
    assert max(launches(world).values()) == 1


@pytest.mark.parametrize(
    ("tasks", "run_time", "after_s"),
    [
        (4, one_longer(0, 35.0, 35.0), 135.0),  # at once when nothing fits any more, not when the first one drains
        (8, one_longer(0, 59.5, 11.0), 157.0),  # 3 s before the wall time, also while a long task still runs
    ],
)
def test_a_new_allocation_is_asked_for_when_the_old_one_drains_or_takes_no_task(
    tmp_path: Path, tasks: int, run_time: Callable[[Task], float], after_s: float
) -> None:
    world = World(tmp_path, squares(tasks), run_time=run_time, wait=100.0)
    world.succeed()
    first, second = world.events(Submitting)
    assert second.at - first.at == pytest.approx(after_s, abs=2.0)


@pytest.mark.parametrize("strategy", ["asa:dependency=upfront", "asa:dependency=predicted", "cascade"])
def test_successors_survive_that_a_stage_needs_many_allocations(tmp_path: Path, strategy: str) -> None:
    """Each of its jobs ends badly, and takes the job that waits for it along."""
    long, run_time = square.options(cores=1), lambda task: 20.0 if task.stage == "square" else 1.0
    world = World(tmp_path, total(long.map(range(7))), strategy, run_time=run_time)

    def kill_when_useful(event: Any) -> None:
        if isinstance(event, TaskDone) and event.stage == "square" and event.index < 6:
            world.at(0.1, lambda: world.batch.fail(event.allocation))

    world.after_event = kill_when_useful
    world.succeed()
    assert world.states().count("node_fail") >= 6
