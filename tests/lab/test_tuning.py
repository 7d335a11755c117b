from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.cli.main import main
from asa.core.errors import AsaError, InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.cli.tune import line_of
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import ORDERS
from asa.lab.simulator.run import simulate
from asa.lab.traces.load import load_trace
from asa.lab.traces.swf import log_of, write_swf
from asa.lab.tuning import OBJECTIVES, VALUES, PartWaits, Trial, TunedRule, intervals, measures

MACHINE = Cluster.of(nodes=8)


def busy(seed: int = 0, count: int = 400) -> Workload:
    """Five weeks in which jobs wait."""
    draw = np.random.default_rng(seed)
    run = np.round(draw.lognormal(7.5, 1.5, count)) + 1
    return Workload.of(
        submit=np.sort(draw.uniform(0, 35 * 86400, count)), run=run, walltime=run * draw.integers(1, 20, count),
        cores=2 ** draw.integers(0, 4, count), user=draw.integers(0, 9, count),
    )  # fmt: skip


def crowded() -> Workload:
    return busy(count=800)


@given(
    st.builds(
        TunedRule,
        **{name: st.sampled_from(of) for name, of in VALUES.items()},
        predictor=st.sampled_from(["", "alike"]),
    )
)
def test_a_rule_is_the_dispatcher_that_it_is_called(rule: TunedRule) -> None:
    made = DISPATCHERS.create(str(rule))
    assert (made.depth, made.order.name, made.predictor) == (rule.depth, rule.order, rule.predictor or None)
    assert made.order.threshold == rule.threshold_h * 3600
    assert made.order.oldest == rule.oldest
    assert set(VALUES["order"]) == set(ORDERS)


def test_without_a_threshold_there_is_one_rule_whatever_the_oldest() -> None:
    assert TunedRule(threshold_h=math.inf, oldest=2) == TunedRule(threshold_h=math.inf)


def test_a_share_of_nothing_is_printed() -> None:
    """Where one job of 400 waits under EASY, its 99th percentile is 0, and any other is infinitely longer."""
    ones, week = np.ones(400), np.zeros(400, dtype=np.int64)
    easy = PartWaits(np.eye(1, 400).ravel(), ones, week)
    line = line_of(
        {"dispatcher": "fcfs", "mean_wait_s": 1.0, "of_easy": intervals(PartWaits(ones, ones, week), easy)._asdict()}
    )
    assert line["p99"] == "inf"


def test_parts_are_counted_by_themselves_with_the_queue_that_was_before() -> None:
    jobs = crowded()
    trial = Trial(jobs, MACHINE)
    whole = simulate(jobs, MACHINE, "easy").wait
    for part, rows in enumerate((slice(0, 480), slice(480, 640), slice(640, 800))):
        alone = simulate(jobs.take(np.arange(rows.stop)), MACHINE, "easy").wait
        assert trial.outcome("easy", part).wait.tolist() == alone[rows].tolist()
    assert trial.outcome("easy", 2).wait.tolist() == whole[640:].tolist()


@settings(max_examples=2, deadline=None)
@given(st.sampled_from(OBJECTIVES), st.sampled_from([1.0, 1.1, 2.0]), st.integers(0, 3))
def test_what_is_tuned_keeps_the_limit_and_beats_easy_where_it_was_chosen(what: str, longest: float, seed: int) -> None:
    done: list[tuple[int, int]] = []
    trial = Trial(crowded(), MACHINE, objective=what, longest=longest, progress=lambda n, of, _: done.append((n, of)))
    chosen = trial.tune(8, best=2, seed=seed)
    assert [n for n, _ in done] == list(range(1, len(done) + 1))
    assert all(n <= of for n, of in done)
    assert chosen == Trial(crowded(), MACHINE, objective=what, longest=longest).tune(8, best=2, seed=seed)
    fitted, by = (
        [a / b for a, b in zip(measures(trial.outcome(chosen, k)), measures(trial.outcome("easy", k)), strict=True)]
        for k in (0, 1)
    )
    assert max(fitted[3], by[3]) <= longest
    assert {"wait": by[0], "slowdown": by[1], "both": math.sqrt(by[0] * by[1])}[what] <= 1


def test_nothing_but_easy_is_left_where_no_rule_keeps_the_limit() -> None:
    assert Trial(crowded(), MACHINE, longest=0.01).tune(2, predictors=()) == "easy"


@given(st.integers(0, 99), st.floats(0.1, 10))
def test_intervals_are_of_pairs(seed: int, factor: float) -> None:
    draw = np.random.default_rng(seed)
    week = np.sort(draw.integers(0, 8, 60))
    easy = PartWaits(draw.uniform(1, 100, 60), draw.uniform(1, 9, 60), week)
    found = intervals(PartWaits(easy.wait * factor, easy.slowdown, week), easy, seed=seed)
    for each in (found.wait, found.longest):
        assert [each.value, each.low, each.high] == pytest.approx([factor] * 3)
    assert [found.slowdown.value, found.slowdown.low, found.slowdown.high] == pytest.approx([1.0] * 3)
    assert found.p99.value == pytest.approx(factor) and found.p99.low is None
    other = intervals(PartWaits(draw.permutation(easy.wait), easy.slowdown, week), easy, seed=seed)
    assert other.wait.low < other.wait.high and other.wait.value == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"objective": "joy"}, "unknown objective 'joy'"),
        ({"longest": math.nan}, "longest=nan: a finite share"),
        ({"longest": 0.0}, "above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(AsaError, match=says):
        Trial(crowded(), MACHINE, **options)  # type: ignore[arg-type]


def test_a_log_with_nothing_to_gain_is_refused() -> None:
    with pytest.raises(InvalidInput, match="99 jobs: at least 100"):
        Trial(busy(count=99), MACHINE)
    with pytest.raises(InvalidInput, match="none of the first 60 % of the jobs waits"):
        Trial(busy(), Cluster.of(nodes=10_000))
    with pytest.raises(InvalidInput, match="at least 1 of each"):
        Trial(crowded(), MACHINE).tune(0)


def test_the_command_prints_a_dispatcher_that_simulate_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "busy.swf", tmp_path / "out.json"
    write_swf(log_of(simulate(crowded(), MACHINE, "easy")), log)
    beside = "easy++,easy:order=wfp3"
    assert main(["tune", str(log), "--evaluations", "6", "--beside", beside, "--json", str(out), "--quiet"]) == 0
    rows = json.loads(out.read_text())["rows"]
    tuned = next(row for row in rows if row["tuned"])
    assert f"--dispatcher {tuned['dispatcher']}" in capsys.readouterr().out
    assert [row["dispatcher"] for row in rows] == ["easy", tuned["dispatcher"], *beside.split(",")]
    assert rows[0]["of_easy"]["wait"]["value"] == 1.0
    assert main(["simulate", str(log), "--dispatcher", tuned["dispatcher"], "--quiet"]) == 0


def test_the_command_refuses_in_one_line_and_goes_on_with_other_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, few = tmp_path / "busy.swf", tmp_path / "few.swf"
    write_swf(log_of(simulate(crowded(), MACHINE, "easy")), log)
    write_swf(log_of(simulate(busy(count=50), MACHINE, "easy")), few)
    for words, says in (
        (["--evaluations", "0"], "1 or more expected; asa bench only compares"),
        (["--seed", "-1"], "--seed -1: 0 or more expected"),
        (["--predictors", "oracle"], "knows what no site does"),
        (["--predictors", "alyke"], "unknown predictor 'alyke'"),
        (["--beside", "eazy"], "unknown dispatcher 'eazy'"),
        (["--objective", "joy"], "unknown objective 'joy'"),
    ):
        assert main(["tune", str(log), *words]) != 0
        assert says in (error := capsys.readouterr().err) and error.count("\n") == 1
    assert main(["bench", "dispatchers", str(few), str(log), "--dispatchers", "fcfs", "--quiet"]) == 1
    text = capsys.readouterr().err
    assert "few.swf: 50 jobs: at least 100 expected" in text and "fcfs" in text


def test_a_log_without_requested_times_is_tuned_and_compared_with_a_predictor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "busy.swf", tmp_path / "out.json"
    jobs = crowded()
    write_swf(log_of(simulate(replace(jobs, walltime=np.full(len(jobs), np.nan)), MACHINE, "fcfs")), log)
    tune, bench = ["tune", str(log), "--evaluations", "2"], ["bench", "dispatchers", str(log), "--dispatchers", "fcfs"]
    for words in (tune, bench):
        assert main([*words, "--quiet"]) == 1
        said = capsys.readouterr().err
        assert "has a requested time, with which EASY plans" in said and "give a --predictor for all, oracle" in said
        for predictor in ("oracle", "last-two:default_s=600"):
            assert main([*words, "--quiet", "--predictor", predictor, "--json", str(out)]) == 0
            assert f"--predictor {predictor}\n" in capsys.readouterr().out
            rows = {row["dispatcher"]: row for row in json.loads(out.read_text())["rows"]}
            assert "easy" in rows and ("fcfs" in rows or words is tune) and "easy++" not in rows
    machine = {"cluster": MACHINE, "predictor": "oracle"}
    trace = load_trace(log)
    ran = simulate(trace.workload, MACHINE, "fcfs", predictor="oracle")
    (easy, fcfs), refused = Trial(trace.workload, **machine).report(["fcfs"])
    assert not refused and fcfs["mean_wait_s"] == pytest.approx(float(ran.wait[int(0.8 * len(jobs)) :].mean()))
    assert easy["mean_wait_s"] < fcfs["mean_wait_s"]
    assert main([*tune, "--predictor", "oracle", "--predictors", "alike"]) == 1
    assert "--predictors alike: all plan with --predictor oracle" in capsys.readouterr().err
    assert main([*bench, "--predictor", "oracel"]) == 2


def test_dispatchers_are_compared_as_beside_a_tuned_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "busy.swf", tmp_path / "out.json"
    write_swf(log_of(simulate(crowded(), MACHINE, "easy")), log)
    found = []
    for words in (
        ["tune", str(log), "--evaluations", "1", "--beside"],
        ["bench", "dispatchers", str(log), "--dispatchers"],
    ):
        assert main([*words, "fcfs,easy++", "--json", str(out), "--quiet"]) == 0
        found.append({row["dispatcher"]: row["of_easy"] for row in json.loads(out.read_text())["rows"]})
    tuned, compared = found
    assert list(compared) == ["easy", "fcfs", "easy++"] and compared.items() <= tuned.items()
