"""Neural simulated annealing against annealing without a network, at equal time, over paired epochs.

    python benchmarks/nsa.py [--epochs 10] [--iterations 30,100,300,1000] [--geometry code] [--options tries=4]

Epochs have 100 windows on the paper's workload, with other seeds than those learned from; annealing with 1000 moves
drives the machine, and every method places the jobs of the same windows. For each number of moves of `nsa`, `sa`, and
`nsa` that draws places without its network, get as many as take them as long: found on two epochs that are not
counted. Differences are of an epoch's cost, with an interval at 95 % over epochs (bootstrap). Beside them exact
insertion (`dcas-alns`), and the best neighbours (`scas`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from measure import show

from asa.lab.core.registry import PLACEMENT_METHODS
from asa.lab.nsa_paper.windows import epoch
from asa.lab.placement.tjap.instance import PlacementMethod, Window, cost, violations
from asa.lab.study import Floats, estimate

SEED = 10_000
"""Of the first epoch; those learned from have seeds of 32 random bits."""


def costs_and_time(method: PlacementMethod, epochs: Sequence[Sequence[Window]]) -> tuple[Floats, float]:
    """Mean cost of the windows of each epoch, and mean time of a window [s]."""
    for window in epochs[0][:3]:
        method.place(window)  # compiles
    costs, seconds = [], 0.0
    for windows in epochs:
        began = time.thread_time()
        found = [method.place(window) for window in windows]
        seconds += time.thread_time() - began
        assert not any(violations(*both) for both in zip(windows, found, strict=True))
        costs.append(np.mean([cost(*both) for both in zip(windows, found, strict=True)]))
    return np.array(costs), seconds / sum(len(windows) for windows in epochs)


def moves_in(seconds: float, spec: str, epochs: Sequence[Sequence[Window]]) -> int:
    """How many moves this method makes in so long."""
    few, many = (costs_and_time(PLACEMENT_METHODS.create(f"{spec}iterations={n}"), epochs)[1] for n in (100, 1100))
    return max(1, round(100 + 1000 * (seconds - few) / (many - few)))


def difference(mine: Floats, theirs: Floats) -> str:
    """By how many per cent one costs more than the other, with its interval over epochs."""
    both = np.stack([mine, theirs], axis=1)
    return str(estimate(lambda rows: 100 * (rows[..., 0].sum(-1) / rows[..., 1].sum(-1) - 1), both))


def main() -> None:
    parser = argparse.ArgumentParser(description="nsa against sa, at equal time.")
    parser.add_argument("--epochs", type=int, default=10, help="how many are counted (10)")
    parser.add_argument("--iterations", default="30,100,300,1000", help="moves of nsa (30,100,300,1000)")
    parser.add_argument("--geometry", default="code", help="code or text (code)")
    parser.add_argument("--options", default="tries=4", help="more options of nsa (tries=4)")
    options = parser.parse_args()
    driver = PLACEMENT_METHODS.create("sa:iterations=1000")
    seeds = range(SEED, SEED + options.epochs + 2)
    every = [list(epoch(driver, seed=seed, geometry=options.geometry)) for seed in seeds]
    tuned, counted = every[:2], every[2:]
    best, spent = costs_and_time(PLACEMENT_METHODS.create("scas"), counted)
    rows = [{"method": "scas", "cost": best.mean(), "time [ms]": 1e3 * spent}]
    exact, spent = costs_and_time(PLACEMENT_METHODS.create("dcas-alns:iterations=100"), counted)
    above = difference(exact, best)
    rows.append({"method": "dcas-alns-100", "cost": exact.mean(), "time [ms]": 1e3 * spent, "above scas [%]": above})
    for moves in map(int, options.iterations.split(",")):
        spec = f"nsa:{options.options},iterations={moves}"
        mine, spent = costs_and_time(PLACEMENT_METHODS.create(spec), counted)
        rows.append(
            {"method": spec, "cost": mine.mean(), "time [ms]": 1e3 * spent, "above scas [%]": difference(mine, best)}
        )
        budget = costs_and_time(PLACEMENT_METHODS.create(spec), tuned)[1]
        for other in ("sa:", f"nsa:{options.options},model=none,"):
            same = f"{other}iterations={moves_in(budget, other, tuned)}"
            theirs, spent = costs_and_time(PLACEMENT_METHODS.create(same), counted)
            row = {
                "method": same,
                "cost": theirs.mean(),
                "time [ms]": 1e3 * spent,
                "above scas [%]": difference(theirs, best),
            }
            rows.append(row | {"nsa above it [%]": difference(mine, theirs)})
    show(f"nsa and sa at equal time, {options.geometry} geometry, {options.epochs} epochs", rows)


if __name__ == "__main__":
    main()
