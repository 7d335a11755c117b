"""The placement paper: windows, figures, and the training of the repair operator."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asa.cli.main import main
from asa.core.errors import InvalidInput, UnknownName
from asa.core.registry import DISPATCHERS
from asa.lab import study
from asa.lab.core.files import write_tensors
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.nsa_paper import figures
from asa.lab.nsa_paper.figures import (
    ALONE,
    CHANGE,
    CORRECTED,
    FIGURE_6,
    STEPS,
    TABLE_3,
    TABLE_4,
    TABLES,
    EpochRow,
    WindowsRow,
    change,
    gain_table,
    in_windows,
    loop,
    loop_table,
    neural,
    on_windows,
    plain,
    three_hundred,
    tjap_5,
    tjap_6,
    tjap_loop,
    windows_table,
)
from asa.lab.nsa_paper.windows import (
    BETWEEN,
    GEOMETRIES,
    MOST,
    NODES,
    PERIOD_S,
    alone,
    costs,
    epoch,
    epochs,
    machine,
    moved,
    recorded,
    tree_of,
    uniform,
    workload,
)
from asa.lab.placement.tjap.instance import Placed, Window, cost
from asa.lab.placement.tjap.nsa import NETWORKS
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.simulator.run import simulate
from asa.lab.traces.patterns import offered_load
from tests.lab.traces.shared import shared_file

# -- The workload ----------------------------------------------------------------------------------------------------


def test_ranges_are_those_of_the_paper_and_all_values_equally_likely() -> None:
    made = uniform(seed=1)
    assert len(made) == 100_000
    for values, low, high in ((made.cores, 1, 40), (made.run, 10, 1800), (np.diff(made.submit), 5, 30)):
        counts = np.bincount(values.astype(int))
        assert not counts[:low].any()
        assert len(counts) == high + 1
        expected = len(values) / (high - low + 1)
        assert np.abs(counts[low:] - expected).max() < 5 * np.sqrt(expected)
    assert (made.walltime == made.run).all()


def test_a_thousand_nodes_are_offered_six_percent_too_much() -> None:
    assert offered_load(uniform(seed=2), 1000) == pytest.approx(1.06, abs=0.01)


def test_a_workload_without_jobs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="0 jobs: at least 1"):
        uniform(0, seed=1)


@pytest.mark.shared
def test_like_the_authors_own_file() -> None:
    with gzip.open(shared_file("tjap", "hpcschedule-workload-100k.txt.gz"), "rt") as file:
        log = np.loadtxt(file)
    made = uniform(seed=1)
    assert (log[:, 2].min(), log[:, 2].max(), log[:, 3].min(), log[:, 3].max()) == (10, 1800, 1, 40)
    assert made.submit[-1] == pytest.approx(log[-1, 1], rel=0.005)
    assert float(made.run @ made.cores) == pytest.approx(float(log[:, 2] @ log[:, 3]), rel=0.01)


# -- Windows ----------------------------------------------------------------------------------------------------------


class Remembers:
    """Places as `seq` does, and keeps which nodes each job got."""

    def __init__(self) -> None:
        self.given: list[list[list[int]]] = []

    def place(self, window: Window) -> Placed:
        found = Sequential().place(window)
        self.given.append([window.idle[mine].tolist() for mine in found.places])
        return found


@pytest.mark.parametrize(("geometry", "pods", "hops"), [("code", 25, [1, 3, 5]), ("text", 10, [2, 4, 6])])
def test_an_epoch(geometry, pods, hops):
    method = Remembers()
    found = epoch(method, seed=3, geometry=geometry)
    assert 80 <= len(found) <= min(100, len(method.given))  # it goes on until all jobs are done
    assert found[0].idle.tolist() == list(range(NODES)) and len(set(found[0].groups[1].tolist())) == pods
    assert found[0].hops.tolist() == hops
    for window in found:
        assert 1 <= len(window.sizes) <= MOST and window.sizes.min() >= 2 and window.sizes.max() <= 40
    assert np.mean([len(window.sizes) for window in found]) == pytest.approx(3.24, abs=0.4)  # authors' workload
    before = {node for mine in method.given[0] for node in mine}
    assert before.isdisjoint(found[1].idle.tolist()) or len(found[1].idle) == NODES  # runs take 10 s and more


def test_seeds():
    sizes = [[window.sizes.tolist() for window in epoch(Sequential(), seed=seed)] for seed in (1, 1, 2)]
    assert sizes[0] == sizes[1] != sizes[2]


def test_another_geometry():
    with pytest.raises(UnknownName, match="code, text"):
        epoch(Sequential(), seed=0, geometry="torus")


def test_a_file_has_a_line_for_each_job(tmp_path: Path) -> None:
    plain, packed = tmp_path / "jobs.txt", tmp_path / "jobs.txt.gz"
    text = "1  14  50  4\n2  20  1080  10\n"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        jobs = workload(path)
        assert jobs.submit.tolist() == [14, 20] and jobs.run.tolist() == [50, 1080] and jobs.cores.tolist() == [4, 10]


@pytest.mark.parametrize("text", ["1 2 3\n", "a b c d\n", ""])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"jobs\.txt"):
        workload(path)
    with pytest.raises(InvalidInput, match="nowhere"):
        workload(tmp_path / "nowhere")


def test_epochs_begin_on_an_empty_machine_half_a_second_before_their_first_job() -> None:
    jobs = workload(jobs=1000)
    first, second = epochs(jobs, 1, 2, periods=10)
    assert first.number[0] == BETWEEN + 1 and second.number[0] == 2 * BETWEEN + 1
    assert first.submit[0] == 0.5 and first.submit[-1] < 600.5
    with pytest.raises(InvalidInput, match="too few for epoch 2"):
        list(epochs(jobs, 1, 2))


def test_costs_are_those_of_the_nodes() -> None:
    jobs = moved(workload(jobs=6), 0.0)
    schedule = simulate(jobs, machine(), "fcfs")
    for geometry in GEOMETRIES.values():
        hops, tree = geometry.convention, tree_of(geometry)
        for row, paid in enumerate(costs(schedule, geometry)):
            nodes = [node for run in schedule.placements.of(row) for node in range(run.first, run.last + 1)]
            by_level = tree.hops(hops)
            pairs = [by_level[tree.level(str(a), str(b))] for a in nodes for b in nodes if a < b]
            assert paid == pytest.approx(1000 * sum(pairs) / len(nodes))


def test_alone_a_job_pays_for_neighbours_in_few_switches() -> None:
    code, text = alone(GEOMETRIES["code"]), alone(GEOMETRIES["text"])
    assert code[0] == code[1] == 0.0
    assert code[10] == 1000 * 45 / 10 and text[10] == 2000 * 45 / 10
    # Two leaf switches of one pod: ten nodes and ten, 90 pairs in each leaf and 100 across.
    assert code[20] == pytest.approx(1000 * (90 * 1 + 100 * 3) / 20)
    assert (np.diff(code[1:]) > 0).all()


# -- Figures ----------------------------------------------------------------------------------------------------------

CODE = GEOMETRIES["code"]


@pytest.mark.slow
def test_the_loop_compares_dispatchers_on_clusters_of_their_own() -> None:
    jobs = list(epochs(workload(jobs=900), 0, 2, periods=40))
    specs = ("nwp:method=seq", "nwp:method=scas")
    rows = loop(jobs, specs, CODE, periods=40)
    assert [(row.dispatcher, row.epoch) for row in rows] == [(name, k) for name in (ALONE, *specs) for k in (0, 1)]
    alone, first, second = (rows[place : place + 2] for place in (0, 2, 4))
    for bound, seq, scas in zip(alone, first, second, strict=True):
        assert bound.cost < scas.cost < seq.cost
        assert bound.jobs == seq.jobs == scas.jobs and bound.wait_s == seq.wait_s == scas.wait_s
        assert scas.decisions > 30 and 0 < scas.mean_s <= scas.max_s


@pytest.mark.slow
def test_recorded_windows_cost_what_the_schedule_costs() -> None:
    (jobs,) = epochs(workload(jobs=500), 0, 1, periods=60)
    seq = PLACEMENT_METHODS.create("seq")
    windows = recorded(jobs, CODE, seq, periods=30)
    schedule = simulate(jobs, machine(), in_windows("nwp:method=seq", CODE))
    paid = costs(schedule, CODE)[schedule.start <= 1800].sum()
    assert sum(cost(each, seq.place(each)) for each in windows) == pytest.approx(paid)
    (row,) = on_windows([windows], ["seq"], periods=30)
    assert row.windows == len(windows) <= 30 and row.cost == pytest.approx(paid / 30)


def test_windows_need_a_network_and_other_dispatchers_do_not() -> None:
    assert in_windows("fcfs", CODE) == "fcfs"
    assert in_windows("nwp:method=seq", CODE) != "nwp:method=seq"


def test_windows_of_every_epoch_are_placed() -> None:
    window = Window(np.arange(4), np.array([[0, 0, 1, 1], [0, 0, 0, 0]]), np.array([2]), np.array([1, 3]))
    rows = on_windows([[window], [window] * 2, []], ["seq", "scas"])
    assert [(row.method, row.epoch, row.windows) for row in rows] == [
        (method, epoch, count) for epoch, count in enumerate((1, 2, 0)) for method in ("seq", "scas")
    ]
    assert [row.cost for row in rows[::2]] == pytest.approx([rows[0].cost * count for count in (1, 2, 0)])


class Compiler:
    """Notes of what is compiled, once each, whether that was in a call that is timed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known, self.late, self._timing = set[int](), list[int](), False
        for module in (figures, study):
            monkeypatch.setattr(module, "clocked", self._clocked)

    def _clocked(self, call: Any, *given: Any) -> tuple[Any, float, float]:
        self._timing = True
        try:
            return call(*given), 0.001, 0.001
        finally:
            self._timing = False

    def compile(self, what: int) -> None:
        if what not in self.known and self._timing:
            self.late.append(what)
        self.known.add(what)


def test_what_compiles_does_so_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that compiles something for the first window of each number of jobs."""
    compiler = Compiler(monkeypatch)

    class Compiling(Sequential):
        def place(self, window: Window) -> Placed:
            compiler.compile(len(window.sizes))
            return super().place(window)

    monkeypatch.setattr(PLACEMENT_METHODS, "create", lambda spec: Compiling())
    groups = np.array([[0, 0, 1, 1], [0, 0, 0, 0]])
    one, two = (Window(np.arange(4), groups, np.array(sizes), np.array([1, 3])) for sizes in ([2], [2, 2]))
    rows = on_windows([[], [one, two], [two, one]], ["compiles"])
    assert [row.windows for row in rows] == [0, 2, 2]
    assert (compiler.known, compiler.late) == ({1, 2}, [])


def test_what_compiles_in_a_loop_does_so_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatcher that compiles something for the first decision that starts so many jobs."""
    create, compiler = DISPATCHERS.create, Compiler(monkeypatch)

    class Compiling:
        window = PERIOD_S

        def __init__(self, spec: str) -> None:
            self._inside = create(spec)

        def decide(self, view: Any) -> Any:
            found = self._inside.decide(view)
            compiler.compile(len(found))
            return found

    monkeypatch.setattr(DISPATCHERS, "create", Compiling)
    loop(epochs(workload(jobs=900), 0, 1, periods=40), ["nwp:method=seq"], CODE, periods=40)
    assert len(compiler.known) > 3 and compiler.late == []


def test_changes_are_paired_over_epochs() -> None:
    found = change(np.array([90.0, 180.0, 45.0]), np.array([100.0, 200.0, 50.0]))
    assert found.value == pytest.approx(-10.0) and found.low == pytest.approx(-10.0) == found.high


def loop_row(name: str, cost: float, epoch: int = 0) -> EpochRow:
    return EpochRow(name, "code", epoch, 3, cost, cost / 3, 60.0, 4, 0.002, 0.004)


def test_the_loops_table_shows_changes_to_the_first_and_what_is_above_alone() -> None:
    rows = [loop_row(ALONE, 50.0), loop_row("a", 100.0), loop_row("b", 80.0)]
    alone, first, second = loop_table(rows)
    assert (first[CHANGE].value, first["above alone [%]"]) == pytest.approx((0.0, 100.0))
    assert second[CHANGE].value == pytest.approx(-20.0) and second["above alone [%]"] == pytest.approx(60.0)
    assert alone[CHANGE].value == pytest.approx(-50.0) and second["mean [ms]"] == pytest.approx(2.0)


def test_published_figures_stand_beside_methods_that_have_some() -> None:
    first, other, scas = windows_table([WindowsRow(name, 0, 9, 100.0, 0.001, 0.002) for name in ("seq", "sa", "scas")])
    assert first["published"] == round(TABLES["seq"][0]) and other["published"] is None
    assert scas["published [%]"] == pytest.approx(-20.9, abs=0.1) and scas["published [ms]"] == 18_960


FIGURE_5 = [method for steps in STEPS for method in (*plain(steps), neural(steps), neural(steps, "a/cnn-3.x"))]


def test_figure_5_compares_networks_with_annealing_of_twice_the_iterations() -> None:
    assert plain(500) == ("sa:as_published=yes,iterations=1000", "sa:iterations=1000")
    paid = dict(zip((*plain(500), neural(500), neural(500, "a/cnn-3.x")), (100.0, 90.0, 95.0, 81.0), strict=True))
    rows = [WindowsRow(name, epoch, 9, cost, 0.001, 0.002) for name, cost in paid.items() for epoch in (0, 1)]
    ships, other = gain_table(rows)
    assert (ships["network"], other["network"]) == ("nsa", "cnn-3")
    assert (ships["iterations"], ships["of sa"], ships["windows"]) == (500, 1000, 18)
    assert (ships[CHANGE].value, other[CHANGE].value) == pytest.approx((-5.0, -19.0))
    assert other[CORRECTED].value == pytest.approx(-10.0)


@pytest.mark.slow
def test_figure_5_takes_networks_of_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    zeros = {f"{place}.{part}": np.zeros(shape, np.float32) for place, layer in enumerate(NETWORKS["fcn-1"])
             if layer.inputs for part, shape in (("weight", layer.shape), ("bias", layer.shape[:1]))}  # fmt: skip
    model = tmp_path / "mine.safetensors"
    write_tensors(model, zeros, {"network": "fcn-1", "state": "steps", "biggest": 40})
    lines = tjap_5(models=[str(model)], epochs_shown=1).table()
    assert [(line["network"], line["iterations"]) for line in lines] == [("mine", steps) for steps in STEPS]
    assert all(80 <= line["windows"] <= 100 for line in lines)


@pytest.mark.parametrize("name", ["tjap-loop", "tjap-6"])
def test_a_figure_is_drawn_again_from_its_rows(name: str, tmp_path: Path, capsys: Any) -> None:
    names = FIGURE_6 if name == "tjap-6" else (ALONE, "nwp:method=seq", "nwp:method=free")
    rows = [loop_row(each, 30.0 + place + epoch, epoch) for place, each in enumerate(names) for epoch in range(3)]
    drawn_again(name, rows, list(names)[-1], tmp_path, capsys)


@pytest.mark.parametrize(
    ("name", "methods", "shown"),
    [("tjap-table3", TABLE_3, "published"), ("tjap-table4", TABLE_4, "published"),
     ("tjap-5", FIGURE_5, "iterations")],
)  # fmt: skip
def test_a_figure_of_windows_is_too(
    name: str, methods: Sequence[str], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [WindowsRow(each, epoch, 9, 30.0 + epoch, 0.001, 0.002) for each in methods for epoch in range(3)]
    drawn_again(name, rows, shown, tmp_path, capsys)


def drawn_again(name: str, rows: Sequence[Any], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, again, picture = tmp_path / "rows.json", tmp_path / "again.json", tmp_path / "figure.svg"
    source.write_text(json.dumps({"rows": [asdict(row) for row in rows]}))
    assert main(["figure", name, "--from", str(source), "--json", str(again), "-o", str(picture)]) == 0
    assert json.loads(again.read_text()) == json.loads(source.read_text())
    assert picture.read_text().startswith("<?xml") and shown in capsys.readouterr().out


def test_options_belong_to_some_figures_only(capsys: Any) -> None:
    assert main(["figure", "tjap-6", "--overestimate", "3"]) != 0
    assert "it is for tjap-loop" in capsys.readouterr().err
    with pytest.raises(InvalidInput, match="at least 1"):
        tjap_loop(overestimate=0.5)


@pytest.mark.slow
def test_windows_of_figure_6_make_jobs_wait_longer_and_pay_less() -> None:
    rows = {row.dispatcher: row for row in tjap_6(epochs_shown=1, method="scas").rows}
    assert rows["fcfs"].wait_s < rows["nwp 10 s"].wait_s < rows["nwp 60 s"].wait_s
    assert rows["nwp 60 s"].job_cost < rows["nwp 10 s"].job_cost < rows["fcfs"].job_cost
    with pytest.raises(InvalidInput, match="epoch 1"):
        three_hundred(workload(jobs=599), 1)


@pytest.mark.shared
def test_fcfs_costs_on_the_authors_workload_what_they_published() -> None:
    jobs = workload(shared_file("tjap", "hpcschedule-workload-100k.txt.gz"))
    paid, waits = [], []
    for number in range(10):
        schedule = simulate(three_hundred(jobs, number), machine(), "fcfs")
        paid.append(costs(schedule, CODE).mean())
        waits.append(schedule.wait.mean())
    # Whole numbers of each epoch were published, rounded down; where a job comes at the instant at which another ends,
    # their code starts it before those nodes are free.
    assert np.mean(paid) == pytest.approx(FIGURE_6["fcfs"][0], rel=5e-3)
    assert np.mean(waits) == pytest.approx(FIGURE_6["fcfs"][1], abs=1.0)
