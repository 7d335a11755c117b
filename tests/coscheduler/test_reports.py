"""Comparisons as tables, queues as pictures."""

import dataclasses
import math

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.lab.study import Estimate
from coscheduler.compare import RuleComparison, RuleRow
from coscheduler.drive import drive
from coscheduler.run import figure
from coscheduler.sharing.starter import Space, Static
from coscheduler.workload import LoadPhase, paper_queue
from coscheduler.world import SimulatedWorld


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


def queue(rule, scale=1.0):
    loads = [
        dataclasses.replace(
            load, phases=tuple(LoadPhase(each.alone_s * scale, each.demand, each.parallel) for each in load.phases)
        )
        for load in paper_queue(64, np.random.default_rng(0))
    ]
    world = SimulatedWorld(loads, 64, sampled=True)
    drive(world, rule)
    return world.result()


def test_three_charts():
    found = queue(Static())
    made = figure(found, "static")
    cpu, shares, happiness = made.axes
    assert cpu.get_title(loc="left") == "CPU"
    assert cpu.get_title(loc="right") == f"dashed: mean, {100 * found.metrics()['cpu_utilisation']:.0f} %"
    guests = [line for line in shares.lines if len(line.get_xdata())]
    assert len(guests) == sum(stay.host is not None for job in found.jobs for stay in job.stays)
    assert {value for line in guests for value in line.get_ydata()} == {50.0}
    assert len(happiness.lines) == len(found.jobs) + 1
    assert happiness.get_xlabel() == "time [h]"
    assert happiness.get_xlim()[1] == pytest.approx(found.makespan_s)
    assert happiness.get_xticks()[1] == 3600 and happiness.get_xticklabels()[1].get_text() == "1"
    names = [text.get_text() for text in made.legends[0].get_texts()]
    assert names == sorted({job.application for job in found.jobs})


def test_short_queues_and_such_without_guests():
    made = figure(queue(Space(), 1 / 50))
    assert made.axes[1].get_title(loc="left") == "Guests: none"
    assert made.axes[2].get_xlabel() == "time [min]"


def test_nothing_to_draw():
    with pytest.raises(InvalidInput, match="nothing to draw"):
        figure(dataclasses.replace(queue(Space()), samples=()))
    with pytest.raises(InvalidInput, match=r"no job has ended\. Let the queue run for longer"):
        figure(dataclasses.replace(queue(Space()), jobs=()))
