"""What is foreseen of a pair, against what becomes of it in the simulated world."""

import numpy as np
import pytest

from asa.core.decision import Start
from coscheduler.drive import drive
from coscheduler.nouns import StartGuest, WaitingJob
from coscheduler.registry import SHARING_RULES
from coscheduler.sharing.scavenger import JobColumns, predict_pairs
from coscheduler.workload import Load, phases
from coscheduler.world import SimulatedWorld

TAX = 0.97


def crowd(*jobs):
    """Columns of jobs as (cores, parallel share, run time alone)."""
    cores, parallel, alone_s = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    return JobColumns(cores, 0.1 * cores, parallel, cores.copy(), alone_s, alone_s.copy(), 10 * alone_s)


def mixed(name, cores, parallel, alone_s, rng):
    """Many short phases in random order: what each does when is independent of the other."""
    parts = 60
    single = phases(alone_s / parts, parallel + (1 - parallel) / cores, cores)
    found = [phase for _ in range(parts) for phase in rng.permutation(np.array(single, dtype=object), axis=0)]
    shuffled = [type(single[0])(float(time_s), float(demand), bool(busy)) for time_s, demand, busy in found]
    return Load(WaitingJob(name, name, cores, 1e6), tuple(shuffled), 0.1)


@pytest.mark.parametrize(("host", "guest"), [((64, 0.25), (64, 0.3)), ((64, 0.3), (16, 0.6)), ((32, 0.05), (32, 0.8))])
def test_harm_and_work_saved_come_out_as_foreseen(host, guest):
    rng = np.random.default_rng(0)
    jobs = crowd((*guest, 3000.0))
    pairs = predict_pairs(jobs, crowd((*host, 3000.0)), np.array([0]), np.array([0.9]), TAX)
    world = SimulatedWorld([mixed("host", *host, 3000.0, rng), mixed("guest", *guest, 3000.0, rng)], host[0])
    world.advance()
    world.apply([Start("host"), StartGuest("guest", "host", 0.1)])
    drive(world, SHARING_RULES.create("space"))
    found = {job.name: job for job in world.result().jobs}
    harm = sum(job.slowdown - 1 for job in found.values())
    assert pairs.harm[0, 0] == pytest.approx(harm, rel=0.25)
    assert pairs.own[0, 0] == pytest.approx(found["guest"].slowdown - 1, rel=0.25)
    assert 0 < pairs.saved[0, 0] <= guest[0] * 3000.0


def test_the_law_is_that_of_the_ledger():
    hosts = crowd((8, 0.1, 1000.0), (16, 0.1, 1000.0))
    pairs = predict_pairs(crowd((16, 0.1, 100.0)), hosts, np.arange(2), np.array([0.9, 0.9]), TAX)
    assert pairs.legal.tolist() == [[False, True]]


def test_more_company_does_more_harm():
    hosts, guest = crowd((64, 0.3, 3000.0)), crowd((16, 0.5, 3000.0))
    alone = predict_pairs(guest, hosts, np.array([0]), np.array([0.9]), TAX)
    both = predict_pairs(
        guest, crowd((64, 0.3, 3000.0), (16, 0.5, 3000.0)), np.array([0, 0]), np.array([0.8, 0.1]), TAX
    )
    assert both.harm[0, 0] > alone.harm[0, 0]
    assert both.rate[0, 0] < alone.rate[0, 0]


def test_a_guest_with_a_dwindling_host_is_harmed_less():
    guest, place, share = crowd((32, 0.8, 3000.0)), np.array([0]), np.array([0.9])
    harms = [
        predict_pairs(guest, crowd((64, 0.5, left_s)), place, share, TAX).own[0, 0] for left_s in (50.0, 500.0, 5000.0)
    ]
    assert harms == sorted(harms) and harms[0] < harms[-1] / 5
