"""The laboratory's commands, as a user types them."""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import gzip
import importlib.util
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asa.cli.main import main
from asa.core.energy import NodePower
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.cli.simulate import days
from asa.lab.core.cluster import Cluster, NodeFailures, Partition, Qos
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import PlannedJob, read_instance
from asa.lab.placement.tjap.instance import Placed
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from asa.lab.traces.site import JobClass, SiteModel, SiteWindow
from asa.lab.traces.slurm import read_slurm
from asa.lab.traces.swf import log_of, write_swf
from tests.lab.asa_paper.test_probes import small_site

# -- Simulate ---------------------------------------------------------------------------------------------------------

DAY = 86400.0

# number, submit, run, processors, requested time; the third one goes ahead where backfilling is allowed
JOBS = ((1, 0, 10, 1, 10), (2, 1, 10, 2, 10), (3, 2, 5, 1, 8), (4, 3 * DAY, 20, 3, 30), (5, 3 * DAY, 20, 1, 15))


INSTANCE = {
    "cap": [[2], [2]],
    "running": [{"rn": 1, "req": [2], "end": 10, "alloc": [[0, 1]]}],
    "queue": [
        {"id": "long", "rn": 1, "req": [1], "d": 20, "q": 0},
        {"id": "wide", "rn": 2, "req": [2], "d": 5, "q": -3},
        *({"id": f"short{number}", "rn": 1, "req": [1], "d": 8, "q": -1} for number in range(25)),
    ],
}
WINDOWS = {
    "podsize": 8, "leafsize": 4, "w": [1, 3, 5], "c": 1000,
    "instances": [
        {"idle": [0, 1, 2, 4, 5, 6, 7, 9, 12, 13], "sizes": [3, 4]},
        {"idle": list(range(24)), "sizes": [5, 2, 7]},
    ],
}  # fmt: skip

FLOW = """
import asa

@asa.stage(cores=16, walltime="1h", run_time="20m")
def wide(x): ...

@asa.stage(cores=2, walltime="1h", run_time="10m")
def narrow(xs): ...

def workflow(cores): return narrow(wide.options(cores=cores).map(range(cores)))
"""
PLANNERS = "makes no plans of whole queues: listplan, pcp20, pcp19 or hcp19"
TEN = ",".join(f"backfill:depth={depth}" for depth in range(10))


def swf(jobs: tuple[tuple[float, ...], ...] = JOBS, header: str = "; MaxProcs: 2\n") -> str:
    lines = (
        f"{number:.0f} {submit:.0f} -1 {run:.0f} {cores} -1 -1 {cores} {walltime} -1 1 {number % 2} 1 1 1 1 -1 -1"
        for number, submit, run, cores, walltime in jobs
    )
    return header + "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: files that commands read."""
    for name, text in {
        "log.swf": swf(), "headless.swf": swf(header=""), "flow.py": FLOW,
        "queue.json": json.dumps(INSTANCE), "empty.json": json.dumps(INSTANCE | {"queue": []}),
        "windows.json": json.dumps(WINDOWS), "none.json": json.dumps(WINDOWS | {"instances": []}),
        "crowded.json": json.dumps(WINDOWS | {"instances": [{"idle": [1, 2], "sizes": [2, 1]}]}),
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    (tmp_path / "log.swf.gz").write_bytes(gzip.compress(swf().encode()))
    small_site().write(tmp_path / "small.json")
    monkeypatch.chdir(tmp_path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        ("simulate missing.swf", 1, "missing.swf"),
        ("simulate missing.swf --csv nowhere/jobs.csv", 1, "nowhere"),  # before anything is read
        ("simulate log.swf --dispatcher eazy", 2, "did you mean 'easy'?"),
        ("simulate log.swf --dispatcher easy,backfill:dept=2", 2, "did you mean 'depth'?"),
        ("simulate log.swf --dispatcher ,", 1, "no dispatcher is named"),
        ("simulate log.swf --placement firstfit", 2, "did you mean 'first-fit'?"),
        ("simulate log.swf --priority fifi", 2, "did you mean 'fifo'?"),
        ("simulate log.swf --predictor oracel", 2, "did you mean 'oracle'?"),
        ("simulate headless.swf", 1, "give nodes, and cores per node"),
        ("simulate headless.swf --cores-per-node 4", 1, "give nodes"),
        ("simulate log.swf --cores-per-node 3", 1, "2 cores make no whole nodes of 3"),
        ("simulate log.swf --from-day 7", 1, "no job was submitted from day 7 on"),
        ("simulate log.swf --from-day 1 --to-day 2", 1, "from day 1 until before day 2"),
        ("simulate log.swf --moldable 30", 1, "share"),
        ("simulate log.swf --malleable 30", 1, "share of malleable jobs"),
        ("simulate log.swf --malleable 30% --moldable 30%", 1, "leave --moldable out"),
        ("simulate log.swf --malleable 30% --resize-s -1", 1, "resize_s=-1"),
        ("simulate log.swf --resize-s 60", 1, "--resize-s 60: no job is malleable: give --malleable SHARE as well"),
        ("simulate log.swf --moldable 30% --resize-s 60", 1, "no job is malleable"),
        ("simulate log.swf --parallel 0.5", 1, "--parallel 0.5: give --moldable SHARE or --malleable SHARE as well"),
        ("dispatch queue.json --dispatcher pcp20:workers=1000000", 1, "workers is 1000000: a whole number from 1 to"),
        ("simulate log.swf --malleable 30% --dispatcher easy:resize=grow", 2, "resize"),
        ("simulate log.swf --moldable 30% --parallel 2", 1, "parallel from 0 to 1 expected"),
        ("simulate log.swf --moldable 30% --dispatcher easy:width=wide", 2, "width"),
        ("simulate log.swf --plot one.gif", 1, "end the name with .png"),
        ("simulate log.swf --csv nowhere/jobs.csv", 1, "there is no directory 'nowhere'"),
        ("simulate log.swf --json .", 1, "it is a directory"),
        ("simulate log.swf --dispatcher fcfs,easy --swf a.swf", 1, "give one dispatcher, not 2"),
        (
            f"simulate log.swf --plot a.png --dispatcher {','.join(f'backfill:depth={k}' for k in range(10))}",
            1,
            "most 9",
        ),
        (
            "dispatch queue.json --dispatcher easy",
            1,
            PLANNERS,
        ),
        ("dispatch nothing.json", 1, "nothing.json"),
        ("place windows.json --window 2", 1, "has 2 windows, counted from 0"),
        ("place none.json --plot x.png", 1, "there is no window to draw"),
        ("place windows.json --method free:iterations=-1", 1, "at least 0"),
        ("place windows.json --hops paper", 1, "--hops is for a --topology"),
        ("place windows.json --topology none.conf", 1, "none.conf"),
        ("place windows.json --potential 1,2,3", 1, "at most 2 numbers"),
        ("place windows.json --plot x.txt", 1, "--plot"),
        ("place windows.json --method scass", 2, "did you mean 'scas'"),
        ("place windows.json --method free:speed=1", 2, "'speed'"),
        ("place crowded.json", 1, "window 0: 2 jobs ask for 3 nodes together: 2 are idle"),
        ("compare montage --cores 28;56", 1, "no number of cores"),
        ("compare montage --cores 0", 1, "no number of cores"),
        ("compare montage --processes 0", 1, "at least 1"),
        ("compare montage --plot out.txt", 1, ".png"),
        ("compare montage --plot nowhere/out.png", 1, "there is no directory"),
        ("compare montage --json nowhere/out.json", 1, "there is no directory"),
        ("compare montag --cores 28", 1, "give montage, blast, statistics"),
        ("simulate log.swf --power idle_w=1", 1, "idle_w= and busy_w= in watts expected"),
        ("simulate log.swf --dispatcher easy:shift=1h", 1, "the machine has no power or no intensity"),
        ("simulate log.swf --intensity 300", 1, "give --power as well"),
        ("simulate log.swf --failures repair=6h", 1, "each= is missing, as in each=60d,repair=6h"),
        ("simulate log.swf --power idle_w=1,busy_w=2 --intensity no.csv", 1, "no.csv cannot be read"),
        ("tune log.swf --power idle_w=1,busy_w=2 --intensity -3", 1, "from 0 to 10000 g/kWh"),
        ("compare flow.py --system small.json", 1, "--set NAME=VALUE"),
        ("compare flow.py --system small.json --set cores", 1, "write NAME=VALUE"),
        ("compare flow.py --system small.json --set cores=4 --cores 8", 1, "give one of them"),
        ("compare montage --cores 28 --set tiles=4", 1, "montage takes no --set"),
        ("compare montage --cores 28 --system nosite.json", 1, "there is no file 'nosite.json'"),
        ("compare montage --system small.json", 1, "--cores"),
        ("compare montage --strategies bigjob", 2, "did you mean 'big-job'"),
        ("figure convergence --from out.json", 1, "not made from such a file"),
        ("calibrate log.swf -o no/site.json", 1, "there is no directory"),
        ("calibrate log.swf --share 2", 1, "a share in (0, 1)"),
        ("calibrate log.swf", 1, "no waits"),
        ("replay-waits log.swf --plot no/out.png", 1, "there is no directory"),
        ("replay-waits log.swf log.swf", 1, "the same name"),
        ("replay-waits log.swf --warmup -1", 1, "--warmup -1"),
    ],
)
def test_mistakes_are_named(words: str, code: int, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == code
    assert expected in capsys.readouterr().err


def simulated(*words: str) -> Any:
    assert main(["simulate", *words, "--json", "out.json"]) == 0
    return json.loads(Path("out.json").read_text())


def test_instants_and_ties_are_a_choice() -> None:
    """Two jobs of one instant, the later number first in the file: each wants the whole machine."""
    Path("log.swf").write_text(swf(((7, 0, 10, 2, 10), (3, 0, 50, 2, 50))))
    assert simulated("log.swf")["mean_wait_s"] == 5.0
    found = simulated("log.swf", "--ties", "number", "--instant", "one-by-one")
    assert (found["mean_wait_s"], found["ties"], found["instant"]) == (25.0, "number", "one-by-one")


def test_it_says_what_moldable_jobs_gain(capsys: pytest.CaptureFixture[str]) -> None:
    """The second job asks for two of four cores, of which one is free: it starts on that one."""
    jobs = ((1, 0, 100, 3, 100), (2, 10, 10, 2, 10))
    Path("log.swf").write_text(swf(jobs, "; MaxProcs: 4\n; Moldable: 2 1 4 1\n"))
    found = simulated("log.swf", "--dispatcher", "easy:width=soonest")
    assert (found["moldable"], found["mean_wait_s"], found["rigid"]["mean_wait_s"]) == (1, 0.0, 45.0)
    assert "1 moldable job, easy:width=soonest, beside rigid ones: mean wait [s] 45 -> 0 (-100%)" in (
        capsys.readouterr().out
    )
    assert main(["simulate", "log.swf", "--dispatcher", "binpacking"]) == 0
    assert "as many cores as they ask for, as with width=as-asked" in capsys.readouterr().out
    Path("rigid.swf").write_text(swf(jobs, "; MaxProcs: 4\n"))
    found = simulated("rigid.swf", "--moldable", "100%")
    assert (found["dispatcher"], found["moldable"]) == ("easy:width=fair", 2)
    assert found["mean_wait_s"] == pytest.approx((100 * (0.05 + 0.95 / 4) / (0.05 + 0.95 / 3) - 10) / 2)


def test_it_says_what_malleable_jobs_gain(capsys: pytest.CaptureFixture[str]) -> None:
    """The first job has all four cores, and shrinks to one of them: 360 of its 400 core-seconds are left at 10 s."""
    jobs = ((1, 0, 100, 4, 100), (2, 10, 10, 2, 10))
    Path("log.swf").write_text(swf(jobs, "; MaxProcs: 4\n; Malleable: 1 1 4 1\n"))
    found = simulated("log.swf", "--dispatcher", "easy:resize=both", "--resize-s", "3", "--swf", "out.swf")
    assert (found["moldable"], found["malleable"], found["mean_wait_s"]) == (1, 1, 0.0)
    assert "1 moldable job, all malleable, easy:resize=both, beside rigid ones: mean wait [s] 45 -> 0" in (
        capsys.readouterr().out
    )
    assert found["makespan_s"] == pytest.approx(23 + (360 - 7 * 2) / 4)  # it shrinks to two cores, for 7 of 10 s
    assert "; Malleable: 1 1 4 1.0" in Path("out.swf").read_text()
    Path("rigid.swf").write_text(swf(jobs, "; MaxProcs: 4\n"))
    found = simulated("rigid.swf", "--malleable", "100%")
    assert (found["dispatcher"], found["malleable"]) == ("easy:width=fair,resize=both", 2)
    assert main(["simulate", "log.swf", "--dispatcher", "easy"]) == 0
    assert "as many cores as they ask for" in capsys.readouterr().out


def test_a_site_has_partitions_with_limits(capsys: pytest.CaptureFixture[str]) -> None:
    """Two nodes: `short` has both, for 10 s at most and before the others; `1` is the log's name for the other one."""
    classes = (JobClass(1.0, (1,), (5.0,)),)
    parts = {"short": Partition((0, 1), 10.0, tier=2), "1": Partition((1,))}
    SiteModel("pair", 2, 1, 0.5, classes, dispatcher="fcfs", priority="multifactor", partitions=parts).write(
        "pair.json"
    )
    Path("log.swf").write_text(
        "; Queue: 0 short\n; Queue: 2 short\n"
        "1 0 -1 30 1 -1 -1 1 30 -1 1 1 1 1 1 -1 -1 -1\n"  # of queue 1: the second node
        "2 1 -1 10 2 -1 -1 2 10 -1 1 1 1 1 0 -1 -1 -1\n"  # both nodes: blocked
        "3 2 -1 5 1 -1 -1 1 5 -1 1 1 1 1 2 -1 -1 -1\n"  # behind it: first come, first served
        "4 2 -1 5 1 -1 -1 1 20 -1 1 1 1 1 2 -1 -1 -1\n"  # too long
        "5 2 -1 5 2 -1 -1 2 20 -1 1 1 1 1 1 -1 -1 -1\n"  # too large
    )
    found = simulated("log.swf", "--site", "pair.json")
    assert (found["site"], found["dispatcher"], found["priority"]) == ("pair", "fcfs", "multifactor")
    assert found["outcomes"] == {"completed": 3, "refused": 2}
    assert found["refusals"] == {"PartitionNodeLimit": 1, "PartitionTimeLimit": 1}
    assert "refused: 1 PartitionNodeLimit, 1 PartitionTimeLimit" in capsys.readouterr().out
    assert found["max_wait_s"] == 38.0
    easy = simulated("log.swf", "--site", "pair.json", "--dispatcher", "easy", "--priority", "fifo")
    assert (easy["priority"], easy["max_wait_s"]) == ("fifo", 29.0)
    assert main(["simulate", "log.swf", "--site", "pair.json", "--nodes", "2"]) == 1
    assert "--site pair.json has a machine of its own" in capsys.readouterr().err
    Path("log.swf").write_text(Path("log.swf").read_text().replace("Queue: 2 short", "Queue: 2 other"))
    again = simulated("log.swf", "--site", "pair.json")
    assert (again["jobs"], again["odd_records"]["unknown-partition"]) == (3, 2)
    assert "unknown-partition: 2, first job 3 'other': names a partition" in capsys.readouterr().out


def test_a_site_keeps_nodes_from_jobs_for_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Two nodes, both under maintenance from 20 s on for 10 s; one is kept from all but user 7 until then."""
    windows = (
        SiteWindow("1970-01-01T00:01:50", "1970-01-01T00:02:00", name="pumps"),
        SiteWindow("1970-01-01T00:01:30", "1970-01-01T00:01:50", (0,), "course", ("7",)),
        SiteWindow("1971-01-01", "1971-01-02"),
    )
    SiteModel("pair", 2, 1, 0.5, (JobClass(1.0, (1,), (5.0,)),), windows=windows).write("pair.json")
    jobs = (
        "1 0 -1 15 1 -1 -1 1 15 -1 1 1 1 1 1 -1 -1 -1\n"  # the second node
        "2 0 -1 5 1 -1 -1 1 5 -1 1 1 1 1 1 -1 -1 -1\n"  # behind it
        "3 0 -1 8 1 -1 -1 1 8 -1 1 7 1 1 1 -1 -1 -1\n"  # the first node
        "4 25 -1 5 2 -1 -1 2 5 -1 1 1 1 1 1 -1 -1 -1\n"  # after the maintenance
    )
    Path("log.swf").write_text("; UnixStartTime: 90\n" + jobs)
    found = simulated("log.swf", "--site", "pair.json")
    assert (found["mean_wait_s"], found["max_wait_s"]) == (5.0, 15.0)
    assert found["windows"] == [
        {"name": "pumps", "start_s": 20.0, "end_s": 30.0, "nodes": 2},
        {"name": "course", "start_s": 0.0, "end_s": 20.0, "nodes": 1},
        {"name": "", "start_s": 31535910.0, "end_s": 31622310.0, "nodes": 2},
    ]
    said = "windows: 3, of which 2 while jobs are submitted; utilisation counts their nodes"
    assert said in capsys.readouterr().out
    Path("log.swf").write_text(jobs)
    assert main(["simulate", "log.swf", "--site", "pair.json"]) == 1
    assert "window 'pumps' has the date 1970-01-01T00:01:50, and the jobs have none" in capsys.readouterr().err
    text = Path("pair.json").read_text()
    Path("pair.json").write_text(text.replace('"name": "course"', '"label": "course"'))
    assert main(["simulate", "log.swf", "--site", "pair.json"]) == 1
    assert "pair.json holds no site model" in (said := capsys.readouterr().err)
    assert "windows[1]: 'label' is none of end, name, nodes, start, users" in said


def test_nodes_fail_where_that_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("log.swf").write_text(
        swf(tuple((number, 50 * number, 40, 2, 60) for number in range(1, 41)), "; MaxProcs: 4\n")
    )
    asked = ("--failures", "each=10m,repair=2m")
    found = simulated("log.swf", *asked)
    assert found["restarts"] > 0 and found["node_failures"] > 5
    said = capsys.readouterr().out
    assert f"{found['node_failures']} failures of nodes while jobs are submitted" in said and "requeued" in said
    other = simulated("log.swf", *asked, "--seed", "7", "--node-failure", "fail")
    assert (
        other["restarts"] == 0
        and other["outcomes"]["node_fail"] > 0
        and other["node_failures"] != found["node_failures"]
    )
    classes = (JobClass(1.0, (1,), (5.0,)),)
    SiteModel("four", 4, 1, 0.5, classes, failures=NodeFailures(600.0, 120.0)).write("four.json")
    site = simulated("log.swf", "--site", "four.json")
    assert {name: site[name] for name in ("restarts", "mean_wait_s")} == {
        name: found[name] for name in ("restarts", "mean_wait_s")
    }


def test_a_machine_has_power(capsys: pytest.CaptureFixture[str]) -> None:
    """Two cores of one node for 10 s, then one for 10 s, while the grid goes from 360 to 720 g/kWh at 15 s."""
    Path("two.swf").write_text(
        "; UnixStartTime: 86400\n; MaxProcs: 2\n"
        "1 0 -1 10 2 -1 -1 2 10 -1 1 1 1 1 1 -1 -1 -1\n"
        "2 0 -1 10 1 -1 -1 1 10 -1 1 1 1 1 1 -1 -1 -1\n"
    )
    Path("grid.csv").write_text("time,g\n1970-01-02T00:00,360\n1970-01-02T00:00:15,720\n")
    words = ["--cores-per-node", "2", "--power", "idle_w=60,busy_w=180"]
    expected = {"energy_kwh": (180 + 120) * 10 / 3.6e6, "energy_jobs_kwh": (120 + 60) * 10 / 3.6e6}
    found = simulated("two.swf", *words)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert "co2_kg" not in found
    said = capsys.readouterr().out
    assert "\n  energy            0.00 kWh, 0.00 by busy cores\n" in said
    grams = {
        "co2_kg": (180 * 10 + 120 * 5) * 1e-7 + 120 * 5 * 2e-7,
        "co2_jobs_kg": (120 * 10 + 60 * 5 + 60 * 10) * 1e-7,
    }
    power = NodePower(60, 180)
    classes = (JobClass(1.0, (1,), (5.0,)),)
    SiteModel("one", 1, 2, 0.5, classes, power=power, intensity=str(Path("grid.csv").resolve())).write("one.json")
    Path("one.json").write_text(re.sub(r'"intensity": ".*"', '"intensity": "grid.csv"', Path("one.json").read_text()))
    for more in ([*words, "--intensity", "grid.csv"], ["--site", "one.json"]):
        found = simulated("two.swf", *more)
        assert {name: found[name] for name in {**expected, **grams}} == pytest.approx({**expected, **grams})
    assert main(["simulate", "two.swf", *words, "--intensity", "720", "--dispatcher", "easy,fcfs", "--quiet"]) == 0
    assert "energy_kwh" in (said := capsys.readouterr().out)
    assert "co2_kg" in said
    Path("cheap.csv").write_text("0,720\n100,360\n")
    held = simulated("two.swf", *words, "--intensity", "cheap.csv", "--dispatcher", "easy:shift=100s,gain=0.001")
    assert (held["mean_wait_s"], held["max_wait_s"]) == (105.0, 110.0)
    assert held["co2_jobs_kg"] == pytest.approx((120 + 60) * 10 * 1e-7)
    Path("grid.csv").write_text("1970-01-02T00:00,360\n1970-01-02T00:00:05,720\n")
    assert main(["simulate", "two.swf", *words, "--intensity", "grid.csv"]) == 1
    assert "the trace of intensity is from 0 to 10 s" in capsys.readouterr().err


def test_a_site_has_limits_of_users(capsys: pytest.CaptureFixture[str]) -> None:
    """Four cores; `low`: one running job and two cores of each user, three jobs there; `high` has no limits."""
    classes = (JobClass(1.0, (1,), (5.0,)),)
    qos = {"low": Qos(max_jobs_per_user=1, max_submit_jobs_per_user=3, max_cores_per_user=2), "high": Qos(priority=1)}
    SiteModel("quad", 4, 1, 0.5, classes, dispatcher="fcfs", qos=qos).write("quad.json")
    Path("log.txt").write_text(
        "JobID|User|QOS|Submit|Start|End|State|Timelimit|AllocCPUS\n"
        "1|ann|low|1000|1000|1010|COMPLETED|00:01:00|1\n"
        "2|ann|low|1000|1000|1010|COMPLETED|00:01:00|1\n"  # after the first
        "3|ann|low|1000|1000|1010|COMPLETED|00:01:00|2\n"  # after the second
        "4|ann|low|1001|1001|1011|COMPLETED|00:01:00|1\n"  # one too many
        "5|ann|low|1030|1030|1040|COMPLETED|00:01:00|3\n"  # too large
        "6|bob|low|1001|1001|1011|COMPLETED|00:01:00|1\n"  # beside the first
        "7|ann|high|1001|1001|1011|COMPLETED|00:01:00|1\n"  # the same
    )
    found = simulated("log.txt", "--site", "quad.json")
    assert found["outcomes"] == {"completed": 5, "refused": 2}
    assert found["refusals"] == {"QOSMaxCpuPerUserLimit": 1, "limit of submitted jobs": 1}
    assert (found["mean_wait_s"], found["max_wait_s"]) == (6.0, 20.0)
    said = "refused: 1 QOSMaxCpuPerUserLimit, 1 limit of submitted jobs"
    assert said in capsys.readouterr().out
    assert main(["simulate", "log.txt", "--site", "quad.json", "--dispatcher", "easy,fcfs", "--quiet"]) == 0
    assert said in capsys.readouterr().out
    Path("log.txt").write_text(Path("log.txt").read_text().replace("bob|low", "bob|long"))
    assert main(["simulate", "log.txt", "--site", "quad.json", "--json", "out.json"]) == 0
    assert "unknown-qos: 1, first job 6 'long': names a QOS that the machine does not have" in capsys.readouterr().out
    found = json.loads(Path("out.json").read_text())
    assert (found["jobs"], found["odd_records"]["unknown-qos"]) == (6, 1)
    Path("log.txt").write_text(re.sub("low|high", "long", Path("log.txt").read_text()))
    assert main(["simulate", "log.txt", "--site", "quad.json"]) == 1
    said = capsys.readouterr().err
    assert "takes no job of log.txt: 7, first job 1 'long': names a QOS" in said and "it has low, high" in said


def test_a_job_without_a_limit_has_that_of_its_site() -> None:
    """Of its partition, of its QOS, or a year; not the default of jobs that ask for nothing, as the fourth."""
    partitions = {"short": Partition((0, 1, 2, 3), 60.0, 20.0), "long": Partition((0, 1, 2, 3), default_time_s=30.0)}
    qos = {"normal": Qos(), "quick": Qos(max_time_s=50.0)}
    classes = (JobClass(1.0, (1,), (5.0,)),)
    SiteModel("quad", 4, 1, 0.5, classes, partitions=partitions, qos=qos).write("quad.json")
    rows = [f"{where}|UNLIMITED" for where in ("short|normal", "short|quick", "long|normal")]
    rows += ["short|normal|", "long|normal|00:09"]
    head = "JobID|Submit|Start|End|State|AllocCPUS|Partition|QOS|Timelimit\n"
    Path("log.txt").write_text(
        head + "".join(f"{row}|1000|1000|1100|COMPLETED|1|{text}\n" for row, text in enumerate(rows, 1))
    )
    found = simulated("log.txt", "--site", "quad.json", "--csv", "jobs.csv")
    assert (found["odd_records"]["unlimited"], found["odd_records"]["no-requested-time"]) == (3, 1)
    with open("jobs.csv") as file:
        ran = [float(row["execution_time"]) for row in csv.DictReader(file)]
    assert ran == [60.0, 50.0, 100.0, 20.0, 9.0], "jobs that reach a limit are killed"


def test_a_dispatcher_that_does_not_fit_leaves_the_others_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("log.swf").write_text(swf())
    names = "easy,dras-dql:model=theta-dql,fcfs"
    assert main(["simulate", "log.swf", "--dispatcher", names, "--quiet", "--json", "out.json"]) == 1
    found = json.loads(Path("out.json").read_text())
    assert [row["dispatcher"] for row in found["rows"]] == ["easy", "fcfs"]
    assert len(found["refused"]) == 1 and found["refused"][0].startswith("dras-dql")
    assert found["refused"][0] in capsys.readouterr().err


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


# -- Dispatch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--dispatcher", "listplan:scheme=non-delay"], ["--time-limit", "50ms"]])
def test_a_plan(tmp_path, capsys, options):
    out = tmp_path / "plan.json"
    assert main(["dispatch", "queue.json", *options, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["bound"] <= found["objective"] and found["status"] == "feasible"
    assert found["gap"] == pytest.approx(found["objective"] / found["bound"] - 1)
    assert [job["id"] for job in found["jobs"]] == [job["id"] for job in INSTANCE["queue"]]
    assert sum(units for _, units in found["jobs"][1]["nodes"]) == 2
    shown = capsys.readouterr().out
    assert "plan of 27 jobs" in shown and "none is below" in shown and "... and 7 more: --json has all" in shown


def test_a_queue_without_jobs_is_planned(capsys):
    assert main(["dispatch", "empty.json"]) == 0
    assert "no job waits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("dispatcher", "options", "limit"),
    [
        ("pcp20", [], 10.0),
        ("pcp20:seconds=3", [], 3.0),
        ("pcp20:seconds=3", ["--time-limit", "50ms"], 0.05),
        ("pcp20", ["--time-limit", "2"], 2.0),
        ("listplan", [], 0.0),
        ("listplan:seconds=3", [], 3.0),
    ],
)
def test_how_long_a_planner_may_search(capsys, monkeypatch, dispatcher, options, limit):
    """As long as it is told, or as it takes for itself."""
    nothing = PlannedJob(None, "unknown")
    for planner in ("cp.planner.CpDispatcher", "listplan.ListPlan"):
        monkeypatch.setattr(f"asa.lab.dispatchers.{planner}.solve", lambda self, instance, seconds: nothing)
    assert main(["dispatch", "queue.json", "--dispatcher", dispatcher, *options]) == 1
    assert f"has found no plan in {limit:g} s: give it more (--time-limit)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("by", "words"),
    [("cp", "constraints alone have found it"), ("improved", "better than the list"), ("warm start", "the list plan")],
)
def test_who_has_found_it(capsys, monkeypatch, by, words):
    plan = ListPlan().solve(read_instance("queue.json"), 0.0).plan
    found = PlannedJob(plan, "feasible", notes={"by": by})
    monkeypatch.setattr("asa.lab.dispatchers.cp.planner.CpDispatcher.solve", lambda self, instance, seconds: found)
    assert main(["dispatch", "queue.json", "--dispatcher", "hcp19"]) == 0
    assert words in capsys.readouterr().out


def test_a_plan_that_breaks_laws_is_reported(capsys, monkeypatch):
    monkeypatch.setattr("asa.lab.dispatchers.planning.verify.violations", lambda *_: ["node 0 is asked for 3"])
    assert main(["dispatch", "queue.json"]) == 1
    assert "the plan breaks laws:\nnode 0 is asked for 3" in capsys.readouterr().err


# -- Place ------------------------------------------------------------------------------------------------------------

TREE = "SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\nSwitchName=top Switches=a,b\n"
OWN = ["seq", "scas", "sa:iterations=50", "sa:as-published", "dcas-alns:iterations=50", "free:iterations=50"]


def result(*words):
    """What `asa place` says as JSON, after it has succeeded."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["place", *words, "--json", "-"]) == 0
    return json.loads(out.getvalue())


def paid(nodes):
    """Pair by pair, of node numbers: 1 hop below one switch, 3 in a pod, 5 beyond."""
    pairs = [(one, other) for k, one in enumerate(nodes) for other in nodes[:k]]
    return sum(1000 * (1 + 2 * (a // 4 != b // 4) + 2 * (a // 8 != b // 8)) for a, b in pairs) / len(nodes)


@pytest.mark.parametrize("method", OWN)
def test_placements_are_printed_and_written(method):
    found = result("windows.json", "--method", method)
    assert found["method"] == method and [row["window"] for row in found["rows"]] == [0, 1]
    for row, window in zip(found["rows"], WINDOWS["instances"], strict=True):
        nodes = [job["nodes"] for job in row["jobs"]]
        assert [len(each) for each in nodes] == window["sizes"] and row["violations"] == []
        taken = set(chain.from_iterable(nodes))
        assert len(taken) == sum(window["sizes"]) and taken <= set(window["idle"])
        assert row["cost"] == pytest.approx(sum(map(paid, nodes)))
        assert row["bound"] <= row["cost"] and row["gap"] == pytest.approx(row["cost"] / row["bound"] - 1)
        assert row["seconds"] > 0
    costs, times = ([row[what] for row in found["rows"]] for what in ("cost", "seconds"))
    assert found["mean_cost"] == pytest.approx(np.mean(costs))
    assert found["mean_seconds"] == pytest.approx(np.mean(times)) and found["max_seconds"] == max(times)


def test_what_people_see(capsys):
    assert main(["place", "windows.json"]) == 0
    shown = capsys.readouterr().out
    assert "free: 2 windows" in shown and "none is below" in shown and "gap [%]" in shown


def test_bounds():
    best = result("windows.json", "--method", "free")["rows"]
    bounds = {}
    for name in ("lagrangian", "dantzig-wolfe"):
        if name == "dantzig-wolfe":
            pytest.importorskip("ortools")
        bounds[name] = [row["bound"] for row in result("windows.json", "--method", "seq", "--bound", name)["rows"]]
        assert all(bound <= row["cost"] for bound, row in zip(bounds[name], best, strict=True))
    for weak, strong in zip(bounds["lagrangian"], bounds["dantzig-wolfe"], strict=True):
        assert strong >= weak * (1 - 1e-9)
    none = result("windows.json", "--method", "seq", "--bound", "none")
    assert none["mean_bound"] is None and [row["gap"] for row in none["rows"]] == [None, None]


def test_a_potential():
    found = result("windows.json", "--method", "free", "--potential", "0.5,0.1")
    for row, window in zip(found["rows"], WINDOWS["instances"], strict=True):
        left = set(window["idle"]) - {node for job in row["jobs"] for node in job["nodes"]}
        pairs = [(one, other) for one in left for other in left if one < other]
        worth = sum(0.5 * (one // 4 == other // 4) + 0.1 * (one // 8 == other // 8) for one, other in pairs)
        assert row["potential"] == pytest.approx(1000 * worth)


def test_one_window():
    assert [row["window"] for row in result("windows.json", "--window", "1")["rows"]] == [1]


def test_names(tmp_path):
    (tmp_path / "topology.conf").write_text(TREE)
    (tmp_path / "names.json").write_text(json.dumps([{"idle": "n[0-2,5,7]", "sizes": [3, 2], "c": 1}]))
    words = [str(tmp_path / "names.json"), "--topology", str(tmp_path / "topology.conf")]
    (row,) = result(*words)["rows"]
    assert [job["nodes"] for job in row["jobs"]] == [["n0", "n1", "n2"], ["n5", "n7"]]
    assert row["cost"] == pytest.approx(3 * 1 / 3 + 1 / 2)
    assert result(*words, "--hops", "paper")["rows"][0]["cost"] == pytest.approx(2 * (3 * 2 / 3 + 2 / 2))


def test_no_windows():
    assert result("none.json")["mean_cost"] is None


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture(tmp_path, ending):
    pytest.importorskip("matplotlib")
    out = tmp_path / f"x.{ending}"
    assert main(["place", "windows.json", "--plot", str(out)]) == 0
    assert out.stat().st_size > 3000


class Wrong:
    """A method whose jobs share a node, or that claims too much."""

    def __init__(self, places, bound):
        self.places, self.bound = places, bound

    def place(self, window):
        return Placed(tuple(map(np.array, self.places)), "optimal", self.bound)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Wrong([[0, 1, 2], [2, 3, 4, 5]], None), "window 0: node 2 has jobs 0 and 1"),
        (Wrong([[0, 1, 2], [3, 4, 5, 6]], 1e9), "window 0: it costs 2500, less than the bound of 1e+09"),
    ],
)
def test_a_placement_that_breaks_laws_is_reported(capsys, monkeypatch, method, words):
    monkeypatch.setattr(type(PLACEMENT_METHODS), "create", lambda *_: method)
    assert main(["place", "windows.json", "--window", "0", "--method", "wrong"]) == 1
    shown = capsys.readouterr()
    assert words in shown.err + shown.out


# -- Compare ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_comparison_is_printed_written_and_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = ["compare", "flow.py", "--system", "small.json", "--cores", "8,16", "--seeds", "2", "--processes", "1"]
    words += ["--strategies", "big-job,per-stage,asa:estimator=last,dependency=predicted", "--regime", "accrue-always"]
    assert main([*words, "--json", "out.json", "--plot", "out.png"]) == 0
    said = capsys.readouterr().out
    assert "small, accrue-always: means of 2 seeds" in said
    data = json.loads((folder / "out.json").read_text())
    assert len(data["rows"]) == 2 * 4 * 2
    assert {row["strategy"] for row in data["rows"]} == {
        "big-job",
        "per-stage",
        "asa:estimator=last,dependency=predicted",
        "oracle",
    }
    assert not {"energy_kwh", "co2_kg"} & (data["rows"][0].keys() | data["sections"][0]["table1"][0].keys())
    assert main([*words[:4], "--set", "cores=8", *words[6:10], "--strategies", "per-stage", "--json", "set.json"]) == 0
    assert {row["cores"] for row in json.loads((folder / "set.json").read_text())["rows"]} == {8}
    assert {"out.png", "out-corehours.png"} <= {path.name for path in folder.iterdir()}

    assert main(["figure", "asa-corehours", "--from", "out.json", "-o", "again.svg", "--json", "again.json"]) == 0
    assert "<svg" in (folder / "again.svg").read_text()
    assert json.loads((folder / "again.json").read_text())["rows"] == data["rows"]


def test_strategies_are_compared_by_energy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The held cores' share of idle nodes, and what busy cores add; a constant intensity makes CO2 of it."""
    replace(small_site(), power=NodePower(160, 480), intensity=250.0).write("small.json")
    words = ["compare", "flow.py", "--system", "small.json", "--cores", "8", "--seeds", "1", "--processes", "1"]
    assert main([*words, "--strategies", "big-job,per-stage", "--quiet", "--json", "out.json"]) == 0
    assert "energy [kWh]  CO2 [kg]" in capsys.readouterr().out
    rows = {row["strategy"]: row for row in json.loads((folder / "out.json").read_text())["rows"]}
    for row in rows.values():
        kilowatt_hours = row["core_hours"] / 100  # 10 W idle and 20 W more by core
        assert kilowatt_hours < row["energy_kwh"] <= 3 * kilowatt_hours * (1 + 1e-9)
        assert row["co2_kg"] == pytest.approx(row["energy_kwh"] / 4)
    assert rows["oracle"]["energy_kwh"] == pytest.approx(3 * rows["oracle"]["core_hours"] / 100)
    assert rows["big-job"]["energy_kwh"] < 3 * rows["big-job"]["core_hours"] / 100  # its cores idle in the narrow stage


# -- Calibrate --------------------------------------------------------------------------------------------------------


def log_under_easy(folder: Path, jobs: int) -> Path:
    """A log of a machine that was run by EASY, waits included."""
    workload = lublin(jobs=jobs, cores=64, seed=4, load=0.85, estimates="uniform:5")
    write_swf(log_of(simulate(workload, Cluster.of(64), "easy")), folder / "mine.swf")
    return folder / "mine.swf"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_under_easy(tmp_path_factory.mktemp("log"), jobs=3000)


def test_a_model_is_made_and_checked(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "site.json", tmp_path / "out.json"
    words = ["calibrate", str(log), "-o", str(model), "--seeds", "1", "--nodes", "64", "--json", str(out)]
    assert main(words) == 0
    assert "unseen" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["site"] == "mine"
    assert found["rows"][0]["cores"] == "all"
    assert 0.3 < found["model_utilisation"] < 1.1
    assert json.loads(model.read_text())["nodes"] == 64


SLURM = Path(__file__).parents[2] / "fixtures" / "slurm" / "22.05.txt"


def log_of_slurm(path: Path, jobs: int) -> Path:
    """What sacct would tell of the machine in that file, and of five jobs of a partition that is gone."""
    slurm, rng = read_slurm(SLURM), np.random.default_rng(1)
    names = {"partition": ("main", "week", "long", "fast"), "qos": ("normal", "high")}
    made = lublin(jobs=jobs, cores=8, seed=4, load=2.5, estimates="uniform:5")
    columns = {column: rng.integers(0, len(labels), jobs) for column, labels in names.items()}
    made = dataclasses.replace(made, **columns, user=rng.integers(0, 9, jobs), labels=made.labels | names)
    done = simulate(made, slurm.cluster, "conservative", priority=slurm.priority)
    lines = ["JobID|User|Partition|QOS|State|Submit|Start|End|Timelimit|AllocTRES"]
    for place, row in enumerate(np.flatnonzero(done.ran).tolist()):
        where = "gone" if place < 5 else made.label("partition", row), made.label("qos", row)
        times = [int(1.7e9 + each[row]) for each in (made.submit, done.start, done.end)]
        gpus = ",gres/gpu=1" if where[0] == "main" and made.cores[row] == 4 else ""
        limit = f"{int(made.walltime[row]) // 60}:{int(made.walltime[row]) % 60:02}"
        fields = row + 1, f"u{made.user[row]}", *where, "COMPLETED", *times, limit, f"cpu={made.cores[row]}{gpus}"
        lines.append("|".join(map(str, fields)))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_model_has_slurm_s_partitions_and_qos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, model, out = log_of_slurm(tmp_path / "sacct.txt", 2000), tmp_path / "site.json", tmp_path / "out.json"
    words = ["calibrate", str(log), "--slurm", str(SLURM), "-o", str(model), "--seeds", "1", "--json", str(out)]
    assert main(words) == 0
    printed, found = capsys.readouterr().out, json.loads(out.read_text())
    assert "not simulated: shares of accounts and users (sacctmgr show assoc was not given" in printed
    lacking = "AccountingStorageTRES is without gpus, gpus:a100 (sacct does not say which jobs ask for them)"
    assert lacking in found["not_simulated"]
    assert found["left_out"] == "5 of a partition that is not there"
    site = SiteModel.read(model)
    assert site.partitions == read_slurm(SLURM).cluster.partitions
    kinds = [((0,), 8, 0, "gpu:a100:2"), ((1,), 8, 2, ""), ((2, 3), 8, 0, "")]
    assert [(kind.nodes, kind.cores, kind.gpus, kind.gres) for kind in site.kinds] == kinds
    assert {(each.gpus, each.unit) for each in site.classes} == {(0, 1), (1, 4)}
    assert site.qos == read_slurm(SLURM).cluster.qos
    assert site.requeue_delay_s == 6.0 and site.partitions["week"].preempt_mode == "requeue"
    assert site.dispatcher == "backfill:depth=inf,interval=1.003s,limit=200,window=1440m"
    assert site.priority.startswith("multifactor:age=1000,fairshare=5000,qos=100000")
    assert {(each.partition, each.qos) for each in site.classes} >= {("main", "normal"), ("fast", "high")}
    assert sum(each.share for each in site.classes) == pytest.approx(1, abs=1e-3)
    assert simulated(str(log), "--site", str(model), "--quiet")["odd_records"]["unknown-partition"] == 5


def test_the_machine_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "log.swf", "--slurm", str(SLURM), "--nodes", "4"]) == 1
    assert "leave --nodes and --cores-per-node out" in capsys.readouterr().err


# -- Replay waits -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return log_under_easy(tmp_path_factory.mktemp("log"), jobs=1500)


def test_waits_are_replayed(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, picture = tmp_path / "out.json", tmp_path / "out.svg"
    words = [
        "replay-waits",
        str(recorded),
        "--estimators",
        "zero,algorithm1:sampling=tuned,replay=2",
        "--sizes",
        "2",
    ]
    words += ["--jobs", "100", "--warmup", "20", "--seeds", "2", "--json", str(out), "--plot", str(picture)]
    assert main(words) == 0
    assert "mine: 160 jobs, means over 2 sizes" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert list(found["overall"]) == ["last", "zero", "algorithm1:sampling=tuned,replay=2"]
    assert found["rows"][0]["trace"] == "mine"
    assert [len(row["seeds"]) for row in found["rows"]] == [1, 1, 2]
    assert "<svg" in picture.read_text()


def test_a_misspelt_estimator_is_named(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay-waits", str(recorded), "--estimators", "medain"]) == 2
    assert "medain" in capsys.readouterr().err


def test_a_site_model_is_probed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay-waits", "sim:uppmax", "--estimators", "zero", "--jobs", "30", "--warmup", "5", "--json", "-"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["trace"] == "sim:uppmax"
    assert found["rows"][0]["seeds"][0]["jobs"] == 75


# -- Without numba ----------------------------------------------------------------------------------------------------

COMMANDS = ("simulate", "figure", "train", "place", "dispatch", "compare", "calibrate", "replay-waits")
CODE = """
import sys
from asa.cli.main import main
{before}
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(sorted({{"numba", "torch", "matplotlib"}} & {{name for name, module in sys.modules.items() if module}}))
sys.exit(code)
"""


def asa(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    code = CODE.format(before=before)
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_neither_a_compiler_nor_networks(command: str) -> None:
    done = asa(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "log.swf"),
        ("figure", "asa-makespan"),
        ("figure", "cp-times"),
        ("figure", "dras-6"),
        ("figure", "tjap-5"),
        ("compare", "montage"),
        ("calibrate", "log.swf"),
        ("dispatch", "queue.json"),
        ("place", "windows.json"),
        ("replay-waits", "sim:hpc2n"),
        ("train", "nsa"),
        ("train", "dras", "--trace", "log.swf", "--validate", "1-2", "--output", "m"),
    ],
    ids=" ".join,
)
def test_without_numba_a_command_says_what_to_install(words: tuple[str, ...]) -> None:
    done = asa(*words, before='sys.modules["numba"] = None')
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "asa: error: simulated queues and the laboratory need numba: pip install 'asa-hpc[lab]'"
    ]
