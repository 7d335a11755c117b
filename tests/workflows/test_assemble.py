import pytest

from asa.core.job import Capabilities, QueueRegime
from asa.workflows import assemble


@pytest.mark.parametrize(
    ("regime", "installed", "expected"),
    [
        (QueueRegime.IMMEDIATE, True, "local"),
        (QueueRegime.IMMEDIATE, False, "local"),
        (QueueRegime.FIFO, True, "mesos:tasks=dask"),
        (QueueRegime.LIMITS, True, "mesos:tasks=dask"),
        (QueueRegime.FIFO, False, "mesos"),
    ],
)
def test_agents_where_there_is_a_queue_with_dask_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, regime: QueueRegime, installed: bool, expected: str
) -> None:
    monkeypatch.setattr(assemble, "find_spec", lambda name: object() if installed and name == "distributed" else None)
    assert assemble.default_executor(Capabilities(site="s", regime=regime)) == expected
