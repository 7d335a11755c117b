from __future__ import annotations

import pytest

from asa.lab.studies.compare_learned import learned, seen
from asa.lab.studies.probes import Kind
from asa.lab.studies.scene import Scene, set_scene
from tests.lab.studies.queues import small_queue

KINDS = {Kind(8, 3600.0), Kind(2, 1800.0)}


@pytest.fixture(scope="module")
def scene() -> Scene:
    return set_scene(small_queue(), lambda _site: KINDS)


def test_probes_come_in_order_with_their_size_and_what_was_seen(scene: Scene) -> None:
    found = seen(scene)
    assert len(found) == sum(len(probes) for probes in scene.probes.values()) > 20
    assert [each.submitted for each in found] == sorted(each.submitted for each in found)
    assert {Kind(each.context.cores, each.context.walltime_s) for each in found} == KINDS
    assert all(each.context.at == each.submitted for each in found)


def test_the_counters_are_those_of_the_machine_at_that_time(scene: Scene) -> None:
    jobs = scene.engine.schedule()
    submit, start, end, cores = jobs.workload.submit, jobs.start, jobs.end, jobs.workload.cores
    for each in seen(scene)[::7]:
        at = each.submitted
        waits = (submit <= at) & ~(start <= at)
        runs = (start <= at) & ~(end <= at)
        assert each.context.queued == waits.sum()
        assert each.context.free_cores == scene.engine.cluster.cores - cores[runs].sum()
        assert each.context.oldest_s == pytest.approx(at - submit[waits].min() if waits.any() else 0.0)
        work = float((cores * jobs.workload.walltime)[waits].sum())
        assert each.context.backlog_s == pytest.approx(work / scene.engine.cluster.cores)


def test_pooled_estimators_learn_with_contexts_and_others_as_ever(scene: Scene) -> None:
    from asa.core.job import Resources

    probe = seen(scene)[-1].context
    pooled = learned(scene, "context", 0)
    resources = Resources(cores=probe.cores)
    assert pooled.of(resources, 1.0) is pooled.of(Resources(cores=1), 7200.0)
    assert pooled.predict(resources, probe.walltime_s, probe)[0] >= 0.0
    plain, same = learned(scene, "last", 0), scene.learned("last", 0)
    for kind in KINDS:
        asked = Resources(cores=kind.cores), kind.walltime_s
        assert plain.predict(*asked) == same.predict(*asked)
