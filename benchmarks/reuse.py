"""What reuse costs: looking calls up in a store of many, keeping what has returned, and whole runs without and with it.

python benchmarks/reuse.py [ENTRIES] [TASKS]  # calls in the store (1,000,000), tasks that are looked for (20,000)
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import show

import asa
from asa.core.event import StageLookedUp, TaskDone
from asa.core.job import Resources
from asa.log.events import EventLog
from asa.log.reuse import KeepLimits, ReuseStore
from asa.log.rundir import RunDirectory
from asa.log.values import dump
from asa.security.files import private_directory
from asa.workflows.graph import make_graph
from asa.workflows.payload import Payloads
from asa.workflows.reuse import STORE, Reuse
from asa.workflows.settings import Settings

BATCH = 10_000


@asa.stage
def no_op(x: int) -> int:
    return x


def cpu() -> float:
    """Processor time of this process and of the children it has waited for [s]."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def timed(call: Callable[[], Any]) -> float:
    began = cpu()
    call()
    return cpu() - began


def store(state: Path, entries: int) -> list[dict[str, Any]]:
    """Fill a store, and forget a tenth of it."""
    filled = ReuseStore(state / STORE)

    def fill() -> None:
        for number in range(0, entries, BATCH):
            calls = [(os.urandom(16), task, os.urandom(16), {}) for task in range(BATCH)]
            filled.add(f"filler-{number}", [("stage", {}, calls)], number)

    rows = [{"what": "keep a call, of many", "us": timed(fill) / entries * 1e6}]
    size = os.path.getsize(state / STORE) / entries
    rows.append({"what": "a call on disk [bytes]", "us": size})
    limits = KeepLimits(days=1e9)
    rows.append(
        {"what": "see that nothing has to go [s]", "us": timed(lambda: filled.prune(limits, lambda _: True, 0.0))}
    )
    filled.close()
    return rows


def lookups(state: Path, tasks: int) -> list[dict[str, Any]]:
    """Keys, looking up, and keeping, of runs of one stage, without processes."""
    return [row for number in (0, 1) for row in _lookups(state, tasks, number)]


def _lookups(state: Path, tasks: int, number: int) -> list[dict[str, Any]]:
    """Of the first run, with calls that are new, or the second."""
    graph = make_graph(no_op.map(range(tasks)))
    directory = RunDirectory.create(state, f"run-{number}")
    with EventLog(directory.events) as log:
        payloads = Payloads(graph, directory.functions, directory.values, log.value)
        reuse = Reuse(directory, graph, Settings(graph.result, "run"), payloads, log)
        found: list[StageLookedUp] = []

        def look() -> None:
            for first in range(0, tasks, BATCH):
                indices = range(first, min(first + BATCH, tasks))
                found.append(reuse.look_up(StageLookedUp(0.0, "no_op", indices.stop), indices))

        def keep() -> None:
            for each in done:
                reuse.done(each.result)
            reuse.flush()

        done = [TaskDone(0.0, "no_op", x, "a", "n", 0.0, dump(x)) for x in range(tasks)]
        measured: dict[str, Callable[[], Any]]
        if not number:
            measured = {
                "look a task up that is new": look,
                "launch it": lambda: reuse.launching("no_op", range(tasks)),
                "log that it has returned": lambda: log.append(done),
                "keep it for later runs": keep,
                "(make the task, for comparison)": lambda: [
                    payloads.task("no_op", x, Resources()) for x in range(tasks)
                ],
            }
        else:
            measured = {
                "look a task up that an earlier run has": look,
                "log that it is reused": lambda: log.append(found),
                "keep that for later runs": reuse.flush,
            }
        rows = [{"what": what, "us": timed(call) / tasks * 1e6} for what, call in measured.items()]
        assert sum(len(event.found) for event in found) == number * tasks
        return rows


def runs(state: Path, tasks: int) -> list[dict[str, Any]]:
    """Whole runs on this machine, each in a process of its own."""
    rows = []
    nothing = "from asa.workflows.reuse import Reuse\nReuse.launching = Reuse.done = lambda *_: None\n"
    for what, options, before in (
        ("a run whose tasks are not kept", "reuse=False", nothing),
        ("a run whose tasks are kept", "reuse=False", ""),
        ("a run that reuses them all", "reuse=True", ""),
    ):
        code = before + (
            "import asa\n@asa.stage(cores=2)\ndef no_op(x): return x\n"
            f"run = asa.run(no_op.map(range({tasks})), backend='local:cores=2', state={str(state)!r}, {options})\n"
            f"assert sum(run.result()) == {tasks * (tasks - 1) // 2}\nrun.wait()"
        )
        path = state / "flow.py"
        path.write_text(code)
        began, at = cpu(), time.perf_counter()
        assert os.system(f"{sys.executable} {path}") == 0
        rows.append({"what": what, "us": (cpu() - began) / tasks * 1e6, "seconds": time.perf_counter() - at})
    return rows


def main() -> None:
    entries, tasks = (int(text) for text in (*sys.argv[1:], *("1000000", "20000")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="reuse-") as place:
        state = private_directory(Path(place) / "state")
        rows = store(state, entries) + lookups(state, tasks) + runs(state, 5 * tasks)
    show(f"reuse, {entries:,} calls in the store, {tasks:,} tasks; processor time a task [us]", rows)


if __name__ == "__main__":
    main()
