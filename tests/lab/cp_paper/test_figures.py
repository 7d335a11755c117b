"""Tables and figures of the CP paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.cp_paper.figures import (
    OnChange,
    Ratio,
    SavedRow,
    cp_quality,
    cp_ratios,
    cp_times,
    loop,
    on_saved,
    pairs,
    planner,
    ratios,
    sampled,
)
from asa.lab.dispatchers.backfill import Easy
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import Instance, PlannedJob, QueuePlan
from asa.lab.simulator.run import simulate
from asa.lab.study import LogCase, kit, log_case, on_nodes, read_rows


def test_some_days_like_euroras() -> None:
    two, one = log_case(to_day=2.0, seed=3), log_case(from_day=1.0, to_day=2.0, seed=3)
    assert two.name == "like Eurora's" and two.cluster.nodes == 64
    assert 0 < len(one.workload) < len(two.workload)
    assert one.workload.submit.tolist() == two.workload.submit[-len(one.workload) :].tolist()
    with pytest.raises(InvalidInput, match="no job is submitted from day 400"):
        log_case(from_day=400.0, to_day=401.0)


@pytest.mark.parametrize(("cores", "nodes"), [(8, 8), (24_048, 1173)])
def test_a_log(tmp_path: Path, cores: int, nodes: int) -> None:
    rows = ((1, 0, 8), (2, 5, 3), (3, 2 * DAY, 1))
    lines = [f"{number} {at:.0f} -1 10 {size} -1 -1 {size} 20 -1 1 1 1 1 1 1 -1 -1" for number, at, size in rows]
    (tmp_path / "log.swf").write_text(f"; MaxProcs: {cores}\n" + "\n".join(lines) + "\n")
    found = log_case(str(tmp_path / "log.swf"))
    assert found.name == "log.swf"
    assert found.cluster.nodes == nodes and found.cluster.cores == cores
    assert found.workload.cores.tolist() == [8, 3]
    assert found.workload.units.tolist() == ([8, 3] if cores == 8 else [1, 1])


def test_kit_is_as_large_as_the_paper_says() -> None:
    assert kit().nodes == 1173 and kit().cores == 24_048


@given(st.lists(st.integers(1, 500), min_size=1, max_size=20), st.integers(1, 48))
def test_jobs_on_nodes_are_hardly_larger(cores: list[int], each: int) -> None:
    count = len(cores)
    work = Workload.of(submit=np.arange(count), run=np.ones(count), cores=cores)
    made = on_nodes(work, each)
    assert (made.cores >= work.cores).all() and (made.cores < work.cores + made.units).all()
    assert (made.demands <= each).all()
    assert (made.units == np.ceil(work.cores / each)).all()


def small(count: int = 60) -> LogCase:
    draw = np.random.default_rng(5)
    run = draw.integers(5, 60, count).astype(float)
    jobs = Workload.of(
        submit=np.sort(draw.uniform(0, 400, count)), run=run, walltime=run * draw.uniform(1, 3, count),
        units=draw.integers(1, 4, count), kind=draw.integers(0, 3, count), user=draw.integers(0, 3, count),
        name=draw.integers(0, 2, count), demands=[[1, 0], [2, 1], [4, 0]], resources=("cores", "gpus"),
    )  # fmt: skip
    return LogCase("small", jobs, Cluster(np.array([[4, 2], [4, 2], [4, 0]]), ("cores", "gpus")))


def test_rows_say_what_became_of_the_jobs() -> None:
    here = small()
    rows = loop(here, ["easy", "listplan"], ["oracle", "last-two"])
    assert [(row.dispatcher, row.predictor) for row in rows] == [
        ("easy", "oracle"), ("easy", "last-two"), ("listplan", "oracle"), ("listplan", "last-two"),
    ]  # fmt: skip
    schedule = simulate(here.workload, here.cluster, Easy(), predictor="oracle")
    first = rows[0]
    assert first.mean_wait_s == pytest.approx(schedule.wait.mean())
    assert first.std_wait_s == pytest.approx(schedule.wait.std())
    turnaround = schedule.end - here.workload.submit
    assert first.mean_slowdown == pytest.approx((turnaround / here.workload.run).mean())
    assert first.jobs == 60 and not first.charged and first.case == "small"
    assert 0 < first.mean_s <= first.max_s and first.p99_s <= first.max_s and first.mean_cpu_s > 0
    assert 1 <= first.mean_waiting <= 60
    assert first.decisions <= 2 * 60, "asked once for each arrival or end, at most"


def test_a_dispatcher_is_not_asked_twice_without_a_change() -> None:
    here, asked = small(), []

    class Noted(Easy):
        def decide(self, view: Any) -> Any:
            asked.append((view.now, view.waiting.tolist(), view.active.tolist()))
            return super().decide(view)

    schedule = simulate(here.workload, here.cluster, OnChange(Noted()))
    assert np.array_equal(schedule.start, simulate(here.workload, here.cluster, "easy").start)
    assert all(waiting for _, waiting, _ in asked)
    assert len({at for at, _, _ in asked}) == len(asked)


def test_time_can_be_charged() -> None:
    here = small()
    free, charged = (loop(here, ["listplan"], ["oracle"], dispatch_time=what)[0] for what in ("ignore", "charge"))
    assert charged.charged and not free.charged
    assert charged.mean_wait_s != free.mean_wait_s


def row(dispatcher: str, decision: int, queue: int, seconds: float, **values: Any) -> SavedRow:
    given = {"objective": 2.0, "variables": None, "constraints": None} | values
    return SavedRow(dispatcher, decision, queue, 3, "feasible", 2 * seconds, seconds, **given)


def test_planners_on_the_same_decisions() -> None:
    here = small()
    sample = sampled(here, 8, 1)
    names = ["listplan", "listplan:scheme=non-delay"]
    rows = on_saved(sample, names, 0.0)
    assert len(rows) == 16 and {row.status for row in rows} == {"feasible"}
    queues = {decision.number: len(decision.instance) for decision in sample}
    assert all(row.queue == queues[row.decision] and row.seconds > 0 and row.cpu_s > 0 for row in rows)
    assert [row.objective for row in rows if row.dispatcher == "listplan"] == [
        plan.objective(decision.instance)
        for decision in sample
        if (plan := ListPlan().solve(decision.instance, 0.0).plan) is not None
    ]
    assert rows[0].variables is None


def test_what_planners_tell_of_their_models() -> None:
    class Models(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> PlannedJob:
            found = super().solve(instance, seconds)
            return PlannedJob(found.plan, found.status, notes={"variables": 10 * len(instance), "constraints": 7})

    class Broken(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> PlannedJob:
            return PlannedJob(QueuePlan(np.zeros(len(instance)), np.zeros((0, 3), dtype=np.int64)), "optimal")

    class Helpless(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> PlannedJob:
            return PlannedJob(None, "unknown")

    class Slow(ListPlan):
        def solve(self, instance: Instance, seconds: float) -> PlannedJob:
            return PlannedJob(None, "unknown", notes={"variables": 3, "out of time": "while building"})

    planners: Any = [Models(), Broken(), Helpless(), Slow()]
    found = on_saved(sampled(small(), 3, 1), planners, 0.0)
    assert all(row.variables == 10 * row.queue and row.constraints == 7 for row in found[::4])
    assert {row.status for row in found[1::4]} == {"broken"}
    assert {(row.status, row.objective) for row in found[2::4]} == {("unknown", None)}
    assert {row.variables for row in found[3::4]} == {None}, "half a model has no size"


def test_who_plans_no_queues_is_refused() -> None:
    with pytest.raises(InvalidInput, match="'easy' makes no plans of whole queues"):
        planner("easy")


def test_ratios_by_queue_size() -> None:
    rows = [
        row("a", 0, 1, 1.0, variables=5), row("b", 0, 1, 2.0, variables=50),
        row("a", 1, 3, 1.0, variables=6), row("b", 1, 3, 1.0, variables=24),
        row("a", 2, 4, 8.0, variables=8, objective=3.0), row("b", 2, 4, 2.0, variables=16),
        row("a", 3, 9, 1.0, variables=1), row("b", 3, 9, 1.0, variables=2, objective=None),
        row("a", 4, 9, 1.0),
    ]  # fmt: skip
    assert len(pairs(rows, "a", "b")) == 4
    assert ratios(rows, "a", "b") == [
        Ratio(1, 1, 1, (1, 1), (0.1, 0.1, 0.1), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)),
        Ratio(3, 4, 2, (2, 2), (0.25, 0.375, 0.5), (1.0, 2.5, 4.0), (1.0, 1.25, 1.5)),
        Ratio(9, 16, 1, (1, 0), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0), None),
    ]
    assert ratios([row("a", 0, 2, 1.0), row("b", 0, 2, 4.0)], "a", "b")[0].variables is None


def test_a_closed_loop_is_measured_once_and_shown_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out, few = str(tmp_path / "loop.json"), ["--to-day", "0.3", "--predictor", "oracle,heuristic"]
    assert main(["figure", "cp-times", "--dispatcher", "easy,listplan", *few, "--json", out]) == 0
    assert "mean [ms]" in capsys.readouterr().out
    rows = json.loads(Path(out).read_text())["rows"]
    assert [row["dispatcher"] for row in rows] == ["easy", "easy", "listplan", "listplan"]
    again, picture = str(tmp_path / "again.json"), tmp_path / "quality.png"
    assert main(["figure", "cp-quality", "--from", out, "--json", again, "-o", str(picture)]) == 0
    assert json.loads(Path(again).read_text())["rows"] == rows
    assert "deviation" in capsys.readouterr().out
    assert picture.stat().st_size > 5000
    cp_times(source=out).draw(tmp_path / "times.svg")
    assert (tmp_path / "times.svg").stat().st_size > 5000


def saved(dispatcher: str, decision: int, **values: Any) -> dict[str, Any]:
    given = {"queue": 2 + decision, "running": 1, "status": "feasible", "seconds": 0.1, "cpu_s": 0.1, "objective": 2.0}
    return {"dispatcher": dispatcher, "decision": decision, "variables": None, "constraints": None} | given | values


@pytest.mark.parametrize("variables", [None, 40])
def test_ratios_are_drawn(tmp_path: Path, variables: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    rows = [saved(name, k, variables=variables) for k in range(4) for name in ("pcp20", "pcp19", "listplan")]
    (tmp_path / "in.json").write_text(json.dumps({"rows": rows}))
    picture = tmp_path / "ratios.pdf"
    assert main(["figure", "cp-ratios", "--from", str(tmp_path / "in.json"), "-o", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "pcp20 / pcp19" in said and "listplan / pcp19" in said
    assert picture.stat().st_size > 3000


def test_ratios_are_measured(tmp_path: Path) -> None:
    found = cp_ratios(
        dispatchers=["listplan", "listplan:scheme=non-delay"], to_day=0.4, decisions=5, time_limit=0.0, seed=1
    )
    assert len(found.rows) == 10
    assert found.table()[0]["variables"] == "-"
    (tmp_path / "rows.json").write_text(json.dumps(found.to_json()))
    assert read_rows(tmp_path / "rows.json", SavedRow) == found.rows


def test_files_that_hold_other_rows(tmp_path: Path) -> None:
    (tmp_path / "saved.json").write_text(json.dumps({"rows": [saved("pcp20", 0)]}))
    with pytest.raises(InvalidInput, match="is not what asa figure --json writes of this figure"):
        cp_quality(source=str(tmp_path / "saved.json"))
    with pytest.raises(InvalidInput, match="there is only pcp20"):
        cp_ratios(source=str(tmp_path / "saved.json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["convergence", "--decisions", "3"], "--decisions 3: figure 'convergence' takes no such option"),
        (["cp-ratios", "--predictor", "oracle"], "it is for cp-times, cp-quality"),
        (["cp-times", "--seeds", "3"], "--seeds 3: figure 'cp-times' takes no such option"),
        (["cp-times", "--from", "x.json", "--to-day", "3"], "leave out what says how to measure"),
    ],
)
def test_options_that_are_not_for_a_figure(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", *words]) == 1
    assert said in capsys.readouterr().err
