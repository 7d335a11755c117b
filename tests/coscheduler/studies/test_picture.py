import dataclasses

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from coscheduler.drive import drive
from coscheduler.run import figure
from coscheduler.sharing.starter import Space, Static
from coscheduler.workload import paper_queue
from coscheduler.world import SimulatedWorld

pytest.importorskip("matplotlib")


def queue(rule, scale=1.0):
    loads = [
        dataclasses.replace(load, phases=tuple(each._replace(alone_s=each.alone_s * scale) for each in load.phases))
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
