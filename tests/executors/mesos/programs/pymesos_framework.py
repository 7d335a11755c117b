"""Our own framework on unmodified pymesos: ``ADDRESS``, the user on standard input; prints what became of a gang."""

from __future__ import annotations

import json
import sys
import threading

from executors.mesos.compat import enable_pymesos

enable_pymesos()

from pymesos import MesosSchedulerDriver  # noqa: E402

from executors.mesos.framework import (  # noqa: E402
    Framework,
    FrameworkOutcome,
    TaskGang,
    TaskNeed,
    TaskProgram,
)
from executors.mesos.scheduler import FrameworkScheduler  # noqa: E402

found: list[FrameworkOutcome] = []
over = threading.Event()


def tell(outcomes: list[FrameworkOutcome]) -> None:
    found.extend(outcomes)
    if any(outcome.state in ("finished", "failed") for outcome in outcomes):
        over.set()


info = {
    "user": json.load(sys.stdin),
    "name": "ours",
    "roles": ["test"],
    "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}],
}
scheduler = FrameworkScheduler(Framework(), tell)
gang = TaskGang("trio", (TaskProgram(("/bin/sleep", "1")),) * 3, TaskNeed(2.0))
driver = MesosSchedulerDriver(scheduler, info, sys.argv[1], use_addict=False)
scheduler.want(lambda framework, now: framework.gang(gang, now))
driver.start()
over.wait(60)
driver.stop()
driver.join()
scheduler.close()
print(json.dumps([[outcome.key, outcome.state, outcome.reason] for outcome in found]))
