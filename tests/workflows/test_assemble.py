import pytest

from asa.core.job import Capabilities, QueueRegime
from asa.workflows import assemble


@pytest.mark.parametrize(
    ("regime", "installed", "expected"),
    [
        (QueueRegime.IMMEDIATE, True, "local"),
        (QueueRegime.IMMEDIATE, False, "local"),
        (QueueRegime.FIFO, True, "dask"),
        (QueueRegime.LIMITS, True, "dask"),
        (QueueRegime.FIFO, False, "local"),
    ],
)
def test_dask_where_there_is_a_queue_and_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, regime: QueueRegime, installed: bool, expected: str
) -> None:
    monkeypatch.setattr(assemble, "find_spec", lambda name: object() if installed and name == "distributed" else None)
    assert assemble.default_executor(Capabilities(site="s", regime=regime)) == expected
