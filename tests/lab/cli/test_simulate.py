from __future__ import annotations

import argparse
import csv
import gzip
import importlib.util
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.cli.simulate import days
from asa.lab.core.workload import Workload

DAY = 86400.0

# number, submit, run, processors, requested time; the third one goes ahead where backfilling is allowed
JOBS = ((1, 0, 10, 1, 10), (2, 1, 10, 2, 10), (3, 2, 5, 1, 8), (4, 3 * DAY, 20, 3, 30), (5, 3 * DAY, 20, 1, 15))


def swf(jobs: tuple[tuple[float, ...], ...] = JOBS, header: str = "; MaxProcs: 2\n") -> str:
    lines = (
        f"{number:.0f} {submit:.0f} -1 {run:.0f} {cores} -1 -1 {cores} {walltime} -1 1 {number % 2} 1 1 1 1 -1 -1"
        for number, submit, run, cores, walltime in jobs
    )
    return header + "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "log.swf").write_text(swf())
    (tmp_path / "log.swf.gz").write_bytes(gzip.compress(swf().encode()))
    (tmp_path / "headless.swf").write_text(swf(header=""))
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def simulated(*words: str) -> Any:
    assert main(["simulate", *words, "--json", "out.json"]) == 0
    return json.loads(Path("out.json").read_text())


@pytest.mark.parametrize(("dispatcher", "waits"), [("fcfs", [0, 9, 18, 0]), ("easy", [0, 9, 0, 0])])
def test_numbers_of_one_dispatcher(dispatcher: str, waits: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated("log.swf", "--dispatcher", dispatcher)
    assert found["mean_wait_s"] == pytest.approx(np.mean(waits))
    assert found["max_wait_s"] == max(waits)
    assert found["outcomes"] == {"completed": 3, "timeout": 1, "refused": 1}
    assert found["makespan_s"] == 3 * DAY + 15, "the last job is killed when its request is over"
    assert found["dispatcher"] == dispatcher and found["trace"] == "log.swf" and found["nodes"] == 2
    assert found["odd_records"]["larger-than-machine"] == 1 and found["odd_records"]["overrun"] == 1
    assert {"jobs", "mean_bounded_slowdown", "utilisation", "seconds", "jobs_per_second", "peak_memory_mb"} <= set(
        found
    )
    said = capsys.readouterr().out
    assert "5: 3 completed, 1 timeout, 1 refused" in said
    assert "larger-than-machine: 1, first job 4" in said


def test_packed_or_not_is_the_same() -> None:
    plain, packed = simulated("log.swf"), simulated("log.swf.gz")
    for changing in ("trace", "seconds", "jobs_per_second", "peak_memory_mb"):
        plain.pop(changing), packed.pop(changing)
    assert plain == packed


def test_several_dispatchers_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    found = simulated("log.swf", "--dispatcher", "fcfs,easy", "--dispatcher", "backfill:depth=2", "--plot", "three.png")
    assert [row["dispatcher"] for row in found["rows"]] == ["fcfs", "easy", "backfill:depth=2"]
    assert found["rows"][0]["mean_wait_s"] > found["rows"][1]["mean_wait_s"]
    assert Path("three.png").read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["dispatcher", "fcfs", "easy", "backfill:depth=2"]


def test_several_dispatchers_need_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["dispatcher"] for row in simulated("log.swf", "--dispatcher", "fcfs,easy")["rows"]] == ["fcfs", "easy"]


def test_everything_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    simulated("log.swf", "--csv", "jobs.csv", "--swf", "again.swf.gz", "--plot", "one.svg")
    with open("jobs.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["allocated_resources"] for row in rows] == ["0", "0-1", "1", "", "0"]
    assert [row["starting_time"] for row in rows[:3]] == ["0.0", "10.0", "2.0"]
    assert "<svg" in Path("one.svg").read_text()
    again = gzip.decompress(Path("again.swf.gz").read_bytes()).decode().splitlines()
    assert [line.split()[2] for line in again if not line.startswith(";")] == ["0", "9", "0", "-1", "0"]


def test_what_was_simulated_can_be_simulated_again() -> None:
    first = simulated("log.swf", "--swf", "again.swf")
    second = simulated("again.swf")
    assert second["mean_wait_s"] == first["mean_wait_s"]


def test_options_reach_the_simulator() -> None:
    assert simulated("log.swf", "--overrun", "allow")["outcomes"] == {"completed": 4, "refused": 1}
    assert simulated("log.swf", "--nodes", "4")["outcomes"] == {"completed": 4, "timeout": 1}
    wide = simulated("headless.swf", "--nodes", "2", "--cores-per-node", "2", "--placement", "best-fit")
    assert (wide["nodes"], wide["cores"], wide["placement"]) == (2, 4, "best-fit")
    assert simulated("log.swf", "--predictor", "oracle")["jobs_ran"] == 4
    assert simulated("log.swf", "--from-day", "3")["jobs"] == 2
    assert simulated("log.swf", "--to-day", "1")["jobs"] == 3


def test_json_on_standard_output_is_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "log.swf", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 5


def test_a_terminal_sees_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert main(["simulate", "log.swf", *(["--quiet"] if quiet else [])]) == 0
        assert ("easy" in capsys.readouterr().err) is not quiet


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["missing.swf"], 1, "missing.swf"),
        (["log.swf", "--dispatcher", "eazy"], 2, "did you mean 'easy'?"),
        (["log.swf", "--dispatcher", "easy,backfill:dept=2"], 2, "did you mean 'depth'?"),
        (["log.swf", "--dispatcher", ","], 1, "no dispatcher is named"),
        (["log.swf", "--placement", "firstfit"], 2, "did you mean 'first-fit'?"),
        (["log.swf", "--priority", "fifi"], 2, "did you mean 'fifo'?"),
        (["log.swf", "--predictor", "oracel"], 2, "did you mean 'oracle'?"),
        (["headless.swf"], 1, "give nodes, and cores per node"),
        (["headless.swf", "--cores-per-node", "4"], 1, "give nodes"),
        (["log.swf", "--cores-per-node", "3"], 1, "2 cores make no whole nodes of 3"),
        (["log.swf", "--from-day", "7"], 1, "no job was submitted from day 7 on"),
        (["log.swf", "--from-day", "1", "--to-day", "2"], 1, "from day 1 until before day 2"),
        (["log.swf", "--plot", "one.gif"], 1, "end the name with .png"),
        (["log.swf", "--csv", "nowhere/jobs.csv"], 1, "there is no directory 'nowhere'"),
        (["log.swf", "--json", "."], 1, "it is a directory"),
        (["log.swf", "--dispatcher", "fcfs,easy", "--swf", "a.swf"], 1, "give one dispatcher, not 2"),
        (
            ["log.swf", "--dispatcher", ",".join(f"backfill:depth={k}" for k in range(10)), "--plot", "a.png"],
            1,
            "most 9",
        ),
    ],
)
def test_what_is_wrong_is_named(words: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *words]) == code
    assert expected in capsys.readouterr().err


def test_a_wrong_output_is_found_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "missing.swf", "--csv", "nowhere/jobs.csv"]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_a_file_that_may_not_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the one who runs the tests may be allowed everything
    assert main(["simulate", "log.swf", "--csv", "jobs.csv"]) == 1
    assert "--csv 'jobs.csv' cannot be written: you may not write there" in capsys.readouterr().err


def test_plots_need_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["simulate", "log.swf", "--plot", "one.png"]) == 1
    assert "pip install 'asa-hpc[plots]'" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["0", "-3", "many"])
def test_sizes_are_whole_numbers(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "log.swf", "--nodes", word])
    assert "whole number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["easy"], ["easy"]),
        (["easy, fcfs", "easy"], ["easy", "fcfs"]),
        (["backfill:depth=10,limit=5,easy"], ["backfill:depth=10,limit=5", "easy"]),
        (["easy,backfill:depth=1,backfill:depth=2"], ["easy", "backfill:depth=1", "backfill:depth=2"]),
    ],
)
def test_commas_part_dispatchers_but_not_their_options(words: list[str], expected: list[str]) -> None:
    assert DISPATCHERS.split(words) == expected


def test_days_begin_with_the_first_submission() -> None:
    workload = Workload.of(submit=[0.5 * DAY, 1.4 * DAY, 1.5 * DAY], run=[1, 1, 1], cores=[1, 1, 1])
    assert len(days(workload, None, None)) == 3
    assert days(workload, 1.0, None).number.tolist() == [3]
    assert days(workload, None, 1.0).number.tolist() == [1, 2]
    assert len(days(workload, 0.8, 1.1)) == 2
    with pytest.raises(InvalidInput, match="the last one on day 1"):
        days(workload, 2.0, None)


def test_help_names_what_there_is() -> None:
    from asa.lab.cli.simulate import Simulate

    parser = argparse.ArgumentParser()
    Simulate().configure(parser)
    said = parser.format_help()
    assert "conservative" in said and "--from-day" in said


def test_decisions_are_saved_and_planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated("log.swf", "--dispatcher", "easy", "--save-decisions", "saved", "--decisions", "3", "--seed", "2")
    assert found["mean_wait_s"] == pytest.approx(np.mean([0, 9, 0, 0])), "watching changes nothing"
    said = capsys.readouterr().out
    files = sorted((folder / "saved").iterdir())
    assert len(files) == 3 and "3 of 6 decisions are in saved" in said
    assert main(["dispatch", str(files[0]), "--json", "plan.json"]) == 0
    assert json.loads((folder / "plan.json").read_text())["jobs"][0]["id"] in (1, 2, 3, 5)
    assert main(["simulate", "log.swf", "--save-decisions", "saved"]) == 1
    assert "a folder that is empty, or not there yet" in capsys.readouterr().err
    assert main(["simulate", "log.swf", "--save-decisions", "new", "--dispatcher", "easy,fcfs"]) == 1
    assert "give one, not 2" in capsys.readouterr().err


def test_dispatch_time_is_charged() -> None:
    free, charged = (simulated("log.swf", "--dispatch-time", what) for what in ("ignore", "charge"))
    assert (free["dispatch_time"], charged["dispatch_time"]) == ("ignore", "charge")
    assert free["mean_wait_s"] < charged["mean_wait_s"] < free["mean_wait_s"] + 5
