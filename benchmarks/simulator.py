"""The simulated queue beside AccaSim: what whole processes take, and how long decisions last.

    python -m benchmarks.simulator [--peers PYTHON] [--repeats 3] [--only logs,large,saturated,peers]

PYTHON is an interpreter that has AccaSim (`pip install accasim` into a virtual environment of its own). The logs are
those of the data folder: $ASA_SHARED or ../shared. Compiled code goes to a folder of this run, so that the first
process finds none; it is shown by itself, and is the warm-up of the others. Processor time is what the kernel has
counted for the process when it ends, user's and system's; memory is in units of 10^6 bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import show

SWF = Path(os.environ.get("ASA_SHARED", "../shared"), "data", "swf").resolve()
ASA = "import sys; from asa.cli.main import main; sys.exit(main())"  # what the command `asa` is
LOGS = (
    ("lf10k", "--dispatcher=easy", ""),
    ("lf50k", "--dispatcher=easy", "2 s, 300 MB, 60,000/s"),
    ("lublin_256", "--dispatcher=easy --predictor=oracle", ""),
    ("KTH-SP2-1996-2", "--dispatcher=easy", ""),
    ("KTH-SP2-1996-2", "--dispatcher=backfill:depth=inf,limit=100", "30 s"),
)
SIZES = ((10_000, 10), (100_000, 1), (1_000_000, 1))
"""Jobs of a synthetic workload, and how many such workloads make up for few jobs."""
SATURATED = (
    "fcfs", "easy", "easy:order=sjf", "easy:order=wfp3", "backfill:depth=inf,limit=100", "conservative",
    "binpacking", "random", "knapsack",
)  # fmt: skip
PEERS = (("lf10k", 256), ("lf50k", 256))


@dataclass(frozen=True)
class Process:
    """What a process took: processor time [s], time [s] and memory [10^6 bytes]; and the JSON that it printed."""

    cpu: float
    wall: float
    memory: float
    out: dict[str, Any]


@dataclass(frozen=True)
class Bench:
    """How processes are run."""

    folder: Path
    repeats: int
    peers: str | None

    def run(self, *argv: str, repeats: int = 0) -> list[Process]:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(self.folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users do have byte code
        return [weigh(argv, environment) for _ in range(repeats or self.repeats)]

    def once(self, *words: str, repeats: int = 0) -> list[Process]:
        return self.run(sys.executable, "-m", "benchmarks.simulator_once", *words, repeats=repeats)

    def asa(self, *words: str) -> list[Process]:
        return self.run(sys.executable, "-c", ASA, "simulate", *words, "--json=-", "--quiet")


def weigh(argv: Sequence[str], environment: dict[str, str]) -> Process:
    begun = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}")
    wall = time.perf_counter() - begun
    return Process(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024 / 1e6, json.loads(out))


def row(what: str, runs: Sequence[Process], target: str = "") -> dict[str, Any]:
    """Medians of processes, with the least processor time; `seconds` of the loop are wall time."""
    out = runs[0].out
    loops = [run.out["seconds"] for run in runs if "seconds" in run.out]
    return {
        "what": what,
        "jobs": out["jobs"],
        "CPU [s]": statistics.median(run.cpu for run in runs),
        "least": min(run.cpu for run in runs),
        "wall [s]": statistics.median(run.wall for run in runs),
        "MB": round(max(run.memory for run in runs)),
        "loop [jobs/s]": round(out["jobs"] / statistics.median(loops)) if loops else None,
        "most": round(out["jobs"] / min(loops)) if loops else None,
        "mean wait [s]": f"{out['mean_wait_s']:,.1f}",
        "target": target,
    }


def logs(bench: Bench) -> None:
    """What users do: `asa simulate LOG`."""
    show("asa simulate LOG", [
        row(f"{log} {options}", bench.asa(str(path), *options.split()), target)
        for log, options, target in LOGS
        if (path := found(log))
    ])  # fmt: skip


def large(bench: Bench) -> None:
    """A large log and synthetic workloads; the loop is measured in processor time."""
    rows = []
    if path := found("CEA-Curie-2011-2.1-cln"):
        rows.append(cost("CEA-Curie, easy", bench.once("log", str(path), "easy"), "60 s"))
    for jobs, count in SIZES:
        target = "60 s, 1500 MB" if jobs == 1_000_000 else ""
        rows.append(cost(f"synthetic, {count} x {jobs}", bench.once("synthetic", str(jobs), str(count)), target))
    show("Large workloads, EASY", rows)
    few, many = rows[-len(SIZES)]["least us/job"], rows[-1]["least us/job"]
    print(f"\nA job of {SIZES[-1][0]} costs {many / few:.2f} x one of {SIZES[0][0]}; at most 1.3 x wanted.")


def cost(what: str, runs: Sequence[Process], target: str) -> dict[str, Any]:
    """A row with what a job costs in the loop [us of processor time]."""
    each = [1e6 * run.out["loop_s"] / run.out["jobs"] for run in runs]
    found = row(what, runs) | {"us/job": statistics.median(each), "least us/job": min(each), "target": target}
    return {name: value for name, value in found.items() if name not in ("loop [jobs/s]", "most")}


def saturated(bench: Bench) -> None:
    """Decisions on long queues; in the calmest of the runs."""
    rows = []
    for name in SATURATED:
        runs = [process.out for process in bench.once("saturated", name)]
        rows.append({"dispatcher": name, **min(runs, key=lambda out: out["max"]), "target": 5})
    show("Decisions while at least 10,000 jobs wait, ms of processor time", rows)


def peers(bench: Bench) -> None:
    """The same logs, dispatcher and machine; both write the schedule with its nodes to a file."""
    if bench.peers is None:
        print("\nNo peers: --peers names no interpreter that has AccaSim.")
        return
    script, rows = str(Path(__file__).with_name("peers_accasim.py")), []
    for log, processors in PEERS:
        if path := found(log):
            plain = bench.folder / f"{log}.swf"
            plain.write_bytes(gzip.decompress(path.read_bytes()))
            rows.append(row(f"asa, {log}", bench.asa(str(path), f"--csv={bench.folder / 'schedule.csv'}")))
            rows.append(row(f"AccaSim, {log}", bench.run(bench.peers, script, str(plain), str(processors))))
    show("EASY, first fit, the schedule written to a file", rows)


def found(log: str) -> Path | None:
    """Where a log is; tells when it is not there."""
    path = SWF / f"{log}.swf.gz"
    if path.is_file():
        return path
    print(f"\nNot measured: {log} is not in the data folder ($ASA_SHARED or ../shared).")
    return None


def main() -> None:
    tables = {"logs": logs, "large": large, "saturated": saturated, "peers": peers}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has AccaSim")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default=",".join(tables), metavar="TABLE,...", help="tables to make")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.repeats, options.peers)
        show(
            "The first process of all, which compiles",
            [row("100 jobs", bench.once("synthetic", "100", "1", repeats=1))],
        )
        for name in options.only.split(","):
            tables[name](bench)


if __name__ == "__main__":
    main()
