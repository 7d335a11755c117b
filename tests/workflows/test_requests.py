"""What stages ask for where that is learned: from the history, within limits, and again when it was too little."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.cli.main import main
from asa.core.errors import GraphError, InvalidInput
from asa.core.event import RunStarted, RunState, StageGrown, Submitting, TaskFailed
from asa.core.history import Frozen, Usage
from asa.core.job import Capabilities, Resources
from asa.core.stage import StageSpec
from asa.core.task import Task
from asa.core.units import MIB
from asa.log.events import EventLog
from asa.log.history import HISTORY, UsageHistory
from asa.workflows.expand import loop
from asa.workflows.fingerprint import meaning
from asa.workflows.graph import make_graph
from asa.workflows.requests import OWN_MEMORY, LearnedRequests, largest_input
from tests.workflows.world import Crash, World

GIB = 1 << 30
SITE = Capabilities("fake", largest=Resources(64, memory=128 * GIB), cores_per_node=16, longest_s=86400.0)


@asa.stage(memory="auto", walltime="auto")
def align(x: Any) -> Any:
    return x


def took(memory: int | None = GIB, run_time_s: float = 100.0, outcome: str = "ok", **other: Any) -> Usage:
    row = Usage("align", "", "fake", None, 1, 8, run_time_s, None, memory, 4 * GIB, 3600.0, outcome, 1.0, "rusage")
    return replace(row, **other)


def remember(state: Path, rows: list[Usage], frozen: Frozen | None = None, machine: str = "fake") -> None:
    with closing(UsageHistory(state / HISTORY)) as history:
        history.add(rows)
        if frozen is not None:
            history.freeze("align", machine, frozen)


def asked(state: Path, workflow: Any, site: Capabilities = SITE, **options: Any) -> StageSpec:
    graph = make_graph(workflow)
    return LearnedRequests(state, site, **options).ask(graph, graph.specs(site))[0]


def test_without_history_the_share_of_memory_that_goes_with_the_cores(tmp_path: Path) -> None:
    spec = asked(tmp_path, align.options(cores=4)(1))
    assert spec.resources.memory == 4 * 2 * GIB and spec.task.memory == 2 * GIB and spec.walltime_s == 3600.0
    assert spec.learned is not None and "not known yet" in spec.learned.reason
    declared = asked(tmp_path, align.options(memory="3G", walltime="2h")(1), everything=True)
    assert (declared.resources.memory, declared.walltime_s) == (3 * GIB, 7200.0)
    untold = asked(tmp_path, align(1), Capabilities("fake"))
    assert untold.resources.memory is None and untold.learned is not None


def test_what_does_not_say_so_is_as_declared(tmp_path: Path) -> None:
    remember(tmp_path, [took()] * 300)
    plain = align.options(memory="3G", walltime="2h")
    spec = asked(tmp_path, plain(1))
    assert (spec.resources.memory, spec.walltime_s, spec.learned) == (3 * GIB, 7200.0, None)
    learned = asked(tmp_path, plain(1), everything=True)
    assert (learned.resources.memory, learned.walltime_s) == (GIB + OWN_MEMORY, 180.0)
    one = asked(tmp_path, align.options(walltime="2h")(1))
    assert (one.resources.memory, one.walltime_s) == (GIB + OWN_MEMORY, 7200.0)
    assert one.learned is not None and (one.learned.covers("memory"), one.learned.covers("walltime")) == (True, False)


def test_what_is_learned_is_said_with_its_reason(tmp_path: Path) -> None:
    remember(tmp_path, [took(GIB + each * MIB, 100.0 + each) for each in range(300)])
    spec = asked(tmp_path, align.options(cores=2).map(range(6)))
    assert spec.task.memory is not None and 1.25 * GIB < spec.task.memory < 1.35 * GIB
    assert spec.resources.memory == 2 * spec.task.memory
    assert spec.walltime_s == 960.0  # three turns: one of 400 s at most, two of 250 s, and a minute before and after
    assert spec.learned is not None
    memory, walltime = spec.learned.reason.split("; ")
    assert memory.startswith("memory 2.6") and "2 tasks at a time" in memory and "of 300 tasks" in memory
    assert walltime == "wall time 16 min: largest of 300 tasks 6 min 39 s, 3 one after the other"


def test_the_largest_input_counts(tmp_path: Path) -> None:
    for name, count in (("small", 10), ("large", 1000)):
        (tmp_path / name).write_bytes(bytes(count * 1000))
    sizes = [(1 + each % 40) * 25_000 for each in range(300)]
    remember(tmp_path, [took(each * 10_000, input=each) for each in sizes])
    asks = [
        asked(tmp_path, align.map(files), workdir=str(tmp_path)).task.memory or 0
        for files in (["small", "small"], ["small", "large"], [tmp_path / "small"])
    ]
    assert asks[0] == asks[2] < GIB < asks[1]


def test_each_file_that_a_task_is_given_counts_once(tmp_path: Path) -> None:
    """As where it runs: in lists and dicts, too."""
    (tmp_path / "reads").write_bytes(bytes(1000))
    (tmp_path / "index").write_bytes(bytes(10))
    ring: list[Any] = ["index"]
    ring.append(ring)

    def largest(node: Any) -> int | None:
        (made,) = make_graph(node).nodes.values()
        return largest_input(made, str(tmp_path))

    for given in ("reads", ["reads", "reads"], {"left": "reads", "right": [tmp_path / "reads", str(tmp_path)]}):
        assert largest(align(given)) == 1000
    assert largest(align.map(["reads", "index", 7])) == 1000
    assert largest_input(align(ring), str(tmp_path)) == 10
    assert largest(align(7)) is None
    many = ["index", *(f"none{number}" for number in range(20_000)), "reads"]
    assert largest(align(many)) == 10, "it is not looked for so many"


def test_a_task_that_had_too_little_and_never_returned_has_more_the_next_time(tmp_path: Path) -> None:
    remember(tmp_path, [took(GIB, 100.0), took(2 * GIB, 20.0, "memory", asked_memory=2 * GIB)])
    spec = asked(tmp_path, align(1))
    assert spec.resources.memory == 4 * GIB + OWN_MEMORY
    assert (
        spec.learned is not None and "tasks had too little with 2 GiB, and this is twice as much" in spec.learned.reason
    )


def test_what_is_frozen_is_asked_for(tmp_path: Path) -> None:
    remember(tmp_path, [took()] * 30, Frozen(6 * GIB, 1800.0, 1.0))
    spec = asked(tmp_path, align(1))
    assert (spec.resources.memory, spec.walltime_s) == (6 * GIB, 1800.0)
    assert spec.learned is not None and spec.learned.reason.count("frozen") == 2


def test_a_history_of_another_machine_or_stage_is_not_used(tmp_path: Path) -> None:
    remember(tmp_path, [took(machine="elsewhere"), took(stage="other")], Frozen(6 * GIB, None, 1.0), "elsewhere")
    assert asked(tmp_path, align(1)).task.memory == 2 * GIB


def test_a_stage_that_does_something_else_by_now_begins_anew(tmp_path: Path) -> None:
    """What was imported has no code, and counts for any."""
    (node,) = make_graph(align(1)).nodes.values()
    remember(tmp_path, [took(5 * GIB, code="another")])
    assert asked(tmp_path, align(1)).task.memory == 2 * GIB
    remember(tmp_path, [took(GIB, code=meaning(node.stage))] * 200)
    assert asked(tmp_path, align(1)).task.memory == GIB + OWN_MEMORY
    remember(tmp_path, [took(3 * GIB, code="")] * 20)
    assert asked(tmp_path, align(1)).task.memory == 3 * GIB + OWN_MEMORY


def test_a_damaged_history_is_named_and_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / HISTORY).write_bytes(b"not a database" * 1000)
    assert asked(tmp_path, align(1)).task.memory == 2 * GIB
    assert HISTORY in caplog.text and "what is declared asked for" in caplog.text


def test_limits_are_never_exceeded_silently(tmp_path: Path) -> None:
    remember(tmp_path, [took(GIB, 3000.0)] * 3)  # few tasks: a margin is added
    near = replace(
        SITE, largest=Resources(8, memory=GIB + 10 * MIB), longest_s=3060.0, bounds="MaxWall=51 of qos normal"
    )
    spec = asked(tmp_path, align(1), near)
    assert (spec.resources.memory, spec.walltime_s) == (GIB + 10 * MIB, 3060.0)
    assert spec.learned is not None and "gives no job more than" in spec.learned.reason
    assert "allows no more than 51 min" in spec.learned.reason
    with pytest.raises(GraphError, match=r"more than the 1023 MiB that fake gives to one job; MaxWall"):
        asked(tmp_path, align(1), replace(near, largest=Resources(8, memory=GIB - MIB)))
    with pytest.raises(GraphError, match=r"more than the 40 min that fake allows.*checkpoint=True"):
        asked(tmp_path, align(1), replace(near, longest_s=2400.0))
    on = asked(tmp_path, align.options(checkpoint=True)(1), replace(near, longest_s=2400.0))
    assert on.walltime_s == 2400.0
    remember(tmp_path, [], Frozen(2 * GIB, None, 1.0))
    with pytest.raises(GraphError, match=r"frozen.*more than"):
        asked(tmp_path, align(1), near)


def test_words_that_are_no_size_are_refused_as_before() -> None:
    for options in ({"memory": "Auto"}, {"walltime": "automatic"}, {"memory": "auto!"}, {"timeout": "auto"}):
        with pytest.raises(InvalidInput):
            asa.stage(abs, name="abs", **options)  # type: ignore[call-overload]


# ---------------------------------------------------------------- too little


def needing(memory: int) -> Any:
    def fault(task: Task, _attempt: int) -> str | None:
        return "MemoryError" if (task.resources.memory or 0) < memory else None

    return fault


@pytest.mark.parametrize("strategy", ["auto", "per-stage", "big-job"])
def test_a_task_that_ran_out_of_memory_gets_what_was_learned_then_twice_as_much(tmp_path: Path, strategy: str) -> None:
    """Of hundred tasks one needed ten times as much, so it is tried again with that; without any retry declared."""
    remember(tmp_path, [took(GIB)] * 299 + [took(10 * GIB)])
    limits = {"largest": Resources(8, memory=128 * GIB)}
    options: dict[str, Any] = {"learns": True, "limits": limits, "cores": 8}
    world = World(tmp_path, align.options(cores=2).map(range(4)), strategy, fault=needing(30 * GIB), **options)
    assert world.succeed() == [0, 1, 2, 3]
    (started,) = world.events(RunStarted)
    first = started.stages[0].task.memory or 0
    grown = [event.task.memory or 0 for event in world.events(StageGrown)]
    assert first < 1.1 * GIB
    assert [round(each / GIB) for each in grown] == [10, 20, 40]
    assert max(event.request.resources.memory or 0 for event in world.events(Submitting)) >= 2 * grown[-1] - 2


def test_many_tasks_that_fail_at_once_raise_it_once(tmp_path: Path) -> None:
    limits = {"largest": Resources(8, memory=16 * GIB)}
    world = World(
        tmp_path, align.options(cores=8).map(range(8)), fault=needing(3 * GIB), learns=True, limits=limits, cores=8
    )
    assert world.succeed() == list(range(8))
    (grown,) = world.events(StageGrown)  # there is no more for all of them, so that fewer run at a time
    assert (grown.task.memory, grown.resources.memory) == (4 * GIB, 16 * GIB)
    assert len(world.events(TaskFailed)) == 8


def test_with_all_that_there_is_nothing_is_tried_again(tmp_path: Path) -> None:
    limits = {"largest": Resources(8, memory=16 * GIB)}
    world = World(tmp_path, align(1), fault=needing(99 * GIB), learns=True, limits=limits)
    world.fail()
    *_, last = world.events(StageGrown)
    assert last.resources.memory == 16 * GIB and "gives no job more memory than 16 GiB" in last.bounded
    assert [event.cause for event in world.events(TaskFailed)] == ["memory"] * 4  # 2, 4, 8 and 16 GiB


def test_a_task_that_outlives_its_wall_time_gets_what_was_learned_then_twice_as_much(tmp_path: Path) -> None:
    remember(tmp_path, [took(GIB, 100.0)] * 999 + [took(GIB, 1000.0)])
    world = World(tmp_path, align(1), run_time=lambda _task: 3000.0, learns=True)
    assert world.succeed() == 1
    (started,) = world.events(RunStarted)
    assert started.stages[0].walltime_s in (180.0, 1080.0)
    assert [event.walltime_s for event in world.events(StageGrown)][-2:] == [2160.0, 4320.0]


def test_other_faults_use_up_retries_as_before(tmp_path: Path) -> None:
    world = World(tmp_path, align(1), fault=lambda _task, _attempt: "broken", learns=True)
    assert "broken" in world.fail()
    assert len(world.events(TaskFailed)) == 1 and world.events(StageGrown) == []


def test_who_resumes_asks_for_what_was_chosen(tmp_path: Path) -> None:
    """Whatever the history says by then; and it is so at each point at which a driver may die."""
    remember(tmp_path, [took(GIB, 100.0)] * 300)
    chosen = None
    for at in (0, 1, 3, 6):
        directory = tmp_path / str(at)
        directory.mkdir()
        remember(directory, [took(GIB, 100.0)] * 300)
        world = World(directory, align.map(range(3)), learns=True, fault=needing(3 * GIB))
        with pytest.raises(Crash):
            world.drive(crash_at=at)
        remember(directory, [took(50 * GIB, 9000.0)] * 300)
        assert world.drive() is RunState.SUCCEEDED
        (started,) = world.events(RunStarted)
        chosen = chosen or started.stages[0]
        assert started.stages[0] == chosen
        assert all((event.task.memory or 0) < 5 * GIB for event in world.events(StageGrown))


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize("strategy", ["auto", "per-stage", "big-job"])
def test_in_virtual_time(
    tmp_path: Path, strategy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path))
    backend = "sim:nodes=4,cores=8,memory=64G"
    workflow = align.options(cores=4, run_time="5m").map(range(8))
    first = asa.run(workflow, backend=backend, strategy=strategy, state=tmp_path)
    assert first.result() == list(range(8))
    with EventLog(first.directory.events) as log:
        (started,) = log.each(RunStarted)
    assert started.stages[0].task.memory == 8 * GIB
    machine = started.site
    remember(tmp_path, [took(2 * GIB, 300.0, machine=machine)] * 300)
    again = asa.run(workflow, backend=backend, strategy=strategy, state=tmp_path)
    assert again.result() == list(range(8))
    with EventLog(again.directory.events) as log:
        (started,), jobs = log.each(RunStarted), [event.request for event in log.each(Submitting)]
    assert started.stages[0].walltime_s == 660.0
    assert {job.resources.memory for job in jobs} == {8 * GIB + OWN_MEMORY} and {job.walltime_s for job in jobs} == {
        660.0
    }
    assert main(["explain", again.name]) == 0
    assert "memory 8.094 GiB for 4 tasks at a time: largest of 300 tasks 2 GiB" in capsys.readouterr().out


HUNGRY = """
import asa

@asa.stage(memory="auto", walltime="auto")
def table(size):
    import time

    held = bytearray(size)
    time.sleep(0.3)
    return len(held)

def workflow():
    return table.map([200_000_000, 100_000_000, 150_000_000])
"""


@pytest.mark.timeout(300)
def test_on_this_machine_what_a_run_used_is_what_the_next_one_asks_for(tmp_path: Path) -> None:
    """Real processes, measured; then frozen."""
    (tmp_path / "flow.py").write_text(HUNGRY)
    env = os.environ | {"ASA_STATE_DIR": str(tmp_path / "state")}

    def shell(*words: str) -> str:
        argv = [sys.executable, "-m", "asa", *words]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run = "run", "flow.py", "--backend", "local:cores=1,memory=4G", "--quiet"
    shell(*run)
    shell(*run)
    said = shell("explain")
    assert "largest of 3 tasks 2" in said and "wall time 2 min: largest of 3 tasks " in said
    (asked,) = re.findall(r"asks for memory ([\d.]+) MiB", said)
    assert 200_000_000 / MIB + 96 < float(asked) < 500
    shell("history", "freeze", "table", "--memory", "777M", "--walltime", "9m")
    assert "1 core for 9 min" in shell(*run[:-1], "--dry-run")


def test_a_loop_is_another_one_when_its_body_or_its_end_is() -> None:
    def by(step: int) -> asa.Stage[..., Any]:
        code = f"def body(x): return x + {step}"
        names: dict[str, Any] = {"__name__": __name__}
        exec(compile(code, __file__, "exec"), names)
        return asa.stage(names["body"])

    def number(step: int, most: int) -> str:
        looped = loop(by(step), most=most)
        assert isinstance(looped, asa.Stage)
        return meaning(looped)

    assert number(1, 5) == number(1, 5) != ""
    assert len({number(1, 5), number(2, 5), number(1, 6)}) == 3
