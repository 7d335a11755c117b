"""What a log holds: Table II, Figures 2 and 3."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asa.cli.main import main
from asa.core.errors import InvalidInput
from asa.lab.dras_paper.logs import dras_2, dras_3, dras_table2
from tests.lab.traces.shared import shared_file

MONDAY = 1_704_067_200
"""2024-01-01 00:00 UTC [s since the epoch]."""
JOBS = (
    # day, hour of submission; run time and request [s]; cores
    (0, 1, 3600, 36_000, 1),
    (0, 1, 7200, 7200, 4),
    (1, 5, 3600, 1800, 64),
    (6, 23, 0, 3600, 1),
    (8, 5, 100, 200, 2),
)


def log(path: Path, header: str = f"; UnixStartTime: {MONDAY}\n") -> str:
    lines = [
        f"{k} {day * 86400 + hour * 3600} 0 {run} {cores} -1 -1 {cores} {asked} -1 1 1 1 1 1 1 -1 -1"
        for k, (day, hour, run, asked, cores) in enumerate(JOBS, start=1)
    ]
    path.write_text(f"; MaxProcs: 64\n{header}" + "\n".join(lines) + "\n")
    return str(path)


def test_a_log_in_numbers_beside_the_papers_two(tmp_path: Path) -> None:
    lines = {line["of the log"]: line for line in dras_table2(trace=log(tmp_path / "a.swf")).table()}
    found = {name: line["a.swf"] for name, line in lines.items()}
    assert (found["processors"], found["jobs"], found["largest job"], found["median job"]) == ("64", "5", "64", "2")
    assert (found["first submission"], found["last submission"]) == ("2024-01-01", "2024-01-09")
    assert float(found["longest run [d]"]) == pytest.approx(2 / 24, rel=1e-2)
    assert found["core-hours"] == "73"  # 1, 8, 64, 0 and a bit
    assert (lines["jobs"]["printed: Theta"], lines["jobs"]["printed: Cori"]) == ("121,837", "2,607,054")


def test_sizes_have_their_jobs_and_core_hours(tmp_path: Path) -> None:
    rows = {row["cores"]: row for row in dras_2(trace=log(tmp_path / "a.swf")).table()}
    assert {name: row["jobs"] for name, row in rows.items()} == {"1": 2, "2": 1, "3-4": 1, "33-64": 1}
    assert rows["33-64"]["core-hours"] == 64 and rows["3-4"]["core-hours"] == 8
    assert sum(row["core-hours [%]"] for row in rows.values()) == pytest.approx(100)


def test_many_sizes_share_classes(tmp_path: Path) -> None:
    jobs = "\n".join(f"{k} {k} 0 60 {1 << k} -1 -1 {1 << k} 60 -1 1 1 1 1 1 1 -1 -1" for k in range(17))
    (tmp_path / "a.swf").write_text(f"; MaxProcs: 65536\n{jobs}\n")
    rows = dras_2(trace=str(tmp_path / "a.swf")).table()
    assert 2 < len(rows) <= 9 and sum(row["jobs"] for row in rows) == 17


def test_patterns_by_hand(tmp_path: Path) -> None:
    """Of the weekdays the first week counts only, of the hours the first eight days."""
    found: dict[str, dict[str, float]] = {}
    for row in dras_3(trace=log(tmp_path / "a.swf")).table():
        if row["jobs [%]"]:
            found.setdefault(row["pattern"], {})[row["at"]] = row["jobs [%]"]
    assert found == {
        "weekday (UTC)": {"Mon": 50, "Tue": 25, "Sun": 25},
        "hour (UTC)": {"1": 50, "5": 25, "23": 25},
        "job size [cores]": {"1": 40, "2": 20, "3-4": 20, "33-64": 20},
        "run time / requested [%]": {"0-10": 40, "40-50": 20, "90-100": 20, "more": 20},
    }


@pytest.mark.parametrize("name", ["dras-2", "dras-3"])
def test_the_command_draws_a_log(name: str, tmp_path: Path) -> None:
    trace, picture, kept = log(tmp_path / "a.swf"), tmp_path / "a.svg", tmp_path / "a.json"
    assert main(["figure", name, "--trace", trace, "--to-day", "7", "-o", str(picture), "--json", str(kept)]) == 0
    assert picture.read_text().startswith("<?xml") and json.loads(kept.read_text())["rows"]


def test_figures_of_no_log_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "dras-2"]) == 1
    assert "give --trace" in capsys.readouterr().err
    trace = log(tmp_path / "a.swf", header="")
    with pytest.raises(InvalidInput, match="UnixStartTime"):
        dras_3(trace=trace)
    assert dras_table2(trace=trace).table()[1]["a.swf"] == ""
    assert main(["figure", "dras-table2", "--trace", trace, "-o", str(tmp_path / "a.png")]) == 1
    assert "leave out --output" in capsys.readouterr().err


@pytest.mark.shared
def test_theta_as_its_header_says() -> None:
    trace = shared_file("swf", "theta_argonne_2023_norm.swf.gz")
    (row,) = dras_table2(trace=str(trace)).rows
    assert (row.processors, row.jobs, row.largest) == (4392, 23_387, 4392)
    assert (row.first, row.last) == ("2022-11-17", "2023-07-28")
