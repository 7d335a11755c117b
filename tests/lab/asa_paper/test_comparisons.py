"""Strategies side by side, and site models from logs: long runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, RunFailed, UnknownName
from asa.core.event import RunState
from asa.core.job import JobRequest, JobState, Resources
from asa.core.units import DAY, HOUR
from asa.lab.asa_paper.calibrate import STEP, WaitSample, calibrate, distance, next_factor, observed
from asa.lab.asa_paper.compare import StrategyComparison, compare
from asa.lab.asa_paper.figures import read_runs
from asa.lab.asa_paper.published import TABLE1
from asa.lab.asa_paper.tables import (
    METRICS,
    Grid,
    RunRow,
    StageSpan,
    beside,
    in_words,
    most_waiting,
    normalised,
    ratios,
    row_of,
    table1,
)
from asa.lab.backend.simulated import Simulated
from asa.lab.simulator.run import simulate
from asa.lab.study import Estimate
from asa.lab.traces.load import load_trace
from asa.lab.traces.site import JobClass, SiteModel
from asa.lab.virtual import MemoryWaits, run_virtual
from asa.metrics.workflow import JobSummary, RunSummary, summarise
from asa.workflows.stage import Node, Stage, make_needs
from tests.lab.asa_paper.test_probes import small_site
from tests.lab.traces.shared import shared_file

# -- Compare ----------------------------------------------------------------------------------------------------------

LABELS = {"system": "here", "regime": "fifo", "workflow": "chain", "cores": 4, "strategy": "?", "seed": 7}


def chain(run_time_s: float = 2000.0) -> Node:
    """Two stages, one after the other."""

    def nothing(_index: int) -> None: ...

    needs = make_needs("first", cores=4, walltime=7200, run_time=run_time_s)
    first = Stage(nothing, needs, "first").map(range(4))
    return Stage(nothing, make_needs("second", cores=2, walltime=7200, run_time=600), "second").map([0, 1]).after(first)


def run(strategy: str, expected_wait_s: float = 0.0) -> RunSummary:
    """On an idle machine, by a strategy that expects to wait."""
    waits = MemoryWaits("last")
    for cores in (2, 4):
        waits.learn(JobRequest(f"job {cores}", Resources(cores=cores), 7200.0, ()), expected_wait_s)
    queue = Simulated(nodes=1, cores=8, warmup=0)
    return summarise(
        run_virtual(chain(), queue, strategy, waits=waits, pool="per-stage", run_time=lambda stage, _: 2000.0)
    )


def test_a_row_sums_a_run_up() -> None:
    row = row_of(run("per-stage"), **LABELS)
    assert row.case == ("here", "chain", 4)
    assert row.makespan_s == 2600.0
    assert row.total_wait_s == 0.0
    assert row.core_hours == pytest.approx((4 * 2000 + 2 * 600) / 3600)
    assert row.overhead_core_hours == 0.0
    assert row.misses == 0
    assert row.stages == (StageSpan("first", 0.0, 2000.0), StageSpan("second", 0.0, 600.0))


def test_jobs_that_come_too_early_and_are_given_back_are_misses() -> None:
    row = row_of(run("asa-naive:grace_s=300", expected_wait_s=1000.0), **LABELS)
    assert row.misses >= 1
    assert row.overhead_core_hours >= row.misses * 2 * 300 / 3600 * 0.99
    assert row.core_hours == pytest.approx((4 * 2000 + 2 * 600) / 3600 + row.overhead_core_hours)


def test_a_job_that_starts_a_little_early_is_kept_and_is_no_miss() -> None:
    row = row_of(run("asa-naive:grace_s=300", expected_wait_s=200.0), **LABELS)
    assert row.misses == 0
    assert row.overhead_core_hours == pytest.approx(2 * 200 / 3600, rel=0.05)


def job(stage: str, submitted: float, started: float | None, ended: float | None = None) -> JobSummary:
    return JobSummary(
        token="", job_id="", stages=(stage,), state=JobState.COMPLETED, cores=1, nodes=(), walltime_s=1.0,
        submitted=submitted, started=started, ended=ended, runs=(), predicted_wait_s=None, wait_s=None,
        core_hours_charged=0.0, core_hours_used=0.0, overhead_core_hours=0.0, reason="",
    )  # fmt: skip


def test_jobs_in_the_queue_at_a_time() -> None:
    jobs = [job("a", 0, 10, 99), job("a", 5, None, 20), job("a", 10, 30), job("a", 20, 25), job("b", 0, 50)]
    assert most_waiting(jobs, "a") == 2
    assert most_waiting(jobs, "b") == 1
    assert most_waiting(jobs, "c") == 0
    assert most_waiting([job("a", 5, 5), job("a", 5, 5)], "a") == 0


def test_it_travels_as_json() -> None:
    row = row_of(run("big-job"), **LABELS)
    assert RunRow.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_a_run_that_failed_makes_no_row() -> None:
    with pytest.raises(RunFailed, match=r"chain on 4 cores of here under .* with seed 7 is failed: no luck"):
        row_of(replace(run("per-stage"), state=RunState.FAILED, message="no luck"), **LABELS)


@pytest.mark.parametrize("values", [{}, {"stages": []}, {"stages": [{"a": 1}]}])
def test_other_things_are_no_rows(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="no row of a comparison"):
        RunRow.from_json(values)


def row(
    strategy: str = "asa", seed: int = 0, cores: int = 28, wait: float = 10.0, workflow: str = "w", **more: float
) -> RunRow:
    return RunRow(
        "here", "fifo", workflow, cores, strategy, seed, more.get("makespan", wait + 100.0), wait,
        more.get("core_hours", 1.0), 0.0, 0, (),
    )  # fmt: skip


PAPER = Grid.of(
    [
        RunRow(run.system, "?", run.workflow, run.cores, run.strategy, 0, run.makespan_s, run.total_wait_s,
            run.core_hours, 0.0, 0, ())
        for run in TABLE1
    ]
)  # fmt: skip


def test_the_papers_table_gives_the_papers_normalised_averages() -> None:
    printed = {  # per cent above 1; core-hours are printed whole, so that BLAST is off by 2.4 points
        "montage": ((5, 1, 53), (82, 34, 0), (10, 6, 0)),
        "blast": ((6, 0, 1), (13, 2, 0), (2, 0, 1)),
        "statistics": ((17, 2, 83), (115, 36, 0), (5, 0, 1)),
    }
    found = normalised(PAPER)
    for k, line in enumerate(found):
        expected = printed[line["workflow"]][k % 3]
        for metric, percent in zip(("total_wait_s", "makespan_s", "core_hours"), expected, strict=True):
            assert 100 * (line[metric].value - 1) == pytest.approx(percent, abs=2.5), (line["workflow"], metric)


def test_the_papers_table_gives_the_papers_claims() -> None:
    found = ratios(PAPER)["asa"]
    assert found["big-job"]["core_hours"]["ratio_of_sums"].value == pytest.approx(1282 / 2217)  # "43 % reduction"
    assert found["big-job"]["makespan_s"]["ratio_of_sums"].value == pytest.approx(1.0197, abs=1e-4)  # "2 % increase"
    assert found["big-job"]["makespan_s"]["mean_of_ratios"].value == pytest.approx(1.012, abs=1e-3)
    assert found["per-stage"]["makespan_s"]["ratio_of_sums"].value == pytest.approx(0.752, abs=1e-3)
    assert found["per-stage"]["core_hours"]["ratio_of_sums"].value == 1.0


def test_means_are_over_seeds_with_their_interval() -> None:
    rows = [row(seed=seed, wait=wait) for seed, wait in enumerate((10.0, 20.0, 60.0))]
    (line,) = table1(Grid.of(rows))
    assert line["total_wait_s"].value == 30.0
    assert 10.0 <= line["total_wait_s"].low < 30.0 < line["total_wait_s"].high <= 60.0
    assert (line["system"], line["workflow"], line["cores"], line["strategy"]) == ("here", "w", 28, "asa")


def test_the_oracle_sets_no_standard() -> None:
    found = normalised(Grid.of([row("asa", wait=20.0), row("big-job", wait=30.0), row("oracle", wait=10.0)]))
    assert {line["strategy"]: line["total_wait_s"].value for line in found} == {
        "asa": 1.0,
        "big-job": 1.5,
        "oracle": 0.5,
    }


def test_a_baseline_that_never_waits() -> None:
    rows = [row("asa", wait=5.0), row("big-job", wait=0.0), row("per-stage", wait=0.0)]
    found = ratios(Grid.of(rows))
    assert math.isnan(found["asa"]["big-job"]["total_wait_s"]["ratio_of_sums"].value)
    assert found["per-stage"]["big-job"]["total_wait_s"]["ratio_of_sums"].value == 1.0
    assert "big-job" not in found["big-job"]


def test_the_oracle_is_a_baseline_too() -> None:
    rows = [row("asa", wait=20.0, makespan=110.0), row("oracle", wait=10.0, makespan=100.0)]
    found = ratios(Grid.of(rows))
    assert found["asa"]["oracle"]["makespan_s"]["ratio_of_sums"].value == pytest.approx(1.1)
    assert found["oracle"] == {}


@given(
    st.lists(st.tuples(st.floats(1, 1e5), st.floats(1, 1e5), st.floats(1, 1e5)), min_size=1, max_size=6),
    st.floats(0.5, 4),
)
def test_ratios_of_both_kinds_lie_among_those_of_the_cases(waits: list[tuple[float, ...]], scale: float) -> None:
    rows = [
        row(strategy, cores=28 * (place + 1), wait=wait * scale)
        for place, three in enumerate(waits)
        for strategy, wait in zip(("asa", "big-job", "per-stage"), three, strict=True)
    ]
    single = np.array([asa / big for asa, big, _ in waits])
    found = ratios(Grid.of(rows))["asa"]["big-job"]["total_wait_s"]
    for value in (found["ratio_of_sums"].value, found["mean_of_ratios"].value):
        assert single.min() * (1 - 1e-9) <= value <= single.max() * (1 + 1e-9)
    assert found["mean_of_ratios"].value == pytest.approx(single.mean())


@pytest.mark.parametrize("rows", [[], [row(), row()], [row("asa"), row("big-job", cores=56)]])
def test_rows_that_do_not_fill_the_grid_are_refused(rows: list[RunRow]) -> None:
    with pytest.raises(InvalidInput, match="one row for each combination"):
        Grid.of(rows)


def rows(strategy: str, makespans: list[float], workflow: str = "w", regime: str = "limits") -> list[RunRow]:
    return [
        RunRow("here", regime, workflow, 28, strategy, seed, makespan, 0.0, 1.0, 0.0, 0, ())
        for seed, makespan in enumerate(makespans)
    ]


def test_the_worst_case_is_first_and_not_hidden_by_larger_ones() -> None:
    made = rows("auto", [10.0, 14.0], "short") + rows("per-stage", [10.0, 10.0], "short")
    made += rows("auto", [5000.0, 5000.0], "long") + rows("per-stage", [9000.0, 9000.0], "long")
    worst, best = beside(made, "auto")
    assert worst.case == ("here", "short", 28)
    assert worst.ratio.value == pytest.approx(1.2)
    assert worst.ratio.low == pytest.approx(1.0)
    assert worst.slower == 0.5
    assert (best.ratio.value, best.slower) == (pytest.approx(5 / 9), 0.0)


def test_it_is_a_ratio_of_means_not_a_mean_of_ratios() -> None:
    (found,) = beside(rows("auto", [100.0, 20.0]) + rows("per-stage", [100.0, 10.0]), "auto")
    assert found.ratio.value == pytest.approx(120 / 110)


def test_regimes_are_apart() -> None:
    made = rows("auto", [10.0]) + rows("per-stage", [10.0])
    made += rows("auto", [20.0], regime="fifo") + rows("per-stage", [10.0], regime="fifo")
    assert [(each.regime, each.ratio.value) for each in beside(made, "auto")] == [("fifo", 2.0), ("limits", 1.0)]


@pytest.mark.parametrize("there", ["auto", "per-stage"])
def test_both_must_have_run(there: str) -> None:
    with pytest.raises(InvalidInput, match="'auto' and 'per-stage' expected"):
        beside(rows(there, [1.0]), "auto")


def section(system: str | None, value: float = 1.0) -> dict[str, object]:
    normal = {"workflow": "blast", "strategy": "asa"} | {name: Estimate(value) for name in METRICS}
    return {"system": system, "regime": "fifo", "table1": [], "normalised": [normal], "ratios": {"of sums": {}}}


def test_a_ratio_to_nothing_is_a_dash() -> None:
    assert "nan" not in in_words([section("here", float("nan"))], [], 1)
    assert "+50.0 %" in in_words([section("here", 1.5)], [], 1)


@pytest.mark.parametrize(("systems", "means"), [(["here"], 1), ([None], 0), (["here", "there", None], 2)])
def test_means_are_of_one_system(systems: list[str | None], means: int) -> None:
    text = in_words([section(system) for system in systems], [], 1)
    assert text.count("means of one seed") == means
    assert text.count("normalised averages") == len(systems)
    assert "predictions of" not in text


pytestmark = pytest.mark.slow

FILE = """
import asa

@asa.stage(cores=16, walltime="1h", run_time="20m")
def wide(x): raise AssertionError("nothing is computed")

@asa.stage(cores=2, walltime="1h", run_time="10m")
def narrow(xs): raise AssertionError("nothing is computed")

def workflow(cores=16): return narrow(wide.options(cores=cores).map(range(cores)))
def chain(): return narrow(narrow(1))
def fork(cores=8): return narrow([wide.options(cores=cores).map(range(cores)), wide.options(cores=2 * cores)(1)])
"""
QUICK = {"warmup": 2.0, "days": 4.0, "learning": 1.0, "every_s": 3600.0}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("flow") / "flow.py"
    path.write_text(FILE)
    return str(path)


@pytest.fixture(scope="module")
def found(file: str) -> StrategyComparison:
    return compare(
        file, systems=[small_site(load=0.95)], cores=[8, 16], seeds=4, regimes=["fifo", "limits"], table2=True, **QUICK
    )


def rows_of(found: StrategyComparison, regime: str, strategy: str) -> dict[tuple[int, int], RunRow]:
    rows = {(row.cores, row.seed): row for row in found.rows if (row.regime, row.strategy) == (regime, strategy)}
    assert rows, f"no rows of {strategy} under {regime}"
    return rows


def test_there_is_a_row_for_every_combination(found: StrategyComparison) -> None:
    keys = {(row.regime, row.cores, row.strategy, row.seed) for row in found.rows}
    assert len(keys) == len(found.rows) == 2 * 2 * 5 * 4
    assert {row.strategy for row in found.rows} == {"big-job", "per-stage", "asa", "asa-naive", "oracle"}
    assert {(row.system, row.workflow) for row in found.rows} == {("small", "flow")}


def test_a_rows_numbers_fit_together(found: StrategyComparison) -> None:
    for row in found.rows:
        assert row.makespan_s == pytest.approx(sum(stage.wait_s + stage.run_time_s for stage in row.stages))
        assert row.total_wait_s == pytest.approx(sum(stage.wait_s for stage in row.stages))
        assert row.overhead_core_hours <= row.core_hours
        exact = (row.cores * 1200 + 2 * 600) / 3600
        if row.strategy in ("per-stage", "asa", "oracle"):
            assert row.core_hours == pytest.approx(exact)
        elif row.strategy == "big-job":
            assert row.core_hours == pytest.approx(row.cores * 1800 / 3600)
        else:
            assert row.core_hours == pytest.approx(exact + row.overhead_core_hours)


def test_stages_that_wait_together_are_counted_once_for_the_oracle_as_for_others(file: str) -> None:
    asked = {"cores": [8], "strategies": ["per-stage"], "regimes": ["limits"], "seeds": 6, **QUICK}
    found = compare(f"{file}:fork", systems=[small_site(load=0.95)], **asked)
    pairs = {row.seed: row for row in found.rows if row.strategy == "oracle"}
    for row in found.rows:
        assert row.total_wait_s <= sum(stage.wait_s for stage in row.stages)
        assert pairs[row.seed].makespan_s <= row.makespan_s * 1.01
    assert any(row.total_wait_s < sum(stage.wait_s for stage in row.stages) - 1 for row in pairs.values())


def test_jobs_wait_here_and_strategies_differ(found: StrategyComparison) -> None:
    waits = [row.total_wait_s for row in rows_of(found, "fifo", "per-stage").values()]
    assert max(waits) > 600
    where = [place for place, row in rows_of(found, "fifo", "per-stage").items() if row.stages[1].wait_s > 600]
    assert where
    ageing, reference = rows_of(found, "fifo", "asa"), rows_of(found, "fifo", "per-stage")
    assert all(ageing[place].makespan_s < reference[place].makespan_s for place in where)


def test_runs_are_compared_in_pairs(found: StrategyComparison) -> None:
    """The first stage's job is the same under all strategies that ask for it at once."""
    for strategy in ("asa", "asa-naive", "oracle"):
        for place, row in rows_of(found, "limits", strategy).items():
            assert row.stages[0].wait_s == pytest.approx(
                rows_of(found, "limits", "per-stage")[place].stages[0].wait_s, abs=1.0
            )


def test_without_ageing_dependent_jobs_gain_nothing(found: StrategyComparison) -> None:
    for place, row in rows_of(found, "limits", "asa").items():
        assert row.makespan_s >= rows_of(found, "limits", "per-stage")[place].makespan_s * 0.95


def test_no_strategy_without_idle_cores_does_much_better_than_the_oracle(found: StrategyComparison) -> None:
    for regime in ("fifo", "limits"):
        for strategy in ("per-stage", "asa"):
            total = sum(row.makespan_s for row in rows_of(found, regime, strategy).values())
            limit = sum(row.makespan_s for row in rows_of(found, regime, "oracle").values())
            assert limit <= total * 1.01


def test_the_number_of_processes_makes_no_difference(file: str) -> None:
    asked = {"systems": [small_site()], "cores": [16], "strategies": ["asa-naive:sampling=tuned"], "seeds": 2, **QUICK}
    steps: list[tuple[int, int]] = []
    one = compare(file, processes=1, **asked)
    two = compare(file, processes=2, progress=lambda done, total: steps.append((done, total)), **asked)
    assert one.rows == two.rows
    assert steps == [(2, 4), (4, 4)]


def test_json_has_rows_ratios_and_tables(found: StrategyComparison) -> None:
    data = json.loads(json.dumps(found.to_json()))
    names = {"system", "workflow", "cores", "strategy", "seed", "makespan_s", "total_wait_s", "core_hours"}
    assert names | {"overhead_core_hours", "misses"} <= set(data["rows"][0])
    one = data["ratios"]["asa"]["per-stage"]["makespan_s"]["ratio_of_sums"]
    assert one["low"] <= one["value"] <= one["high"]
    assert data["ratios"]["per-stage"]["big-job"]["core_hours"]["ratio_of_sums"]["value"] < 1
    assert [section["regime"] for section in data["sections"]] == ["fifo", "limits"]
    judged = data["table2"]["rows"]
    assert {row["protocol"] for row in judged} == {"paper", "days"}
    assert {row["estimator"] for row in judged} == {"algorithm1:sampling=tuned", "fixed-share", "context"}
    assert {row["jobs"] for row in judged} == {60, 24}
    assert {row["cores"] for row in judged} == {8, 16}


def test_the_text_shows_all_tables(found: StrategyComparison) -> None:
    text = found.text()
    for words in ("total wait [s]", "normalised averages", "mean of all", "not over", "oracle", "fifo", "limits"):
        assert words in text


def test_rows_are_read_again_and_drawn(found: StrategyComparison, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "out.json").write_text(json.dumps(found.to_json()))
    assert read_runs(tmp_path / "out.json") == [row for row in found.rows if row.regime == "fifo"]
    found.draw(tmp_path / "made.png")
    assert {path.name for path in tmp_path.glob("*.png")} == {"made.png", "made-corehours.png"}


@pytest.mark.parametrize("text", ["{}", "[]", '{"rows": []}', '{"rows": [{"a": 1}]}', "no json"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.json").write_text(text)
    with pytest.raises(InvalidInput):
        read_runs(tmp_path / "out.json")


def test_a_workflow_of_one_scale(file: str) -> None:
    found = compare(f"{file}:chain", systems=[small_site()], strategies=["per-stage"], seeds=1, oracle=False, **QUICK)
    assert [(row.cores, row.strategy) for row in found.rows] == [(2, "per-stage")]
    assert found.to_json()["ratios"] == {"per-stage": {}}


def test_days_that_are_too_few(file: str) -> None:
    with pytest.raises(InvalidInput, match="give more days"):
        compare(file, systems=[small_site()], seeds=1, **QUICK | {"days": 0.01})


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"strategies": ["asa-naiv"]}, "did you mean 'asa-naive'"),
        ({"strategies": ["asa:sampling=tuned,replay=x"]}, "replay"),
        ({"seeds": 0}, "at least one of each"),
        ({"strategies": [], "oracle": False}, "at least one of each"),
        ({"speed": 3}, "unknown option of a comparison 'speed'"),
    ],
)
def test_what_cannot_be_compared(file: str, asked: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        compare(file, systems=[small_site()], **asked)  # type: ignore[arg-type]


def test_a_misspelt_workflow() -> None:
    with pytest.raises(InvalidInput, match="give montage"):
        compare("montag", systems=[small_site()], cores=[28])


def test_a_misspelt_regime(file: str) -> None:
    with pytest.raises(UnknownName, match="fifo"):
        compare(file, systems=[small_site()], regimes=["fif"], seeds=1, **QUICK)


# -- Calibrate --------------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.slow

CLASSES = (
    JobClass(5.0, (1, 2, 4), (1 * HOUR, 4 * HOUR), (0.1, 0.3, 0.9), session=(1, 4)),
    JobClass(1.0, (16, 32), (6 * HOUR, 12 * HOUR), (0.3, 0.6, 1.0)),
)
TRUE = SiteModel("true", 16, 8, load=0.7, classes=CLASSES)


def log_of(site, days, seed):
    """A log as the site's own batch system would have written it."""
    jobs = site.workload(days * DAY, seed)
    schedule = simulate(jobs, site.cluster(), site.dispatcher, keep_nodes=False)
    return replace(jobs, wait=schedule.wait)


@pytest.fixture(scope="module")
def log():
    return log_of(TRUE, 80, 1)


@pytest.fixture(scope="module")
def calibrate_found(log):
    done = []
    made = calibrate(log, TRUE.cluster(), "again", progress=done.append, seeds=3)
    assert done == sorted(done)
    assert done[-1] == 1.0
    return made


def test_a_site_that_is_a_model_is_found_again(calibrate_found):
    assert calibrate_found.factor == pytest.approx(1, abs=0.06)
    assert calibrate_found.site.load == pytest.approx(0.7, abs=0.05)
    assert calibrate_found.site.name == "again"
    assert "calibrated" in calibrate_found.site.note
    assert abs(distance(calibrate_found.model, calibrate_found.unseen, TRUE.cores)[0]) < 0.5, "waits are mostly luck"
    assert calibrate_found.model.utilisation == pytest.approx(calibrate_found.unseen.utilisation, abs=0.06)


def test_replaying_the_unseen_jobs_gives_their_waits_but_for_those_of_the_begin(calibrate_found):
    assert distance(calibrate_found.replay, calibrate_found.unseen, TRUE.cores)[1] < 0.02
    assert calibrate_found.replay.utilisation == pytest.approx(calibrate_found.unseen.utilisation, abs=1e-3)


def test_the_unseen_part_is_the_end_of_the_log(calibrate_found, log):
    rest = log.between(log.submit[0] + 0.7 * (log.submit[-1] - log.submit[0]), np.inf)
    assert (calibrate_found.unseen.wait == rest.wait).all()
    assert len(calibrate_found.before.wait) + len(calibrate_found.unseen.wait) == len(log)


def test_the_report_has_a_row_for_each_size_and_is_json(calibrate_found):
    made = json.loads(json.dumps(calibrate_found.to_json()))
    assert made["rows"][0]["cores"] == "all"
    assert made["rows"][0]["jobs"] == len(calibrate_found.unseen.wait)
    assert made["rows"][0]["unseen_mean_wait_s"] == pytest.approx(calibrate_found.unseen.wait.mean(), abs=0.06)
    assert {row["cores"] for row in made["rows"][1:]} == {"1", "2", "3-4", "9-16", "17-32"}
    assert SiteModel.from_dict(made["model"]) == calibrate_found.site
    for part in ("before", "unseen", "model", "replay"):
        assert 0 < made[f"{part}_utilisation"] <= 1
    words = str(calibrate_found)
    assert "model mean" in words
    assert "load factor" in words


def test_a_log_that_waits_less_gets_a_model_with_less_load(log):
    easier = replace(log, wait=log.wait * 0.1)
    assert calibrate(easier, TRUE.cluster(), "easier", tries=4, seeds=1).factor < 0.97


def test_loads_are_tried_until_they_are_between_too_low_and_too_high():
    assert next_factor([], 1.0, 1.5) == 1.0
    assert next_factor([(1.0, -0.1)], 1.0, 1.5) == pytest.approx(1 / STEP)
    assert next_factor([(1.4, -0.1)], 1.0, 1.5) == 1.5
    tried = []
    for _ in range(8):
        factor = next_factor(tried, 1.0, 1.5)
        tried.append((factor, 6 * np.log(factor / 0.777)))
    assert tried[-1][0] == pytest.approx(0.777, rel=1e-3)
    assert 0.8 < next_factor([(0.9, -0.1), (0.8, 0.1)], 1.0, 1.5) < 0.9, "noise"


def test_distances_are_of_mean_waits_by_size():
    one = WaitSample(np.full(80, 600.0 - 60), np.repeat([1, 8], 40), 0.5, 0.5)
    other = WaitSample(np.repeat([300.0 - 60, 1200.0 - 60], 40), np.repeat([1, 8], 40), 0.5, 0.5)
    assert distance(one, other, 8) == pytest.approx((0, np.log(2)))
    assert distance(one, one, 8) == (0, 0)
    few = WaitSample(other.wait[:20], other.cores[:20], 0.5, 0.5)
    assert distance(one, few, 8)[0] == pytest.approx(np.log(2)), "too few for classes: all jobs together"


def test_jobs_with_unknown_waits_are_not_compared(log):
    part = replace(log, wait=np.where(np.arange(len(log)) % 2, log.wait, np.nan))
    assert len(observed(part, TRUE.cluster(), 0, np.inf).wait) == len(log) // 2


def test_what_cannot_be_calibrated_is_refused(log):
    with pytest.raises(InvalidInput, match="tells of no waits"):
        calibrate(replace(log, wait=np.full(len(log), np.nan)), TRUE.cluster(), "x")
    with pytest.raises(InvalidInput, match=r"share=1\.0"):
        calibrate(log, TRUE.cluster(), "x", share=1.0)
    with pytest.raises(InvalidInput, match="seeds=0"):
        calibrate(log, TRUE.cluster(), "x", seeds=0)
    with pytest.raises(InvalidInput, match="known waits"):
        calibrate(log.take(range(60)), TRUE.cluster(), "x")
    with pytest.raises(InvalidInput, match="too small for a model"):
        calibrate(log.between(0, DAY), TRUE.cluster(), "x")


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(("name", "most"), [("KTH-SP2-1996-2", 2.0), ("theta_argonne_2023_norm", 2.0)])
def test_real_sites_waits_are_matched_within_a_factor_on_what_was_not_seen(name, most):
    trace = load_trace(shared_file("swf", f"{name}.swf.gz"))
    found = calibrate(trace.workload, trace.cluster, name)
    assert found.summary()["model_off_by"] < most
    assert found.model.utilisation == pytest.approx(found.before.utilisation, abs=0.15)
