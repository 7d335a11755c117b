from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from executors.mesos.driver import SchedulerDriver
from executors.mesos.pool_directory import PoolDirectory
from tests.executors.mesos.driven import INFO, Recorder
from tests.executors.mesos.scripted import Scripted


@pytest.fixture
def master() -> Iterator[Scripted]:
    with Scripted() as master:
        yield master


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[SchedulerDriver, Recorder]]]:
    drivers: list[SchedulerDriver] = []

    def start(master: Scripted | PoolDirectory | str, scheduler: Recorder | None = None, **options: Any) -> Any:
        recorder = scheduler or Recorder()
        where = master.address if isinstance(master, Scripted) else master
        driver = SchedulerDriver(recorder, options.pop("framework", INFO), where, **options)
        drivers.append(driver)
        driver.start()
        return driver, recorder

    yield start
    for driver in drivers:
        driver.abort()
        with suppress(Exception):  # what a callback has raised
            driver.join()
