from __future__ import annotations

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.units import DAY
from asa.lab.core.cluster import Cluster
from asa.lab.simulator.run import simulate
from asa.lab.studies.waits_probed import probed
from tests.lab.studies.queues import small_site

EVERY_S, JOBS = 1800.0, 60


def test_probes_of_all_sizes_are_submitted_together() -> None:
    found = probed(small_site(), cores=(8, 16), jobs=JOBS, every_s=EVERY_S, warmup=2.0)
    for size in (8, 16):
        times = [record.submitted for record in found if record.size == size]
        assert times == [2.0 * DAY + EVERY_S * k for k in range(JOBS)]
    assert [record.submitted for record in found] == sorted(record.submitted for record in found)
    assert max(record.wait_s for record in found) > 0


def test_what_they_see_is_the_machine_without_them() -> None:
    """The same counters from the schedule of a whole simulation, looked through job by job."""
    site, duration = small_site(), 2.0 * DAY + JOBS * EVERY_S + DAY
    found = probed(site, cores=(8,), jobs=JOBS, every_s=EVERY_S, warmup=2.0)
    jobs = site.workload(duration, 0)
    schedule = simulate(jobs, Cluster.of(4, 16), "easy")
    assert any(record.context.queued for record in found)
    for record in found:
        now = record.submitted
        waits = (jobs.submit <= now) & ~(schedule.start <= now)
        runs = (schedule.start <= now) & ~(schedule.end <= now)
        assert record.context.queued == waits.sum()
        assert record.context.backlog_s == pytest.approx((jobs.cores * jobs.walltime)[waits].sum() / 64)
        assert record.context.free_cores == 64 - jobs.cores[runs].sum()


def test_their_own_queue_is_that_of_the_probes_of_their_size() -> None:
    found = probed(small_site(load=0.95), cores=(16,), jobs=JOBS, every_s=EVERY_S, warmup=2.0)
    assert any(record.context.own_queued for record in found)
    for place, record in enumerate(found):
        waits = [other.submitted for other in found[:place] if other.started > record.submitted]
        assert record.context.own_queued == len(waits)
        assert record.context.pending_s == (record.submitted - waits[0] if waits else 0.0)


def test_who_is_promised_a_start_mostly_starts_no_later() -> None:
    """Jobs end before their wall times; that others may be let past a probe is rare enough."""
    found = probed(small_site(), cores=(8,), jobs=JOBS, every_s=EVERY_S, warmup=2.0)
    planned = np.array([record.context.planned_s for record in found])
    waits = np.array([record.wait_s for record in found])
    assert (planned[waits == 0] == 0).mean() > 0.9
    assert (planned >= waits - 1.0).mean() > 0.7


def test_sizes_unless_given_are_shares_of_the_machine() -> None:
    assert {record.size for record in probed(small_site(), jobs=2, warmup=0.5)} == {1, 2, 4}


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidInput, match="jobs=0"):
        probed(small_site(), jobs=0)
