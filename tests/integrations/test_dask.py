from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from asa.core.event import RunEnded, RunState, Submitting
from asa.log.events import EventLog
from asa.log.rundir import list_runs
from tests.integrations.queueing import Queueing
from tests.waiting import until

if TYPE_CHECKING:
    from distributed import Client

    from asa.integrations.dask import ASACluster

pytestmark = pytest.mark.slow


def new_cluster(*arguments: Any, **options: Any) -> ASACluster:
    pytest.importorskip("distributed")
    from asa.integrations.dask import ASACluster  # here, as below: it takes a second to import

    return ASACluster(*arguments, **options)


def new_client(cluster: ASACluster, **options: Any) -> Client:
    from distributed import Client

    return Client(cluster, **options)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ASACluster]:
    with new_cluster("local:cores=2", n_workers=1, state=tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: ASACluster) -> Iterator[Client]:
    with new_client(cluster) as client:
        yield client


def submissions(cluster: ASACluster) -> int:
    with EventLog(cluster.executor.directory.events) as log:
        return sum(isinstance(event, Submitting) for _, event in log.read())


def test_a_client_computes_on_it(cluster: ASACluster, client: Client) -> None:
    assert client.gather(client.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
    ((address, worker),) = client.scheduler_info()["workers"].items()
    assert address.startswith("tls://127.0.0.1:") and worker["nthreads"] == 1
    assert client.submit(os.getpid).result() != os.getpid()


def test_strangers_are_refused(cluster: ASACluster, client: Client) -> None:
    host, port = cluster.scheduler_address.removeprefix("tls://").split(":")
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        pytest.raises(ssl.SSLError, match=r"(?i)certificate required"),  # in TLS 1.3 one hears of it when reading
    ):
        stranger.wrap_socket(plain).recv(1)
    with pytest.raises(urllib.error.HTTPError, match="404"):  # nor does the HTTP server tell anybody anything
        urllib.request.urlopen(f"http://127.0.0.1:{cluster.scheduler.http_server.port}/status", timeout=10)
    assert oct((cluster.executor.directory.path / "dask" / "worker.pem").stat().st_mode)[-3:] == "600"


def test_it_is_scaled_and_what_workers_hold_is_kept(cluster: ASACluster, client: Client) -> None:
    cluster.scale(2)
    client.wait_for_workers(2, 60)
    held = client.map(lambda number: number + 1, range(10))
    client.gather(held)
    cluster.scale(1)
    until(lambda: len(cluster.scheduler_info["workers"]) == 1, "one worker to be gone")
    assert client.gather(held) == list(range(1, 11))
    cluster.scale(0)
    until(lambda: not cluster.scheduler_info["workers"], "the other one to be gone")
    future = client.submit(abs, -7)
    cluster.scale(1)
    assert future.result(timeout=60) == 7
    assert submissions(cluster) == 1


def test_a_worker_that_dies_is_replaced(cluster: ASACluster, client: Client) -> None:
    from distributed import KilledWorker

    with pytest.raises(KilledWorker):
        client.submit(lambda: os._exit(3), pure=False).result(timeout=100)
    assert client.submit(abs, -8).result(timeout=60) == 8


def test_a_worker_ends_before_its_wall_time_and_another_starts(tmp_path: Path) -> None:
    with (
        new_cluster("local:cores=1", n_workers=1, walltime=10, state=tmp_path) as cluster,
        new_client(cluster) as client,
    ):
        (first,) = [client.submit(os.getpid, pure=False).result(timeout=60)]
        held = client.submit(abs, -9)
        client.gather(held)
        until(lambda: client.submit(os.getpid, pure=False).result(timeout=60) != first, "another worker")
        assert held.result(timeout=60) == 9
        assert submissions(cluster) == 2


def test_adapting_to_a_varying_load_takes_few_jobs(tmp_path: Path) -> None:
    """Beside ending a job with each worker that dask's `Adaptive` closes, as its clusters for batch systems do."""

    def oscillate(**options: Any) -> int:
        with new_cluster(Queueing(4.0, 4), cores=1, maximum=4, state=tmp_path, **options) as cluster:
            cluster.adapt(minimum=0, maximum=2, interval="200ms", target_duration="500ms")
            with new_client(cluster) as client:
                for _ in range(3):
                    client.gather(client.map(time.sleep, [0.4] * 6, pure=False))
                    time.sleep(2.5)
                return submissions(cluster)

    kept, ended = oscillate(), oscillate(idle=0)
    print(f"jobs submitted: {kept} with allocations kept, {ended} without")
    assert kept <= 2 < ended


def test_in_an_asynchronous_program(tmp_path: Path) -> None:
    import asyncio

    async def main() -> int:
        async with (
            new_cluster("local:cores=1", n_workers=1, asynchronous=True, state=tmp_path) as cluster,
            new_client(cluster, asynchronous=True) as client,
        ):
            return int(await client.submit(abs, -3))

    assert asyncio.run(main()) == 3
    (run,) = list_runs(tmp_path)
    with EventLog(run.events) as log:
        ended = log.latest(RunEnded)
    assert isinstance(ended, RunEnded) and ended.state is RunState.SUCCEEDED  # it was not cancelled: it had an end


def test_the_executor_ends_with_a_cluster_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed to start"):
        new_cluster("local:cores=1", host="203.0.113.7", state=tmp_path)  # an address that is not ours
    (run,) = list_runs(tmp_path)
    assert run.lock().holder() is None


class Refusing:
    """An executor in which every worker fails."""

    name = "run"

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, *_: Any) -> Future[str]:
        self.asked += 1
        future: Future[str] = Future()
        future.set_exception(ValueError("no such option: nthread"))
        return future


def test_a_worker_that_fails_again_and_again_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("distributed")
    from distributed import Status

    from asa.integrations.dask import DaskPlace

    executor: Any = Refusing()

    async def ask() -> None:
        place = DaskPlace("tls://127.0.0.1:1", 7, executor=executor, call=("", 60.0), options={})
        await place.start()
        while place.status is not Status.failed:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(place.close(), 1.0)  # there is no worker to wait for
        await place.close()
        assert place.status is Status.closed

    asyncio.run(asyncio.wait_for(ask(), 30))
    assert executor.asked == 3
    assert "worker 7 of run failed 3 times: no such option: nthread" in caplog.text
