"""Several simulated queues under one clock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import InvalidInput
from asa.core.event import Event, Requeued, RunEnded, RunState, Submitting, TaskDone, WidthChosen
from asa.core.job import JobHandle, JobRequest, JobState, Options, Resources
from asa.core.queues import QueueTerms
from asa.lab.backend.queues import SimulatedQueues
from asa.lab.backend.simulated import Simulated
from asa.lab.virtual import run_virtual
from asa.metrics.workflow import summarise
from asa.workflows.graph import make_graph
from asa.workflows.quote import quote_ways
from asa.workflows.settings import Settings

NAMES = ("core", "long", "low")


def alone(name: str) -> Simulated:
    at = NAMES.index(name)
    return Simulated(nodes=8, cores=4, load=(0.9, 0.8, 0.3)[at], seed=at, warmup=1.5, days=5)


def together(**options: Any) -> SimulatedQueues:
    return SimulatedQueues({name: alone(name) for name in NAMES}, **options)


def request(token: str, name: str, cores: int) -> JobRequest:
    where: Options = (("partition", name),)
    return JobRequest(token, Resources(cores, options=where), 3600.0, ("true",))


def submitted(queue: Any, request: JobRequest) -> JobHandle:
    (handle,) = queue.submit([request])
    assert isinstance(handle, JobHandle)
    return handle


def test_each_queue_is_what_it_would_be_alone() -> None:
    """Jobs start when they would, to the instant, whatever happens in the others."""
    site, starts = together(), {name: list[float | None]() for name in NAMES}
    found = [submitted(site, request(f"{name}-{cores}", name, cores)) for name in NAMES for cores in (4, 16)]
    site.clock.wait(threading.Event(), site.clock.now() + 86400.0)
    for handle, status in zip(found, site.query(found), strict=True):
        starts[handle.token.partition("-")[0]].append(status.started)
    for name in NAMES:
        queue = alone(name)
        handles = [submitted(queue, request(f"{name}-{cores}", name, cores)) for cores in (4, 16)]
        queue.sleep(86400.0)
        assert [status.started for status in queue.query(handles)] == starts[name]
    assert any(start is not None for each in starts.values() for start in each)


def test_queues_that_do_not_fit_together_or_are_not_there_are_refused() -> None:
    with pytest.raises(InvalidInput, match="same warmup"):
        SimulatedQueues({"a": Simulated(nodes=1, warmup=0), "b": Simulated(nodes=1, warmup=1)})
    with pytest.raises(InvalidInput, match="no partition 'gpu': choose one of core, long, low"):
        together().capabilities().for_jobs((("partition", "gpu"),))


def run(where: str, **options: Any) -> tuple[list[Event], set[str]]:
    """A run there, and where its jobs were asked for."""

    def work(*_: Any) -> None:
        """Nothing."""

    wide = asa.stage(cores=8, walltime="1h", run_time="30m", partition=where, name="wide")(work)
    last = asa.stage(cores=4, walltime="1h", run_time="40m", partition=where, name="last")(work)
    terms = QueueTerms(twice=options.pop("twice", False))
    events = run_virtual(last(wide.map(range(16))), together(**options), "auto", terms=terms)
    assert next(event.state for event in events if isinstance(event, RunEnded)) is RunState.SUCCEEDED
    queues = {dict(event.request.options)["partition"] for event in events if isinstance(event, Submitting)}
    return events, queues


def test_the_choice_is_about_as_good_as_the_best_queue_in_hindsight() -> None:
    events, queues = run("core|long|low")
    fixed = {name: makespan_s(run(name)[0]) for name in NAMES}
    assert queues <= set(NAMES) and makespan_s(events) <= 1.05 * min(fixed.values())
    assert max(fixed.values()) > 1.4 * min(fixed.values()), "it matters which"


def makespan_s(events: list[Event]) -> float:
    return summarise(events).makespan_s


def test_preempted_jobs_are_requeued_and_their_work_is_done_again() -> None:
    events, _ = run("low", preempted={"low": 2.0}, seed=1)
    assert any(isinstance(event, Requeued) for event in events)
    done = [(event.stage, event.index) for event in events if isinstance(event, TaskDone)]
    assert sorted(set(done)) == sorted(done) and len(done) == 17


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run("core|long|low", preempted={"low": 1.0}, twice=True)[0] for _ in range(2))
    assert [(event.at, type(event)) for event in first] == [(event.at, type(event)) for event in second]


def test_a_job_that_was_cancelled_has_ended() -> None:
    site = together()
    handle = submitted(site, request("a", "core", 4))
    site.cancel([handle])
    assert site.query([handle])[0].state is JobState.CANCELLED
    assert set(site.find(["a", "b"])) == {"a"}


def test_widths_and_queues_are_chosen_together_and_quoted_so(tmp_path: Path) -> None:
    def work(*_: Any) -> None:
        """Nothing."""

    wide = asa.stage(cores=(4, 16), task_cores=1, walltime="2h", run_time="10m", partition="core|long", name="w")(work)
    last = asa.stage(cores=4, walltime="1h", run_time="40m", memory="auto", name="last")(work)
    graph = make_graph(last(wide.map(range(16))))

    def site() -> SimulatedQueues:
        return SimulatedQueues(
            {
                name: Simulated(nodes=8, cores=16, load=load, seed=3, days=5)
                for name, load in (("core", 0.9), ("long", 0.5))
            }
        )

    events = run_virtual(graph, site(), "auto")
    assert next(event.state for event in events if isinstance(event, RunEnded)) is RunState.SUCCEEDED
    assert [event.stage for event in events if isinstance(event, WidthChosen)][:1] == ["w"]
    (quote,) = quote_ways(graph, Settings(graph.result, "run", site(), "auto"), tmp_path, others=False)
    assert quote.done - quote.at == pytest.approx(makespan_s(events), rel=0.2)
