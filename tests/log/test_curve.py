"""What tasks take as time goes on: few samples that keep the most, found again among those of others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.log.curve import MOST, SUFFIX, UsageSample, curve_head, curve_line, every, read_curve, thinned

STAGE = 'align "x" u 1 2\n3'
samples = st.lists(
    st.builds(UsageSample, st.just(0.0), st.floats(0.5, 100), st.integers(0, 1 << 50), st.floats(0, 256)), max_size=500
)


@given(samples)
def test_few_samples_are_left_which_keep_the_most_memory_the_work_and_the_time(given: list[UsageSample]) -> None:
    found = thinned(given)
    assert len(found) < MOST
    assert max((each.memory for each in found), default=0) == max((each.memory for each in given), default=0)
    for before, after in ((given, found), (found, given)):
        assert sum(each.span_s for each in before) == pytest.approx(sum(each.span_s for each in after))
        work = [sum(each.span_s * each.cores for each in some) for some in (before, after)]
        assert work[0] == pytest.approx(work[1])
    assert len(given) < MOST or len(found) >= MOST // 2
    if len(given) < MOST:
        assert found == given


def test_a_task_of_a_month_writes_some_hundred_lines() -> None:
    count, passed = 0, 0.0
    while passed < 30 * 86400:
        passed += every(count)
        count += 1
    assert count < 60 + 30 * 15
    assert 30 * 86400 / MOST <= every(count) <= 30 * 86400 / (MOST // 4)


def write(run: Path, name: str, node: str, allocation: str, lines: list[str]) -> Path:
    (run / "output").mkdir(parents=True, exist_ok=True)
    path = run / "output" / f"{name}{SUFFIX}"
    path.write_text(curve_head(node, allocation) + "".join(lines))
    return path


def lines(started: float, task: int, count: int, memory: int, stage: str = STAGE) -> list[str]:
    return [
        curve_line(UsageSample(started + 5.0 * (number + 1), 5.0, memory + number, 0.5), started, task, stage)
        for number in range(count)
    ]


def test_an_attempt_is_found_among_those_of_a_long_run(tmp_path: Path) -> None:
    """A worker has run a thousand tasks, each for 20 s; of each 3 samples."""
    text = [line for task in range(1000) for line in lines(1000.0 + 20 * task, task, 3, 1000 * task)]
    write(tmp_path, "n1-aa", "n1", "wf.0", text)
    write(tmp_path, "n10-bb", "n10", "wf.0", lines(1100.0, 5, 3, 7))
    for task in (0, 5, 500, 999):
        found = read_curve(tmp_path, "wf.0", "n1", (STAGE, task), 1000.0 + 20 * task)
        assert [each.memory for each in found] == [1000 * task + number for number in range(3)]
        assert read_curve(tmp_path, "wf.0", "", (STAGE, task), 1000.0 + 20 * task) == found
        assert read_curve(tmp_path, "wf.0", "n1", (STAGE, task), 995.0 + 20 * task, exact=False) == found
    assert [each.memory for each in read_curve(tmp_path, "wf.0", "n10", (STAGE, 5), 1100.0)] == [7, 8, 9]
    for allocation, node, task, since in (
        ("wf.1", "n1", 5, 1100.0), ("wf.0", "n2", 5, 1100.0), ("wf.0", "n1", 6, 1100.0), ("wf.0", "n1", 5, 1101.0),
        ("wf.0", "../n1", 5, 1100.0),
    ):  # fmt: skip
        assert read_curve(tmp_path, allocation, node, (STAGE, task), since) == []
    assert read_curve(tmp_path, "wf.0", "n1", ("other", 5), 1100.0) == []
    assert read_curve(tmp_path / "none", "wf.0", "n1", (STAGE, 5), 1100.0) == []


def test_of_a_task_that_runs_again_the_last_attempt_is_meant(tmp_path: Path) -> None:
    write(tmp_path, "n1-aa", "n1", "wf.0", [*lines(1000.0, 3, 2, 10), *lines(1012.0, 3, 2, 20)])
    write(tmp_path, "n1-bb", "n1", "wf.0", lines(1024.0, 3, 1, 30))
    assert [each.memory for each in read_curve(tmp_path, "wf.0", "n1", (STAGE, 3), 990.0, exact=False)] == [30]
    assert [each.memory for each in read_curve(tmp_path, "wf.0", "n1", (STAGE, 3), 1012.0)] == [20, 21]
    assert read_curve(tmp_path, "wf.0", "n1", (STAGE, 3), 1025.0, exact=False) == []


def test_what_is_no_sample_is_passed_over(tmp_path: Path) -> None:
    good = lines(1000.0, 3, 2, 10)
    bad = [
        "u\n",
        "u 1 2 3\n",
        "x " * 9 + "\n",
        "u nan 5 1000.0 3 5 1 " + good[0].partition(' "')[2],
        "u 1005 5 1000.0 3 5 1 {\n",
    ]
    path = write(tmp_path, "n1-aa", "n1", "wf.0", [*bad, *good, *bad, good[0][:20]])
    assert [each.memory for each in read_curve(tmp_path, "wf.0", "n1", (STAGE, 3), 1000.0)] == [10, 11]
    path.write_bytes(b"asa-usage 99" + path.read_bytes()[11:])
    assert read_curve(tmp_path, "wf.0", "n1", (STAGE, 3), 1000.0) == []
    path.unlink()
    secret = tmp_path / "secret"
    secret.write_text(curve_head("n1", "wf.0") + "".join(good))
    path.symlink_to(secret)
    os.mkfifo(path.with_name(f"n1-pipe{SUFFIX}"))
    assert read_curve(tmp_path, "wf.0", "n1", (STAGE, 3), 1000.0) == []
