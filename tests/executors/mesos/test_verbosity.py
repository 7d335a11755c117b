from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from asa.web.errors import HTTPError
from executors.mesos.codec import BadMessage
from executors.mesos.operator import Operator
from executors.mesos.pool_directory import WRITER
from executors.mesos.verbosity import Verbosity, Voice, asked
from tests.executors.mesos.live import pool
from tests.executors.mesos.scripted import until

SECOND = 10**9


def test_a_level_holds_for_a_while() -> None:
    found = asked({"level": 2, "duration": {"nanoseconds": 5 * SECOND}}, 1000.0)
    assert [found.at(now) for now in (1000.0, 1004.9, 1005.0)] == [2, 2, 0]
    assert Verbosity().at(0.0) == 0


@pytest.mark.parametrize(("level", "duration"), [(-1, 5), (4, 5), (1, -1), (1, 1 << 63)])
def test_levels_and_durations_have_bounds(level: int, duration: int) -> None:
    with pytest.raises(HTTPError):
        asked({"level": level, "duration": {"nanoseconds": duration}}, 0.0)


@pytest.mark.parametrize("payload", [{}, {"level": 1}, {"level": "x", "duration": {"nanoseconds": 1}}])
def test_what_is_no_level(payload: Any) -> None:
    with pytest.raises(BadMessage):
        asked(payload, 0.0)


def test_more_is_logged_and_then_less_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pool(tmp_path) as directory, Operator(directory, WRITER) as operator:
        call = operator.call
        call("GET_VERSION")
        assert not caplog.records
        call("SET_LOGGING_LEVEL", level=1, duration={"nanoseconds": 3600 * SECOND})
        assert call("GET_LOGGING_LEVEL") == {"level": 1}
        call("GET_VERSION")
        until(lambda: any("GET_VERSION" in record.getMessage() for record in caplog.records))
        assert all(record.levelno == logging.INFO for record in caplog.records)
        call("SET_LOGGING_LEVEL", level=2, duration={"nanoseconds": SECOND // 5})
        until(lambda: call("GET_LOGGING_LEVEL") == {"level": 0})
        until(lambda: not logging.getLogger("executors.mesos").isEnabledFor(logging.INFO))
        caplog.clear()
        call("GET_VERSION")
        assert not caplog.records


def test_without_a_handler_of_the_programs_it_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("executors.mesos")
    monkeypatch.setattr(logger, "propagate", False)  # away from what pytest has put there
    before = list(logger.handlers)

    async def main() -> None:
        voice = Voice()
        voice.calm()
        voice.follow(Verbosity(1, 2000.0), 1000.0)
        logger.getChild("x").info("one")
        voice.follow(Verbosity(1, 2000.0), 1001.0)
        logger.getChild("x").info("two")
        voice.calm()
        logger.getChild("x").info("three")
        voice.follow(Verbosity(1, 2000.0), 2000.0)  # it is over already
        logger.getChild("x").info("four")

    asyncio.run(main())
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["asa:", "asa:"]
    assert [line.split()[-1] for line in lines] == ["one", "two"]
    assert logger.handlers == before and not logger.isEnabledFor(logging.INFO)
