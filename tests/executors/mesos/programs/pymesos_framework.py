"""Our own framework on unmodified pymesos: ``ADDRESS``, the user on standard input; prints what became of a gang."""

from __future__ import annotations

import json
import sys
import threading

from executors.mesos.compat import enable_pymesos

enable_pymesos()

from pymesos import MesosSchedulerDriver  # noqa: E402

from executors.mesos.decisions import Outcome  # noqa: E402
from executors.mesos.framework import Framework  # noqa: E402
from executors.mesos.gang import Gang  # noqa: E402
from executors.mesos.offered import Need, Program  # noqa: E402
from executors.mesos.scheduler import Scheduler  # noqa: E402

found: list[Outcome] = []
over = threading.Event()


def tell(outcomes: list[Outcome]) -> None:
    found.extend(outcomes)
    if any(outcome.state in ("finished", "failed") for outcome in outcomes):
        over.set()


info = {
    "user": json.load(sys.stdin),
    "name": "ours",
    "roles": ["test"],
    "capabilities": [{"type": "MULTI_ROLE"}, {"type": "PARTITION_AWARE"}],
}
scheduler = Scheduler(Framework(), tell)
gang = Gang("trio", (Program(("/bin/sleep", "1")),) * 3, Need(2.0))
driver = MesosSchedulerDriver(scheduler, info, sys.argv[1], use_addict=False)
scheduler.want(lambda framework, now: framework.gang(gang, now))
driver.start()
over.wait(60)
driver.stop()
driver.join()
scheduler.close()
print(json.dumps([[outcome.key, outcome.state, outcome.reason] for outcome in found]))
