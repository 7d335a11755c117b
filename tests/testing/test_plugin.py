"""The pytest plugin, and the page that explains it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import asa
from asa.core.errors import RunFailed
from asa.core.event import RunEnded, RunStarted
from asa.lab.testing import SimulatedCluster, simulated_cluster_fixture

__all__ = ["simulated_cluster_fixture"]  # wherever the plugin is not installed, it is here

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "test-your-workflow.md"
Factory = Callable[..., SimulatedCluster]


@asa.stage(cores=8, walltime="1h", run_time="10m")
def square(x: int) -> int:
    return x * x


@asa.stage(run_time="1m")
def fail() -> None:
    raise ValueError("no such band")


def test_a_run_and_what_came_of_it(simulated_cluster: Factory) -> None:
    run = simulated_cluster(load=0).run(square.map(range(40)), strategy="per-stage")
    assert run.value == [x * x for x in range(40)]
    assert isinstance(run.events[0], RunStarted)
    assert run.events[0].strategy == "per-stage"
    assert any(isinstance(event, RunEnded) for event in run.events)
    assert run.summary.makespan_s == 5 * 600


def test_every_run_begins_at_the_same_moment(simulated_cluster: Factory) -> None:
    cluster = simulated_cluster(load=0.9, seed=2)
    first, second = cluster.run(square.map(range(40))), cluster.run(square.map(range(40)))
    assert [event.at for event in first.events] == [event.at for event in second.events]
    other = simulated_cluster(load=0.9, seed=1).run(square.map(range(40)))
    assert other.summary.makespan_s != first.summary.makespan_s


def test_the_backend_goes_on(simulated_cluster: Factory, tmp_path: Path) -> None:
    cluster = simulated_cluster(nodes=2, cores_per_node=4)
    assert cluster.backend.capabilities().site == "sim-2x4-load0.7"
    before = cluster.backend.clock.now()
    run = asa.run(square.options(cores=4).map(range(3)), backend=cluster.backend, state=tmp_path)
    assert run.result() == [0, 1, 4]
    run.wait()
    assert cluster.backend.clock.now() >= before + 600


def test_a_failure_is_raised_where_the_value_is_asked_for(simulated_cluster: Factory) -> None:
    run = simulated_cluster(load=0).run(fail())
    with pytest.raises(RunFailed, match="no such band"):
        _ = run.value


def test_sites_and_options(simulated_cluster: Factory) -> None:
    assert simulated_cluster(site="uppmax", days=1, warmup=0.5).backend.capabilities().cores_per_node == 20
    assert simulated_cluster(memory="64G", load=0).backend.capabilities().largest.memory == 4 * 2**36


def test_loading_it_is_cheap() -> None:
    heavy = {"numpy", "numba", "asa.workflows", "asa.backends"}
    code = f"import sys, asa.lab.testing; print(*sorted({heavy!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_howto_runs_as_printed(tmp_path: Path) -> None:
    example = HOWTO.read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "test_mosaic.py").write_text(example)
    (tmp_path / "conftest.py").write_text("from asa.lab.testing import simulated_cluster_fixture\n")
    # Where it put its files by itself, it would first tidy up after other runs, for half a minute.
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'files'}"]
    done = subprocess.run([*words, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
