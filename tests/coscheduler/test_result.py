import json
import math

from coscheduler.history import SharedQueue


def test_a_queue_of_which_nothing_has_ended():
    found = SharedQueue(8, ())
    assert math.isnan(found.makespan_s)
    assert found.metrics() == {}
    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == {
        "cores": 8, "metrics": {}, "jobs": [], "decisions": [],
    }  # fmt: skip
