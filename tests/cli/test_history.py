"""``asa history``: what stages took in earlier runs."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from asa.cli.main import main
from asa.core.event import TaskDone
from asa.log.events import EventLog
from asa.log.history import HISTORY, UsageHistory
from asa.log.rundir import list_runs

MIB = 1 << 20

FLOW = """
import time, asa
@asa.stage(cores=1, walltime=60, memory="1G")
def grow(size):
    held = b"x" * (size << 20)
    time.sleep(0.4)
    return len(held)
@asa.stage(cores=1, walltime=60)
def after(sizes):
    time.sleep({pause})
if __name__ == "__main__":
    asa.run(after(grow.map([50, 100])), backend="local:cores=1", name="flow").result()
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASA_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "state").mkdir(0o700)
    return tmp_path / "state"


def flow(folder: Path, pause: float = 0.0, code: str = FLOW) -> subprocess.Popen[bytes]:
    file = folder / "flow.py"
    file.write_text(code.replace("{pause}", str(pause)))
    return subprocess.Popen([sys.executable, str(file)], cwd=folder, stderr=subprocess.DEVNULL)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["history", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


class TestRuns:
    def test_what_a_run_took_is_there_when_it_has_ended(
        self, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert flow(tmp_path, 0.5).wait(60) == 0
        with UsageHistory(state / HISTORY) as history:
            rows, (whole,) = history.of("grow"), history.runs("grow")
        assert [row.outcome for row in rows] == ["ok", "ok"]
        assert all(50 * MIB <= (row.memory or 0) < 180 * MIB for row in rows)
        assert all(row.asked_memory == 1 << 30 and row.asked_s == 60 and row.machine == "local" for row in rows)
        assert (whole.tasks, whole.done, whole.cores, whole.width, whole.workflow) == (2, 2, 1, 1, "flow")
        assert 0.8 <= whole.run_time_s < 20 and whole.core_hours == pytest.approx(
            sum(row.run_time_s for row in rows) / 3600
        )
        listed = {row["stage"]: row for row in shown(capsys)["rows"]}
        assert listed["grow"]["tasks"] == 2 and listed["grow"]["memory_max"] == max(row.memory or 0 for row in rows)
        (part,) = shown(capsys, "grow")["parts"]
        assert part["runs"][0]["run"].startswith("flow") and part["sources"]
        assert main(["history", "grow", "--csv", str(tmp_path / "rows.csv")]) == 0
        with (tmp_path / "rows.csv").open() as file:
            assert [int(row["memory"]) for row in csv.DictReader(file)] == [row.memory for row in rows]

    def test_another_code_is_another_stage_and_a_comment_is_none(self, state: Path, tmp_path: Path) -> None:
        def codes() -> set[str]:
            with UsageHistory(state / HISTORY) as history:
                return {kept.code for kept in history.stages() if kept.stage == "grow"}

        assert flow(tmp_path).wait(60) == 0
        (first,) = codes()
        assert flow(tmp_path, code=FLOW.replace("    held", "    # how much\n    held")).wait(60) == 0
        assert codes() == {first}
        assert flow(tmp_path, code=FLOW.replace("size << 20", "size << 19")).wait(60) == 0
        assert len(codes()) == 2

    def test_a_run_whose_driver_died_is_found_by_the_command_and_counts_once_when_it_goes_on(
        self, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        process = flow(tmp_path, 3.0)
        done = 0
        while done < 2:
            assert process.poll() is None, "it was to be killed before its end"
            for run in list_runs(state):
                if run.events.exists():
                    with EventLog(run.events) as log:
                        done = sum(isinstance(event, TaskDone) for _, event in log.read())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        listed = {row["stage"]: row for row in shown(capsys)["rows"]}
        assert listed["grow"]["tasks"] == 2 and "after" not in listed
        assert main(["resume", "flow"]) == 0
        with UsageHistory(state / HISTORY) as history:
            assert len(history.of("grow")) == 2 and len(history.runs("grow")) == 1
            assert len(history.of("after")) == 1
        capsys.readouterr()

    def test_no_run_fails_for_a_damaged_history(
        self, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (state / HISTORY).write_bytes(b"no history" * 1000)
        (state / HISTORY).chmod(0o600)
        assert flow(tmp_path).wait(60) == 0
        assert main(["history"]) == 1
        assert HISTORY in capsys.readouterr().err
        assert "what its tasks took is not kept" in (state / "runs" / list_runs(state)[0].name / "asa.log").read_text()


class TestImport:
    def test_wfcommons(self, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        tasks = [
            {"name": f"sort_{number}", "id": f"t{number}", "inputFiles": ["a"], "parents": []} for number in (1, 2)
        ]
        records = [
            {"id": "t1", "runtimeInSeconds": 10.0, "memoryInBytes": 5000, "avgCPU": 150.0, "coreCount": 2},
            {"id": "t2", "runtimeInSeconds": 20.0},
        ]
        document = {
            "name": "x",
            "createdAt": "2026-01-02T03:04:05+00:00",
            "workflow": {
                "specification": {"tasks": tasks, "files": [{"id": "a", "sizeInBytes": 77}]},
                "execution": {"tasks": records},
            },
        }
        file = tmp_path / "run.json"
        file.write_text(json.dumps(document))
        for _ in range(2):  # the same file twice is the same tasks
            assert shown(capsys, "import", "wfcommons", str(file), "--machine", "lab")["tasks"] == 2
        with UsageHistory(state / HISTORY) as history:
            first, second = sorted(history.of("sort", machine="lab"), key=lambda row: row.run_time_s)
        assert (first.memory, first.cpu_s, first.threads, first.cores, first.input) == (5000, 15.0, 1.5, 2, 77)
        assert (second.memory, second.cpu_s, second.source) == (None, None, "wfcommons")

    def test_sacct(self, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "sacct.txt"
        file.write_text(
            "JobID|JobName|State|Submit|Start|End|ElapsedRaw|Timelimit|AllocCPUS|ReqMem|MaxRSS|TotalCPU\n"
            "7|bwa|COMPLETED|1700000000|1700000010|1700000110|100|01:00:00|4|8G||03:20.000\n"
            "7.batch|batch|COMPLETED|1700000010|1700000010|1700000110|100||4||1500K|00:00.000\n"
            "7.0|bwa|COMPLETED|1700000010|1700000010|1700000110|100||4||2G|03:20.000\n"
            "8|bwa|OUT_OF_MEMORY|1700000000|1700000010|1700000020|10|01:00:00|4|8G||00:01.000\n"
            "8.batch|batch|OUT_OF_MEMORY|1700000010|1700000010|1700000020|10||4||8G|00:01.000\n"
            "9|bwa|CANCELLED by 7|1700000000|1700000010|1700000020|10|01:00:00|4|8G||00:01.000\n"
        )
        assert shown(capsys, "import", "sacct", str(file), "--machine", "hpc")["with_memory"] == 2
        with UsageHistory(state / HISTORY) as history:
            killed, well = sorted(history.of("bwa"), key=lambda row: row.ended)
        assert (well.memory, well.asked_memory, well.asked_s, well.cpu_s) == (2 << 30, 8 << 30, 3600.0, 200.0)
        assert (well.outcome, killed.outcome, well.cores, well.machine) == ("ok", "memory", 4, "hpc")

    def test_what_is_no_such_file_is_refused(
        self, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "x"
        file.write_text("nothing of the kind\n")
        for name in ("sacct", "wfcommons"):
            assert main(["history", "import", name, str(file)]) == 1
            assert str(file) in capsys.readouterr().err
        assert main(["history", "import", "excel", str(file)]) == 2
        assert main(["history", "import", "sacct"]) == 1


def test_freeze_keeps_what_was_asked_last_or_what_is_said(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert flow(tmp_path).wait(60) == 0
    (row,) = shown(capsys, "freeze", "grow")["rows"]
    assert row == {"stage": "grow", "machine": "local", "memory": 1 << 30, "walltime_s": 60.0}
    (row,) = shown(capsys, "freeze", "grow", "--memory", "2G")["rows"]
    assert row["memory"] == 2 << 30
    with UsageHistory(state / HISTORY) as history:
        frozen = history.frozen("grow", "local")
        assert frozen is not None and frozen.memory == 2 << 30
    assert shown(capsys, "grow")["parts"][0]["frozen"]["memory"] == 2 << 30
    assert main(["history", "unfreeze", "grow"]) == 0
    assert main(["history", "freeze", "grwo"]) == 2
    assert "did you mean" in capsys.readouterr().err
    for words in (["freeze", "grow"], ["grow"]):
        assert main(["history", *words, "--machine", "elsewhere"]) == 1
        said = capsys.readouterr().err
        assert "it is for machine local, code " in said and "did you mean" not in said
    assert main(["history", "forget", "grow"]) == 0
    with UsageHistory(state / HISTORY) as history:
        assert history.frozen("grow", "local") is None and not history.of("grow")
