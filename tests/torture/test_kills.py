"""Co-schedulers that are killed while their jobs run: a few of the kills of `make torture-real`, and its observer."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture import kills
from tests.torture.kills import WORKER, Container, Observer, Seen, result, slowdowns, windows

CPU = frozenset({0})
HOST, GUEST = Container("host", "/1", 0, False, CPU), Container("guest", "/1", 0, True, CPU)


def sample(at: float, host_s: float, guest_s: float) -> kills.Sample:
    return at, {HOST: Seen(math.inf, 922, host_s, math.inf, False), GUEST: Seen(math.inf, 51, guest_s, math.inf, False)}


@pytest.mark.parametrize(
    ("host_s", "guest_s", "idle", "slower"),
    [
        (0.95, 0.05, 0.0, 0.05 / 0.95),
        (0.5, 0.5, 1.0, 0.0),  # it sleeps half of the time, and the guest runs meanwhile
        (0.4, 0.05, 0.0, 0.05 / 0.95),  # others of the machine have the rest
        (0.5, 0.5, 0.0, 1.0),
    ],
)
def test_what_a_host_loses_is_what_its_guests_have_got(
    host_s: float, guest_s: float, idle: float, slower: float
) -> None:
    found = slowdowns(sample(3.0, 1.0, 1.0), sample(4.0, 1.0 + host_s, 1.0 + guest_s), {"host": idle})
    assert found == {HOST: pytest.approx(slower)}


def test_windows_lie_side_by_side() -> None:
    samples = [sample(at / 4, 0.0, 0.0) for at in range(11)]
    assert [(before[0], later[0]) for before, later in windows(samples, 1.0)] == [(0.0, 1.0), (1.0, 2.0)]


SAYS = {
    1: {
        "cpu/cpu.cfs_quota_us": ("-1", "1000"),
        "cpu/cpu.cfs_period_us": ("100000", "100000"),
        "cpu/cpu.shares": ("922", "51"),
        "cpuacct/cpuacct.usage": ("1500000000", "2000000000"),
        "memory/memory.soft_limit_in_bytes": ("9223372036854771712", "1048576"),
        "freezer/freezer.state": ("THAWED", "FROZEN"),
    },
    2: {
        "cpu.max": ("max 100000", "1000 100000"),
        "cpu.weight": ("922", "51"),
        "cpu.stat": ("usage_usec 1500000\nuser_usec 1", "usage_usec 2000000\nuser_usec 1"),
        "memory.high": ("max", "1048576"),
        "cgroup.freeze": ("0", "1"),
    },
}


@pytest.mark.parametrize(("version", "own"), [(1, "1:cpu:/job\n0::/"), (2, "0::/job"), (2, "0::/job/asa.self")])
def test_both_versions_of_control_groups_are_read(tmp_path: Path, version: int, own: str) -> None:
    for file, texts in SAYS[version].items():
        controller, name = os.path.split(file)
        for group, text in zip(("free", "held"), texts, strict=True):
            at = tmp_path / controller / ("job" if controller in ("", "cpu") else "") / "asa/node0" / group
            at.mkdir(parents=True, exist_ok=True)
            (at / name).write_text(text + "\n")
    observer = Observer(tmp_path, tmp_path, own)
    assert observer.version == version
    assert sorted(map(str, observer.groups())) == ["asa/node0/free", "asa/node0/held"]
    free, held = (observer.seen(path) for path in sorted(observer.groups()))
    assert free == Seen(math.inf, 922, 1.5, math.inf, False)
    assert held == Seen(0.01, 51, 2.0, 1 << 20, True)


def test_the_result_of_a_job_is_known_without_its_work(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    words = [sys.executable, "-I", "-S", str(tmp_path / "worker.py"), "abc", "3", "0.0", "0", str(tmp_path)]
    subprocess.run(words, env=os.environ | {"ASA_RANK": "1"}, check=True)
    began, ended = (tmp_path / "abc.1").read_text().splitlines()
    assert began.startswith("began ") and int(ended.split()[3]) == result("abc", 1, 3)


@pytest.mark.parametrize(
    ("held", "until_s", "words"),
    [
        (Seen(0.5, 922, 0.0, math.inf, False), 4.0, ""),
        (Seen(0.5, 922, 0.0, math.inf, False), 9.0, r"host .* has Seen\(cores=0.5"),
        (Seen(math.inf, 922, 0.0, 1 << 20, False), 9.0, r"has Seen\(.*soft=1048576"),
        (Seen(math.inf, 922, 0.0, math.inf, True), 9.0, r"has Seen\(.*frozen=True"),
    ],
)
def test_what_is_held_for_too_long_after_a_kill_is_seen(tmp_path: Path, held: Seen, until_s: float, words: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/log.jsonl").write_text('{"at": 0, "event": "begun", "time": 120.0}\n{"at": 1, "ev')
    now = kills.Ongoing(kills.draw(0), tmp_path, Observer(tmp_path))
    now.struck.append(kills.Struck(100.0, kills.Kill(1.0), 100.0))
    free = Seen(math.inf, 922, 0.0, math.inf, False)
    times = [100 + tenth / 10 for tenth in range(150)]
    now.observer.samples = [(at, {HOST: held if at < 100 + until_s else free}) for at in times]
    worst = kills.Worst()
    found = list(kills.harmed(now, worst))
    assert worst.throttled_s == pytest.approx(until_s, abs=0.2)
    assert bool(found) is bool(words) and all(re.search(words, each) for each in found)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_queue_whose_co_scheduler_is_killed_ends_as_it_should(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not Observer(tmp_path).sees:
        pytest.skip("needs root, and control groups that limit CPUs")
    code = kills.main(["--seed", "1", "--kills", "3", "--each", "3", "--kind", "quotas"])
    said = capsys.readouterr().out
    assert code == 0 and re.search(r"looks=[1-9]", said), said
