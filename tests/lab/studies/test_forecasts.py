from __future__ import annotations

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.core.view import QueueView
from asa.estimators.baselines import Last
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Easy
from asa.lab.forecast.lookahead import Lookahead
from asa.lab.simulator.engine import Engine
from asa.lab.studies.forecasts import Watcher, watched
from asa.lab.studies.probes import Kind
from asa.lab.studies.replay_waits import replay

RULE = Easy().native


def busy(**columns: list[float]) -> Engine:
    """Four cores, all taken from 0 s to 100 s (asked: 200 s), and then for 50 s (asked: 80 s)."""
    columns = columns or {"submit": [0, 1], "run": [100, 50], "cores": [4, 4], "walltime": [200, 80]}
    return Engine(Workload.of(**columns), Cluster.of(nodes=1, cores=4))


def test_each_job_waits_for_itself_alone() -> None:
    found = watched(busy(), RULE, [Kind(4, 60.0), Kind(2, 60.0)], [10.0, 60.0, 200.0])
    records = [each.record for each in found]
    assert [(each.size, each.submitted, each.wait_s) for each in records] == [
        (2, 10.0, 140.0), (4, 10.0, 140.0), (2, 60.0, 90.0), (4, 60.0, 90.0), (2, 200.0, 0.0), (4, 200.0, 0.0),
    ]  # fmt: skip
    assert [each.runs_known_s for each in found] == [each.wait_s for each in records], "nobody else comes"


def test_contexts_tell_what_a_user_sees() -> None:
    (first, second) = (each.record.context for each in watched(busy(), RULE, [Kind(2, 60.0)], [10.0, 60.0]))
    assert (first.at, first.cores, first.walltime_s, first.pending_s) == (10.0, 2, 60.0, 0.0)
    assert (first.queued, first.free_cores, first.backlog_s, first.planned_s) == (1, 0, 80.0, 270.0)
    assert second.pending_s == 50.0, "the first one still waits"
    assert isinstance(first.queue, QueueView)


def test_the_queue_never_notices() -> None:
    engine, undisturbed = busy(), busy()
    watched(engine, RULE, [Kind(4, 1000.0)], np.arange(0, 100, 5.0).tolist())
    for each in (engine, undisturbed):
        each.drive(RULE)
    assert engine.schedule().start.tolist() == undisturbed.schedule().start.tolist()


def test_a_job_that_never_starts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="could run 4 at most"):
        watched(busy(), RULE, [Kind(5, 60.0)], [10.0])


def test_a_watcher_has_looked_before_it_answers() -> None:
    records = [each.record for each in watched(busy(), RULE, [Kind(2, 60.0)], [10.0, 60.0])]
    watcher, blind = Watcher(futures=2), Lookahead(futures=2)
    assert watcher.predict(records[0].context) == blind.predict(records[0].context)
    assert watcher.state()["sightings"]["at"] == 10.0
    assert blind.state()["sightings"]["at"] is None
    assert watcher.predict() == blind.predict()


def test_forecasts_are_nearer_than_the_last_wait() -> None:
    """A machine whose jobs use a quarter of their wall times: the forecast learns that, the last wait is none of it."""
    rng = np.random.default_rng(1)
    submit = np.sort(rng.uniform(0, 60_000, 900))
    walltime = rng.choice([200.0, 400.0, 800.0], 900)
    engine = Engine(
        Workload.of(submit=submit, run=walltime / 4, cores=rng.choice([1, 2, 3], 900), walltime=walltime),
        Cluster.of(nodes=1, cores=4),
    )
    records = [each.record for each in watched(engine, RULE, [Kind(4, 60.0)], np.arange(0, 50_000, 250.0).tolist())]
    half = len(records) // 2
    waits = np.array([each.wait_s for each in records])[half:]

    def error(made: np.ndarray) -> float:
        return float(np.abs(made[half:] - waits).mean())

    forecast = error(replay(lambda seed: Watcher(seed=seed, futures=5), records).predicted)
    requested = error(replay(lambda seed: Watcher(seed=seed, runs="requested", step=0), records).predicted)
    last = error(replay(lambda seed: Last(seed=seed), records).predicted)
    assert forecast < 0.5 * requested
    assert forecast < 0.7 * last
