from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

import asa
from asa.core.errors import InvalidInput
from asa.log.messages import LOGGERS, VARIABLE, log_to_file, log_to_terminal


def test_a_run_keeps_the_messages_of_all_packages_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "asa.log"
    with log_to_file(path):
        for name in LOGGERS:
            logging.getLogger(f"{name}.part").info("at work in %s", name)
        logging.getLogger("asa.part").debug("too much")
        logging.getLogger("somebody.else").error("not ours")
    logging.getLogger("asa.part").error("after its end")
    lines = path.read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == [f"INFO    {name}.part: at work in {name}" for name in LOGGERS]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with log_to_file(path):
        logging.getLogger("asa").warning("a second driver")
    assert len(path.read_text().splitlines()) == 4


def test_loggers_are_as_before_once_nobody_listens(tmp_path: Path) -> None:
    before = [(list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in LOGGERS]
    with log_to_file(tmp_path / "a"), log_to_file(tmp_path / "b"):
        assert logging.getLogger("asa.part").isEnabledFor(logging.INFO)
    assert [(list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in LOGGERS] == before


def test_a_program_that_handles_our_messages_itself_loses_none_and_keeps_its_level(tmp_path: Path) -> None:
    logger, own = logging.getLogger("asa"), logging.NullHandler()
    logger.addHandler(own)  # of no level
    try:
        with log_to_file(tmp_path / "a"):
            logging.getLogger("asa.part").info("kept")
        assert logger.level == logging.NOTSET
        logger.setLevel(logging.ERROR)
        with log_to_file(tmp_path / "b"), log_to_file(tmp_path / "c"):
            logging.getLogger("asa.part").info("kept")
        assert logger.level == logging.ERROR
    finally:
        logger.removeHandler(own)
        logger.setLevel(logging.NOTSET)
    assert ["kept" in (tmp_path / name).read_text() for name in "abc"] == [True] * 3


@pytest.mark.parametrize("way", ["environment", "terminal"])
def test_more_is_kept_where_more_is_asked_for(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if way == "environment":
        monkeypatch.setenv(VARIABLE, "debug")
        with log_to_file(tmp_path / "log"):
            logging.getLogger("asa.part").debug("every step")
    else:
        with log_to_terminal("debug"), log_to_file(tmp_path / "log"):
            logging.getLogger("asa.part").debug("every step")
        assert "DEBUG   asa.part: every step" in capsys.readouterr().err
    assert "every step" in (tmp_path / "log").read_text()


def test_a_level_that_there_is_not_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "loud")
    with pytest.raises(InvalidInput, match="ASA_LOG_LEVEL 'loud': one of debug, info, warning, error expected"):
        log_to_file(tmp_path / "log").__enter__()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_ends_the_log_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_file(Path("/dev/full")):
        for _ in range(3):
            logging.getLogger("asa.part").error("lost")
    printed = capsys.readouterr().err
    assert "asa: the log /dev/full ends here: [Errno 28]" in printed
    assert "Traceback" not in printed


def test_a_run_logs_what_it_does(tmp_path: Path) -> None:
    @asa.stage
    def double(number: int) -> int:
        return 2 * number

    run = asa.run(double.map([1, 2]), state=tmp_path)
    assert run.wait() is not None
    assert "INFO" in run.directory.log.read_text()
