from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.compact import (
    AHEAD_S,
    COLUMNS,
    MODEL,
    PARAMETERS,
    SHAPES,
    Compact,
    CompactNetwork,
    Shares,
    greedy,
    read_network,
    rows_of,
)
from asa.lab.dispatchers.learned.selection import Memory, QueueColumns, Selection
from asa.lab.simulator.run import simulate
from tests.lab.dispatchers.learned.compact_networks import by_column, drawn
from tests.lab.dispatchers.learned.policies import NODES, workloads

MACHINE = Cluster.of(NODES)
FEW = settings(deadline=None, max_examples=25)


@given(st.lists(st.booleans(), min_size=1, max_size=9).filter(any), st.integers(0, 99))
def test_a_masked_job_is_never_chosen(there: list[bool], seed: int) -> None:
    mask, policy = np.array(there), greedy(drawn(seed))
    observation = np.random.default_rng(seed).normal(size=(1 + len(mask), COLUMNS)).astype(np.float32)
    assert mask[policy(observation, mask)]


@FEW
@given(workloads(), st.integers(0, 9))
def test_every_job_starts(jobs: Workload, seed: int) -> None:
    assert np.isfinite(simulate(jobs, MACHINE, Compact(drawn(seed))).start).all()


@FEW
@given(workloads())
def test_where_all_jobs_are_overdue_at_once_it_does_what_easy_does(jobs: Workload) -> None:
    """But for jobs that have just come, of which it takes the first, too."""
    one = simulate(jobs, MACHINE, Compact(by_column(15, -1.0), threshold=1e-9))
    assert one.start.tolist() == simulate(jobs, MACHINE, "easy").start.tolist()


@FEW
@given(workloads(), st.sampled_from([5.0, 40.0, 1e6]))
def test_a_network_that_sees_lengths_does_what_easy_does_with_the_shortest_first(jobs: Workload, limit: float) -> None:
    one = simulate(jobs, MACHINE, Compact(by_column(3, -1.0), threshold=limit))
    assert one.start.tolist() == simulate(jobs, MACHINE, f"easy:order=sjf,threshold={limit}").start.tolist()


def test_a_trivial_queue_is_solved() -> None:
    """All at once on one node: shortest first is best, and a network that sees lengths does it."""
    run = np.array([50.0, 10.0, 40.0, 20.0, 30.0])
    jobs = Workload.of(submit=np.zeros(5), run=run, cores=[1] * 5, walltime=run)
    found = simulate(jobs, Cluster.of(1), Compact(by_column(3, -1.0)))
    assert np.argsort(found.start).tolist() == [1, 3, 4, 2, 0]
    assert found.wait.sum() == 10 * 4 + 20 * 3 + 30 * 2 + 40


@FEW
@given(workloads(), st.integers(2, 9), st.integers(0, 9))
def test_a_larger_machine_with_larger_jobs_is_the_same(jobs: Workload, times: int, seed: int) -> None:
    larger = Workload.of(submit=jobs.submit, run=jobs.run, cores=times * jobs.cores, walltime=jobs.walltime)
    one, other = Compact(drawn(seed)), Compact(drawn(seed))
    start = simulate(jobs, MACHINE, one).start.tolist()
    assert simulate(larger, Cluster.of(times * NODES), other).start.tolist() == start


def starving(count: int) -> Workload:
    """A long job of the whole machine, and short ones that cannot run side by side, more than there is time for."""
    submit = np.array([0.0] * 5 + [1.0] + [250.0 * k for k in range(1, count + 1)])
    long = submit == 1.0
    run = np.where(long, 36000.0, 300.0)
    return Workload.of(submit=submit, run=run, cores=np.where(long, NODES, NODES // 2 + 1), walltime=2 * run)


def test_the_model_that_ships_lets_nobody_starve_but_where_the_threshold_is_infinite() -> None:
    waits = {
        limit: [simulate(starving(count), MACHINE, f"compact:threshold={limit}").wait[5] for count in (60, 90)]
        for limit in ("1h", "inf")
    }
    assert waits["1h"][0] == waits["1h"][1] < waits["inf"][0] < waits["inf"][1]


def test_the_model_that_ships_prefers_short_jobs() -> None:
    run = np.array([86400.0, 60.0, 3600.0])
    mixed = Workload.of(submit=np.zeros(3), run=run, cores=[NODES] * 3, walltime=run)
    assert np.argsort(simulate(mixed, MACHINE, "compact").start).tolist() == [1, 2, 0]


def test_the_same_again() -> None:
    draw = np.random.default_rng(3)
    run = draw.integers(1, 50, 80)
    jobs = Workload.of(submit=np.arange(80), run=run, cores=draw.integers(1, 9, 80), walltime=run)
    one, same = (simulate(jobs, MACHINE, "compact").start.tolist() for _ in range(2))
    assert one == same


def test_what_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="asa train compact"):
        DISPATCHERS.create(f"compact:model={tmp_path / 'none'}")
    for threshold in (0, -1.0, "soon"):
        with pytest.raises(InvalidInput, match=r"threshold .* is not a positive duration"):
            DISPATCHERS.create(f"compact:threshold={threshold}")
    with pytest.raises(InvalidInput, match="at least 1 job, not 0"):
        DISPATCHERS.create("compact:window=0")


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1 + count, COLUMNS)).astype(np.float32)


@given(st.integers(1, 40), st.integers(0, 99))
def test_the_order_of_the_jobs_does_not_matter(count: int, seed: int) -> None:
    seen, network = rows(count, seed), drawn(seed)
    order = np.random.default_rng(seed).permutation(count)
    shuffled = np.concatenate([seen[:1], seen[1:][order]])
    assert network.scores(shuffled) == pytest.approx(network.scores(seen)[order], rel=1e-4, abs=1e-4)


def test_other_jobs_matter() -> None:
    seen, network = rows(5, 1), drawn(1)
    assert not np.allclose(network.scores(seen)[:3], network.scores(seen[:4]), atol=1e-3)


def test_a_network_by_hand() -> None:
    seen = np.clip(rows(6, 3), -2, 2)
    assert by_column(3, -1.0).scores(seen) == pytest.approx(-2 - seen[1:, 3])


def test_it_is_small() -> None:
    assert 10_000 <= PARAMETERS <= 300_000
    assert MODEL.stat().st_size < 1_000_000


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="needs the extra 'learn'")
    from safetensors.numpy import load_file

    path, network = tmp_path / "m.safetensors", drawn(7)
    CompactNetwork(network.tensors, {"seed": 7}).save(path)
    found = read_network(path)
    assert found.about == {"seed": 7} and set(found.tensors) == set(load_file(path)) == set(SHAPES)
    for name, values in load_file(path).items():
        assert np.array_equal(values, network.tensors[name]) and np.array_equal(values, found.tensors[name])


def file(path: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    about = {"asa": json.dumps({"kind": "compact"})}
    cases = {
        "FileNotFoundError": lambda: None,
        "KeyError": lambda: file(path, {}),
        "a model of another dispatcher": lambda: file(path, {"__metadata__": {"asa": json.dumps({"kind": "pg"})}}),
        "first.weight: no such tensor": lambda: file(path, {"__metadata__": about}),
        "F32 expected": lambda: file(path, {"__metadata__": about, "x": {"dtype": "I8", "data_offsets": [0, 1]}}),
        "JSONDecodeError": lambda: path.write_bytes(b"\x02" + bytes(7) + b"{]"),
        "`asa train compact`": lambda: path.write_bytes(b"\xff" * 20),
    }
    for says, make in cases.items():
        make()
        with pytest.raises(InvalidInput, match=says):
            read_network(path)


def test_wrong_tensors_are_refused() -> None:
    tensors = dict(drawn(0).tensors)
    with pytest.raises(InvalidInput, match=r"score\.bias: \(2,\); shape \(1,\) expected"):
        CompactNetwork(tensors | {"score.bias": np.zeros(2, np.float32)})
    with pytest.raises(InvalidInput, match=r"score\.bias: finite numbers expected"):
        CompactNetwork(tensors | {"score.bias": np.full(1, np.nan, np.float32)})


QUEUE = QueueColumns(
    now=1000.0,
    keys=["A", "B", "C"],
    size=np.array([4, 1, 2]),
    estimate=np.array([3600.0, 60.0, 86400.0]),
    wait=np.array([600.0, 60.0, 0.0]),
    priority=np.zeros(3),
    free=2,
    total=8,
    ends=np.array([4600.0, 1060.0]),
    held=np.array([4, 2]),
)


@st.composite
def queues(draw: st.DrawFn) -> QueueColumns:
    """Jobs that wait, and jobs that run on a machine of 16."""
    count, running = draw(st.integers(1, 9)), draw(st.integers(0, 4))
    held = np.array(draw(st.lists(st.integers(1, 4), min_size=running, max_size=running)), dtype=np.int64)
    times = st.lists(st.integers(1, 10**5).map(float), min_size=count, max_size=count)
    ends = draw(st.lists(st.integers(100, 10**5).map(float), min_size=running, max_size=running))
    return QueueColumns(
        now=100.0,
        keys=list(range(count)),
        size=np.array(draw(st.lists(st.integers(1, 16), min_size=count, max_size=count))),
        estimate=np.array(draw(times)),
        wait=np.array(draw(times)),
        priority=np.zeros(count),
        free=16 - int(held.sum()),
        total=16,
        ends=np.array(ends, dtype=np.float64),
        held=held,
    )


def test_a_machine_by_hand() -> None:
    row = rows_of(Selection(QUEUE, 3, Memory()))[0]
    ahead = [4 / 8 if seconds < 3600 else 1.0 for seconds in AHEAD_S.tolist()]
    assert row[:8].tolist() == [2 / 8, *ahead]
    assert row[8:11].tolist() == [0, 0, 0]
    assert row[11] == pytest.approx(math.log(4) / 6)
    work = (4 * 3600 + 60 + 2 * 86400) / (8 * 3600)
    assert row[12] == pytest.approx(math.log1p(work) / 5)
    assert row[13] == pytest.approx(2 / 3)
    assert row[14:] == pytest.approx([math.log1p(10) / 8, math.log1p(90060 / 3 / 60) / 8])


def test_jobs_by_hand_while_something_is_reserved_for() -> None:
    selection = Selection(QUEUE, 3, Memory())
    before = rows_of(selection)[1:]
    assert before[:, 7].tolist() == [0, 1, 1] and before[:, 8].tolist() == [1, 1, 1]
    assert before[:, 13] == pytest.approx([math.log1p(1) / 8, 0, 0])  # A fits once B's two nodes are back, in a minute
    assert before[:, 6] == pytest.approx([1, 0.1, 0]) and before[:, 11] == pytest.approx([2 / 3, 1 / 3, 1])
    selection.select(0)
    machine, *jobs = rows_of(selection)
    assert machine[8:11] == pytest.approx([1, math.log1p(1) / 8, 0])  # what is free at 1060, A takes
    assert selection.places.tolist() == [1]
    (job,) = jobs
    assert job[:4] == pytest.approx([1, 1 / 8, math.log(1 / 8) / 8, math.log(1 / 60) / 4])
    assert job[4:7] == pytest.approx([math.log1p(1) / 8, math.log1p(1) / 5, 0.1])
    assert job[7:10].tolist() == [1, 1, 0]
    assert job[14:] == pytest.approx([1 / 8, 1 / 3])


@given(queues(), st.integers(2, 50))
def test_the_size_of_the_machine_does_not_matter(queue: QueueColumns, times: int) -> None:
    """The same shares of a larger machine look the same."""
    larger = replace(
        queue, size=times * queue.size, free=times * queue.free, total=times * queue.total, held=times * queue.held
    )
    one, other = (Selection(each, 8, Memory()) for each in (queue, larger))
    while not one.over:
        assert np.array_equal(rows_of(one), rows_of(other))
        last = int(np.flatnonzero(one.mask)[-1])
        one.select(last)
        other.select(last)


@given(queues(), st.integers(1, 12))
def test_rows_are_filled_up_with_zeros(queue: QueueColumns, window: int) -> None:
    selection, sight = Selection(queue, window, Memory()), Shares(window)
    seen, rows = sight(selection), rows_of(selection)
    assert seen.shape == sight.shape(16) == (1 + window, COLUMNS) and seen.dtype == np.float32
    assert np.array_equal(seen[: len(rows)], rows) and not seen[len(rows) :].any()
    assert np.isfinite(seen).all() and (np.abs(seen) <= 4).all()
    assert seen[1:, 0].astype(bool).tolist() == selection.mask.tolist()


def test_a_window_of_no_jobs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 1 job, not 0"):
        Shares(0)
