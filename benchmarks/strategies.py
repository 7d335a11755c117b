"""Strategies end to end on simulated queues, as tables: held places, staggered requests, and what goes wrong.

    python -m benchmarks.strategies [--quick] [--processes 2] [--json FOLDER]

The paper's three workflows at its six scales on the models of its two systems, in pairs from the same moment of the
same queue, with feedback as late as the waits are long. Intervals: 95 %, bootstrap over seeds.

With ``--json``, the rows of each part are kept in a file, which ``asa figure asa-pareto --from`` can draw; a part whose
file is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from asa.lab.asa_paper.compare import compare
from asa.lab.asa_paper.figures import BESIDE, STAGGERED, Pareto
from asa.lab.asa_paper.published import SCALES
from asa.lab.asa_paper.tables import Beside, Grid, RunRow, beside, ratio_of_sums
from asa.lab.study import Estimate
from asa.lab.traces.site import UPPMAX
from benchmarks.measure import show

REGIMES = ("fifo", "accrue-always", "multifactor")
"""Besides ``limits``."""
CHOSEN = ("big-job", "per-stage", "asa", "hold", "stagger", "auto")
OTHERS = (*CHOSEN, "asa-naive", "cascade")
DEPENDENT = ("big-job", "per-stage", "auto")
"""What is run in the other regimes as well; the rest heeds no regime, and ``auto`` is ``hold`` there."""
BUSY = replace(UPPMAX, name="busy", dispatcher="backfill:depth=1,limit=10")
"""Its batch system looks at 10 waiting jobs, so that small ones wait as well, and Per-Stage takes twice as long."""
FORK_JOIN = str(Path(__file__).with_name("fork_join.py"))
VARIED = (
    *(f"stagger:outstanding={most}" for most in (1, 2, 5, 10)),
    *(f"stagger:spacing_s={apart}" for apart in (600, 3600, 7200)),
    *(f"stagger:late={late}" for late in (0.25, 0.75)),
    "stagger:grace_s=1800",
)
LEARNED = tuple(f"stagger:estimator={name}" for name in ("zero", "last", "median", "fixed-share"))
SLOWER = 1.02
"""From here on a strategy counts as slower than Per-Stage."""


def table(rows: Sequence[RunRow], against: Sequence[str] = ("big-job", "per-stage", "oracle")) -> list[dict[str, Any]]:
    """A line for each regime and strategy: ratios of sums over all cases of all systems."""
    lines = []
    for regime in dict.fromkeys(row.regime for row in rows):
        inside = [row for row in rows if row.regime == regime]
        grid = Grid.of(inside)
        for k, name in enumerate(grid.strategies):
            line: dict[str, Any] = {"regime": regime, "strategy": name}
            for other in against:
                if other in grid.strategies:
                    found = grid.estimate("makespan_s", ratio_of_sums, strategies=[k, grid.strategies.index(other)])
                    line[f"makespan / {other}"] = "1" if other == name else _three(found)
            two = [k, grid.strategies.index("per-stage")]
            line["core-hours beyond per-stage"] = _percent(grid.estimate("core_hours", ratio_of_sums, strategies=two))
            mine = [row for row in inside if row.strategy == name]
            line["given back a run"] = sum(row.misses for row in mine) / len(mine)
            line["in queue"] = max(row.outstanding for row in mine)
            lines.append(line)
    return lines


def slow(found: Iterable[Beside], shown: int = 8) -> list[dict[str, Any]]:
    """The cases in which a strategy is slowest beside Per-Stage."""
    return [
        {
            "regime": each.regime,
            "system": each.case[0],
            "workflow": each.case[1],
            "cores": each.case[2],
            "strategy": each.strategy,
            "makespan / per-stage": _three(each.ratio),
            "slower in": f"{100 * each.slower:.0f} % of the seeds",
        }
        for each in list(found)[:shown]
    ]


def _three(found: Estimate) -> str:
    shown = [f"{part:.3f}" for part in (found.value, found.low, found.high) if part is not None]
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def _percent(found: Estimate) -> str:
    shown = [f"{100 * (part - 1):+.1f}" for part in (found.value, found.low, found.high) if part is not None]
    return f"{shown[0]} %" if len(set(shown)) == 1 else f"{shown[0]} % [{shown[1]}, {shown[2]}]"


def _of(rows: Sequence[RunRow], system: str) -> list[RunRow]:
    return [row for row in rows if row.system == system]


def _rows(options: argparse.Namespace, name: str, workflow: str = "all", **given: Any) -> list[RunRow]:
    """The runs of one part: those in its file, or new ones."""
    kept = options.json / f"{name}.json" if options.json else None
    if kept and kept.is_file():
        return [RunRow.from_json(values) for values in json.loads(kept.read_text())["rows"]]
    found = list(compare(workflow, processes=options.processes, **given).rows)
    print(f"{name}: {len(found)} runs", file=sys.stderr, flush=True)
    if kept:
        kept.write_text(json.dumps({"rows": [row.to_json() for row in found]}) + "\n")
    return found


def _show_held(options: argparse.Namespace, seeds: int) -> None:
    """Both systems, where places are held and where none is."""
    both = tuple(SCALES)
    rows = _rows(options, "limits", systems=both, strategies=CHOSEN, regimes=["limits"], seeds=seeds)
    regimes = REGIMES[:1] if options.quick else REGIMES
    rows += _rows(options, "regimes", systems=both, strategies=DEPENDENT, regimes=regimes, seeds=seeds)
    show(f"Both systems together, {seeds} seeds", table(rows))
    for system in both:
        show(f"{system}, {seeds} seeds", table(_of(rows, system)))
    for strategy in ("auto", "stagger"):
        worst = beside([row for row in rows if strategy == "auto" or row.regime == "limits"], strategy)
        over = sum(each.ratio.value > SLOWER for each in worst)
        show(f"{strategy}: {over} of {len(worst)} cases more than 2 % slower than Per-Stage; the worst", slow(worst))


def _show_front(options: argparse.Namespace, seeds: int) -> None:
    chosen = (*BESIDE, *(STAGGERED[::4] if options.quick else STAGGERED))
    front = Pareto(_rows(options, "front", systems=tuple(SCALES), strategies=chosen, regimes=["limits"], seeds=seeds))
    show(f"Where no place is held (limits), {seeds} seeds", front.table())


def _show_busy(options: argparse.Namespace, seeds: int) -> None:
    given = {"cores": SCALES["uppmax"], "seeds": seeds}
    chosen = (*OTHERS, *VARIED, *LEARNED)
    busy = _rows(options, "busy", systems=[BUSY], strategies=chosen, regimes=["limits"], **given)
    show(f"A busier queue, {seeds} seeds", table(busy))
    for strategy in ("auto", "stagger"):
        show(f"{strategy} in the busier queue: the worst cases", slow(beside(busy, strategy)))

    regimes, systems = ["fifo", "multifactor", "limits"], ["uppmax", BUSY]
    forked = _rows(options, "fork-join", FORK_JOIN, systems=systems, strategies=OTHERS, regimes=regimes, **given)
    show(f"A workflow with two branches, uppmax and the busier queue, {seeds} seeds", table(forked))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two seeds and fewer strategies, to see that it works")
    parser.add_argument("--seeds", type=int, default=20, help="how many queues; a fifth for some tables (20)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="where to keep the rows")
    options = parser.parse_args()
    many, few = (2, 2) if options.quick else (options.seeds, -(-options.seeds // 5))
    _show_held(options, many)
    _show_front(options, few)
    _show_busy(options, few)
    return 0


if __name__ == "__main__":
    sys.exit(main())
