"""Where the machine and other people's jobs come from."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.backend.scene import Machine, at_load, make_scene
from asa.lab.core.cluster import Cluster
from asa.lab.traces.offered import offered_load


def swf(path: Path, *, header: str = "; MaxProcs: 64\n", days: int = 4) -> Path:
    """A log with a job of two cores every hour."""
    rows = [f"{n} {3600 * n} 0 1800 2 -1 -1 2 3600 -1 1 1 1 1 1 1 -1 -1" for n in range(24 * days)]
    path.write_bytes(gzip.compress((header + "\n".join(rows) + "\n").encode()))
    return path


def test_a_trace_is_cut_to_the_days_asked_for(tmp_path: Path) -> None:
    scene = make_scene(Machine(), trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=2)
    assert scene.name == "sim-log"
    assert (scene.start, scene.end) == (DAY, 3 * DAY)
    assert len(scene.workload) == 72
    assert scene.cluster.cores == 64


def test_a_short_trace_ends_earlier(tmp_path: Path) -> None:
    scene = make_scene(Machine(), trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=30)
    assert scene.end == 3600 * 95
    with pytest.raises(InvalidInput, match="smaller warmup="):
        make_scene(Machine(), trace=swf(tmp_path / "log.swf.gz"), warmup=4, days=1)


@pytest.mark.parametrize(
    ("machine", "nodes", "cores"), [(Machine(cores=8), 8, 64), (Machine(nodes=4), 4, 4), (Machine(2, 32), 2, 64)]
)
def test_a_traces_machine_can_be_given(tmp_path: Path, machine: Machine, nodes: int, cores: int) -> None:
    scene = make_scene(machine, trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=2)
    assert (scene.cluster.nodes, scene.cluster.cores) == (nodes, cores)


def test_a_trace_without_a_machine_needs_one(tmp_path: Path) -> None:
    path = swf(tmp_path / "log.swf.gz", header="")
    with pytest.raises(InvalidInput, match="give nodes"):
        make_scene(Machine(), trace=path, warmup=1, days=2)
    with pytest.raises(InvalidInput, match="give nodes"):
        make_scene(Machine(cores=4), trace=path, warmup=1, days=2)
    assert make_scene(Machine(nodes=4), trace=path, warmup=1, days=2).cluster.cores == 4
    with pytest.raises(InvalidInput, match="no whole nodes of 7"):
        make_scene(Machine(cores=7), trace=swf(tmp_path / "log.swf.gz"), warmup=1, days=2)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    nodes=st.integers(2, 40),
    cores=st.sampled_from([1, 8, 28]),
    load=st.floats(0.2, 1.2),
    days=st.floats(0.5, 10),
    seed=st.integers(0, 9),
)
def test_a_load_lasts_as_long_as_asked(nodes: int, cores: int, load: float, days: float, seed: int) -> None:
    cluster = Cluster.of(nodes, cores)
    made = at_load(cluster, load, days * DAY, seed)
    assert (made.submit < days * DAY).all()
    assert not made.walltime.size or (made.walltime >= made.run).all()
    whole = at_load(cluster, load, 50 * DAY, seed)
    assert whole.submit[-1] > 35 * DAY, "gaps have heavy tails: some are of a week"
    assert offered_load(whole, cluster.cores) == pytest.approx(load, rel=0.5), "but for what was cut off"


def test_a_single_core_has_no_such_load() -> None:
    with pytest.raises(InvalidInput, match="two cores"):
        make_scene(Machine(), load=0.5, warmup=1, days=1)
