"""Workloads and windows of the paper."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.nsa_paper.windows import (
    BETWEEN,
    GEOMETRIES,
    MOST,
    NODES,
    alone,
    costs,
    epoch,
    epochs,
    machine,
    moved,
    tree_of,
    workload,
)
from asa.lab.placement.tjap.instance import Placed, Window
from asa.lab.placement.tjap.seq import Sequential
from asa.lab.simulator.run import simulate


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
