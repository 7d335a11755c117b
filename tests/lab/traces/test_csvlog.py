from __future__ import annotations

import datetime
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.errors import InvalidInput
from asa.core.job import JobState
from asa.core.units import clock
from asa.lab.core.schedule import OUTCOMES
from asa.lab.traces.csvlog import Accounting, each, moment, seconds, size, timezone
from asa.lab.traces.rules import Sieve

NAN = float("nan")


def accounting(*rows, **constants):
    """Records with these columns; what is not told is a job of one core that ran 60 s at once."""
    usual = {
        "job": "1", "submit": 1000, "eligible": NAN, "start": 1000, "run": 60, "walltime": 100, "nodes": 1, "cores": 1,
        "memory": 0, "gpus": 0, "outcome": OUTCOMES.index(JobState.COMPLETED), "spread": False, "user": "", "group": "",
        "name": "", "partition": "",
    } | constants  # fmt: skip
    full = [usual | {"job": str(number)} | row for number, row in enumerate(rows, 1)]
    columns = {name: [row[name] for row in full] for name in usual}
    texts = ("job", "user", "group", "name", "partition")
    return Accounting(**{
        name: values if name in texts else np.array(values, dtype={"outcome": "i1", "spread": "?"}.get(name, "f8"))
        for name, values in columns.items()
    })  # fmt: skip


def trace(log, units="cores", wait_from="submit"):
    return log.trace(Sieve("log", len(log.job), str), units=units, wait_from=wait_from)


@given(st.integers(0, 10**7))
def test_durations_read_back(whole):
    assert seconds(clock(whole)) == whole
    assert seconds(str(whole)) == whole


def test_sizes_and_times_that_are_none():
    assert [size(text) for text in ("", "0", "4X", "-1", "1.5K")] == [0, 0, 0, 0, 1536]
    assert np.isnan([seconds(text) for text in ("", "UNLIMITED", "Partition_Limit", "1-2-3", "a:b")]).all()
    assert np.isnan([moment(text, datetime.UTC) for text in ("", "Unknown", "0", "2024-13-01")]).all()


def test_dates_are_read_in_their_zone_across_the_change_of_clocks():
    umea = timezone("Europe/Stockholm")
    before, after = moment("2024-03-31T01:59:59", umea), moment("2024-03-31T03:00:00", umea)
    assert after - before == 1
    assert moment("2024-03-31 03:00:00", umea) == moment("2024-03-31T01:00:00", datetime.UTC)
    with pytest.raises(InvalidInput, match="time zone 'Umea' is not known"):
        timezone("Umea")


def test_texts_that_repeat_are_parsed_once():
    asked = []
    assert each(["7", "8", "7"], lambda text: asked.append(text) or float(text)).tolist() == [7, 8, 7]
    assert asked == ["7", "8"]


def test_the_clock_starts_with_the_first_submission():
    found = trace(accounting({"submit": 2000, "start": 2010}, {"submit": 1500, "start": 1500, "eligible": 1500}))
    assert found.epoch == 1500
    assert found.workload.submit.tolist() == [0, 500]
    assert found.workload.number.tolist() == [2, 1]
    assert found.workload.wait.tolist() == [0, 10]
    np.testing.assert_array_equal(found.eligible, [0, NAN])
    assert found.report.counts == {"out-of-order": 1}
    assert found.cluster is None


def test_waits_from_submission_or_from_eligibility():
    log = accounting(
        {"submit": 0, "eligible": 40, "start": 100},
        {"submit": 0, "eligible": NAN, "start": 100},
        {"submit": 50, "eligible": 40, "start": 100},
        {"submit": 50, "eligible": 300, "start": 100},
    )
    assert trace(log).workload.wait.tolist() == [100, 100, 50, 50]
    eligible = trace(log, wait_from="eligible")
    np.testing.assert_array_equal(eligible.workload.wait, [60, 100, 50, NAN])
    assert eligible.report.counts == {"no-wait": 1}


def test_runs_of_a_requeued_job_follow_one_another():
    log = accounting(
        {"job": "7", "submit": 0, "start": 10, "run": 50},
        {"job": "8", "submit": 5, "start": 5},
        {"job": "7", "submit": 0, "start": 90},
        {"job": "7", "submit": 200, "start": 210},
    )
    found = trace(log)
    assert found.workload.number.tolist() == [7, 8, 7, 7]
    assert found.workload.submit.tolist() == [0, 5, 60, 200]
    assert found.workload.wait.tolist() == [10, 0, 30, 10]
    assert found.report.counts == {"requeued": 2}


def test_equal_parts_over_nodes():
    log = accounting(
        {"nodes": 2, "cores": 16, "memory": 2**34, "gpus": 2, "spread": True},
        {"nodes": 2, "cores": 16, "memory": 2**34, "gpus": 2},
        {"nodes": 6, "cores": 64, "memory": 130},
        {"nodes": 2, "cores": 20, "gpus": 3},
        {"nodes": 0, "cores": 3},
    )
    jobs = trace(log, units="chunks").workload
    assert jobs.units.tolist() == [2, 2, 64, 1, 3]
    assert jobs.demands[jobs.kind].tolist() == [[8, 2**33, 1], [8, 2**33, 1], [1, 3, 0], [20, 0, 3], [1, 0, 0]]
    assert jobs.per_node.tolist() == [1, 0, 0, 0, 0]
    assert jobs.resources == ("cores", "memory", "gpus")
    assert trace(log, units="chunks").report.counts == {"uneven": 3}
    plain = trace(log).workload
    assert plain.cores.tolist() == jobs.cores.tolist() == [16, 16, 64, 20, 3]
    assert plain.demands.tolist() == [[1]]
    assert trace(accounting({"gpus": 2, "cores": 4}), units="chunks").workload.resources == ("cores", "gpus")


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 99), st.integers(0, 9)), min_size=1, max_size=5))
def test_parts_are_whole_and_lose_nothing(shapes):
    log = accounting(*({"nodes": nodes, "cores": cores, "gpus": gpus} for nodes, cores, gpus in shapes))
    jobs = trace(log, units="chunks").workload
    held = jobs.units[:, None] * jobs.demands[jobs.kind]
    assert held[:, 0].tolist() == [cores for _, cores, _ in shapes]
    if "gpus" in jobs.resources:
        assert held[:, jobs.resources.index("gpus")].tolist() == [gpus for *_, gpus in shapes]
    else:
        assert not any(gpus for *_, gpus in shapes)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"outcome": OUTCOMES.index(JobState.CANCELLED), "run": NAN, "start": NAN}, "cancelled"),
        ({"outcome": OUTCOMES.index(JobState.CANCELLED), "run": 0}, "cancelled"),
        ({"submit": NAN}, "no-submit-time"),
        ({"run": NAN}, "no-run-time"),
        ({"run": -5}, "negative-run-time"),
        ({"cores": 0}, "no-processors"),
        ({"run": 0}, "zero-run-time"),
        ({"walltime": NAN}, "no-requested-time"),
        ({"walltime": 0}, "no-requested-time"),
        ({"run": 101}, "overrun"),
        ({"start": 900}, "no-wait"),
    ],
)
def test_every_odd_record_falls_under_its_rule(row, rule):
    found = trace(accounting({}, row, {}))
    assert found.report.counts == {rule: 1}
    assert len(found.workload) == 3 - found.report.findings[0].rule.drops


def test_nothing_left():
    found = trace(accounting({"run": NAN}))
    assert len(found.workload) == 0
    assert np.isnan(found.epoch)


def test_options_that_are_none():
    with pytest.raises(InvalidInput, match="units='nodes', wait_from='submit'"):
        trace(accounting({}), units="nodes")
    with pytest.raises(InvalidInput, match="wait_from='end'"):
        trace(replace(accounting({})), wait_from="end")
