"""The laboratory's nouns: workloads, clusters, tables; counters; compiled functions."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.context import Context
from asa.core.errors import InvalidInput
from asa.core.job import JobState, Resources
from asa.core.view import Counters, QueuedJob, QueueView, RunningJob
from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.compiled import PORTABLE, fingerprint
from asa.lab.core.files import UNREADABLE, read_json, read_tensors, write_tensors
from asa.lab.core.objective import OBJECTIVES, Capability, Capacity, Waiting
from asa.lab.core.workload import UNKNOWN, Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from tests.lab.simulator.compiled import without_bitcode

# -- Nouns ------------------------------------------------------------------------------------------------------------

BOTH = {"capacity": [[4, 8], [2, 8]], "resources": ("cores", "memory")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"capacity": [4, 8]},
            r"one row per node and one column for each of \('cores', 'memory'\), not the shape \(2,\)",
        ),
        ({"capacity": [[4], [2]]}, r"one column for each of \('cores', 'memory'\), not the shape \(2, 1\)"),
        ({"capacity": np.zeros((0, 2))}, r"not the shape \(0, 2\)"),
        ({"resources": ("memory", "cores")}, r"'cores' first, not \('memory', 'cores'\)"),
        ({"resources": ("cores", "cores")}, r"distinct names, .* not \('cores', 'cores'\)"),
        ({"capacity": [[4, 8], [2, -1]]}, "node 1 has a negative amount: expected >= 0"),
        ({"partitions": {"long": Partition((0, 2))}}, "partition 'long' must name nodes between 0 and 1"),
        ({"partitions": {"long": Partition((-1,))}}, "partition 'long' must name nodes between 0 and 1"),
        ({"partitions": {"none": Partition(())}}, "partition 'none' must name nodes between 0 and 1"),
        ({"shareable": frozenset({"cores", "gpus"})}, "'gpus' cannot be shareable.*expected some of cores, memory"),
        ({"names": ("a",)}, "1 names for 2 nodes: give one for each, or none"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    Cluster(**BOTH)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        Cluster(**{**BOTH, **changes})


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"cores": 0}, {"memory": -1}, {"gpus": -1}])
def test_so_are_such_nodes(wrong: dict[str, int]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidInput, match=f"a cluster of {value} {name}: expected at least {value + 1}"):
        Cluster.of(**{"nodes": 1, **wrong})


def test_the_machine_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Cluster.of(nodes=2).capacity[0] = 7


TWO = Workload.of(submit=[0, 5], run=[60, 30], cores=[4, 1], walltime=[100, 90], number=[7, 8])


@pytest.mark.parametrize(
    ("column", "second", "expected"),
    [
        ("submit", math.inf, "submit inf: a finite time"),
        ("run", -1, "run -1.0: at least 0 s and finite"),
        ("run", math.nan, "run nan: at least 0 s and finite"),
        ("run", math.inf, "run inf: at least 0 s and finite"),
        ("units", 0, "units 0: at least 1"),
        ("walltime", 0, "walltime 0.0: above 0 s, or NaN"),
        ("kind", 1, "kind 1: a row of demands"),
        ("kind", -1, "kind -1: a row of demands"),
        ("per_node", -1, "per_node -1: at least 0"),
        ("think", -0.5, "think -0.5: at least 0 s"),
        ("think", math.nan, "think nan: at least 0 s"),
        ("after", 2, "after 2: a row, or -1"),
        ("after", -2, "after -2: a row, or -1"),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_with_its_row(column: str, second: float, expected: str) -> None:
    wrong = np.array([getattr(TWO, column)[0], second])
    with pytest.raises(InvalidInput) as caught:
        replace(TWO, **{column: wrong})
    assert str(caught.value) == f"job 8 (row 1) has {expected} expected"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": [1.0]}, r"column 'run' has shape \(1,\): \(2,\) expected"),
        ({"units": [[1], [1]]}, r"column 'units' has shape \(2, 1\): \(2,\) expected"),
        ({"demands": [[1, 0]]}, r"demands of shape \(1, 2\) need one column for each of \('cores',\)"),
        ({"demands": [1]}, r"demands of shape \(1,\) need one column"),
        ({"demands": [[1], [-2]]}, "demands of kind 1 are -2 cores: at least 0 expected"),
        ({"submit": [5.0, 0.0]}, r"job 8 \(row 1\) was submitted before the one above it: sort by submission first"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(TWO, **{name: np.array(values) for name, values in changes.items()})


@pytest.mark.parametrize("submit", [[0, 5], [5, 0]], ids=["sorted", "to be sorted"])
@pytest.mark.parametrize("run", [[1], [1, 2, 3], 1], ids=["short", "long", "a number"])
def test_columns_of_other_lengths_are_refused_whatever_the_order(submit: list[float], run: Any) -> None:
    with pytest.raises(InvalidInput, match=r"column 'run' has shape \(.*\): \(2,\) expected"):
        Workload.of(submit=submit, run=run, cores=[1, 1])


@pytest.mark.parametrize("submit", [[0, 5], [5, 0]], ids=["sorted", "to be sorted"])
@pytest.mark.parametrize("after", [2, -2])
def test_jobs_after_none_of_them_are_refused_whatever_the_order(submit: list[float], after: int) -> None:
    with pytest.raises(InvalidInput, match=rf"has after {after}: a row, or -1 expected"):
        Workload.of(submit=submit, run=[1, 1], cores=[1, 1], after=[UNKNOWN, after])


@pytest.mark.parametrize("sizes", [{}, {"cores": [1], "units": [1]}])
def test_either_cores_or_units_are_needed(sizes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="give a workload either `cores` or `units`"):
        Workload.of(submit=[0], run=[1], **sizes)


def test_sorting_takes_every_column_along() -> None:
    work = Workload.of(
        submit=[9, 3, 3], run=[1, 2, 3], cores=[4, 5, 6], after=[1, UNKNOWN, 0], user=[2, 1, 0], number=[1, 2, 3],
        labels={"user": ("ann", "bob", "cid")},
    )  # fmt: skip
    assert [column.tolist() for column in (work.submit, work.run, work.cores, work.number)] == [
        [3.0, 3.0, 9.0], [2.0, 3.0, 1.0], [5, 6, 4], [2, 3, 1],
    ]  # fmt: skip
    assert work.after.tolist() == [UNKNOWN, 2, 0]
    assert [work.label("user", row) for row in range(3)] == ["bob", "ann", "cid"]


def test_wall_times_may_be_unknown() -> None:
    assert math.isnan(replace(TWO, walltime=np.array([math.nan, 5.0])).walltime[0])


def test_columns_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TWO.run[0] = 7.0


def test_outcomes_are_counted() -> None:
    work = Workload.of(submit=[0, 0, 0], run=[5, 9, 1], cores=[1, 1, 3], walltime=[9, 5, 1])
    schedule = simulate(work, Cluster.of(nodes=2), "fcfs")
    ended = [JobState.COMPLETED, JobState.TIMEOUT, JobState.FAILED, JobState.PENDING]
    assert [schedule.count(state) for state in ended] == [1, 1, 1, 0]
    assert repr(schedule) == "<Schedule of 3 jobs on <Cluster of 2 nodes: 2 cores>>"


def queue(wait: list[float], estimate: list[float], size: list[int], used: int = 4, total: int = 10) -> Waiting:
    return Waiting(np.array(wait), np.array(estimate), np.array(size, dtype=np.int64), used, total)


QUEUES = st.lists(
    st.tuples(st.sampled_from([0.0, 30.0, 3600.0]), st.sampled_from([0.5, 60.0, 900.0]), st.integers(1, 6)),
    min_size=1,
    max_size=6,
).map(lambda jobs: queue(*([job[k] for job in jobs] for k in range(3))))


def test_capability_is_equation_1() -> None:
    """Selected: waits 10 and 40 of at most 50, sizes 2 and 4 of 20; afterwards 5 + 2 of 20 are in use."""
    waiting = queue([10.0, 40.0, 50.0], [60.0] * 3, [2, 4, 9], used=5, total=20)
    reward = Capability(0.5, 0.3, 0.2).reward(waiting, [0, 1], started=[0])
    assert reward == pytest.approx(0.5 * 25 / 50 + 0.3 * 3 / 20 + 0.2 * 7 / 20)


def test_capability_of_nothing_selected_is_what_the_machine_does_anyway() -> None:
    assert Capability().reward(queue([5.0], [60.0], [2]), []) == pytest.approx(0.4 / 3)


def test_before_any_wait_only_sizes_count() -> None:
    waiting = queue([0.0, 0.0], [60.0, 60.0], [2, 4])
    assert Capability().reward(waiting, [1]) == pytest.approx((0.4 + 0.8) / 3)
    assert Capability().gains(waiting).tolist() == pytest.approx([2 * 0.2 / 3, 2 * 0.4 / 3])


@given(QUEUES)
def test_the_gain_of_one_job_is_what_selecting_it_alone_adds(waiting: Waiting) -> None:
    objective = Capability(0.6, 0.3, 0.1)
    for job, gain in enumerate(objective.gains(waiting)):
        assert objective.reward(waiting, [job]) == pytest.approx(gain + objective.reward(waiting, []))


def test_capacity_is_equation_2() -> None:
    waiting = queue([1.0, 1.0, 1.0], [10.0, 20.0, 50.0], [1, 1, 1])
    assert Capacity().reward(waiting, [0]) == pytest.approx(-(1 / 20 + 1 / 50) / 2)
    assert Capacity().reward(waiting, [0], started=[]) == pytest.approx(-(1 / 10 + 1 / 20 + 1 / 50) / 3)
    assert Capacity().reward(waiting, [0, 1, 2]) == 0.0


@given(QUEUES, st.data())
def test_gains_of_capacity_are_what_its_sum_loses(waiting: Waiting, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(waiting.wait) - 1))))
    before, left = len(waiting.wait), len(waiting.wait) - len(chosen)
    gained = Capacity().gains(waiting)[chosen].sum()
    sums = Capacity().reward(waiting, []) * before, Capacity().reward(waiting, chosen) * left
    assert sums[1] - sums[0] == pytest.approx(gained)


@pytest.mark.parametrize("unknown", [np.nan, np.inf])
def test_capacity_needs_estimates(unknown: float) -> None:
    with pytest.raises(InvalidInput, match="at place 1 of the queue has no wall time"):
        Capacity().gains(queue([1.0, 1.0], [60.0, unknown], [1, 1]))


@pytest.mark.parametrize("weights", [(-1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (np.nan, 1.0, 1.0)])
def test_weights_out_of_bounds_are_refused(weights: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInput, match="weights of the capability objective"):
        Capability(*weights)


@pytest.mark.parametrize("name", OBJECTIVES)
@given(waiting=QUEUES)
def test_every_start_gains_something(name: str, waiting: Waiting) -> None:
    assert (OBJECTIVES[name]().gains(waiting) > 0).all()


def test_packed_or_not(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text('{"a": [1, null]}')
    (tmp_path / "packed").write_bytes(gzip.compress(b'{"a": [1, null]}'))
    assert read_json(tmp_path / "plain", "a") == read_json(tmp_path / "packed", "a") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "No such file or directory"),
        (b"{", "Expecting property name"),
        (b"\xff\xfe\xfd", "codec can't decode"),
        (gzip.compress(b"{}", mtime=0)[:-4], "before the end-of-stream marker"),
        (b"\x1f\x8b nothing of the kind", "[Uu]nknown compression method|Not a gzipped file"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_was_expected(tmp_path: Path, data: bytes | None, says: str) -> None:
    path = tmp_path / "x.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InvalidInput, match=rf"x.json: .*({says}).*Expected a JSON file with 'a'"):
        read_json(path, "'a'")


TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3).T, "a": np.array([0.5], np.float32)}


def test_what_was_written_is_read_by_us_and_by_the_library(tmp_path: Path) -> None:
    load_file = pytest.importorskip("safetensors.numpy", reason="needs the extra 'learn'").load_file
    path, again = tmp_path / "m", tmp_path / "again"
    write_tensors(path, TENSORS, {"seed": 7, "hidden": [2, 3]})
    write_tensors(again, dict(reversed(TENSORS.items())), {"seed": 7, "hidden": [2, 3]})
    assert path.read_bytes() == again.read_bytes()
    found, about = read_tensors(path)
    assert about == {"seed": 7, "hidden": [2, 3]}
    for read in (found, load_file(path)):
        assert {name: values.tolist() for name, values in read.items()} == {
            name: values.tolist() for name, values in TENSORS.items()
        }


def test_a_missing_library_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(InvalidInput, match=r"safetensors is not installed: pip install 'asa-hpc\[learn\]'"):
        write_tensors(tmp_path / "m", TENSORS, {})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 20,
        b"\x80\x04nothing to unpickle",
        b"\x02" + bytes(7) + b"{}",
        b"\x02" + bytes(7) + b"[]",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
    ],
)
def test_what_is_no_such_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m"
    with pytest.raises(UNREADABLE):
        read_tensors(path)
    path.write_bytes(data)
    with pytest.raises(UNREADABLE):
        read_tensors(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]},
        {"dtype": "F32", "shape": [2]},
    ],
)
def test_tensors_that_are_not_as_their_header_says(tmp_path: Path, entry: dict[str, object]) -> None:
    text = json.dumps({"__metadata__": {"asa": "{}"}, "x": entry}).encode()
    (tmp_path / "m").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(UNREADABLE):
        read_tensors(tmp_path / "m")


# -- Counters ---------------------------------------------------------------------------------------------------------

jobs = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 8), st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=30
)


@given(jobs, st.integers(0, 600))
def test_a_table_and_a_plain_view_count_the_same(made: list[tuple[int, int, int, int]], until: int) -> None:
    submit, cores, walltime, run = (list(column) for column in zip(*made, strict=True))
    workload = Workload.of(submit=submit, cores=cores, walltime=walltime, run=run)
    engine = Engine(workload, Cluster.of(nodes=2, cores=4))
    engine.dispatch(Easy().native, until=until)
    table = engine.view()
    view = table.plain()
    assert astuple(table.counters()) == pytest.approx(astuple(view.counters()))
    assert table.counters().free_cores == table.slots


def test_unknown_numbers_count_for_nothing() -> None:
    one = Resources(1)
    waiting = QueuedJob("a", one, math.nan, 0.0), QueuedJob("b", one, math.inf, 5.0)
    view = QueueView(10.0, one, waiting, (RunningJob("c", one, math.inf),))
    assert view.counters() == Counters(0.0, 2, 0, 10.0, 0.0)


def test_a_machine_that_shrank_has_no_free_cores_and_jobs_past_their_time_no_work() -> None:
    view = QueueView(10.0, Resources(1), (), (RunningJob("a", Resources(3), 5.0),))
    assert view.counters() == Counters(0.0, 0, 0, 0.0, 0.0)


def test_a_context_that_has_looked_keeps_what_it_knew() -> None:
    view = QueueView(10.0, Resources(4), (), (RunningJob("a", Resources(3), 18.0),))
    context = Context(10.0, cores=2, walltime_s=60.0, pending_s=7.0).looked(view)
    assert (context.cores, context.walltime_s, context.pending_s) == (2, 60.0, 7.0)
    assert (context.free_cores, context.left_s, context.queued, context.queue) == (1, 6.0, 0, view)


def test_what_was_seen_stays_as_it_was() -> None:
    columns = {"submit": [0, 1], "run": [100, 50], "cores": [4, 4], "walltime": [200, 80]}
    engine = Engine(Workload.of(**columns), Cluster.of(nodes=1, cores=4))
    engine.dispatch(Easy().native, until=10.0)
    seen = engine.view().plain()
    before = (seen.now, seen.queue, seen.running)
    engine.dispatch(Easy().native)
    assert (seen.now, seen.queue, seen.running) == before
    assert [job.ends for job in seen.running] == [200.0], "by its wall time, not by its run time"
    assert seen.plain() is seen


def test_a_plain_view_needs_no_numpy() -> None:
    code = (
        "import sys; from asa.core.view import QueueView; from asa.core.job import Resources; "
        "QueueView(0.0, Resources(1), (), ()).counters(); "
        "print('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# -- Compiled ---------------------------------------------------------------------------------------------------------

KNAPSACK = "from asa.lab.dispatchers.packing import best_set; print(best_set([6.0, 5.0, 5.0], [4, 3, 3], 6).tolist())"


def test_a_change_of_any_compiled_module_is_another_version(tmp_path: Path) -> None:
    folder = tmp_path / "simulator"
    folder.mkdir()
    (folder / "loop.py").write_text("from asa.lab.core.compiled import inner\n")
    before = fingerprint(tmp_path)
    (folder / "plain.py").write_text("x = 1\n")
    assert fingerprint(tmp_path) == before
    (folder / "state.py").write_text("WORLD = np.dtype([])\n")
    assert fingerprint(tmp_path) != before


def test_each_version_has_a_directory_and_old_ones_go(tmp_path: Path) -> None:
    old, recent = tmp_path / "asa-numba-old", tmp_path / "asa-numba-recent"
    old.mkdir()
    recent.mkdir()
    os.utime(old, (0, 0))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", KNAPSACK], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[False, True, True]"
    assert not old.exists()
    assert recent.exists()
    (compiled,) = tmp_path.glob("asa-numba-*/*.solve.*")
    assert compiled.is_file()


AHEAD = f"import asa.lab.core.compiled as c, pathlib, sys; c._SHIPPED = pathlib.Path(sys.argv[1]); {KNAPSACK}"
CALLER = """
import numba, numpy
from asa.lab.dispatchers.packing import solve
most = numba.njit(lambda values, sizes, room: solve(values, sizes, room).sum())
assert most(numpy.array([6.0, 5.0, 5.0]), numpy.array([4, 3, 3]), 6) == 2
"""


def test_what_a_wheel_brings_is_used_where_it_is_whole(tmp_path: Path) -> None:
    ahead = tmp_path / "ahead"

    def files_after_a_run(own: str, **more: str) -> list[Path]:
        """What is kept in this machine's own folder after a run in a process of its own."""
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / own)} | more
        words = [sys.executable, "-c", AHEAD + CALLER, str(ahead)]
        run = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == "[False, True, True]"
        return list((tmp_path / own).glob("asa-numba-*/*"))

    (made,) = files_after_a_run("portable", NUMBA_CPU_NAME=PORTABLE)
    brought = ahead / made.parent.name.removeprefix("asa-numba-") / made.name
    brought.parent.mkdir(parents=True)
    data = without_bitcode(made.read_bytes())
    assert len(data) < 0.6 * made.stat().st_size
    brought.write_bytes(data)
    assert files_after_a_run("first") == [], "nothing was compiled"
    brought.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert len(files_after_a_run("damaged")) == 1, "compiled anew"
    brought.write_bytes(b"")
    assert len(files_after_a_run("empty")) == 1


# -- Signals ----------------------------------------------------------------------------------------------------------

ENDLESS = """
import signal, sys
from asa.core.errors import AsaError
from asa.lab.core.compiled import compiled
from asa.lab.core.signals import ends_on_signals

@compiled
def endless(n):
    k = 0
    while n > 0:
        k = (k * 3 + n) % 1000003
        if k == 2000000:
            n = 0
    return k

@ends_on_signals
def run(at_work):
    if at_work == "compiled":
        endless(0)  # compiles
        print("ready", flush=True)
        endless(5)
    print("ready", flush=True)
    while True:
        pass

def handle(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, handle)
try:
    run(sys.argv[1])
except KeyboardInterrupt:
    print("cleaned up", flush=True)
"""


@pytest.mark.slow  # numba is loaded, and compiles
@pytest.mark.parametrize(("at_work", "code", "said"), [("compiled", 130, ""), ("python", 0, "cleaned up\n")])
def test_a_signal_ends_what_is_compiled_and_lets_the_rest_clean_up(
    at_work: str, code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = [sys.executable, str(tmp_path / "endless.py"), at_work]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        used = psutil.Process(process.pid).cpu_times
        begun, until = used().user, time.monotonic() + 60
        while used().user < begun + 0.2 and time.monotonic() < until:  # it is in the loop
            time.sleep(0.05)
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, said)
    assert ("interrupted by SIGTERM" in err) == (at_work == "compiled")
