import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from distributed import get_client, get_worker, worker_client

import asa
from asa.core.allocation import Allocation
from asa.core.errors import InvalidInput
from asa.core.event import TaskDone, TaskFailed
from asa.core.job import Resources
from asa.core.ports import RunContext
from asa.log.output import OutputReader
from asa.testing import tasks
from asa.testing.executors import Bench, ExecutorDriver, is_gone
from executors.dask import dask
from executors.hub import local
from tests.waiting import until

pytestmark = pytest.mark.slow

RELEASED_S = 10.0


def test_the_program_of_each_node_is_the_supervisor(context: RunContext) -> None:
    allocation = Allocation("key", Resources(cores=8, nodes=2, memory=100, gpus=3), 60.0)
    assert dask().bootstrap(allocation, context) == local().bootstrap(allocation, context)


@pytest.mark.parametrize(
    ("missing", "hint"), [("distributed", r"pip install asa-hpc\[dask\]"), ("bokeh", "pip install bokeh")]
)
def test_what_is_not_installed_is_named(
    context: RunContext, monkeypatch: pytest.MonkeyPatch, missing: str, hint: str
) -> None:
    monkeypatch.setattr("executors.dask.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(InvalidInput, match=hint):
        dask(dashboard=True).start(context, lambda events: None)
    assert not context.directory.exists()


def test_dask_is_loaded_when_it_is_started_and_not_before() -> None:
    script = (
        "import sys; from pathlib import Path; from executors.dask import dask\n"
        "from asa.core.allocation import Allocation; from asa.core.job import Resources\n"
        "from asa.core.ports import RunContext\n"
        "dask().bootstrap(Allocation('a', Resources(), 60.0), RunContext('r', Path('/r'), '/', ()))\n"
        "sys.exit(any(name in sys.modules for name in ('dask', 'distributed', 'cryptography', 'numpy', 'asyncio')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_workers_that_do_not_start_end_the_node_and_say_why(context: RunContext) -> None:
    with Bench(dask, context) as bench:
        driver = bench.driver()
        (context.directory / "tls" / "worker.pem").unlink()
        program = bench.node(resources=Resources(cores=1))
        reason = driver.lost().reason
        assert "dask workers do not start on" in reason and "worker.pem" in reason
        assert program.wait(30.0) != 0


def test_workers_of_all_allocations_join_one_scheduler(context: RunContext) -> None:
    def addresses() -> list[str]:
        return sorted(get_client().scheduler_info(n_workers=-1)["workers"])

    def work(place: str, number: int) -> list[str]:
        assert tasks.meet(place, number, 2)
        return addresses()

    with Bench(dask, replace(context, local=False)) as bench:
        driver, place = bench.driver(), bench.directory("meeting")
        for number, allocation in enumerate("ab"):
            driver.launch(work, [(place, number)], allocation=allocation, stage=allocation)
            bench.node(allocation, Resources(cores=1), f"n{number}")
        (of_a,), (of_b,) = driver.values(1, "a"), driver.values(1, "b")
        assert of_a == of_b and len(of_a) == 2
        assert all(address.startswith("tls://") for address in of_a)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A node of two cores, shared by the tests of a class: each has stages of its own."""
    place = tmp_path_factory.mktemp("dask")
    context = RunContext("r1", place / "run", str(place), tuple(sys.path), local=True)
    with Bench(dask, context) as bench:
        bench.node()
        yield bench


@pytest.fixture(scope="module")
def driver(bench: Bench) -> ExecutorDriver:
    return bench.driver()


class TestOneNode:
    def test_a_task_may_use_dask_itself(self, driver: ExecutorDriver) -> None:
        def work(number: int) -> int:
            with worker_client() as client:
                return sum(client.gather(client.map(abs, range(-number, 0), pure=False)))

        driver.launch(work, [(10,), (20,)], stage="nested")
        assert driver.values(2, "nested") == [55, 210]

    def test_tasks_that_wait_for_their_own_all_fail_with_their_worker(
        self, driver: ExecutorDriver, bench: Bench
    ) -> None:
        place = bench.directory("waiting")

        def meet_and_die(number: int) -> None:
            if number >= 0:
                with worker_client():  # from here on, the worker may run other tasks beside this one
                    tasks.meet(place, number, 4)
                    time.sleep(0.05)
                    os._exit(7)

        driver.launch(meet_and_die, [(-1,)] * 50, stage="waiting")  # so short that several go to one worker
        driver.ended(50, "waiting")
        driver.launch(meet_and_die, [(number,) for number in range(4)], stage="waiting")
        driver.ended(54, "waiting")
        failed = [event for event in driver.events if isinstance(event, TaskFailed) and event.stage == "waiting"]
        assert sorted(event.index for event in failed) == [0, 1, 2, 3]
        assert all("exit code 7" in event.error for event in failed)

    def test_dask_knows_tasks_by_stage_and_number_and_keeps_no_results(self, driver: ExecutorDriver) -> None:
        def key() -> str:
            return str(get_worker().get_current_task())

        def kept() -> tuple[int, list[str]]:
            def look() -> list[str]:
                return [
                    str(key) for key in get_client().run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))
                ]

            deadline = time.monotonic() + RELEASED_S
            while time.monotonic() < deadline and (len(look()) > 1 or len(get_worker().data)):
                time.sleep(0.05)
            return len(get_worker().data), look()

        driver.launch(key, [()] * 3, stage="keys")
        keys = driver.values(3, "keys")
        assert [key.rpartition("-")[0] for key in keys] == ["keys-0", "keys-1", "keys-2"]
        driver.launch(kept, [()], stage="kept")
        ((count, left),) = driver.values(1, "kept")
        assert count == 0 and [key.rpartition("-")[0] for key in left] == ["kept-0"]

    def test_scheduler_and_workers_take_no_other_connections(self, driver: ExecutorDriver) -> None:
        def listening() -> tuple[list[str], list[int]]:
            worker, client = get_worker(), get_client()
            http = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.http_server.port)
            return [worker.scheduler.address, worker.address], [http, worker.http_server.port]

        driver.launch(listening, [()], stage="listening")
        ((addresses, ports),) = driver.values(1, "listening")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for address in addresses:
            scheme, _, place = address.partition("://")
            host, _, port = place.rpartition(":")
            assert scheme == "tls" and host == "127.0.0.1"
            with (
                socket.create_connection((host, int(port))) as stream,
                pytest.raises(ssl.SSLError, match="certificate"),
            ):
                context.wrap_socket(stream).recv(1)
        for number in ports:
            for path in ("", "status", "info/main/workers.html", "metrics", "health"):
                assert requests.get(f"http://127.0.0.1:{number}/{path}", timeout=10.0).status_code == 404

    def test_what_tasks_print_is_labelled_and_bounded(self, driver: ExecutorDriver, bench: Bench) -> None:
        def shout(number: int) -> None:
            print("beginning", number)
            os.write(2, b"x" * 15_000_000)
            print("\nend", number)

        driver.launch(shout, [(1,), (2,)], stage="shout")
        driver.values(2, "shout")
        said = [line.text for line in OutputReader(bench.context.directory, "shout", 1).read(())]
        assert said[0] == "beginning 2" and said[-1] == "end 2"
        assert any("bytes are cut here" in text for text in said) and sum(map(len, said)) < 11_000_000

    def test_numpy_keeps_to_one_core(self, driver: ExecutorDriver) -> None:
        def more_threads() -> int:
            import numpy as np

            before = len(os.listdir("/proc/self/task"))
            np.ones((500, 500)) @ np.ones((500, 500))
            return len(os.listdir("/proc/self/task")) - before

        driver.launch(more_threads, [()], stage="numpy")
        assert driver.values(1, "numpy") == [0]


WORKFLOW = """
import os, sys, time
from pathlib import Path
import asa

place = Path(sys.argv[1])

@asa.stage(cores=2)
def work(number):
    (place / f"{number}-{os.getpid()}").touch()
    while number == 2 and not (place / "go").exists():
        time.sleep(0.01)
    return 10 * number

@asa.stage
def total(numbers):
    return sum(numbers)

asa.run(total(work.map(range(4))), backend="local:cores=2", executor="dask", name="killed", state=sys.argv[2])
"""


def test_a_run_whose_driver_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    place, state, script = tmp_path / "place", tmp_path / "state", tmp_path / "script.py"
    place.mkdir()
    script.write_text(WORKFLOW)
    with subprocess.Popen([sys.executable, script, place, state], cwd=tmp_path) as driver:
        until(lambda: len({path.name[0] for path in place.iterdir()}) == 4, "all begun; number 2 does not end")
        (pid,) = (int(path.name.partition("-")[2]) for path in place.iterdir() if path.name.startswith("2"))
        (name,) = (path.name for path in (state / "runs").iterdir())
        run = asa.open_run(name, state=state)
        until(lambda: sum(isinstance(event, TaskDone) for _, event in run.events()) == 3, "the others have ended")
        driver.kill()
    assert is_gone(pid), "its workers end with it"
    (place / "go").touch()
    run = asa.resume(name, state=state)
    assert run.wait(60.0) and run.result() == 60
    assert sorted(path.name[0] for path in place.iterdir() if path.name != "go") == ["0", "1", "2", "2", "3"]
