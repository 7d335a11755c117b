"""Dispatchers side by side, and training curves."""

from __future__ import annotations

import json

import numpy as np
import pytest

from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.core.units import HOUR, WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dras_paper.figures import (
    BACKFILLED,
    COMPARED,
    READY,
    RESERVED,
    Compared,
    DispatcherOutcome,
    ModeRecorder,
    by_mode,
    by_size,
    by_week,
    dras_4,
    dras_5,
    overall,
    read_compared,
    side_by_side,
)
from asa.lab.simulator.run import simulate
from asa.lab.study import LogCase
from asa.lab.traces.swf import log_of, write_swf

CLUSTER = Cluster.of(8)
FOUR = Workload.of(submit=[0, 1, 2, 3], run=[10, 10, 5, 20], cores=[6, 8, 2, 2], walltime=[10, 10, 5, 20])
"""The first starts, the second is blocked and promised a start, the third fits before it, the fourth would delay it."""


def many(jobs: int = 300) -> Workload:
    draw = np.random.default_rng(2)
    run = draw.integers(600, 30_000, jobs)
    return Workload.of(
        submit=np.cumsum(draw.integers(0, 14_000, jobs)), run=run, cores=draw.integers(1, 9, jobs), walltime=run
    )


@pytest.fixture(scope="module")
def found() -> Compared:
    return side_by_side(LogCase("made up", many(), CLUSTER), {name: DISPATCHERS.create(name) for name in COMPARED})


def test_modes_by_hand() -> None:
    watched = ModeRecorder(DISPATCHERS.create("easy"))
    schedule = simulate(FOUR, CLUSTER, watched)
    assert schedule.start.tolist() == [0, 10, 2, 20]
    assert [watched.modes[row] for row in range(4)] == [READY, RESERVED, BACKFILLED, RESERVED]


def test_watching_changes_nothing(found: Compared) -> None:
    for each in found.outcomes:
        alone = simulate(many(), CLUSTER, DISPATCHERS.create(each.dispatcher))
        assert each.wait.tolist() == alone.wait.tolist()
        assert each.numbers["mean_wait_s"] == pytest.approx(alone.wait.mean())


def test_what_reserves_nothing_has_ready_jobs_only(found: Compared) -> None:
    """As Table IV says of Optimization, BinPacking and Random; EASY's shares add up."""
    for each in found.outcomes:
        means = each.means(found.jobs)
        assert sum(jobs for jobs, _, _ in means.values()) == pytest.approx(1)
        assert sum(hours for _, hours, _ in means.values()) == pytest.approx(1)
        assert (means[READY][0] == 1) == (each.dispatcher != "easy")
    work = found.jobs.run * found.jobs.cores
    easy = found.outcomes[0]
    mine = easy.mode == RESERVED
    assert easy.means(found.jobs)[RESERVED] == pytest.approx(
        (mine.mean(), work[mine].sum() / work.sum(), easy.wait[mine].mean())
    )


def test_tables(found: Compared) -> None:
    assert [row["dispatcher"] for row in overall(found)] == list(COMPARED)
    sizes = [row for row in by_size(found) if row["dispatcher"] == "easy"]
    assert sum(row["jobs"] for row in sizes) == len(found.jobs.submit)
    assert max(row["longest [d]"] for row in sizes) * 86400 == pytest.approx(found.outcomes[0].wait.max())
    weeks = by_week(found)
    assert sum(row["jobs"] for row in weeks) == len(found.jobs.submit)
    assert sum(row["core-hours"] for row in weeks) == pytest.approx((found.jobs.run * found.jobs.cores).sum() / HOUR)
    first = found.jobs.submit < found.jobs.submit[0] + WEEK
    assert weeks[0]["easy [h]"] == pytest.approx(found.outcomes[0].wait[first].mean() / HOUR)
    assert by_mode(found)[0]["ready [% jobs]"] == pytest.approx(100 * found.outcomes[0].means(found.jobs)[READY][0])


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["dras-6", "dras-8", *(pytest.param(name, marks=SLOW) for name in ("dras-7", "dras-9", "dras-table4"))]
)
def test_figures_from_what_was_measured(name: str, found: Compared, tmp_path, capsys) -> None:
    saved, again, picture = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "a.png"
    saved.write_text(json.dumps(found.to_json()))
    assert main(["figure", name, "--from", str(saved), "--json", str(again), "-o", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG" and "easy" in capsys.readouterr().out
    assert json.loads(again.read_text()) == json.loads(saved.read_text())


def test_the_command_measures(tmp_path, capsys) -> None:
    trace = tmp_path / "log.swf"
    write_swf(log_of(simulate(many(), CLUSTER, "easy")), trace)
    words = ["figure", "dras-8", "--trace", str(trace), "--from-day", "2", "--to-day", "9", "--json", "-"]
    assert main([*words, "--dispatcher", "easy,random:seed=3"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [row["dispatcher"] for row in made["rows"]] == ["easy", "random:seed=3"]
    assert 10 < len(made["jobs"]["cores"]) == len(made["rows"][0]["modes"]) < 300


def curve_file(path, order: list[str], rewards: list[float]) -> str:
    point = {
        "phase": "real", "jobs": 1, "reward": 0.0, "actions": 1, "updates": 1, "cpu_s": 2.0, "mean_wait_s": 60.0,
        "max_wait_s": 60.0, "mean_bounded_slowdown": 1.0, "utilisation": 0.5,
    }  # fmt: skip
    curve = [point | {"episode": k, "validation_reward": reward} for k, reward in enumerate(rewards, start=1)]
    plan = {"order": order, "kind": "pg", "objective": "capacity", "seed": 0}
    path.write_text(json.dumps({"plan": plan, "curve": curve}))
    return str(path)


def test_curves(tmp_path, capsys) -> None:
    one = curve_file(tmp_path / "a.json", ["sampled", "real"], [1.0, 5.0, 3.0])
    two = curve_file(tmp_path / "b.json", ["real", "sampled"], [2.0])
    rows = dras_4(source=f"{one},{two}").table()
    assert [row["training"] for row in rows] == ["sampled, real", "real, sampled"]
    assert (rows[0]["best"], rows[0]["of episode"], rows[0]["CPU [s]"]) == (5.0, 2, 6.0)
    assert len(dras_5(source=f"{one},{two}").table()) == 2  # of the same name, told apart
    assert main(["figure", "dras-5", "--from", f"{one},{two}", "-o", str(tmp_path / "c.png")]) == 0
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"


def test_what_is_refused(tmp_path, capsys, found: Compared) -> None:
    assert main(["figure", "dras-6"]) == 1
    assert "give --trace" in capsys.readouterr().err
    assert main(["figure", "dras-4"]) == 1
    assert "asa train dras --json" in capsys.readouterr().err
    (tmp_path / "x.json").write_text('{"curve": []}')
    with pytest.raises(InvalidInput, match="asa train dras --json"):
        dras_4(source=str(tmp_path / "x.json"))
    with pytest.raises(InvalidInput, match="asa figure dras-6"):
        read_compared(tmp_path / "x.json")
    short = Compared(
        "", found.jobs, (DispatcherOutcome("easy", {}, found.outcomes[0].wait[:5], found.outcomes[0].mode[:5]),)
    )
    (tmp_path / "y.json").write_text(json.dumps(short.to_json()))
    with pytest.raises(InvalidInput, match="do not fit"):
        read_compared(tmp_path / "y.json")
    with pytest.raises(InvalidInput, match="no job ran"):
        side_by_side(
            LogCase("none", Workload.of(submit=[0], run=[1], cores=[9]), CLUSTER), {"fcfs": DISPATCHERS.create("fcfs")}
        )
