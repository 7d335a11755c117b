import gzip
import json

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.job import Resources
from asa.core.view import QueuedJob, QueueView, RunningJob
from asa.lab.dispatchers.planning.sources import from_view, read_instance
from tests.lab.dispatchers.views import Job, node_view, slot_view

GOOD = {
    "cap": [[4, 8], [4, 8]],
    "running": [{"rn": 2, "req": [2, 1], "end": 30, "alloc": [[0, 1], [1, 1]], "id": "r"}],
    "queue": [{"rn": 1, "req": [4, 2], "d": 60, "q": -5, "id": "a"}, {"rn": 3, "req": [1, 0], "d": 10, "q": 0}],
}


def write(tmp_path, packed=False, **changes):
    data = json.dumps(GOOD | changes).encode()
    path = tmp_path / "instance.json"
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_file(tmp_path, packed):
    found = read_instance(write(tmp_path, packed))
    assert found.names == ("a", 1)
    assert found.free.tolist() == [[2, 7], [2, 7]]
    assert (found.duration.tolist(), found.waited.tolist()) == ([60.0, 10.0], [5.0, 0.0])
    assert found.need[found.sort].tolist() == [[4, 2], [1, 0]]
    assert (found.release_at.tolist(), found.release.tolist()) == ([30.0], [[0, 1, 1, 0]])


def test_what_the_machine_has_as_a_whole(tmp_path):
    running = [{**GOOD["running"][0], "shared": {"power": 200}}]
    queue = [{**GOOD["queue"][0], "shared": {"licences": 2}}, GOOD["queue"][1]]
    found = read_instance(write(tmp_path, shared={"power": 500, "licences": 2}, running=running, queue=queue))
    assert (found.shared.tolist(), found.shared_names) == ([500, 2], ("power", "licences"))
    assert found.shared_demands[found.kind].tolist() == [[0, 2], [0, 0]]
    assert found.pool.tolist() == [100, 2]
    assert found.drawn.tolist() == [[400, 0]], "by one row: its two nodes are neighbours"
    without = read_instance(write(tmp_path))
    assert without.shared.shape == (0,) and without.shared_demands.shape == (3, 0)


def asks(**changes):
    return {"shared": {"power": 100}, "queue": [GOOD["queue"][1] | {"id": "x"} | changes]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (asks(shared={"power": 40}), "'x' can never run here: it draws 120 power, but the machine has 100"),
        (asks(shared={"power": -1}), "a unit of job 'x' has -1 of the shared resource 'power'"),
        (asks(shared={"steam": 1}), "job 'x' draws 'steam', which the machine does not have: expected .'power'"),
        (asks() | {"shared": {"power": 0.5}}, "the machine has 0.5 of the shared resource 'power'"),
        (
            {"shared": {"power": 100}, "running": [GOOD["running"][0] | {"shared": {"power": 60}}]},
            "job 'r' needs more than the machine has: .* of 100 power are left -20 power",
        ),
        ({"queue": [{"rn": 1, "req": [5, 0], "d": 60, "q": 0, "id": "big"}]}, "'big' can never run here.*holds 0"),
        ({"queue": [{"rn": 9, "req": [1, 0], "d": 60, "q": 0, "id": "big"}]}, "it has 9 units.*holds 8"),
        ({"queue": [{"rn": 1, "req": [-1, 0], "d": 60, "q": 0, "id": "neg"}]}, "a unit of job 'neg' needs -1 cores"),
        ({"queue": [{"rn": 1, "req": [0, 0], "d": 60, "q": 0, "id": "nil"}]}, "a unit of job 'nil' needs 0 cores"),
        ({"queue": [{"rn": 1, "req": [1, 0], "d": 0, "q": 0, "id": "short"}]}, "'short' has 0 seconds"),
        ({"queue": [{"rn": 0, "req": [1, 0], "d": 5, "q": 0, "id": "none"}]}, "'none' has 0 units"),
        ({"queue": [{"rn": 1, "req": [1, 0], "d": 5, "q": 3, "id": "early"}]}, "'early' is submitted after now"),
        ({"queue": [{"rn": 1, "req": [1], "d": 5, "q": 0, "id": "thin"}]}, "'thin' has req .*2 whole numbers"),
        ({"queue": [{"rn": 1, "req": [1.5, 0], "d": 5, "q": 0, "id": "half"}]}, "'half' has req .*2 whole numbers"),
        ({"running": [{"rn": 1, "req": [2, 1], "end": 0, "alloc": [[0, 1]]}]}, "job 0 is expected to end at 0 s"),
        ({"running": [{"rn": 2, "req": [2, 1], "end": 9, "alloc": [[0, 1]], "id": "r"}]}, "'r' has 2 units, and 1 on"),
        ({"running": [{"rn": 1, "req": [-2, 1], "end": 9, "alloc": [[0, 1]], "id": "r"}]}, "'r' needs -2 cores"),
        ({"running": [{"rn": 1, "req": [2, 1], "end": 9, "alloc": [[7, 1]]}]}, "on node 7: .*from 0 to 1"),
        ({"running": [{"rn": 3, "req": [2, 1], "end": 9, "alloc": [[0, 3]]}]}, "job 0 needs more than node 0 has"),
        ({"queue": 3}, "Expected cap, running, queue"),
        ({"queue": [{"rn": 1, "req": [1, 0], "q": 0, "id": "x"}]}, r"^/.*\.json: job 'x' has d None: a number"),
        ({"queue": [{"rn": 1, "req": [1, 0], "d": "10m", "q": 0, "id": "x"}]}, "job 'x' has d '10m'"),
        ({"running": [{"rn": 1, "req": [2, 1], "alloc": [[0, 1]], "id": "r"}]}, "running job 'r' has end None"),
    ],
)
def test_what_makes_no_sense(tmp_path, changes, words):
    with pytest.raises(InvalidInput, match=words):
        read_instance(write(tmp_path, **changes))


def test_no_such_file(tmp_path):
    with pytest.raises(InvalidInput, match=r"^[^:]*none\.json: No such file or directory. Expected"):
        read_instance(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("{")
    with pytest.raises(InvalidInput, match="Expected a JSON file"):
        read_instance(tmp_path / "text.json")


def test_views():
    jobs = [Job(2, submit=90.0, estimate=30.0), Job(1, submit=100.0, estimate=np.inf)]
    slots = from_view(slot_view(jobs, free=3, total=4))
    assert slots.capacity.shape == (1, 1) and slots.free.tolist() == [[3]]
    assert (slots.waited.tolist(), slots.duration.tolist()) == ([10.0, 0.0], [30.0, 1e9])
    nodes = from_view(node_view([Job(2, kind=1), Job(1)], free=[[8], [3]], demands=[[1], [2]]))
    assert nodes.need[nodes.sort].tolist() == [[2], [1]]
    assert nodes.free.tolist() == [[8], [3]], "whoever holds the rest, it does not come back"
    assert all(found.shared.shape == (0,) and found.drawn.shape[1] == 0 for found in (slots, nodes))


def test_a_queue_of_resources():
    view = QueueView(
        now=10.0,
        capacity=Resources(cores=8, gpus=1),
        queue=(QueuedJob("a", Resources(cores=4), 60.0, 4.0), QueuedJob("b", Resources(cores=4, gpus=1), 60.0, 5.0)),
        running=(RunningJob("r", Resources(cores=6), ends=9.0),),
    )
    found = from_view(view)
    assert found.free.tolist() == [[2, 1]]
    assert found.release_at.tolist() == [1.0], "it is late"
    assert found.need[found.sort].tolist() == [[4, 0], [4, 1]]
    assert found.waited.tolist() == [6.0, 5.0]
