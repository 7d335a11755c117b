from __future__ import annotations

from pathlib import Path

import asa
from asa.core.job import JobRequest, JobState, Resources
from asa.log.rundir import RunDirectory
from asa.workflows.clean import _backend


@asa.stage
def one() -> int:
    return 1


def test_who_only_looks_starts_nothing_whatever_dispatcher_the_run_has(tmp_path: Path) -> None:
    run = asa.run(one(), backend="local:cores=1,dispatcher=easy", state=tmp_path)
    backend = _backend(RunDirectory.open(tmp_path, run.name))
    (handle,) = backend.submit([JobRequest("late", Resources(1), 60.0, ("true",), str(tmp_path))])
    assert not isinstance(handle, asa.core.job.Refused)
    assert [status.state for status in backend.query([handle])] == [JobState.PENDING]
    backend.cancel([handle])
    backend.close()
