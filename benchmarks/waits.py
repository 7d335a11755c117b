"""How well estimators foretell recorded waits, as tables: real logs, and probes in the models of the paper's sites.

    python -m benchmarks.waits --folder LOGS [--json OUT] [--draw OUT.png] [--estimators NAMES]

The folder holds logs of the Parallel Workloads Archive as it names them, `theta_argonne_2023_norm.swf.gz`, and
`drac-graham-2021_queued-jobs.csv.gz`; those that are missing are passed over. The overall mean is that over the logs in
`TARGETS`; the others stand beside it. Graham's file has only jobs that were queued at noon: long waits are too many in
it, and what its contexts tell of the queue is but a part.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.registry import ESTIMATORS
from asa.lab.asa_paper.probes import probed
from asa.lab.asa_paper.queue_history import ObservedWait, load_log, records
from asa.lab.asa_paper.replay import EstimatorRow, ReplayTable, default_estimators, tabulate
from asa.lab.core.workload import Workload
from asa.lab.traces.accounting import coded
from asa.lab.traces.records import Sieve, Trace
from benchmarks.measure import show

TARGETS = {
    "HPC2N": "HPC2N-2002-2.2-cln.swf.gz",
    "Curie": "CEA-Curie-2011-2.1-cln.swf.gz",
    "Intrepid": "ANL-Intrepid-2009-1.swf.gz",
    "CTC": "CTC-SP2-1996-3.1-cln.swf.gz",
}
BESIDE = {
    "KTH": "KTH-SP2-1996-2.swf.gz",
    "Theta": "theta_argonne_2023_norm.swf.gz",
    "Graham": "drac-graham-2021_queued-jobs.csv.gz",
}
SITES = ("hpc2n", "uppmax")


def graham(path: Path) -> Trace:
    """The jobs of the table that the Graham machine's operators published; waits from when they were eligible."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    eligible, start = (np.array([_seconds(row[name]) for row in rows]) for name in ("eligible_time", "start_time"))
    run, limit, cores = (
        np.array([float(row[name] or "nan") for row in rows]) for name in ("run_time_sec", "time_limit_sec", "req_cpus")
    )
    sieve = Sieve(path.name, len(rows), "row {}".format)
    sieve.drop("no-submit-time", np.isnan(eligible)).drop("no-run-time", ~(run >= 0)).drop(
        "no-processors", ~(cores >= 1)
    )
    keep, epoch = sieve.keep, float(np.nanmin(eligible))
    users, names = coded([row["account_id"] for row in rows])
    wait = start - eligible
    jobs = Workload.of(
        submit=eligible[keep] - epoch,
        run=run[keep],
        cores=cores[keep],
        walltime=np.where(limit > 0, limit, np.nan)[keep],
        wait=np.where(wait >= 0, wait, np.nan)[keep],
        user=users[keep],
        labels={"user": names},
    )
    nothing = np.full(len(jobs), np.nan)
    return Trace(jobs, None, sieve.report(), path.name, epoch, nothing, np.full(len(jobs), -1, dtype=np.int8))


def _seconds(text: str) -> float:
    try:
        return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()
    except ValueError:
        return float("nan")


def logs(folder: Path, names: dict[str, str]) -> dict[str, list[ObservedWait]]:
    """The records of those logs that are there."""
    found = {}
    for name, file in names.items():
        paths = sorted(folder.rglob(file))
        if not paths:
            print(f"no {file} below {folder}: left out", file=sys.stderr)
            continue
        found[name] = records(graham(paths[0]) if file.endswith(".csv.gz") else load_log(paths[0]))
    return found


def relative(found: Iterable[ReplayTable]) -> list[dict[str, Any]]:
    """Errors beside the last wait's: a row for each estimator, a column for each log."""
    tables = list(found)
    lines = []
    for name in tables[0].overall:
        line = {"MAE / last": name}
        for place, table in enumerate(tables):
            if place == 0:
                line["geometric mean"] = f"**{table.overall[name]}**"
            line |= {row.trace: str(row.relative) for row in table.rows if row.estimator == name}
        lines.append(line)
    return lines


def details(table: ReplayTable) -> list[dict[str, Any]]:
    """Other numbers, in the mean over the logs of a table."""
    lines = []
    for name in table.overall:
        rows = [row for row in table.rows if row.estimator == name]
        line: dict[str, Any] = {"mean over logs": name}
        for key, heading in (
            ("mae_h", "MAE [h]"), ("late_h", "late [h]"), ("early_h", "early [h]"), ("log10_error", "log10"),
            ("within_2x", "x2"), ("within_3x", "x3"), ("within_10min", "10 min"),
            ("within_one", "within one"), ("not_over", "not over"), ("regret", "regret"),
            ("regret_switching", "regret, switching"),
        ):  # fmt: skip
            line[heading] = round(float(np.mean([row.mean(key) for row in rows])), 3)
        for key, heading in (("pinball_h", "pinball {:g} [h]"), ("calibration", "under {:g}")):
            line |= {
                heading.format(q): round(each, 3) for q, each in zip(table.quantiles, _means(rows, key), strict=False)
            }
        line["us"] = round(float(np.mean([row.step_us for row in rows])))
        lines.append(line)
    return lines


def _means(rows: list[EstimatorRow], key: str) -> list[float]:
    """Means of what a number is for each quantile over the rows that have it; empty when none has."""
    known = [each for row in rows if (each := row.means(key)) is not None]
    return np.mean(known, axis=0).tolist() if known else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the logs are, at any depth")
    parser.add_argument("--estimators", default=",".join(default_estimators()))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--probes", type=int, default=2000, help="probes of each size in the site models; 0 for none")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--draw", type=Path)
    options = parser.parse_args()
    specs = ESTIMATORS.split([options.estimators])

    def progress(trace: str, spec: str) -> None:
        print(f"{trace}: {spec}", file=sys.stderr)

    groups = {"real logs": logs(options.folder, TARGETS), "beside": logs(options.folder, BESIDE)}
    if options.probes:
        groups["site models"] = {f"sim:{site}": probed(site, jobs=options.probes) for site in SITES}
    tables = {
        name: tabulate(found, specs, seeds=options.seeds, progress=progress) for name, found in groups.items() if found
    }
    show(f"Errors beside the last wait's; geometric mean over {', '.join(TARGETS)}", relative(tables.values()))
    for name, table in tables.items():
        show(f"{name}: {', '.join(dict.fromkeys(row.trace for row in table.rows))}", details(table))
    if options.json:
        options.json.write_text(json.dumps({name: table.to_json() for name, table in tables.items()}, indent=1) + "\n")
    if options.draw:
        tables["real logs"].draw(options.draw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
