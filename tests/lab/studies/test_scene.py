from __future__ import annotations

import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Capabilities, JobRequest, Resources
from asa.core.units import DAY
from asa.lab.studies.probes import Kind, watch
from asa.lab.studies.scene import Queue, set_scene
from tests.lab.studies.queues import small_queue

KINDS = (Kind(16, 3600.0), Kind(2, 900.0))


def some(_site: Capabilities) -> tuple[Kind, ...]:
    return KINDS


def test_it_stops_when_the_runs_begin_having_watched_the_days_before() -> None:
    queue = small_queue(learning=0.5, every_s=1800.0)
    scene = set_scene(queue, some)
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
    scene = set_scene(small_queue(), some)
    now, starts = scene.engine.now, []
    for _ in range(2):
        queue = scene.queue()
        (handle,) = queue.submit([JobRequest("a", Resources(cores=16), 3600.0, ("true",))])
        queue.sleep(DAY)
        starts.append(queue.query([handle])[0].started)
    assert starts[0] == starts[1] is not None
    assert scene.engine.now == now


def test_probes_wait_as_jobs_do() -> None:
    scene = set_scene(small_queue(), some)
    engine = scene.engine.copy()
    (probe,) = watch(engine, scene.rule, KINDS, [scene.engine.now])[KINDS[0]]
    queue = scene.queue()
    (handle,) = queue.submit([JobRequest("a", Resources(cores=16), 3600.0, ("true",))])
    queue.sleep(2 * DAY)
    started = queue.query([handle])[0].started
    assert started is not None
    assert started - scene.engine.now == pytest.approx(probe.wait_s, abs=5.0)


def test_what_is_learned_is_what_has_started() -> None:
    scene = set_scene(small_queue(), some)
    waits = scene.learned("last", seed=0)
    known = [probe for probe in scene.probes[KINDS[0]] if probe.started <= scene.engine.now]
    newest = max(known, key=lambda probe: probe.started)
    assert waits.predict(Resources(cores=16), 3600.0) == [newest.wait_s]


def test_the_regime_is_the_sites_own_unless_another_is_asked_for() -> None:
    assert set_scene(small_queue(), some).regime == "fifo"
    assert set_scene(small_queue(regime="limits"), some).regime == "limits"


@pytest.mark.parametrize(
    ("options", "match"), [({"learning": 9.0}, "less than the warm-up"), ({"every_s": 0.0}, "1 s")]
)
def test_options_out_of_bounds(options: dict[str, float], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        small_queue(**options)


def test_a_regime_that_there_is_not() -> None:
    with pytest.raises(UnknownName, match="accrue-always"):
        set_scene(small_queue(regime="accrue"), some)


def test_a_site_that_there_is_not() -> None:
    with pytest.raises(InvalidInput, match="hpc3n"):
        set_scene(Queue("hpc3n"), some)
