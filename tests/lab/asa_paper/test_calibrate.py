"""A site model from a site's log."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.units import DAY, HOUR
from asa.lab.asa_paper.calibrate import STEP, WaitSample, calibrate, distance, next_factor, observed
from asa.lab.simulator.run import simulate
from asa.lab.traces.load import load_trace
from asa.lab.traces.site import JobClass, SiteModel
from tests.lab.traces.shared import shared_file

pytestmark = pytest.mark.slow

CLASSES = (
    JobClass(5.0, (1, 2, 4), (1 * HOUR, 4 * HOUR), (0.1, 0.3, 0.9), session=(1, 4)),
    JobClass(1.0, (16, 32), (6 * HOUR, 12 * HOUR), (0.3, 0.6, 1.0)),
)
TRUE = SiteModel("true", 16, 8, load=0.7, classes=CLASSES)


def log_of(site, days, seed):
    """A log as the site's own batch system would have written it."""
    jobs = site.workload(days * DAY, seed)
    schedule = simulate(jobs, site.cluster(), site.dispatcher, keep_nodes=False)
    return replace(jobs, wait=schedule.wait)


@pytest.fixture(scope="module")
def log():
    return log_of(TRUE, 80, 1)


@pytest.fixture(scope="module")
def found(log):
    done = []
    made = calibrate(log, TRUE.cluster(), "again", progress=done.append, seeds=3)
    assert done == sorted(done)
    assert done[-1] == 1.0
    return made


def test_a_site_that_is_a_model_is_found_again(found):
    assert found.factor == pytest.approx(1, abs=0.06)
    assert found.site.load == pytest.approx(0.7, abs=0.05)
    assert found.site.name == "again"
    assert "calibrated" in found.site.note
    assert abs(distance(found.model, found.unseen, TRUE.cores)[0]) < 0.5, "waits are mostly luck"
    assert found.model.utilisation == pytest.approx(found.unseen.utilisation, abs=0.06)


def test_replaying_the_unseen_jobs_gives_their_waits_but_for_those_of_the_begin(found):
    assert distance(found.replay, found.unseen, TRUE.cores)[1] < 0.02
    assert found.replay.utilisation == pytest.approx(found.unseen.utilisation, abs=1e-3)


def test_the_unseen_part_is_the_end_of_the_log(found, log):
    rest = log.between(log.submit[0] + 0.7 * (log.submit[-1] - log.submit[0]), np.inf)
    assert (found.unseen.wait == rest.wait).all()
    assert len(found.before.wait) + len(found.unseen.wait) == len(log)


def test_the_report_has_a_row_for_each_size_and_is_json(found):
    made = json.loads(json.dumps(found.to_json()))
    assert made["rows"][0]["cores"] == "all"
    assert made["rows"][0]["jobs"] == len(found.unseen.wait)
    assert made["rows"][0]["unseen_mean_wait_s"] == pytest.approx(found.unseen.wait.mean(), abs=0.06)
    assert {row["cores"] for row in made["rows"][1:]} == {"1", "2", "3-4", "9-16", "17-32"}
    assert SiteModel.from_dict(made["model"]) == found.site
    for part in ("before", "unseen", "model", "replay"):
        assert 0 < made[f"{part}_utilisation"] <= 1
    words = str(found)
    assert "model mean" in words
    assert "load factor" in words


def test_a_log_that_waits_less_gets_a_model_with_less_load(log):
    easier = replace(log, wait=log.wait * 0.1)
    assert calibrate(easier, TRUE.cluster(), "easier", tries=4, seeds=1).factor < 0.97


def test_loads_are_tried_until_they_are_between_too_low_and_too_high():
    assert next_factor([], 1.0, 1.5) == 1.0
    assert next_factor([(1.0, -0.1)], 1.0, 1.5) == pytest.approx(1 / STEP)
    assert next_factor([(1.4, -0.1)], 1.0, 1.5) == 1.5
    tried = []
    for _ in range(8):
        factor = next_factor(tried, 1.0, 1.5)
        tried.append((factor, 6 * np.log(factor / 0.777)))
    assert tried[-1][0] == pytest.approx(0.777, rel=1e-3)
    assert 0.8 < next_factor([(0.9, -0.1), (0.8, 0.1)], 1.0, 1.5) < 0.9, "noise"


def test_distances_are_of_mean_waits_by_size():
    one = WaitSample(np.full(80, 600.0 - 60), np.repeat([1, 8], 40), 0.5, 0.5)
    other = WaitSample(np.repeat([300.0 - 60, 1200.0 - 60], 40), np.repeat([1, 8], 40), 0.5, 0.5)
    assert distance(one, other, 8) == pytest.approx((0, np.log(2)))
    assert distance(one, one, 8) == (0, 0)
    few = WaitSample(other.wait[:20], other.cores[:20], 0.5, 0.5)
    assert distance(one, few, 8)[0] == pytest.approx(np.log(2)), "too few for classes: all jobs together"


def test_jobs_with_unknown_waits_are_not_compared(log):
    part = replace(log, wait=np.where(np.arange(len(log)) % 2, log.wait, np.nan))
    assert len(observed(part, TRUE.cluster(), 0, np.inf).wait) == len(log) // 2


def test_what_cannot_be_calibrated_is_refused(log):
    with pytest.raises(InvalidInput, match="tells of no waits"):
        calibrate(replace(log, wait=np.full(len(log), np.nan)), TRUE.cluster(), "x")
    with pytest.raises(InvalidInput, match=r"share=1\.0"):
        calibrate(log, TRUE.cluster(), "x", share=1.0)
    with pytest.raises(InvalidInput, match="seeds=0"):
        calibrate(log, TRUE.cluster(), "x", seeds=0)
    with pytest.raises(InvalidInput, match="known waits"):
        calibrate(log.take(range(60)), TRUE.cluster(), "x")
    with pytest.raises(InvalidInput, match="too small for a model"):
        calibrate(log.between(0, DAY), TRUE.cluster(), "x")


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize(("name", "most"), [("KTH-SP2-1996-2", 2.0), ("theta_argonne_2023_norm", 2.0)])
def test_real_sites_waits_are_matched_within_a_factor_on_what_was_not_seen(name, most):
    trace = load_trace(shared_file("swf", f"{name}.swf.gz"))
    found = calibrate(trace.workload, trace.cluster, name)
    assert found.summary()["model_off_by"] < most
    assert found.model.utilisation == pytest.approx(found.before.utilisation, abs=0.15)
