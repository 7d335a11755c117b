from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.simulator.run import simulate
from asa.lab.studies.tjap_case import BETWEEN, alone, costs, epochs, moved, tree_of, workload
from asa.lab.training.windows import GEOMETRIES, machine


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
