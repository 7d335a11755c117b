from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.workload import Workload
from asa.lab.studies.cp_case import case, kit, on_nodes


def test_some_days_like_euroras() -> None:
    two, one = case(to_day=2.0, seed=3), case(from_day=1.0, to_day=2.0, seed=3)
    assert two.name == "like Eurora's" and two.cluster.nodes == 64
    assert 0 < len(one.workload) < len(two.workload)
    assert one.workload.submit.tolist() == two.workload.submit[-len(one.workload) :].tolist()
    with pytest.raises(InvalidInput, match="no job is submitted from day 400"):
        case(from_day=400.0, to_day=401.0)


@pytest.mark.parametrize(("cores", "nodes"), [(8, 8), (24_048, 1173)])
def test_a_log(tmp_path: Path, cores: int, nodes: int) -> None:
    rows = ((1, 0, 8), (2, 5, 3), (3, 2 * DAY, 1))
    lines = [f"{number} {at:.0f} -1 10 {size} -1 -1 {size} 20 -1 1 1 1 1 1 1 -1 -1" for number, at, size in rows]
    (tmp_path / "log.swf").write_text(f"; MaxProcs: {cores}\n" + "\n".join(lines) + "\n")
    found = case(str(tmp_path / "log.swf"))
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
