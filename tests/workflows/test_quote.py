"""Quotes: the plan in drawn futures, what is known of times and waits, words and rows, and what becomes of a quote."""

from __future__ import annotations

import io
import json
import math
import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asa
from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.core.event import Quoted, RunState
from asa.core.history import Usage
from asa.core.job import Capabilities, QueueRegime, Resources
from asa.core.queues import QueueTerms
from asa.core.run import FoldedRun
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.dashboard.rows import run_row
from asa.lab.backend.queues import SimulatedQueues
from asa.lab.backend.simulated import Simulated
from asa.lab.virtual import run_virtual
from asa.log.database import LearnedStore
from asa.log.history import HISTORY, UsageHistory
from asa.metrics.workflow import summarise
from asa.report.progress import ProgressDisplay
from asa.report.words import expected, quote_words
from asa.workflows import run as running
from asa.workflows.assemble import first_event, make_plan
from asa.workflows.drawn import DrawnRun, Endless
from asa.workflows.graph import Graph, make_graph
from asa.workflows.learned import PLANNED_MOST
from asa.workflows.quote import (
    USED_LEAST,
    DrawnWaits,
    Quote,
    Quoter,
    StageTime,
    coarser,
    corrected,
    from_history,
    part_used,
    past_of,
    quote_ways,
    scaled,
    stage_times,
)
from asa.workflows.settings import Settings
from asa.workflows.stage import Node, Stage, make_needs
from asa.workflows.virtual_work import Times

CORES = 28
SITE = Capabilities("there", regime=QueueRegime.FIFO, largest=Resources(1000), cores_per_node=CORES, arrays=True)
STRATEGIES = ["per-stage", "big-job", "auto", "hold", "asa:dependency=predicted", "cascade"]


def unseen(_options: Any) -> None:
    """A queue that does not show itself."""


class Book:
    """Waits between 0 and so long [s], all quantiles alike for each job."""

    def __init__(self, longest_s: float) -> None:
        self.longest_s, self.asked = longest_s, 0

    def predict(self, *_of: Any, quantiles: Sequence[float | None] = ()) -> list[float]:
        self.asked += 1
        return [self.longest_s * (0.5 if level is None else level) for level in quantiles or _of[-1]]

    def learn(self, *_given: Any) -> None:
        raise AssertionError("a quote teaches nothing")


class NoWaits(Book):
    """An empty queue, which stays so whatever is learned of it."""

    def __init__(self) -> None:
        super().__init__(0.0)

    def learn(self, *_given: Any) -> None:
        pass

    def known(self, *_of: Any) -> int:
        return 0

    def survival(self, *_of: Any) -> tuple[int, float]:
        return 0, 0.0


def of(
    name: str, width: int, cores: int, run_time_s: float, walltime_s: float = 36000.0, **more: Any
) -> Stage[..., Any]:
    return Stage(abs, make_needs(name, cores=cores, walltime=walltime_s, run_time=run_time_s, **more), name)


def quoter(
    workflow: Any, *, longest_s: float = 0.0, virtual: bool = True, site: Capabilities = SITE, **more: Any
) -> Quoter:
    graph = make_graph(workflow)
    specs, waits = graph.specs(site), DrawnWaits(Book(longest_s), 0.0, unseen)
    times = stage_times(graph, specs, Times.of(graph), virtual=virtual)
    return Quoter(graph, Settings(graph.result, "run", "sim"), site, specs, waits, times, now=0.0, **more)


def span(quote: Quote) -> tuple[float, float, float]:
    return quote.low, quote.done, quote.high


# -- the plan in a drawn future ------------------------------------------------------------------------------------


@st.composite
def workflows(draw: st.DrawFn) -> tuple[list[Node], dict[str, float]]:
    nodes, times = [], dict[str, float]()
    for number in range(draw(st.integers(1, 5))):
        name, width = f"s{number}", draw(st.integers(1, 6))
        times[name] = float(draw(st.integers(1, 3000)))
        stage = of(name, width, draw(st.integers(1, CORES)), times[name])
        before = draw(st.lists(st.sampled_from(nodes), unique=True, max_size=3)) if nodes else []
        nodes.append(stage.map(range(width)).after(*before))
    return nodes, times


@given(workflows(), st.sampled_from(STRATEGIES), st.sampled_from(["fifo", "limits", "multifactor"]))
@settings(max_examples=40, deadline=None)
def test_a_future_without_waits_is_the_run_on_an_empty_machine(
    made: tuple[list[Node], dict[str, float]], strategy: str, regime: str
) -> None:
    nodes, times = made
    queue = Simulated(nodes=40, cores=CORES, regime=regime, warmup=0)
    site, graph = queue.capabilities(), make_graph(nodes)
    real = summarise(run_virtual(graph, queue, strategy, waits=NoWaits()))
    chosen = Settings(graph.result, "run", "sim", strategy)
    plan = make_plan(chosen, site)
    start = first_event(
        chosen, site, graph.specs(site), run="run", strategy=strategy, executor="virtual", shared=plan.shared, at=0.0
    )
    found = DrawnRun(
        plan, start, lambda *_: 0.0, lambda stage, _: times[stage.name], lambda *given: [0.0] * len(given[-1])
    ).run()
    assert found.state is RunState.SUCCEEDED and not plan.illegal
    assert found.at == pytest.approx(real.makespan_s, abs=1e-6)
    assert found.core_hours == pytest.approx(real.core_hours_charged, abs=1e-9)


@pytest.mark.parametrize("strategy", ["auto", "per-stage", "big-job", "hold"])
@pytest.mark.parametrize(("tasks", "takes"), [(1, "2h"), (30, "20m"), (3000, "12s")])
def test_of_several_widths_one_is_chosen_as_the_run_does(strategy: str, tasks: int, takes: str, tmp_path: Path) -> None:
    def work(_: Any) -> None:
        """Nothing."""

    wide = asa.stage(cores=(4, 32), walltime="3h", run_time=takes, name="wide", **({} if tasks == 1 else SINGLE))(work)
    last = asa.stage(cores=4, walltime="1h", run_time="40m", name="last")(work)
    graph = make_graph(last(wide(1) if tasks == 1 else wide.map(range(tasks))))
    on = "sim:nodes=4,cores=32,regime=limits"
    real = summarise(run_virtual(graph, Simulated(nodes=4, cores=32, regime="limits", warmup=0), strategy))
    (quoted,) = quote_ways(graph, Settings(graph.result, "run", on, strategy), tmp_path, others=False)
    close = 1e-6 if tasks < 1000 else 0.15  # many tasks are taken as fewer
    assert quoted.done - quoted.at == pytest.approx(real.makespan_s, rel=close)
    assert quoted.core_hours == pytest.approx(real.core_hours_charged, rel=close)


def test_times_on_another_width_count_as_those_on_the_narrowest(tmp_path: Path) -> None:
    site = Capabilities("there", regime=QueueRegime.FIFO, largest=Resources(64))
    graph = make_graph(asa.stage(cores=(4, 32), walltime="2h", speedup={4: 800, 32: 100}, name="wide")(abs)(1))
    (spec,) = graph.specs(site)
    with UsageHistory(tmp_path / HISTORY) as history:
        row = Usage(spec.name, spec.code, "there", 1, 32, 32, 50.0, 50.0, None, None, None, "ok", 1.0, "rusage")
        history.add([row, replace(row, cores=4, run_time_s=420.0, ended=2.0)])
    assert past_of(tmp_path, "flow", site, (spec,))["wide"].tasks == pytest.approx([400.0, 420.0])


SINGLE: dict[str, Any] = {"task_cores": 1}


def ended(workflow: Any, strategy: str, wait_s: float, regime: QueueRegime = QueueRegime.FIFO) -> float:
    """When a run ends in a future in which every job waits so long."""
    graph, site = make_graph(workflow), Capabilities("there", regime=regime, arrays=True, largest=Resources(1000))
    chosen = Settings(graph.result, "run", "sim", strategy)
    plan, times = make_plan(chosen, site), Times.of(graph)
    start = first_event(chosen, site, graph.specs(site), run="r", strategy=strategy, executor="", shared=True, at=0.0)
    return (
        DrawnRun(
            plan,
            start,
            lambda *_: wait_s,
            lambda stage, _: times.declared[stage.name],  # type: ignore[return-value]
            lambda *given: [wait_s] * len(given[-1]),
        )
        .run()
        .at
    )


def chain(*times: float) -> Node:
    nodes: list[Node] = []
    for number, seconds in enumerate(times):
        nodes.append(of(f"s{number}", 1, 4, seconds)(0).after(*nodes[-1:]))
    return nodes[-1]


def test_waits_add_up_where_jobs_are_asked_for_one_by_one_and_overlap_where_places_are_held() -> None:
    work = chain(100.0, 200.0, 300.0)
    assert ended(work, "per-stage", 1000.0) == 3600.0
    assert ended(work, "big-job", 1000.0) == 1600.0
    for regime in (QueueRegime.FIFO, QueueRegime.LIMITS, QueueRegime.MULTIFACTOR):
        assert ended(work, "hold", 1000.0, regime) == pytest.approx(1600.0, abs=10.0)


def test_a_stage_that_adds_others_does_so_as_often_as_is_expected() -> None:
    def quoted(**more: Any) -> Quote:
        return quoter(of("loop", 1, 4, 100.0, expands=True, **more)(0), longest_s=0.0).quote("per-stage")

    assert quoted(expect=3).done == pytest.approx(4 * quoted().done)
    assert any("what it adds is not known" in note for note in quoted().notes)
    assert not quoted(expect=3).notes[1:]


def test_tasks_that_do_not_fit_into_one_wall_time_go_on_in_the_next_allocation() -> None:
    work = of("w", 1, 4, 100.0, walltime_s=250.0).map(range(12))  # four at a time, two rounds in an allocation
    assert ended(work, "per-stage", 50.0) == pytest.approx(2 * 50 + 300.0, abs=10.0)


def test_a_future_that_never_ends_is_given_up() -> None:
    graph = make_graph(chain(100.0))
    chosen = Settings(graph.result, "run", "sim", "per-stage")
    plan = make_plan(chosen, SITE)
    start = first_event(chosen, SITE, graph.specs(SITE), run="r", strategy="", executor="", shared=True, at=0.0)
    with pytest.raises(Endless):
        DrawnRun(plan, start, lambda *_: math.inf, lambda *_: 1.0, lambda *_: [0.0]).run()


# -- a quote -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_median_and_interval_are_those_of_the_waits(strategy: str) -> None:
    found = quoter(chain(60.0), longest_s=10_000.0).quote(strategy)
    low, done, high = span(found)
    assert (low, done, high) == pytest.approx((1060.0, 5060.0, 9060.0), rel=0.25)
    assert found.core_hours == pytest.approx(4 * 60 / 3600) and found.draws == 120 and not found.failed
    assert span(quoter(chain(60.0), longest_s=10_000.0).quote(strategy)) == (
        low,
        done,
        high,
    )  # nothing is left to chance


def test_errors_of_one_future_belong_together() -> None:
    one, four = (quoter(chain(*times), longest_s=10_000.0).quote("per-stage") for times in ([1.0], [1.0] * 4))
    wide = [(found.high - found.low) / found.done for found in (one, four)]
    assert wide[0] / 2 < wide[1] < wide[0]  # independent ones would make it half as wide


def test_more_cores_help_as_far_as_there_are_tasks_and_cores() -> None:
    work = of("w", 1, 8, 600.0, task_cores=1).map(range(16))
    made = quoter(work)
    now, wide, narrow = (made.quote("per-stage", scale=scale) for scale in (1.0, 2.0, 0.5))
    assert (now.done, wide.done, narrow.done) == (1200.0, 600.0, 2400.0)
    assert made.quote("per-stage", scale=50.0).done == 600.0
    with pytest.raises(InvalidInput, match="no stage has more tasks"):
        quoter(chain(5.0)).quote("per-stage", scale=2.0)
    (spec,) = make_graph(work).specs(SITE)
    assert scaled(spec, 4.0, Capabilities("small", largest=Resources(12))).resources.cores == 12


def test_a_width_that_only_the_run_tells_is_said_to_be_guessed() -> None:
    @asa.stage(run_time=1.0)
    def numbers(count: int) -> list[int]:
        return list(range(count))

    def quoted(**more: Any) -> Quote:
        return quoter(of("w", 1, 8, 600.0, task_cores=1, **more).map(numbers(16))).quote("per-stage")

    assert quoted().done == 601.0
    assert any("how many tasks it has is not known" in note and "(w)" in note for note in quoted().notes)
    assert quoted(expect=32).done == 2401.0
    assert not any("how many" in note for note in quoted(expect=32).notes)


def test_what_is_only_declared_or_unknown_is_said_and_makes_it_wide() -> None:
    @asa.stage(cores=4, walltime="1h")
    def unknown(x: int) -> int:
        return x

    declared = quoter(chain(600.0), virtual=False).quote("per-stage")
    assert declared.low < 0.9 * declared.done < 1.1 * declared.done < declared.high
    assert declared.notes == ("no history: declared times are used (s0)",)
    found = quoter(unknown(1)).quote("per-stage")
    assert 360.0 < found.low < found.done < found.high < 3600.0
    assert found.notes[0].endswith("tasks are assumed to take 10 to 100 % of their wall time (unknown)")
    earlier = "no history, and no run time is declared: 10 to 100 % of the wall time is used (unknown)"
    for notes in (found.notes, (earlier,)):
        assert "at most, as only wall times are known" in expected(replace(found.event(), notes=notes))


def test_a_history_narrows_it_the_more_runs_there_are() -> None:
    spreads = [from_history([600.0, 620.0, 610.0, 590.0] * many).spread for many in (1, 2)]
    assert from_history([600.0]).spread > spreads[0] > spreads[1] > 0.01
    assert from_history([600.0], [100.0, 300.0, 200.0]).source == "history"
    took = from_history([600.0], [100.0, 300.0, 200.0])
    assert sorted(took.seconds(index) for index in range(3)) == pytest.approx([300.0, 600.0, 900.0])
    for bad in ([], [math.nan], [math.inf], [-1.0]):
        with pytest.raises(InvalidInput, match="finite"):
            from_history(bad)


def test_where_nothing_was_learned_the_queue_tells_and_where_that_is_hidden_it_is_said() -> None:
    jobs = tuple(QueuedJob(str(n), Resources(1000), 3600.0, 0.0) for n in range(5))
    queue = QueueView(0.0, Resources(1000), jobs, (RunningJob("r", Resources(1000), 600.0),))

    def drawn(seen: QueueView | None) -> DrawnWaits:
        return DrawnWaits(Book(5.0), 0.0, lambda _: seen, lessons=lambda *_: 0)

    seen, hidden = drawn(queue), drawn(None)
    assert 0.1 * 18_600 < seen.drawn(Resources(8), 60.0, 0.0, 0.0) < 18_600
    assert hidden.drawn(Resources(8), 60.0, 0.0, 3.0) == 0.0
    assert seen.untaught and hidden.untaught and hidden.blind
    assert not drawn(queue).untaught


@given(st.floats(0.01, 1.0), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_how_much_of_their_wall_times_jobs_use_is_seen_of_those_that_run(share: float, seed: int) -> None:
    """Two in three use that part, the others a tenth of it; as many are seen at each moment as run then."""
    chance, jobs = random.Random(seed), []
    for key in range(2000):
        long = chance.random() < 2 / (2 + 0.1)  # what runs for longer is seen more often
        used = chance.random() * share * (1.0 if long else 0.1)
        jobs.append(RunningJob(key, Resources(1), 5000.0 + 3600.0 * (1.0 - used), 3600.0))
    queue = QueueView(5000.0, Resources(2000), (), tuple(jobs))
    assert part_used(queue) == pytest.approx(max(USED_LEAST, 0.7 * share), rel=0.4)
    hidden = replace(queue, running=tuple(replace(job, walltime_s=None) for job in jobs))
    assert 0.4 < part_used(hidden) < 0.6, "as in logs"


def test_a_queue_whose_jobs_end_long_before_their_wall_times_is_not_quoted_by_these() -> None:
    day = 86_400.0
    running = tuple(RunningJob(n, Resources(1), day * (1.0 - n / 2000), day) for n in range(100))  # up to 5 %
    queue = QueueView(0.0, Resources(100), (), running)
    waits = DrawnWaits(Book(5.0), 0.0, lambda _: queue, lessons=lambda *_: 0)
    assert 600.0 < waits.drawn(Resources(8), 60.0, 0.0, 0.0) < day / 5


def test_a_queue_that_is_too_long_to_plan_is_no_empty_one() -> None:
    jobs = tuple(QueuedJob(str(n), Resources(500), 3600.0, 0.0) for n in range(PLANNED_MOST + 1))
    queue = QueueView(0.0, Resources(1000), jobs, ())
    waits = DrawnWaits(Book(5.0), 0.0, lambda _: queue, lessons=lambda *_: 0)
    assert 0.1 * 1800 * PLANNED_MOST < waits.drawn(Resources(8), 60.0, 0.0, 0.0) <= 1800 * (PLANNED_MOST + 1)
    assert waits.long and not waits.blind


def test_the_queue_of_a_quote_is_the_one_that_the_run_would_choose(tmp_path: Path) -> None:
    """A busy one for nothing is worth its wait to those whose time is worth nothing."""

    def quoted(patience: float, **terms: Any) -> float:
        sites = {"core": Simulated(nodes=4, cores=8), "low": Simulated(nodes=4, cores=8, load=1.5, seed=2, days=2)}
        site = SimulatedQueues(sites)
        graph = make_graph(of("a", 1, 24, 600.0, 3600.0, partition="core|low")(0))
        settings = Settings(graph.result, "run", site, f"auto:patience={patience}", terms=QueueTerms(**terms))
        (quote,) = quote_ways(graph, settings, tmp_path / "state", others=False)
        return quote.done - quote.at

    free = {"price": {"core": 1.0, "low": 0.0}}
    assert quoted(1000.0, **free, twice=False) == pytest.approx(600.0)
    assert quoted(0.01, **free, twice=False) > 1200.0
    assert quoted(0.01, **free) == pytest.approx(600.0), "the other is asked, too, and starts first"
    with pytest.raises(InvalidInput, match="price names 'lwo'"):
        quoted(1.0, price={"lwo": 1.0})


def test_where_waits_are_not_known_at_all_it_is_done_then_at_the_earliest() -> None:
    graph = make_graph(of("a", 1, 8, 600.0)(0))
    specs, waits = graph.specs(SITE), DrawnWaits(Book(5.0), 0.0, unseen, lessons=lambda *_: 0)
    times = stage_times(graph, specs, Times.of(graph), virtual=True)
    quote = Quoter(graph, Settings(graph.result, "run", "sim"), SITE, specs, waits, times, now=0.0).quote("auto")
    assert quote.event().least and "at the earliest" in expected(quote.event())
    said = quote_words(quote.event(), RunState.SUCCEEDED, 7200.0, 7200.0)
    assert "was done after 2 h" in said and "interval" not in said


@pytest.mark.parametrize(("lessons", "planned"), [(1, True), (9, True), (10, False)])
def test_the_queue_tells_until_enough_was_learned(lessons: int, planned: bool) -> None:
    queue = QueueView(0.0, Resources(1000), (), (RunningJob("r", Resources(1000), 600.0),))
    for seen in (queue, None):
        waits = DrawnWaits(Book(0.0), 0.0, lambda _, seen=seen: seen, lessons=lambda *_: float(lessons))
        by_plan = planned and seen is not None
        assert (waits.drawn(Resources(8), 60.0, 0.0, 0.0) > 60.0, waits.few) == (by_plan, by_plan)


def test_one_run_in_an_idle_moment_does_not_make_the_next_quote_sure(flow: str, tmp_path: Path) -> None:
    busy = "sim:nodes=4,cores=8,load=0.9,seed=2,days=2"
    wide = {"strategy": "per-stage", "backend": busy}
    asa.run(asa.stage(abs, cores=1, walltime="10m", run_time="2m")(1), state=tmp_path / "state", **wide).wait()
    graph = make_graph(asa.stage(abs, cores=24, walltime="10h", run_time="8h")(1))
    (quote,) = quote_ways(graph, Settings(graph.result, "run", busy, "per-stage"), tmp_path / "state", others=False)
    assert quote.high - quote.low > 3600.0 and "too few waits" in " ".join(quote.notes)


def test_the_estimator_is_asked_once_for_each_size_and_while() -> None:
    book = Book(100.0)
    waits = DrawnWaits(book, 0.0, unseen)
    for at in range(0, 1700, 10):
        waits.drawn(Resources(4), 60.0, float(at), 0.3)
    waits.drawn(Resources(8), 60.0, 0.0, 0.3)
    waits.drawn(Resources(4), 60.0, 3600.0, 0.3)
    assert book.asked == 3 and DrawnWaits(book, 0.0, unseen, queues=False).drawn(Resources(4), 60.0, 0.0, 1.0) == 0.0


def test_waits_that_are_no_numbers_count_as_none() -> None:
    waits = DrawnWaits(Book(math.nan), 0.0, unseen)
    assert waits.drawn(Resources(4), 60.0, 0.0, 1.0) == 0.0


@given(st.integers(301, 3000), st.sampled_from([8, 64, 96]), st.floats(10.0, 2000.0))
@settings(max_examples=15, deadline=None)
def test_many_tasks_are_taken_as_fewer_that_take_as_long(width: int, cores: int, run_time_s: float) -> None:
    work = of("w", width, cores, run_time_s, task_cores=1).map(range(width))
    exact, coarse = (quoter(work, tasks_most=most).quote("per-stage", draws=1) for most in (10**9, 300))
    assert coarse.done == pytest.approx(exact.done, rel=0.3)
    assert coarse.core_hours == pytest.approx(exact.core_hours, rel=0.3)


def test_a_quote_of_very_many_tasks_is_cheap_or_refused() -> None:
    (spec,) = make_graph(of("w", 1, 64, 600.0, task_cores=1).map(range(100_000))).specs(SITE)
    assert (coarser(spec, 100_000, 100, 600.0, SITE).width or 0) < 4000
    with pytest.raises(InvalidInput, match=r"100,000 tasks, .* are too many for a quote"):
        quoter(of("w", 1, 1, 600.0, walltime_s=1200.0).map(range(100_000)), tasks_most=1000).quote("per-stage")


def test_a_wall_time_that_is_too_short_is_said() -> None:
    graph = make_graph(chain(100.0))
    specs, waits = graph.specs(SITE), DrawnWaits(Book(0.0), 0.0, unseen)
    times = {"s0": StageTime(lambda _index: 1e9, 0.0, "history")}
    made = Quoter(graph, Settings(graph.result, "run", "sim"), SITE, specs, waits, times, now=0.0)
    assert made.quote("per-stage").done == pytest.approx(0.999 * 36000.0)  # longer, it would be killed


# -- corrections ---------------------------------------------------------------------------------------------------


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.lists(st.floats(-5.0, 5.0), max_size=80))
def test_a_corrected_interval_still_holds_its_median(a: float, b: float, c: float, misses: list[float]) -> None:
    low, middle, high = sorted((a, b, c))
    found = corrected(middle, low, high, misses)
    assert 0.0 <= found[0] <= middle <= found[1] < math.inf
    if len(misses) < 8:
        assert found == (low, high)


def test_an_interval_that_was_missed_often_grows_and_one_that_never_was_shrinks() -> None:
    low, high = corrected(3600.0, 1800.0, 7200.0, [0.7] * 30)
    assert low < 1800.0 and high > 7200.0
    low, high = corrected(3600.0, 1800.0, 7200.0, [-0.5] * 30)
    assert low > 1800.0 and high < 7200.0


def test_what_a_run_missed_its_quote_by() -> None:
    quoted = Quoted(1000.0, 4540.0, 2740.0, 8140.0, 1.0, (2740.0, 8140.0), 100)
    assert quoted.missed(15_340.0) == pytest.approx(math.log(2.0))
    assert quoted.missed(1840.0) == pytest.approx(math.log(2.0))
    assert quoted.missed(4540.0) < 0.0


# -- words and rows ------------------------------------------------------------------------------------------------


def test_what_became_of_a_quote_in_words() -> None:
    quoted = Quoted(0.0, 7200.0, 3600.0, 10_800.0, 12.0, (3600.0, 10_800.0), 100)

    def said(state: RunState, end: float | None, now: float = 0.0) -> str:
        return quote_words(quoted, state, end, now, virtual=True)

    assert said(RunState.RUNNING, None) == "done in 2 h [1 h, 3 h], 12.0 core-hours"
    assert said(RunState.RUNNING, None, 14_400.0).endswith("; 1 h later than that by now")
    assert said(RunState.SUCCEEDED, 9000.0).endswith(
        "; was done after 2 h 30 min, inside the interval, 30 min after the median"
    )
    assert "outside the interval" in said(RunState.SUCCEEDED, 20_000.0)
    assert "been cancelled" in said(RunState.CANCELLED, 20.0) and "failed" in said(RunState.FAILED, 20.0)
    assert quote_words(None, RunState.RUNNING, None, 0.0) == ""


def test_an_end_beyond_the_calendar_is_said_as_a_duration() -> None:
    far = expected(Quoted(0.0, 1e15, 5e14, 2e15, 12.0, (5e14, 2e15), 100))
    assert far.startswith("in 11574074074 d 1 h [5787037037 d"), far


FLOW = """
import asa

@asa.stage(cores=8, walltime="1h", run_time="10m")
def square(x):
    return x * x

@asa.stage(cores=4, walltime="30m", run_time="5m")
def total(xs):
    return sum(xs)

workflow = total(square.map(range(16)))
"""
EMPTY = "sim:nodes=4,cores=8,regime=limits"


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    path = tmp_path / "flow.py"
    path.write_text(FLOW)
    return str(path)


def test_the_command_compares_strategies_widths_and_queues(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quote", flow, "--backend", EMPTY, "--backend", "sim:nodes=2,cores=8"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "now: done in 25 min, 3 core-hours"
    assert any("it has no interval: tasks take just their declared times" in line for line in said)
    text = "\n".join(said)
    for way in ("--strategy auto:patience=50", "--strategy per-stage", "--strategy big-job", "0.5 times as wide"):
        assert f"with {way}" in text or f"with allocations {way}" in text, text
    assert "with --backend sim:nodes=2,cores=8: in " in text
    assert "(no history: declared times are used (square, total))" in text


def test_rows_of_the_command(flow: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert main(["quote", flow, "--backend", EMPTY, "--only", "--strategy", "big-job", "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["backend"], row["strategy"], row["width"]) == (EMPTY, "big-job", 1.0)
    assert row["done_s"] == 1500.0 and row["done"] == row["at"] + 1500.0
    assert row["low_s"] <= row["done_s"] <= row["high_s"] and row["core_hours"] == pytest.approx(1500 * 8 / 3600)
    assert row["failed"] == 0 and row["draws"] > 20 and isinstance(row["notes"], list)


def test_what_a_run_would_learn_to_ask_for_is_quoted(flow: str, tmp_path: Path) -> None:
    """Memory that tasks need lets fewer of them run side by side."""
    (tmp_path / "state").mkdir(0o700)
    with UsageHistory(tmp_path / "state" / HISTORY) as history:
        row = Usage("square", "", "sim-4x8", None, 1, 8, 300.0, 300.0, 30 << 30, None, None, "ok", 1.0, "proc")
        history.add([replace(row, ended=float(number)) for number in range(30)])
    hours, backend = [], f"{EMPTY},memory=32G"
    for words in ([], ["--learn-requests"]):
        out = tmp_path / "out.json"
        assert main(["quote", flow, "--backend", backend, "--only", "--json", str(out), *words]) == 0
        hours.append(json.loads(out.read_text())["rows"][0]["done_s"])
    assert hours[1] > 1.5 * hours[0]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--strategy", "no-such"], "no-such"),
        (["--backend", "sim:nodes=1,cores=2"], "8 cores"),
        (["--patience", "-3"], "patience"),
        (["--backend", "sim:nonsense=1"], "nonsense"),
    ],
)
def test_bad_input_is_named(flow: str, words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    backend = [] if "--backend" in words else ["--backend", EMPTY]
    assert main(["quote", flow, *backend, *words]) != 0
    assert problem in capsys.readouterr().err


@asa.stage(cores=1, walltime="10h", run_time="8h")
def instant(x: int) -> int:
    return x


def test_what_was_done_at_once_is_quoted_so_until_it_changes(tmp_path: Path) -> None:
    def quoted(workflow: Any) -> tuple[float, str]:
        graph = make_graph(workflow)
        wanted = Settings(graph.result, "flow", "local:cores=2", None)
        (quote,) = quote_ways(graph, wanted, tmp_path / "state", others=False)
        return quote.done - quote.at, " ".join(quote.notes)

    assert quoted(instant(1))[0] > 3600.0
    asa.run(instant(1), backend="local:cores=2", name="flow", state=tmp_path / "state").wait()
    done_s, notes = quoted(instant(1))
    assert done_s < 60.0 and not notes

    def other(x: int) -> int:
        return x + 1

    changed = Stage(other, make_needs("instant", cores=1, walltime="10h", run_time="8h"), "instant")
    assert quoted(changed(1))[0] > 3600.0


def test_nothing_is_submitted_kept_or_learned_by_a_quote(flow: str, tmp_path: Path) -> None:
    assert main(["quote", flow, "--backend", EMPTY]) == 0
    state = tmp_path / "state"
    assert not (state / "runs").exists()
    if (state / "learned.db").exists():
        with closing(LearnedStore(state / "learned.db")) as store:
            assert not store.keys()


# -- the quote of a run --------------------------------------------------------------------------------------------


def go(flow: str, tmp_path: Path, **options: Any) -> running.Run:
    from asa.workflows.settings import load_workflow

    run = asa.run(load_workflow(flow), backend=EMPTY, state=tmp_path / "state", **options)
    run.wait()
    return run


def quotes_of(run: running.Run) -> list[Quoted]:
    return [event for _, event in run.events() if isinstance(event, Quoted)]


def test_a_run_logs_its_quote_once_and_shows_what_became_of_it(flow: str, tmp_path: Path) -> None:
    run = go(flow, tmp_path)
    (quoted,) = quotes_of(run)
    assert quoted.done - quoted.at == 1500.0
    assert "quoted: done in 25 min" in run.explain() and "was done after 25 min, inside the interval" in run.explain()
    summary = run.summary
    assert summary.quoted == quoted and summary.to_json()["quoted"]["done"] == quoted.done
    assert run_row(summary, "")["quote"].startswith("done in 25 min")
    said = io.StringIO()
    from rich.console import Console

    with ProgressDisplay(Console(file=said, width=200)) as display:
        display.update([event for _, event in run.events()], summary.now)
    assert "expected: done in 25 min" in said.getvalue()
    assert "was done after 25 min" in run_html(run, tmp_path)


def run_html(run: running.Run, tmp_path: Path) -> str:
    run.report(str(tmp_path / "run.html"))
    return (tmp_path / "run.html").read_text()


def test_runs_that_missed_their_quotes_make_the_next_ones_wider(flow: str, tmp_path: Path) -> None:
    for _ in range(3):
        go(flow, tmp_path)
    with closing(LearnedStore(tmp_path / "state" / "learned.db")) as store:
        (key,) = store.keys("quotes ")
        misses = (store.get(key) or {})["misses"]
        assert len(misses) == 3 and all(abs(miss) < 0.1 for miss in misses)
        store.update(key, lambda _record: {"misses": [0.5] * 40})
    (quoted,) = quotes_of(go(flow, tmp_path))
    assert quoted.high - quoted.done > 300.0 and quoted.drawn[1] - quoted.done < 60.0


def test_a_quote_that_cannot_be_made_does_not_touch_the_run(
    flow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from asa.workflows import quote

    def refuse(*_given: Any, **_options: Any) -> None:
        raise RuntimeError("no quotes today")

    monkeypatch.setattr(quote, "quoted", refuse)
    run = go(flow, tmp_path)
    assert run.status is RunState.SUCCEEDED and not quotes_of(run)
    assert "no quotes today" in run.directory.log.read_text()
    assert "quoted" not in run.explain()


@asa.stage(cores=1, walltime="5m")
def slow(x: int) -> int:
    time.sleep(1.6)
    return x


def test_a_real_run_is_quoted_beside_its_work_and_a_short_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not quotes_of(asa.run(asa.stage(abs)(3), state=tmp_path))
    monkeypatch.setattr(running, "QUOTE_AFTER_S", 0.1)
    run = asa.run(slow.map(range(2)), backend="local:cores=2", state=tmp_path)
    (quoted,) = quotes_of(run)
    assert quoted.at < quoted.low <= quoted.done <= quoted.high and "wall time" in quoted.notes[0]


def test_the_last_quote_counts_when_a_log_is_folded(tmp_path: Path) -> None:
    run = FoldedRun()
    run.on(Quoted(5.0, 20.0, 10.0, 30.0, 1.0, (10.0, 30.0), 60))
    assert run.quoted is not None and run.quoted.done == 20.0


def test_ways_that_cannot_be_gone_are_left_out(tmp_path: Path) -> None:
    graph: Graph = make_graph(chain(60.0))
    settings = Settings(graph.result, "run", EMPTY)
    found = quote_ways(graph, settings, tmp_path)  # its one task needs no wider allocation
    ways = [("auto", 1.0), ("auto:patience=50.0", 1.0), ("per-stage", 1.0), ("big-job", 1.0), ("auto", 0.5)]
    assert [(quote.strategy, quote.scale) for quote in found] == ways


@asa.stage(cores=1, walltime="5m")
def fails_once(flag: str) -> int:
    time.sleep(1.6)
    if not Path(flag).exists():
        Path(flag).touch()
        raise ValueError("not yet")
    return 7


def test_a_run_that_is_resumed_keeps_its_quote_and_teaches_nothing_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "QUOTE_AFTER_S", 0.1)
    run = asa.run(fails_once(str(tmp_path / "flag")), state=tmp_path / "state", check=False)
    run.wait()
    (quoted,) = quotes_of(run)
    assert "but the run has failed" in run.explain()
    again = asa.resume(run.name, state=tmp_path / "state")
    again.wait()
    assert again.result() == 7 and quotes_of(again) == [quoted] and again.summary.quoted == quoted
    assert "was done" in again.explain()
    store = tmp_path / "state" / "learned.db"
    with closing(LearnedStore(store)) as kept:
        assert not kept.keys("quotes ")
