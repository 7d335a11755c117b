"""Stages that tasks add while a run goes on: loops, branches, sweeps, nested to any depth; crashes at every event."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import asa
from asa.core.errors import GraphError, InvalidInput
from asa.core.event import ExpectationMissed, ResultsLost, RunState, StagesAdded, TaskDone
from asa.core.job import Capabilities, QueueRegime
from asa.core.stage import StageState
from asa.core.task import Failed, Task
from asa.strategies.ahead import outlook
from asa.strategies.bigjob import BigJob
from asa.workflows.learned import LearnedWaits
from tests.workflows.world import Crash, World, check_clean, launches, picture

EXAMPLES = 1000 if settings.get_current_profile_name() == "long" else 60
STRATEGIES = [
    "big-job",
    "per-stage",
    "asa:dependency=upfront",
    "asa:dependency=none",
    "cascade",
    "hold:technique=aged-afterok",
    "hold:technique=array",
    "hold:technique=parked",
    "stagger:grace_s=30",
    "auto",
]


@asa.stage(walltime=60)
def add(a: int, b: int) -> int:
    return a + b


@asa.stage(walltime=60)
def double(x: int) -> int:
    return 2 * x


@asa.stage(walltime=60)
def numbers(x: int) -> list[int]:
    return list(range(x % 4))


@asa.stage(walltime=60, cores=2)
def total(xs: list[int]) -> int:
    return sum(xs)


@asa.stage(walltime=60, accepts_failed=True)
def shown(xs: list[Any]) -> list[Any]:
    return [type(x).__name__ if isinstance(x, Failed) else x for x in xs]


@asa.stage(expands=True, walltime=60)
def grow(program: Any) -> Any:
    return built(program)


@asa.stage(expands=True, walltime=60)
def count(x: int) -> Any:
    return x if x >= 5 else count(x + 1)


@asa.stage(expands=True, walltime=60)
def fibonacci(n: int) -> Any:
    return n if n < 2 else add(fibonacci(n - 1), fibonacci(n - 2))


# ---------------------------------------------------------------- programs, as Python runs them and as a workflow does


def small(x: int) -> bool:
    return x % 3 == 0


def evaluated(program: Any) -> Any:
    """What a program comes to in plain Python."""
    kind, *parts = program
    match kind:
        case "number":
            return parts[0]
        case "grow":
            return evaluated(parts[0])
        case "add":
            return evaluated(parts[0]) + evaluated(parts[1])
        case "total":
            return sum(evaluated(parts[0]))
        case "loop":
            value = evaluated(parts[0])
            for _ in range(parts[1]):
                value = value + 2 if parts[2] else 2 * value + 2
                if small(value):
                    break
            return value
        case "branch":
            value = evaluated(parts[0])
            return 2 * value if small(value) else evaluated(parts[1])
        case "list":
            return [evaluated(each) for each in parts[0]]
        case "numbers":
            return list(range(evaluated(parts[0]) % 4))
        case "map":
            return [2 * each for each in evaluated(parts[0])]
        case "zip":
            values = evaluated(parts[0])
            return [a + b for a, b in zip(values, [2 * each for each in values], strict=True)]
        case "starmap":
            return [a + b for a, b in [(evaluated(a), evaluated(b)) for a, b in parts[0]]]
        case "sweep":
            return [evaluated(each) for each in parts[0]]
    raise AssertionError(kind)


@asa.stage(walltime=60)
def two_more(x: int) -> int:
    return x + 2


def built(program: Any) -> Any:
    """The same as a workflow: a node, or a list with nodes in it."""
    kind, *parts = program
    match kind:
        case "number":
            return parts[0]
        case "grow":
            return grow(parts[0])
        case "add":
            return add(built(parts[0]), built(parts[1]))
        case "total":
            return total(built(parts[0]))
        case "loop":
            body = two_more if parts[2] else asa.sequence(double, two_more)
            return asa.loop(body, until=small, most=parts[1])(built(parts[0]))
        case "branch":
            other = parts[1]
            return asa.branch(small, double, lambda _x: built(other))(built(parts[0]))
        case "list":
            return [built(each) for each in parts[0]]
        case "numbers":
            return numbers(built(parts[0]))
        case "map":
            return double.map(built(parts[0]))
        case "zip":
            values = built(parts[0])
            return add.map(values, double.map(values))
        case "starmap":
            return add.starmap([(built(a), built(b)) for a, b in parts[0]])
        case "sweep":
            return grow.map(parts[0])
    raise AssertionError(kind)


NUMBER = st.tuples(st.just("number"), st.integers(0, 9))


def lists(inner: Any) -> Any:
    some = st.lists(inner, max_size=3)
    base = (
        st.tuples(st.just("list"), some)
        | st.tuples(st.just("numbers"), inner)
        | st.tuples(st.just("sweep"), some)
        | st.tuples(st.just("starmap"), st.lists(st.tuples(inner, inner), max_size=2))
    )
    return st.recursive(base, lambda deeper: st.tuples(st.sampled_from(["map", "zip", "grow"]), deeper), max_leaves=2)


PROGRAMS = st.recursive(
    NUMBER,
    lambda inner: (
        st.tuples(st.just("grow"), inner)
        | st.tuples(st.just("add"), inner, inner)
        | st.tuples(st.just("loop"), inner, st.integers(1, 4), st.booleans())
        | st.tuples(st.just("branch"), inner, inner)
        | st.tuples(st.just("total"), lists(inner))
    ),
    max_leaves=8,
)


@given(
    program=lists(PROGRAMS),
    strategy=st.sampled_from(STRATEGIES),
    shared=st.booleans(),
    crashes=st.lists(st.integers(1, 30), max_size=2),
)
@example(
    program=("map", ("map", ("numbers", ("loop", ("add", ("number", 2), ("number", 4)), 3, False)))),
    strategy="hold:technique=parked",  # a job of two stages, one of which may begin, was parked and released for ever
    shared=True,
    crashes=[24],
)
@example(
    program=("map", ("sweep", [("number", 0), ("number", 0), ("loop", ("grow", ("number", 0)), 2, False)])),
    strategy="auto",  # between two stages of a group whose job was lost, a ready one waited for that job for ever
    shared=True,
    crashes=[1],
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_random_program_comes_to_what_it_does_in_plain_python(
    program: Any, strategy: str, shared: bool, crashes: list[int]
) -> None:
    workflow = grow(program), grow(("total", program)), shown(grow(program))
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place), workflow, strategy, shared=shared)
        for at in crashes:
            try:
                world.drive(at)
            except Crash:
                continue
            break
        else:
            world.drive()
        assert world.events(TaskDone), "something ran"
        value = evaluated(program)
        assert world.result() == (value, sum(value), value), world.message
        check_clean(world)
        again = world.replay()
        assert again.outcome is RunState.SUCCEEDED and not again.illegal


# ---------------------------------------------------------------- one by one


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_asks_for_what_is_added(tmp_path: Path, strategy: str) -> None:
    rounds = count(0)
    world = World(tmp_path, [rounds, double(rounds), fibonacci(6)], strategy, wait=5.0, predicted_wait_s=5.0)
    assert world.succeed() == [5, 10, 8]
    names = [*world.replay().stages]
    assert {"count.count", "count.count-5"} <= {*names} and "count.count-6" not in names


def test_whatever_follows_waits_for_what_is_added(tmp_path: Path) -> None:
    values = grow(("list", [("number", 1), ("add", ("number", 2), ("number", 3))]))
    world = World(tmp_path, total(double.map(values)))
    assert world.succeed() == 12
    plan = world.replay()
    assert plan.stages["double"].spec.predecessors == ("grow.add",)
    order = [stage.spec.name for stage in plan.view(0.0).stages]
    assert order == ["grow", "grow.add", "double", "total"], "each after those that it waits for"


def test_tasks_of_a_parallel_stage_add_each_their_own(tmp_path: Path) -> None:
    programs = [("number", 7), ("add", ("number", 1), ("number", 1)), ("map", ("list", [("number", 4)]))]
    values = grow.map(programs)
    world = World(tmp_path, [values, shown.map(asa_pairs(values))])
    assert world.succeed()[0] == [7, 2, [8]]
    assert {"grow[1].add", "grow[2].double"} <= {*world.replay().stages}


def asa_pairs(values: Any) -> Any:
    return [[values], [1]]


@pytest.mark.parametrize("strategy", ["big-job", "auto", "hold:technique=array"])
def test_a_crash_around_every_event_changes_nothing_and_asks_nobody_again(tmp_path: Path, strategy: str) -> None:
    def world(name: str) -> World:
        (tmp_path / name).mkdir()
        programs = [("number", 1), ("add", ("number", 2), ("number", 3))]
        workflow = [total(double.map(grow.map(programs))), double(count(3))]
        return World(tmp_path / name, workflow, strategy)

    whole = world("whole")
    expected = whole.succeed()
    added = {(event.stage, event.index): event.specs for event in whole.events(StagesAdded)}
    for at in range(whole.logged):
        for after in (False, True):
            crashed = world(f"{at}-{after}")
            with pytest.raises(Crash):
                crashed.drive(at, after=after)
            before = picture(crashed.replay())
            assert before == picture(crashed.replay()), "a log is folded in one way"
            done = {(event.stage, event.index) for event in crashed.events(TaskDone)}
            ran = launches(crashed)
            assert crashed.succeed() == expected, f"a crash at event {at}"
            assert all(launches(crashed)[task] == ran[task] for task in done), f"asked again after a crash at {at}"
            names = {(event.stage, event.index): len(event.specs) for event in crashed.events(StagesAdded)}
            assert names == {task: len(specs) for task, specs in added.items()}


# ---------------------------------------------------------------- what cannot be


@asa.stage(expands=True, walltime=60)
def wide() -> Any:
    return double.options(cores=1000)(1)


@asa.stage(expands=True, walltime=60)
def twice() -> Any:
    write = asa.command("touch {out}", outputs={"out": "same.txt"}, walltime=60)
    return [write(), write()]


@asa.stage(expands=True, walltime=60)
def circle() -> Any:
    first, second = double(1), double(2)
    return [first.after(second), second.after(first)]


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (wide, "stage 'wide.double' asks for 1000 cores"),
        (twice, "would both write same.txt"),
        (circle, "has a cycle"),
    ],
)
def test_what_cannot_be_part_of_the_run_fails_the_task_that_returned_it(tmp_path: Path, stage: Any, words: str) -> None:
    message = World(tmp_path, double(stage())).fail()
    assert f"stage '{stage.name}' failed: task 0" in message and words in message
    assert "skipped because of it: double" in message


def test_others_go_on_where_what_one_returned_is_refused(tmp_path: Path) -> None:
    @asa.stage(expands=True, walltime=60)
    def some(x: int) -> Any:
        return double.options(cores=1000 if x == 1 else 1)(x)

    world = World(tmp_path, shown(some.map(range(3))), keep_going=True)
    assert world.drive() is RunState.PARTIAL
    assert world.result() == [0, "Failed", 4]
    assert world.drive() is RunState.PARTIAL, "a new driver has it tried again"
    assert world.result() == [0, "Failed", 4]
    assert launches(world)["some", 1] == 2 and launches(world)["some", 0] == 1


def test_one_of_those_added_fails_and_what_needs_it_is_skipped(tmp_path: Path) -> None:
    programs = [("add", ("number", number), ("number", 1)) for number in range(3)]
    values = grow.map(programs)

    def fault(task: Task, attempt: int) -> str | None:
        return "no" if (task.stage, attempt) == ("grow[1].add", 1) else None

    world = World(tmp_path, [double.map(values), shown(values), total(values)], keep_going=True, fault=fault)
    assert world.drive() is RunState.PARTIAL
    plan = world.replay()
    assert [plan.stages["double"].is_done(index) for index in range(3)] == [True, False, True]
    assert plan.stages["total"].state is StageState.SKIPPED
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == [[2, 4, 6], [1, 2, 3], 6]


def test_a_plain_stage_that_returns_a_call_says_what_to_do(tmp_path: Path) -> None:
    @asa.stage(walltime=60)
    def plain() -> Any:
        return [double(1)]

    assert "say @asa.stage(expands=True)" in World(tmp_path, plain()).fail()


# ---------------------------------------------------------------- what is lost


def test_a_lost_structure_is_asked_for_again_and_what_it_added_goes(tmp_path: Path) -> None:
    values = grow(("list", [("number", 1), ("grow", ("add", ("number", 2), ("number", 3)))]))
    world = World(tmp_path, total(double.map(values)))
    with pytest.raises(Crash):
        world.drive(next_event(World, values))
    lost = ResultsLost(world.clock.now(), (("grow", 0),), "damaged")
    world.log.append([lost])
    plan = world.replay()
    assert plan.stages["grow.grow"].state is StageState.SKIPPED and plan.stages["grow.grow"].orphaned
    assert plan.stages["double"].spec.predecessors == ("grow",) and plan.stages["double"].before == 1
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == 12
    assert launches(world)["grow", 0] == 2 and not world.replay().illegal


def test_what_one_that_is_gone_had_added_goes_with_it(tmp_path: Path) -> None:
    values = grow(("list", [("number", 1), ("grow", ("grow", ("add", ("number", 2), ("number", 3))))]))
    world = World(tmp_path, total(double.map(values)))
    with pytest.raises(Crash):
        world.drive(next_event(World, values, 2))
    assert {"grow.grow", "grow.grow-2"} <= world.replay().stages.keys()
    for tasks in ((("grow", 0), ("grow.grow", 0)), (("grow.grow", 0), ("grow", 0))):
        plan = world.replay()
        plan.on(ResultsLost(world.clock.now(), tasks, "damaged"))
        assert all(stage.orphaned for name, stage in plan.stages.items() if name.startswith("grow."))
        assert plan.stages["double"].spec.predecessors == ("grow",) and plan.stages["double"].before == 1
    world.log.append([ResultsLost(world.clock.now(), (("grow", 0), ("grow.grow", 0)), "damaged")])
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == 12


def next_event(kind: type[World], values: Any, number: int = 1) -> int:
    """After how many events what a list adds is running."""
    with tempfile.TemporaryDirectory() as place:
        world = kind(Path(place), total(double.map(values)))
        world.succeed()
        events = world.events(object)  # type: ignore[arg-type]
        adding = [place for place, event in enumerate(events) if isinstance(event, StagesAdded) and event.specs]
        return adding[number - 1] + 3


@asa.stage(expands=True, accepts_failed=True, walltime=60)
def mended(xs: list[Any]) -> Any:
    return double(sum(not isinstance(x, Failed) for x in xs))


def test_what_was_added_because_of_a_failure_goes_when_that_is_tried_again(tmp_path: Path) -> None:
    def fault(task: Task, attempt: int) -> str | None:
        return "no" if (task.stage, task.index, attempt) == ("two_more", 1, 1) else None

    world = World(tmp_path, add(mended(two_more.map(range(3))), 1), keep_going=True, fault=fault)
    assert world.drive() is RunState.PARTIAL
    assert world.result() == 5
    assert world.drive() is RunState.SUCCEEDED
    assert world.result() == 7
    plan = world.replay()
    assert plan.stages["mended.double"].orphaned and plan.stages["mended.double-2"].state is StageState.DONE


# ---------------------------------------------------------------- loops, branches, groups


def test_a_loop_ends_where_it_is_told_to(tmp_path: Path) -> None:
    @asa.stage(walltime=60)
    def noted(found: list[int], round: int, step: int) -> list[int]:
        return [*found, step * round]

    loop = asa.loop(noted, until=lambda found: len(found) == 3, most=10)
    assert World(tmp_path, loop([], step=2)).succeed() == [2, 4, 6]


def test_a_loop_of_a_template_has_all_its_stages_in_each_round(tmp_path: Path) -> None:
    world = World(tmp_path, asa.loop(asa.sequence(double, two_more), most=3)(1))
    assert world.succeed() == 22
    assert sum(name.partition(".")[2].startswith("double") for name in world.replay().stages) == 2


def test_a_branch_without_another_way_passes_its_argument_on(tmp_path: Path) -> None:
    ways = asa.branch(lambda x: x > 2, double)
    assert World(tmp_path, [ways(1), ways(3), double(ways(3))]).succeed() == [1, 6, 12]


def test_results_are_collected_by_key(tmp_path: Path) -> None:
    @asa.stage(walltime=60)
    def keyed(x: int) -> tuple[bool, int]:
        return x % 2 == 0, x

    @asa.stage(walltime=60)
    def named(key: bool, values: list[int]) -> str:
        return f"{key} {values}"

    groups = named.starmap(asa.collect([keyed.map(range(4)), [keyed(7)]]))
    assert World(tmp_path, groups).succeed() == ["True [0, 2]", "False [1, 3, 7]"]


def test_each_round_of_a_program_writes_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "start").write_text("1")
    copy = asa.command("cp {x} {out}", outputs={"out": "{x.parent}/round-{round}.txt"}, walltime=60)
    world = World(tmp_path, asa.loop(copy, most=3)(tmp_path / "start"))
    assert world.succeed() == tmp_path / "round-3.txt"
    assert sorted(path.name for path in tmp_path.glob("round-*")) == [f"round-{number}.txt" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: asa.loop(double), "has no end"),
        (lambda: asa.loop(double, most=0), "most must be"),
        (lambda: asa.loop(double, until=3), "until must be a function"),  # type: ignore[arg-type]
        (lambda: asa.branch(3, double), "branch() is made of"),  # type: ignore[arg-type]
        (lambda: double.starmap([3]), "takes lists or tuples"),
        (lambda: add.starmap([(1, 2), (3,)]), "different lengths"),
        (lambda: asa.stage(expands=1)(abs), "expands must be"),  # type: ignore[call-overload]
        (lambda: asa.stage(expect=-1)(abs), "expect must be"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(").replace(")", r"\)")):
        make()
    assert issubclass(GraphError, InvalidInput)


# ---------------------------------------------------------------- what is expected


def test_what_is_expected_is_planned_with_and_what_came_instead_is_logged(tmp_path: Path) -> None:
    rounds = asa.loop(two_more, until=lambda x: x >= 6, most=50, expect=20)(0)
    many = double.options(expect=3).map(numbers(2))
    world = World(tmp_path, [total([rounds]), many])
    assert world.succeed() == [6, [0, 2]]
    plan = world.replay()
    assert [plan.stages[name].spec.expect for name in ("two_more", "two_more.two_more")] == [19, 18]
    missed = [(event.stage, event.expected, event.came) for event in world.events(ExpectationMissed)]
    assert missed == [("double", 3, 2), ("two_more", 19, 2)]
    assert dict(plan.came()) == {"double": 2, "two_more": 2}


@pytest.mark.parametrize(("came", "logged"), [(2, False), (3, True)])
def test_nothing_is_logged_where_it_came_as_expected(tmp_path: Path, came: int, logged: bool) -> None:
    world = World(tmp_path, asa.loop(two_more, most=came + 1, expect=3)(0))
    world.succeed()
    assert bool(world.events(ExpectationMissed)) is logged


def test_a_stage_after_a_loop_is_expected_after_all_its_rounds(tmp_path: Path) -> None:
    world = World(tmp_path, total([asa.loop(two_more, most=10, expect=10)(0)]))
    dead_at(world, 1)
    view = world.replay().view(world.clock.now())
    found = outlook(view)
    assert found["total"].ready - found["two_more"].ready == 10 * 60
    (ask,) = BigJob().decide(view)
    assert ask.walltime_s == 11 * 60


def dead_at(world: World, event: int) -> None:
    with pytest.raises(Crash):
        world.drive(event, after=False)


def test_what_came_is_learned(tmp_path: Path) -> None:
    site = Capabilities("site", "", QueueRegime.FIFO)
    world = World(tmp_path, [asa.loop(two_more, most=4, expect=9)(0), double.options(expect=7).map(numbers(2))])
    world.succeed()
    plan = world.replay()
    learned = LearnedWaits(tmp_path / "learned.db", "last", site)
    learned.learn_run_times(plan, "flow")
    again = LearnedWaits(tmp_path / "learned.db", "last", site)
    specs = map(again.expect("flow"), (stage.spec for stage in plan.stages.values()))
    assert {spec.name: spec.expect for spec in specs if spec.expect is not None and "." not in spec.name} == {
        "two_more": 3,
        "double": 2,
    }
    assert again.run_time("flow")("two_more.two_more-7", 60.0) < 60.0, "rounds are alike"
    for each in (learned, again):
        each.close()


# ---------------------------------------------------------------- runs


@asa.stage(expands=True)
def survey(n: int) -> Any:
    return [square.map(range(n)), asa.loop(square, until=lambda x: x > 10, most=9)(n)]


@asa.stage
def square(x: int) -> int:
    return x * x


@asa.stage
def text(x: Any) -> str:
    return str(x)


def test_a_run_has_its_value_later_too_and_is_shown_with_what_was_added(tmp_path: Path) -> None:
    done = asa.run({"all": survey(3), "text": text(survey(2))}, state=tmp_path)
    expected = {"all": [[0, 1, 4], 81], "text": "[[0, 1], 16]"}
    assert done.result() == expected
    done.wait()
    opened = asa.open_run(done.name, state=tmp_path)
    assert opened.result() == expected == opened.results()
    assert asa.resume(done.name, state=tmp_path).result() == expected
    assert opened.results("survey.square") == [0, 1, 4]
    stages = [stage.name for stage in opened.summary.stages]
    assert "survey.square" in stages and stages.index("text") > stages.index("survey-2.square")
    assert "survey.square" in opened.report(tmp_path / "report.html").read_text()
    opened.explain()


def test_one_graph_is_run_twice(tmp_path: Path) -> None:
    graph = asa.make_graph(text(survey(2)))
    results = [asa.run(graph, state=tmp_path).result() for _ in range(2)]
    assert results == ["[[0, 1], 16]"] * 2 and [*graph.nodes] == ["survey", "text"]


def test_what_was_added_is_reused_and_so_is_what_follows(tmp_path: Path) -> None:
    first = asa.run(text(survey(3)), state=tmp_path)
    first.wait()
    second = asa.run(text(survey(3)), state=tmp_path, reuse=True)
    assert second.result() == first.result() == "[[0, 1, 4], 81]"
    assert not [event for _, event in second.events() if isinstance(event, TaskDone)], "nothing ran"
    assert [event for _, event in second.events() if isinstance(event, StagesAdded) and event.specs]


def test_thousands_of_rounds_end_in_no_recursion(tmp_path: Path) -> None:
    """In virtual time, where they take a moment each; so deep in Python would a call of itself not go."""
    world = World(tmp_path, total([asa.loop(two_more, most=2000)(0)]), "big-job", decisions=10**6)
    assert world.succeed() == 4000
    assert len(pickle.dumps(world.graph.predecessors["total"])) < 1000, "and what follows waits for the last one alone"
