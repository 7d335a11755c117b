"""``asa place``: nodes for the jobs of windows, near to one another in the network."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, table
from asa.core.errors import InvalidInput
from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.core.signals import ends_on_signals

if TYPE_CHECKING:
    from asa.lab.placement.tjap.instance import Placed, PlacementMethod, Window


SHOWN = 20
"""Windows that are shown to people; ``--json`` has all."""
ROUNDING = 1e-9
"""By what share a bound may be above a cost because numbers are rounded."""
BOUNDS = ("lagrangian", "dantzig-wolfe", "none")


class PlaceCommand:
    """Place all jobs of each window at once."""

    help = "choose nodes for the jobs of a window, so that each job's nodes are near to one another"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("windows", metavar="FILE.json", help="idle nodes and jobs, of one window or many; gzipped or not")
        methods = ", ".join(PLACEMENT_METHODS)
        add("--method", default="free", metavar="NAME[:OPTIONS]", help=f"one of {methods} (the default: free)")
        add("--topology", metavar="topology.conf", help="Slurm's switches; idle nodes are then called by their names")
        add("--hops", choices=("paper", "code"), help="how hops are counted there (the default: code)")
        worth = "what a pair of nodes that stay idle below one leaf switch is worth, in hops, and in one pod"
        add("--potential", type=_numbers, default=(), metavar="LEAF[,POD...]", help=f"{worth}, such as 0.07,0.007")
        bound = "a lower bound on the cost of all placements; none: the method's own only"
        add("--bound", choices=BOUNDS, help=f"{bound} (the default: the method's own, or else lagrangian)")
        add("--window", type=int, metavar="N", help="only this window of the file, counted from 0 (the default: all)")
        add("--plot", metavar="FILE", help="draw the first one: nodes in the colours of their jobs (.png, .pdf, .svg)")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        method = PLACEMENT_METHODS.create(options.method)
        from asa.report.outputs import check_picture

        if options.plot:
            check_picture("--plot", options.plot)
        windows = _windows(options)
        for window in windows:
            method.place(window)  # so that what is timed has been compiled, whatever a window needs
        placed = [_placed(method, window) for window in windows]
        rows = [
            {"window": number, **_row(window, found, seconds, options.bound)}
            for number, (window, (found, seconds)) in enumerate(zip(windows, placed, strict=True), options.window or 0)
        ]
        data = {"method": options.method, **_whole(rows), "rows": rows}
        if broken := [f"window {row['window']}: {each}" for row in rows for each in row["violations"]]:
            return CommandResult(data, "the placement breaks laws:\n" + "\n".join(broken[:SHOWN]), 1)
        if options.plot:
            _draw(options, windows, placed, rows)
        return CommandResult(data, _text(data))


def _numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(float(each) for each in text.split(","))


def _windows(options: argparse.Namespace) -> list[Window]:
    from asa.lab.placement.tjap.files import read_windows
    from asa.lab.placement.topology import CONVENTIONS, read_topology

    if options.hops and not options.topology:
        raise InvalidInput("--hops is for a --topology: a window without one has hops of its own")
    topology = read_topology(options.topology) if options.topology else None
    windows = read_windows(options.windows, topology, CONVENTIONS[options.hops or "code"])
    if (only := options.window) is not None:
        if not 0 <= only < len(windows):
            raise InvalidInput(f"--window {only}: {options.windows} has {len(windows)} windows, counted from 0")
        windows = windows[only : only + 1]
    return [replace(window, potential=options.potential) for window in windows]


def _placed(method: PlacementMethod, window: Window) -> tuple[Placed, float]:
    """A placement, and how long that took [s]."""
    began = time.perf_counter()
    found = method.place(window)
    return found, time.perf_counter() - began


def _row(window: Window, found: Placed, seconds: float, which: str | None) -> dict[str, Any]:
    """Of one window, by what is independent of the method that placed its jobs."""
    from asa.lab.placement.tjap.instance import cost, potential, violations

    broken = violations(window, found)
    paid = None if broken else cost(window, found)
    bound = None if broken else _bound(window, found, which)
    if paid is not None and bound is not None and bound > paid:
        if bound > paid * (1 + ROUNDING):
            broken = [f"it costs {paid:g}, less than the bound of {bound:g}"]
        bound = paid
    called = window.names or window.idle.tolist()
    jobs = [{"nodes": [called[place] for place in places.tolist()]} for places in found.places if not broken]
    row = {
        "idle": len(window.idle), "cost": paid, "bound": bound, "gap": _gap(paid, bound), "status": found.status,
        "seconds": seconds, "jobs": jobs, "violations": broken,
    }  # fmt: skip
    return row | ({"potential": potential(window, found)} if window.potential and not broken else {})


def _bound(window: Window, found: Placed, which: str | None) -> float | None:
    """The bound that is asked for; those that come from prices are computed anew from these."""
    from asa.lab.placement.tjap.bounds import priced_nodes
    from asa.lab.placement.tjap.instance import cost, proven

    if which == "dantzig-wolfe":
        from asa.lab.placement.tjap.bounds import dantzig_wolfe

        return proven(window, dantzig_wolfe(window, found)[1])
    if which == "lagrangian" or (which is None and found.bound is None):
        return proven(window, priced_nodes(window, cost(window, found))[1])
    return found.bound


def _gap(paid: float | None, bound: float | None) -> float | None:
    if paid is None or bound is None:
        return None
    return paid / bound - 1 if bound > 0 else 0.0 if paid == 0 else None


def _whole(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all windows: means, and the longest time."""
    costs, bounds = [row["cost"] for row in rows], [row["bound"] for row in rows]
    seconds = [row["seconds"] for row in rows]
    if not rows or None in costs:
        return dict.fromkeys(("mean_cost", "mean_bound", "gap", "mean_seconds", "max_seconds"))
    mean, bound = sum(costs) / len(rows), None if None in bounds else sum(bounds) / len(rows)
    times = {"mean_seconds": sum(seconds) / len(rows), "max_seconds": max(seconds)}
    return {"mean_cost": mean, "mean_bound": bound, "gap": _gap(mean, bound), **times}


def _draw(
    options: argparse.Namespace, windows: list[Window], placed: list[tuple[Placed, float]], rows: list[dict[str, Any]]
) -> None:
    from asa.lab.report.switches import save_placement

    if not windows:
        raise InvalidInput("there is no window to draw")
    title = f"{options.method}: {len(windows[0].sizes)} jobs, cost {rows[0]['cost']:,.0f}"
    save_placement(windows[0], placed[0][0], options.plot, title=title)


def _text(data: dict[str, Any]) -> str:
    rows = data["rows"]
    if not rows:
        return "no windows"
    shown = [
        {
            "window": row["window"], "jobs": len(row["jobs"]), "idle": row["idle"], "cost": row["cost"],
            "bound": row["bound"], "gap [%]": None if row["gap"] is None else 100 * row["gap"],
            "time [ms]": 1e3 * row["seconds"],
        }
        for row in rows[:SHOWN]
    ]  # fmt: skip
    more = f"\n... and {len(rows) - SHOWN} more: --json has all" if len(rows) > SHOWN else ""
    bound = "" if data["gap"] is None else f"; none is below {data['mean_bound']:.1f} (gap {data['gap']:.2%})"
    return (
        f"{data['method']}: {len(rows)} windows in {1e3 * data['mean_seconds']:.3g} ms each, "
        f"{1e3 * data['max_seconds']:.3g} ms at most\nmean cost {data['mean_cost']:.1f}{bound}\n\n"
        f"{table(shown, '')}{more}"
    )
