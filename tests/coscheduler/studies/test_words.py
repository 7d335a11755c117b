import math

from asa.lab.study import Estimate
from coscheduler.compare import RuleComparison, RuleRow


def test_what_is_not_known_is_a_dash_and_no_number():
    """A workflow whose jobs were guests all the time has held no cores."""
    metrics = {"mean_wait_h": 1.0, "cpu_utilisation": 0.5, "mean_response_h": 2.0, "makespan_h": 3.0}
    metrics = {
        name: Estimate(value) for name, value in (metrics | {"mean_slowdown": 1.1, "over_walltime": 0.0}).items()
    }
    blast = {"run_time_h": Estimate(0.25), "cpu": Estimate(math.nan), "memory": Estimate(0.125, 0.1, 0.25)}
    text = RuleComparison((RuleRow("static", 16, metrics, {"blast": blast}),), seeds=1).text()
    (row,) = (line.split() for line in text.splitlines() if "blast" in line)
    assert row == ["16", "static", "blast", "0.25", "-", "12", "[10,", "25]", "-"]
