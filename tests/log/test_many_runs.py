"""Many runs of one user at once, on one state directory: on this machine, and in simulated queues, which teach."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from asa.log.database import LearnedStore, is_local
from asa.log.rundir import list_runs
from tests import fuse

pytestmark = pytest.mark.slow

RUNS = int(os.environ.get("ASA_RUNS_AT_ONCE", "30"))
"""How many at once; 100 were tried by hand, see docs/tests.md."""
FLOW = """
import asa

@asa.stage(run_time="1s")
def double(x): return 2 * x

@asa.stage
def add(xs): return sum(xs)

workflow = add(double.map(range(4)))
"""


@contextlib.contextmanager
def local(directory: Path, place: Path) -> Iterator[Path]:
    yield directory


@pytest.mark.timeout(120 + 20 * RUNS)
@pytest.mark.parametrize("mounted", [local, fuse.unmappable], ids=["local disk", "no shared memory maps"])
def test_all_of_many_runs_at_once_succeed(tmp_path: Path, mounted: object) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "disk").mkdir(mode=0o700)
    context: AbstractContextManager[Path] = mounted(tmp_path / "disk", tmp_path / "mount")  # type: ignore[operator]
    with context as state:
        assert is_local(state) == (mounted is local)
        words = [sys.executable, "-m", "asa", "run", str(tmp_path / "flow.py"), "--name", "flow"]
        environ = os.environ | {"ASA_STATE_DIR": str(state)}
        running = []
        for number in range(RUNS):
            more = ["--backend", "local" if number % 3 else "sim:hpc2n", "--json", str(tmp_path / f"{number}.json")]
            with open(tmp_path / f"{number}.err", "wb") as printed:
                running.append(subprocess.Popen([*words, *more], env=environ, stderr=printed, stdout=printed))
        codes = [process.wait() for process in running]
        said = {number: (tmp_path / f"{number}.err").read_text() for number in range(RUNS)}
        assert not any(codes), {number: said[number][-1000:] for number in range(RUNS) if codes[number]}
        results = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(RUNS)]
        assert [each["state"] for each in results] == ["succeeded"] * RUNS, results[0]
        assert not [text for text in said.values() if "Traceback" in text]
        assert len(list_runs(state)) == RUNS
        with contextlib.closing(LearnedStore(state / "learned.db")) as store:
            assert store.problems() == []
            (waits,) = [key for key in store.keys() if key.startswith("waits sim-hpc2n/")]  # noqa: SIM118
            assert store.get(waits)
        with contextlib.closing(sqlite3.connect(state / "learned.db")) as connection:
            ((lessons,),) = connection.execute("SELECT count(*) FROM seen WHERE key = ?", (waits,))
        logs = [path.read_text() for path in state.glob("runs/*/asa.log")]
        without = sum("learns is not kept" in text for text in logs)  # the store was locked for too long
        assert lessons + without >= len(range(0, RUNS, 3)), "each run has a job that nothing but the queue held"
