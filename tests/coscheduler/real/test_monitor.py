import numpy as np
import pytest

from asa.core.decision import Start
from coscheduler.ledger import Ledger
from coscheduler.nouns import StartGuest, WaitingJob
from coscheduler.real.machine import ContainerUsage
from coscheduler.real.monitor import ContainerPlace, Monitor

MIB = 1 << 20
IDLE = {"h0": ContainerUsage(0.0, None)}


@pytest.fixture
def ledger():
    ledger = Ledger(4)
    ledger.submit(WaitingJob("host", "a", 4, 1000.0))
    ledger.submit(WaitingJob("guest", "b", 2, 1000.0))
    ledger.apply(Start("host"), 0.0)
    ledger.apply(StartGuest("guest", "host", 0.05), 0.0)
    return ledger


@pytest.fixture
def monitor(ledger, tmp_path):
    """Nodes of two cores, a quarter of a real one each."""
    monitor = Monitor()
    for name, containers in (("host", ("h0", "h1")), ("guest", ("g0",))):
        (tmp_path / name).mkdir()
        where = [ContainerPlace(container, 2, 0.25, 100 * MIB) for container in containers]
        monitor.begin(ledger.running[name].job, tmp_path / name, where, 0.0)
    return monitor


def test_cores_and_memory(monitor, ledger):
    monitor.look(
        10.0,
        {"h0": ContainerUsage(5.0, 50 * MIB), "h1": ContainerUsage(2.5, None), "g0": ContainerUsage(0.5, 100 * MIB)},
        ledger,
    )
    states = monitor.states(ledger, 10.0)
    assert states.cpu.tolist() == pytest.approx([0.75, 0.1]), "7.5 s at a quarter are 30 core-seconds of 40"
    assert states.memory.tolist() == pytest.approx([0.25, 1.0])
    assert states.parallel.tolist() == [True, False]
    assert monitor.busy() == pytest.approx(3.2)
    assert monitor.jobs["host"].busy_s == pytest.approx(32.0), "its guest's too"
    assert monitor.jobs["host"].memory_s == pytest.approx(10 * (0.25 * 4 + 1.0 * 2))
    assert monitor.jobs["guest"].busy_s == 0
    monitor.look(20.0, {"h0": ContainerUsage(6.0, 10 * MIB)}, ledger)
    assert monitor.jobs["host"].cores == pytest.approx(0.4)
    assert monitor.jobs["host"].most == pytest.approx(0.25)
    assert monitor.jobs["host"].parallel_s == 10.0


def test_one_core_is_enough_to_be_parallel_where_there_is_one(tmp_path):
    ledger, monitor = Ledger(1), Monitor()
    ledger.submit(WaitingJob("a", "a", 1, 1000.0))
    ledger.apply(Start("a"), 0.0)
    monitor.begin(ledger.running["a"].job, tmp_path, [ContainerPlace("c", 1, 1.0, MIB)], 0.0)
    monitor.look(1.0, {"c": ContainerUsage(0.9, None)}, ledger)
    assert monitor.jobs["a"].is_parallel


def test_progress_of_all_ranks_counts(monitor, ledger, tmp_path):
    looks = [(0, 10), (2, 10), (4, 10)]
    for at, (done, total) in zip((10.0, 110.0, 210.0), looks, strict=True):
        for rank in (0, 1):
            (tmp_path / "host" / f"progress.{rank}").write_text(f"{done} {total}\n")
        monitor.look(at, IDLE, ledger)
    host = monitor.jobs["host"]
    assert host.done == pytest.approx(0.4)
    assert host.rate == pytest.approx(0.002)
    monitor.look(260.0, IDLE, ledger)
    assert host.left() == pytest.approx(0.5), "half a step is on its way"
    monitor.look(900.0, IDLE, ledger)
    assert host.left() == pytest.approx(0.4), "but a step at most"
    happy = monitor.states(ledger, 900.0).happiness
    assert happy[0] == pytest.approx(100 * 0.002 / 0.4)
    assert happy[1] == 1.0, "it does not tell"


@pytest.mark.parametrize("text", ["", "3", "a b", "nan 10", "5 0"])
def test_what_is_no_progress(monitor, ledger, tmp_path, text):
    (tmp_path / "host" / "progress.0").write_text(text)
    monitor.look(10.0, IDLE, ledger)
    assert monitor.jobs["host"].done is None
    assert np.isfinite(monitor.states(ledger, 10.0).happiness).all()


def test_silent_is_just_on_time(monitor, ledger):
    """To the last digit: a host that is a little late has its guests' shares cut."""
    assert all(monitor.states(ledger, at / 7).happiness.tolist() == [1.0, 1.0] for at in range(1, 2000))


def test_late_and_silent(monitor, ledger):
    assert monitor.states(ledger, 1001.0).happiness.tolist() == [0.0, 0.0]


def test_what_containers_did_after_the_last_look_is_taken_from_before(monitor, ledger):
    monitor.look(4.0, {"h0": ContainerUsage(2.0, None), "h1": ContainerUsage(1.0, None)}, ledger)
    host, guest = monitor.jobs["host"], monitor.jobs["guest"]
    assert (host.cpu_s, guest.cpu_s) == (12.0, 0.0)
    monitor.look(5.0, {}, ledger)
    assert host.cores == 3.0, "nothing is known of a job of which nothing runs"
    assert host.used(6.0).cpu_s == pytest.approx(18.0)
    assert guest.used(6.0).cpu_s == 0.0
