"""The programs on docs/mesos.md, against a master and three agents; each in a process of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from executors.mesos.pool_directory import PoolDirectory
from tests.definitions import ROOT
from tests.docs.blocks import printed, read, steps
from tests.executors.mesos import live

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

OURS, GANG, PYMESOS, TUNNEL = [step.text for step in steps(read("mesos.md")) if step.language == "python"]
MINE = """
class MyScheduler:
    def registered(self, driver, framework_id, master_info):
        print("registered")
        driver.stop()
"""
TELLING = """
import os

def print(outcomes):
    for outcome in outcomes:
        os.write(1, f"{outcome.key} {outcome.state}\\n".encode())
        if outcome.state in ("finished", "failed"):
            os._exit(0)
"""
"""What stands for `print` where a driver would run for ever."""
PLACE = "from pathlib import Path\nfrom executors.mesos.pool_directory import PoolDirectory\n"
THEIRS = f"""
{PLACE}
class MyScheduler(pymesos.Scheduler):
    def registered(self, driver, framework_id, master_info):
        print("registered", flush=True)
        driver.stop()

scheduler, framework = MyScheduler(), {{"user": "me", "name": "mine"}}
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDirectory]:
    with live.pool(tmp_path_factory.mktemp("mesos"), agents=3) as directory:
        yield directory


def in_pool(program: str, pool: PoolDirectory) -> str:
    """What a program prints that a reader has made of the page's pieces."""
    program = program.replace('Path("DIR")', f"Path({str(pool.path)!r})").replace('"me"', repr(live.USER))
    return printed(program, pool.path, {"PYTHONPATH": str(ROOT)})


def test_a_scheduler_on_our_driver(pool: PoolDirectory) -> None:
    assert in_pool(MINE + OURS, pool) == "registered\n"


def test_a_gang(pool: PoolDirectory) -> None:
    imports = OURS.partition("\n\n")[0]
    assert in_pool(f"{imports}\n{TELLING}\n{GANG}", pool) == "trio started\ntrio finished\n"


@pytest.mark.mesos
@pytest.mark.skipif(importlib.util.find_spec("pymesos") is None, reason="pymesos is not installed")
def test_pymesos_in_a_tunnel(pool: PoolDirectory) -> None:
    assert in_pool(PYMESOS + THEIRS + TUNNEL, pool) == "registered\n"
