"""Jobs that drive a run, on each kind of batch system: which of them there are, and which starts when another ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import asa
from asa.backends.flux import Flux
from asa.backends.pbs import Pbs
from asa.core.clock import ManualClock
from asa.core.errors import InvalidInput
from asa.core.event import RunEnded, RunState
from asa.core.job import JobHandle, JobState
from asa.core.registry import BACKENDS
from asa.log.events import EventLog
from asa.log.rundir import RunDirectory
from asa.testing.backend_fake import FakeBatch
from asa.workflows import driver
from asa.workflows.clean import next_drivers
from asa.workflows.driver import SEALED, DriverJobs, Turn, take_turn, unseal
from asa.workflows.settings import Settings, save_settings
from tests.backends.fakes import FakeCommands, FakeFlux, FakePbs

SECRET, WALLTIME_S = "correct-horse-battery-staple", 600.0


class Site:
    """A batch system where each driver runs until its job ends, behind the commands of Flux or PBS."""

    def __init__(self, name: str) -> None:
        clock = ManualClock(1_700_000_000.0)
        self.commands: FakeCommands
        if name == "flux":
            self.commands = flux = FakeFlux(clock)
            self.backend: Flux | Pbs = Flux(clock=clock, ask=flux, poll_s=1.0)
        else:
            self.commands = pbs = FakePbs(clock)
            self.backend = Pbs(clock=clock, ask=pbs, poll_s=1.0)
        self.commands.batch = FakeBatch(clock, cores=4)

    def states(self, *jobs: JobHandle) -> list[JobState]:
        self.commands.batch.sleep(10.0)
        return [status.state for status in self.backend.query(jobs)]


@pytest.fixture(params=["flux", "pbs"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param)


@asa.stage(secrets=["LICENSE"])
def licensed() -> None:
    """Nothing."""


@pytest.fixture
def jobs(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverJobs]:
    monkeypatch.setenv("LICENSE", SECRET)
    monkeypatch.setattr(BACKENDS, "create", lambda *_, **__: site.backend)
    run = RunDirectory.create(tmp_path, "run-1")
    save_settings(run, Settings(licensed(), "run", "pbs"))
    with closing(DriverJobs(run, f"job:walltime={WALLTIME_S:g}s")) as made:
        yield made


def test_two_are_submitted_and_the_second_starts_whatever_ends_the_first(site: Site, jobs: DriverJobs) -> None:
    first = jobs.begin(())
    assert list(next_drivers(jobs.run)) == [1, 2] and next_drivers(jobs.run)[1] == first
    second = next_drivers(jobs.run)[2]
    assert site.states(first, second) == [JobState.RUNNING, JobState.PENDING]
    site.commands.batch.sleep(WALLTIME_S)
    assert site.states(first, second) == [JobState.TIMEOUT, JobState.RUNNING]


def test_one_that_follows_is_submitted_once_and_found_by_its_name(site: Site, jobs: DriverJobs) -> None:
    first = jobs.begin(())
    second = next_drivers(jobs.run)[2]
    assert jobs.follow(Turn(1), ()) == second, "it was submitted with the first"
    third = jobs.follow(Turn(2), ())
    assert third not in (first, second)
    (jobs.run.path / "driver.next").unlink()
    assert jobs.follow(Turn(2), ()) == third, "as when a driver dies before it has noted what it submitted"
    assert jobs.find(4) is None
    assert site.states(first, second, third) == [JobState.RUNNING, JobState.PENDING, JobState.PENDING]


def test_the_next_one_starts_beside_the_first_once_it_is_released(site: Site, jobs: DriverJobs) -> None:
    """Where dependencies cannot be changed, as with Flux, it is cancelled, and the one behind it starts."""
    first = jobs.begin(())
    second, third = jobs.follow(Turn(1), ()), jobs.follow(Turn(2), ())
    jobs.release(second)
    changed = [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]
    replaced = [JobState.RUNNING, JobState.CANCELLED, JobState.RUNNING]
    assert site.states(first, second, third) == (replaced if isinstance(site.backend, Flux) else changed)


def test_those_to_come_are_cancelled(site: Site, jobs: DriverJobs) -> None:
    first = jobs.begin(())
    second = next_drivers(jobs.run)[2]
    jobs.withdraw(1)
    assert list(next_drivers(jobs.run)) == [1]
    assert site.states(first, second) == [JobState.RUNNING, JobState.CANCELLED]
    jobs.withdraw()
    assert next_drivers(jobs.run) == {} and site.states(first) == [JobState.CANCELLED]


def test_begun_anew_it_has_no_job_of_before(site: Site, jobs: DriverJobs) -> None:
    before = jobs.begin(())
    waiting = next_drivers(jobs.run)[2]
    jobs.begin(())
    assert list(next_drivers(jobs.run)) == [3, 4]
    assert site.states(before, waiting) == [JobState.CANCELLED] * 2


def test_one_that_waits_for_its_turn_leaves_the_log_alone(jobs: DriverJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[Path]()

    def counted(path: Path) -> EventLog:
        opened.append(path)
        return EventLog(path)

    monkeypatch.setattr(driver, "EventLog", counted)
    jobs.begin(())
    with EventLog(jobs.run.events) as log, ThreadPoolExecutor(1) as pool:
        with jobs.run.lock():
            taken = pool.submit(take_turn, jobs, Turn(1), ())
            with pytest.raises(TimeoutError):
                taken.result(1.5)
            assert len(opened) == 1, "whether it is driven is asked of the lock"
            assert jobs.run.handover_request.read_bytes() == b"1"
            log.append([RunEnded(1.0, RunState.SUCCEEDED, "")])
        assert taken.result(10.0) is None
    assert len(opened) == 2


def test_a_secret_reaches_a_driver_in_two_halves(site: Site, jobs: DriverJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.begin(())
    *_, (_, request) = site.commands.submitted.values()
    seen = [
        repr(site.commands.said).encode(),
        *(file.read_bytes() for file in jobs.run.path.rglob("*") if file.is_file()),
    ]
    assert not any(hidden in each for each in seen for hidden in (SECRET.encode(), SECRET.encode().hex().encode()))
    (sealed,) = (word.partition("=")[2] for word in request.argv if word.startswith(f"{SEALED}="))
    monkeypatch.delenv("LICENSE")
    monkeypatch.setenv(SEALED, sealed)
    unseal(jobs.run)
    assert os.environ["LICENSE"] == SECRET and SEALED not in os.environ


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("jobs", "'job' expected"),
        ("job:walltime=0s", "walltime of the driver"),
        ("job:walltime=2h", "more than the site allows"),
    ],
)
def test_a_driver_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, said: str
) -> None:
    site = Site("pbs")
    monkeypatch.setenv("LICENSE", SECRET)
    monkeypatch.setattr(BACKENDS, "create", lambda *_, **__: site.backend)
    run = RunDirectory.create(tmp_path, "run-1")
    save_settings(run, Settings(licensed(), "run", "pbs"))
    with pytest.raises(InvalidInput, match=said):
        DriverJobs(run, spec)


def test_a_secret_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LICENSE", raising=False)
    monkeypatch.setattr(BACKENDS, "create", lambda *_, **__: Site("pbs").backend)
    run = RunDirectory.create(tmp_path, "run-1")
    save_settings(run, Settings(licensed(), "run", "pbs"))
    with pytest.raises(InvalidInput, match="LICENSE"):
        DriverJobs(run, "job").begin(())


def test_on_one_machine_there_is_no_such_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LICENSE", SECRET)
    run = RunDirectory.create(tmp_path, "run-1")
    save_settings(run, Settings(licensed(), "run", "local"))
    with pytest.raises(InvalidInput, match="needs a batch system, and local is none: say --detach"):
        DriverJobs(run, "job")
