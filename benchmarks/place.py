"""How good and how quick placement methods are: on windows as in the paper, on large ones, and beside what it printed.

    python benchmarks/place.py FOLDER [--part NAME ...] [--count 930] [--epochs 10]

FOLDER has windows, tjap_code_cap5.json.gz, tjap_text_cap5.json.gz and tjap_large.json.gz, and the workload of the
paper's authors, hpcschedule-workload-100k.txt.gz. Every placement and every bound is checked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure import show

from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.placement.tjap.bounds import dantzig_wolfe, priced_nodes
from asa.lab.placement.tjap.files import read_windows
from asa.lab.placement.tjap.instance import Placed, Window, cost, proven, violations

METHODS = (
    "scas",
    "seq",
    "sa:as-published",
    "sa:as-published,iterations=1000",
    "sa",
    "sa:iterations=1000",
    "dcas-alns",
    "free",
)
PUBLISHED = ("seq", "sa:as_published=yes,iterations=500", "sa:as_published=yes,iterations=1000", "scas")
DRIVERS = ("sa:as_published=yes,iterations=1000", "scas")
LARGE = ("scas:width=1", "scas", "dcas-alns:iterations=300", "free:iterations=100")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and how long it takes [s]."""
    began = time.perf_counter()
    return call(), time.perf_counter() - began


def placed(spec: str, windows: Sequence[Window]) -> tuple[list[Placed], np.ndarray]:
    """Checked placements, and how long each took [ms], after all have been made once."""
    method = PLACEMENT_METHODS.create(spec)
    for window in windows:
        method.place(window)
    results = [timed(lambda window=window: method.place(window)) for window in windows]
    for window, (found, _) in zip(windows, results, strict=True):
        broken = violations(window, found)
        assert not broken, broken[0]
    return [found for found, _ in results], 1e3 * np.array([seconds for _, seconds in results])


def methods(windows: Sequence[Window]) -> list[dict[str, Any]]:
    """Mean costs, beside the best on neighbours."""
    rows, best = [], 0.0
    for spec in METHODS:
        found, ms = placed(spec, windows)
        mean = float(np.mean([cost(*each) for each in zip(windows, found, strict=True)]))
        best = best or mean
        above = {"above scas [%]": 100 * (mean / best - 1), "mean [ms]": ms.mean(), "most [ms]": ms.max()}
        rows.append({"method": spec, "cost": round(mean), **above})
    return rows


def bounds(windows: Sequence[Window]) -> list[dict[str, Any]]:
    """Bounds beside what `free` finds; each is computed anew from its prices."""
    found, _ = placed("free", windows)
    paid = [cost(*each) for each in zip(windows, found, strict=True)]
    makers: dict[str, Callable[[Window, Placed], Any]] = {
        "lagrangian": lambda window, found: priced_nodes(window, cost(window, found)),
        "dantzig-wolfe": dantzig_wolfe,
    }
    rows = []
    for name, make in makers.items():
        make(windows[0], found[0])
        results = [timed(lambda each=each, make=make: make(*each)) for each in zip(windows, found, strict=True)]
        values = [proven(window, prices) for window, ((_, prices), _) in zip(windows, results, strict=True)]
        assert all(value <= most * (1 + 1e-9) + 1e-9 for value, most in zip(values, paid, strict=True))
        ms = 1e3 * np.array([seconds for _, seconds in results])
        closed = np.mean([most <= value * (1 + 1e-4) for value, most in zip(values, paid, strict=True)])
        gap = {"gap of free [%]": 100 * (np.mean(paid) / np.mean(values) - 1), "proven to 0.01 % [%]": 100 * closed}
        rows.append(
            {"bound": name, "mean": round(float(np.mean(values))), **gap, "mean [ms]": ms.mean(), "most [ms]": ms.max()}
        )
    return rows


def models(windows: Sequence[Window], count: int) -> list[dict[str, Any]]:
    """The optimum on neighbours by other means, on the first windows with at most 60 idle nodes."""
    from tests.lab.placement.tjap.solvers import intervals, paper_model
    from tests.lab.placement.tjap.windows import packing

    chosen = [window for window in windows if len(window.idle) <= 60 and len(window.sizes) > 1][:count]
    found, ms = placed("scas", chosen)
    best = [cost(*each) for each in zip(chosen, found, strict=True)]
    rows = [
        {"model": "scas", "windows": len(chosen), "mean [ms]": ms.mean(), "most [ms]": ms.max(), "furthest off": 0.0}
    ]
    solvers = {"packing, HiGHS": packing, "the paper's, SCIP": paper_model, "intervals, CP-SAT": intervals}
    for name, solve in solvers.items():
        results = [timed(lambda window=window, solve=solve: solve(window)) for window in chosen]
        ms = 1e3 * np.array([seconds for _, seconds in results])
        off = max(abs(value - mine) / mine for (value, _), mine in zip(results, best, strict=True))
        rows.append(
            {"model": name, "windows": len(chosen), "mean [ms]": ms.mean(), "most [ms]": ms.max(), "furthest off": off}
        )
    return rows


def large(windows: Sequence[Window]) -> list[dict[str, Any]]:
    """One window after the other, with the method's own bound."""
    rows = []
    for number, window in enumerate(windows):
        for spec in LARGE:
            (found,), ms = placed(spec, [window])
            paid = cost(window, found)
            gap = None if found.bound is None else 100 * (paid / found.bound - 1)
            about = {"window": number, "idle": len(window.idle), "jobs": len(window.sizes), "method": spec}
            rows.append({**about, "cost": round(paid), "gap to own bound [%]": gap, "[ms]": ms[0]})
    return rows


def published(path: Path, count: int, driver: str) -> list[dict[str, Any]]:
    """Tables III and IV of the paper, on its authors' workload; jobs are where `driver` puts them."""
    from asa.lab.nsa_paper.figures import on_windows, windows_table
    from asa.lab.nsa_paper.windows import GEOMETRIES, epochs, recorded, workload

    made = PLACEMENT_METHODS.create(driver)
    windows = [recorded(each, GEOMETRIES["code"], made) for each in epochs(workload(path), 0, count)]
    return windows_table(on_windows(windows, PUBLISHED))


def main() -> None:
    parser = argparse.ArgumentParser(description="Placement methods: how good, and how quick.")
    parser.add_argument("folder", type=Path, help="windows and the authors' workload")
    parts = ("methods", "bounds", "models", "large", "published")
    parser.add_argument("--part", choices=parts, action="append", help="(all)")
    parser.add_argument("--geometry", choices=("code", "text"), action="append", help="of the windows (both)")
    parser.add_argument("--count", type=int, default=930, help="of windows, the first ones (930)")
    parser.add_argument("--models", type=int, default=10, help="windows that all models solve (10)")
    parser.add_argument("--epochs", type=int, default=10, help="of the authors' workload (10)")
    options = parser.parse_args()
    todo = options.part or parts
    for name in options.geometry or ("code", "text"):
        windows = read_windows(options.folder / f"tjap_{name}_cap5.json.gz")[: options.count]
        if "methods" in todo:
            show(f"Methods, geometry of the {name}", methods(windows))
        if "bounds" in todo:
            show(f"Bounds, geometry of the {name}", bounds(windows))
        if "models" in todo:
            show(f"Models of neighbours, geometry of the {name}", models(windows, options.models))
    if "large" in todo:
        show("Large windows", large(read_windows(options.folder / "tjap_large.json.gz")))
    if "published" in todo:
        for driver in DRIVERS:
            path = options.folder / "hpcschedule-workload-100k.txt.gz"
            show(f"As published, jobs placed by {driver}", published(path, options.epochs, driver))


if __name__ == "__main__":
    main()
