"""Probes in copies of a simulated queue, and perfect prediction."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities, JobRequest, Resources
from asa.core.units import DAY
from asa.core.view import QueueView
from asa.estimators.baselines import Last
from asa.lab.asa_paper.oracle import RESOLUTION_S, Foreseen, StageNeed, oracle
from asa.lab.asa_paper.probes import (
    PROBE_RUN_S,
    JobKind,
    PollingForecast,
    QueueSnapshot,
    WatchedQueue,
    forecast_waits,
    learned_waits,
    probed,
    seen_probes,
    snapshot,
    started,
    submit,
    watch,
)
from asa.lab.asa_paper.replay import replay
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import BackfillRule, Easy, rule_of
from asa.lab.forecast.lookahead import Lookahead
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.settings import MachineSettings
from asa.lab.traces.site import JobClass, SiteModel


def small_site(priority: str = "fifo", load: float = 0.8) -> SiteModel:
    classes = (
        JobClass(0.7, (1, 2, 4), (3600.0, 7200.0), (0.0, 0.3, 0.7, 1.0), (1, 3)),
        JobClass(0.3, (8, 16), (3600.0, 10800.0), (0.1, 0.4, 0.8, 1.0)),
    )
    return SiteModel("small", nodes=4, cores_per_node=16, load=load, classes=classes, priority=priority)


def small_queue(seed: int = 0, regime: str | None = None, **options: float) -> WatchedQueue:
    given = {"warmup": 2.0, "days": 4.0, "learning": 1.0, "every_s": 3600.0} | options
    return WatchedQueue(small_site(), regime, seed, **given)


EASY = rule_of("easy")


def machine(**columns: list[float]) -> Engine:
    columns.setdefault("walltime", columns["run"])
    return Engine(Workload.of(**columns), Cluster.of(nodes=1, cores=4), MachineSettings())


def busy() -> Engine:
    """Four cores, all taken from 0 s to 100 s, and then from 100 s to 150 s."""
    return machine(submit=[0, 1], run=[100, 50], cores=[4, 4])


def test_waits_are_those_of_a_job_submitted_then() -> None:
    engine = busy()
    found = watch(engine, EASY, [JobKind(2, 60.0), JobKind(4, 60.0)], [10.0, 60.0, 200.0])
    assert [probe.wait_s for probe in found[JobKind(4, 60.0)]] == pytest.approx(
        [140 + PROBE_RUN_S, 90 + PROBE_RUN_S, 1.0]
    )
    assert [probe.wait_s for probe in found[JobKind(2, 60.0)]] == [140.0, 90.0, 0.0]
    assert engine.now == 200.0


def test_the_queue_never_notices() -> None:
    engine, undisturbed = busy(), busy()
    watch(engine, EASY, [JobKind(4, 1000.0)], np.arange(0, 100, 5.0).tolist())
    for each in (engine, undisturbed):
        each.dispatch(EASY)
    assert engine.schedule().start.tolist() == undisturbed.schedule().start.tolist()


def test_small_probes_are_not_behind_large_ones() -> None:
    found = watch(busy(), EASY, [JobKind(4, 60.0), JobKind(1, 60.0)], [10.0])
    assert found[JobKind(1, 60.0)][0].wait_s == 140.0


def test_a_short_probe_is_backfilled_and_a_long_one_is_not() -> None:
    engine = machine(submit=[0, 1], run=[100, 50], cores=[3, 4])
    found = watch(engine, EASY, [JobKind(1, 50.0), JobKind(1, 1000.0)], [10.0])
    assert found[JobKind(1, 50.0)][0].wait_s == 0.0
    assert found[JobKind(1, 1000.0)][0].wait_s == 140.0


def test_times_that_have_passed_are_refused() -> None:
    with pytest.raises(InvalidInput, match="it is 50 s already"):
        watch(busy(), EASY, [JobKind(1, 10.0)], [50.0, 40.0])


def test_a_job_that_can_never_run_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the machine could run 4 at most"):
        submit(busy(), JobKind(5, 10.0), 1.0)


def test_a_job_that_can_never_start_is_reported() -> None:
    engine = busy()
    child = submit(engine, JobKind(1, 10.0), 1.0, after=[1])
    operations.cancel(engine, 1)
    with pytest.raises(InvalidInput, match="a job would never start in this queue"):
        started(engine, EASY, [child])


def test_nothing_waits_for_ever() -> None:
    engine = machine(submit=[0], run=[1000], cores=[4])
    assert math.isfinite(watch(engine, EASY, [JobKind(4, 10.0)], [0.0])[JobKind(4, 10.0)][0].wait_s)


KINDS = (JobKind(16, 3600.0), JobKind(2, 900.0))


def some(_site: Capabilities) -> tuple[JobKind, ...]:
    return KINDS


def test_it_stops_when_the_runs_begin_having_watched_the_days_before() -> None:
    queue = small_queue(learning=0.5, every_s=1800.0)
    scene = snapshot(queue, some)
    assert scene.engine.now == queue.begin * DAY
    assert scene.end == (queue.begin + 4) * DAY
    for kind in KINDS:
        times = [probe.submitted for probe in scene.probes[kind]]
        assert times == pytest.approx([scene.engine.now - 1800.0 * (24 - k) for k in range(24)])


def test_seeds_begin_at_all_hours_of_the_week_after_the_warm_up() -> None:
    begins = [small_queue(seed).begin for seed in range(100)]
    assert min(begins) >= 2.0
    assert max(begins) < 9.0
    assert min(sum(day <= begin - 2 < day + 1 for begin in begins) for day in range(7)) >= 5
    assert begins == [small_queue(seed).begin for seed in range(100)]


def test_queues_are_copies_of_one_moment() -> None:
    scene = snapshot(small_queue(), some)
    now, starts = scene.engine.now, []
    for _ in range(2):
        queue = scene.queue()
        (handle,) = queue.submit([JobRequest("a", Resources(cores=16), 3600.0, ("true",))])
        queue.sleep(DAY)
        starts.append(queue.query([handle])[0].started)
    assert starts[0] == starts[1] is not None
    assert scene.engine.now == now


def test_probes_wait_as_jobs_do() -> None:
    scene = snapshot(small_queue(), some)
    engine = scene.engine.copy()
    (probe,) = watch(engine, scene.rule, KINDS, [scene.engine.now])[KINDS[0]]
    queue = scene.queue()
    (handle,) = queue.submit([JobRequest("a", Resources(cores=16), 3600.0, ("true",))])
    queue.sleep(2 * DAY)
    started = queue.query([handle])[0].started
    assert started is not None
    assert started - scene.engine.now == pytest.approx(probe.wait_s, abs=5.0)


def test_what_is_learned_is_what_has_started() -> None:
    scene = snapshot(small_queue(), some)
    waits = learned_waits(scene, "last", seed=0)
    known = [probe for probe in scene.probes[KINDS[0]] if probe.started <= scene.engine.now]
    newest = max(known, key=lambda probe: probe.started)
    assert waits.predict(Resources(cores=16), 3600.0) == [newest.wait_s]


def test_the_regime_is_the_sites_own_unless_another_is_asked_for() -> None:
    assert snapshot(small_queue(), some).regime == "fifo"
    assert snapshot(small_queue(regime="limits"), some).regime == "limits"


@pytest.mark.parametrize(
    ("options", "match"), [({"learning": 9.0}, "less than the warm-up"), ({"every_s": 0.0}, "1 s")]
)
def test_options_out_of_bounds(options: dict[str, float], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        small_queue(**options)


def test_a_regime_that_there_is_not() -> None:
    with pytest.raises(UnknownName, match="accrue-always"):
        snapshot(small_queue(regime="accrue"), some)


def test_a_site_that_there_is_not() -> None:
    with pytest.raises(InvalidInput, match="hpc3n"):
        snapshot(WatchedQueue("hpc3n"), some)


KINDS_WATCHED = {JobKind(8, 3600.0), JobKind(2, 1800.0)}


@pytest.fixture(scope="module")
def scene() -> QueueSnapshot:
    return snapshot(small_queue(), lambda _site: KINDS_WATCHED)


def test_probes_come_in_order_with_their_size_and_what_was_seen(scene: QueueSnapshot) -> None:
    found = seen_probes(scene)
    assert len(found) == sum(len(probes) for probes in scene.probes.values()) > 20
    assert [each.submitted for each in found] == sorted(each.submitted for each in found)
    assert {JobKind(each.context.cores, each.context.walltime_s) for each in found} == KINDS_WATCHED
    assert all(each.context.at == each.submitted for each in found)


def test_the_counters_are_those_of_the_machine_at_that_time(scene: QueueSnapshot) -> None:
    jobs = scene.engine.schedule()
    submit, start, end, cores = jobs.workload.submit, jobs.start, jobs.end, jobs.workload.cores
    for each in seen_probes(scene)[::7]:
        at = each.submitted
        waits = (submit <= at) & ~(start <= at)
        runs = (start <= at) & ~(end <= at)
        assert each.context.queued == waits.sum()
        assert each.context.free_cores == scene.engine.cluster.cores - cores[runs].sum()
        assert each.context.oldest_s == pytest.approx(at - submit[waits].min() if waits.any() else 0.0)
        work = float((cores * jobs.workload.walltime)[waits].sum())
        assert each.context.backlog_s == pytest.approx(work / scene.engine.cluster.cores)


def test_pooled_estimators_learn_with_contexts(scene: QueueSnapshot) -> None:
    probe = seen_probes(scene)[-1].context
    pooled = learned_waits(scene, "context", 0)
    resources = Resources(cores=probe.cores)
    assert pooled.of(resources, 1.0) is pooled.of(Resources(cores=1), 7200.0)
    assert pooled.predict(resources, probe.walltime_s, probe)[0] >= 0.0


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


RULE = Easy().native


def busy_machine(**columns: list[float]) -> Engine:
    """Four cores, all taken from 0 s to 100 s (asked: 200 s), and then for 50 s (asked: 80 s)."""
    columns = columns or {"submit": [0, 1], "run": [100, 50], "cores": [4, 4], "walltime": [200, 80]}
    return Engine(Workload.of(**columns), Cluster.of(nodes=1, cores=4))


def test_each_job_waits_for_itself_alone() -> None:
    found = forecast_waits(busy_machine(), RULE, [JobKind(4, 60.0), JobKind(2, 60.0)], [10.0, 60.0, 200.0])
    records = [each.record for each in found]
    assert [(each.size, each.submitted, each.wait_s) for each in records] == [
        (2, 10.0, 140.0), (4, 10.0, 140.0), (2, 60.0, 90.0), (4, 60.0, 90.0), (2, 200.0, 0.0), (4, 200.0, 0.0),
    ]  # fmt: skip
    assert [each.runs_known_s for each in found] == [each.wait_s for each in records], "no other job is submitted"


def test_contexts_tell_what_a_user_sees() -> None:
    (first, second) = (
        each.record.context for each in forecast_waits(busy_machine(), RULE, [JobKind(2, 60.0)], [10.0, 60.0])
    )
    assert (first.at, first.cores, first.walltime_s, first.pending_s) == (10.0, 2, 60.0, 0.0)
    assert (first.queued, first.free_cores, first.backlog_s, first.planned_s) == (1, 0, 80.0, 270.0)
    assert second.pending_s == 50.0, "the first one still waits"
    assert isinstance(first.queue, QueueView)


def test_forecasts_leave_the_queue_alone() -> None:
    engine, undisturbed = busy_machine(), busy_machine()
    forecast_waits(engine, RULE, [JobKind(4, 1000.0)], np.arange(0, 100, 5.0).tolist())
    for each in (engine, undisturbed):
        each.dispatch(RULE)
    assert engine.schedule().start.tolist() == undisturbed.schedule().start.tolist()


def test_a_job_that_never_starts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="could run 4 at most"):
        forecast_waits(busy_machine(), RULE, [JobKind(5, 60.0)], [10.0])


def test_a_watcher_has_looked_before_it_answers() -> None:
    records = [each.record for each in forecast_waits(busy_machine(), RULE, [JobKind(2, 60.0)], [10.0, 60.0])]
    watcher, blind = PollingForecast(futures=2), Lookahead(futures=2)
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
    records = [
        each.record for each in forecast_waits(engine, RULE, [JobKind(4, 60.0)], np.arange(0, 50_000, 250.0).tolist())
    ]
    half = len(records) // 2
    waits = np.array([each.wait_s for each in records])[half:]

    def error(made: np.ndarray) -> float:
        return float(np.abs(made[half:] - waits).mean())

    forecast = error(replay(lambda seed: PollingForecast(seed=seed, futures=5), records).predicted)
    requested = error(replay(lambda seed: PollingForecast(seed=seed, runs="requested", step=0), records).predicted)
    last = error(replay(lambda seed: Last(seed=seed), records).predicted)
    assert forecast < 0.5 * requested
    assert forecast < 0.7 * last


FCFS, EASY_RULE = rule_of("fcfs"), rule_of("easy")


def queue(jobs: int, seed: int, rate_s: float = 100.0, priority: str = "fifo") -> Engine:
    """Eight cores on which jobs wait for some hundred seconds."""
    rng = np.random.default_rng(seed)
    run = rng.integers(20, 400, jobs)
    work = Workload.of(
        submit=np.sort(rng.uniform(0, rate_s * jobs, jobs)), run=run, cores=rng.integers(1, 6, jobs), walltime=run * 1.5
    )
    engine = Engine(work, Cluster.of(nodes=1, cores=8), MachineSettings(priority=priority))
    engine.dispatch(EASY_RULE, until=rate_s * jobs / 4)
    return engine


def stages(*cores: int, run_time_s: float = 150.0) -> list[StageNeed]:
    names = [f"s{k}" for k in range(len(cores))]
    return [
        StageNeed(name, JobKind(count, 2 * run_time_s), run_time_s, (names[k - 1],) if k else ())
        for k, (name, count) in enumerate(zip(names, cores, strict=True))
    ]


def brute_force(engine: Engine, rule: BackfillRule, two: list[StageNeed], step: float) -> float:
    """The earliest end of a workflow of two stages over all times of submission of the second."""
    best = np.inf
    for lead in itertools.count():
        at = engine.now + lead * step
        copy = engine.copy()
        rows = [submit(copy, two[0].kind, two[0].run_time_s), submit(copy, two[1].kind, two[1].run_time_s, at)]
        first, second = started(copy, rule, rows)
        if second >= first + two[0].run_time_s:
            best = min(best, second + two[1].run_time_s)
        if at > first + two[0].run_time_s:
            return best
    raise AssertionError("unreachable")


@pytest.mark.parametrize("seed", range(6))
def test_two_stages_end_as_early_as_any_submission_lets_them(seed: int) -> None:
    engine, two = queue(120, seed), stages(3, 4)
    found = oracle(engine, FCFS, two)
    assert found[-1].ended <= brute_force(engine, FCFS, two, step=2.0) + RESOLUTION_S


@settings(max_examples=25)
@given(st.integers(0, 1000), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_every_stage_starts_when_it_is_ready_or_later_and_the_engine_is_left_alone(seed: int, cores: list[int]) -> None:
    engine = queue(60, seed)
    now, jobs = engine.now, int(engine.state.world[0]["jobs"])
    found = oracle(engine, EASY_RULE, stages(*cores))
    assert (engine.now, int(engine.state.world[0]["jobs"])) == (now, jobs)
    for before, stage in itertools.pairwise(found):
        assert stage.ready == before.ended
        assert stage.started >= stage.ready - 1e-6
        assert now <= stage.submitted <= stage.ready
    assert found[0].ready == now


def test_promised_starts_are_kept() -> None:
    engine, needs = queue(120, 3), stages(5, 2, 6)
    found = oracle(engine, EASY_RULE, needs)
    rows: list[int] = []
    for stage in found:
        after = rows[-1:] if stage.gated else []
        rows.append(submit(engine, stage.need.kind, stage.need.run_time_s, stage.submitted, after))
    assert started(engine, EASY_RULE, rows) == [stage.started for stage in found]


def dependent(engine: Engine, needs: list[StageNeed]) -> float:
    """The end of a workflow whose jobs are all submitted at its begin, each depending on the one before."""
    copy, rows = engine.copy(), list[int]()
    for need in needs:
        rows.append(submit(copy, need.kind, need.run_time_s, after=rows[-1:]))
    return started(copy, EASY_RULE, rows)[-1] + needs[-1].run_time_s


def test_where_dependent_jobs_keep_their_place_it_can_use_that_too() -> None:
    gains = []
    for seed in range(8):
        needs = stages(4, 6)
        ageing = oracle(queue(100, seed), EASY_RULE, needs)
        assert ageing[-1].ended <= dependent(queue(100, seed), needs) + 1e-6
        other = oracle(queue(100, seed, priority="multifactor:regime=limits"), EASY_RULE, needs)
        assert not any(stage.gated for stage in other)
        gains.append(other[-1].ended - ageing[-1].ended)
    assert min(gains) >= -1e-6


def test_an_idle_machine_needs_no_foresight() -> None:
    engine = Engine(Workload.of(submit=[], run=[], cores=[]), Cluster.of(nodes=1, cores=8), MachineSettings())
    found = oracle(engine, EASY_RULE, stages(8, 1, 8))
    assert [stage.started for stage in found] == [0.0, 150.0, 300.0]
    assert found[-1].span.wait_s == 0.0


def test_it_never_ends_later_than_asking_when_ready() -> None:
    for seed in range(5):
        engine, needs = queue(100, seed), stages(4, 6)
        one_by_one = engine.copy()
        ends = 0.0
        for need in needs:
            one_by_one.dispatch(EASY_RULE, until=max(one_by_one.now, ends))
            (start,) = started(one_by_one, EASY_RULE, [submit(one_by_one, need.kind, need.run_time_s)])
            ends = start + need.run_time_s
        assert oracle(engine, EASY_RULE, needs)[-1].ended <= ends + 1e-6


def test_stages_side_by_side_wait_for_their_own() -> None:
    engine = Engine(Workload.of(submit=[], run=[], cores=[]), Cluster.of(nodes=1, cores=8), MachineSettings())
    needs = [
        StageNeed("a", JobKind(2, 100.0), 50.0),
        StageNeed("b", JobKind(2, 100.0), 80.0),
        StageNeed("c", JobKind(2, 100.0), 10.0, ("a", "b")),
    ]
    found: list[Foreseen] = oracle(engine, EASY_RULE, needs)
    assert [stage.started for stage in found] == [0.0, 0.0, 80.0]
