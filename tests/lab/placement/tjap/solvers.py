"""The best placement of neighbours by OR-Tools: the paper's own model, and intervals on a line."""

from __future__ import annotations

import numpy as np
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from asa.lab.placement.tjap.instance import Window
from tests.lab.placement.tjap.windows import stretch, stretch_costs


def paper_model(window: Window, name: str = "SCIP") -> float:
    """The model of the paper's section IV, (2) to (5), with x for nodes and y for first nodes.

    As printed, it lets two jobs have one node; its authors' code has this law, too.
    """
    solver = pywraplp.Solver.CreateSolver(name)
    costs, nodes, jobs = stretch_costs(window), len(window.idle), len(window.sizes)
    x = [[solver.BoolVar("") for _ in range(nodes)] for _ in range(jobs)]
    y = [[solver.BoolVar("") for _ in range(nodes)] for _ in range(jobs)]
    for job, size in enumerate(window.sizes.tolist()):
        solver.Add(sum(y[job]) == 1)
        for at in range(nodes):
            for place in stretch(window, at, size).tolist():
                solver.Add(y[job][at] <= x[job][place])
    for place in range(nodes):
        solver.Add(sum(x[job][place] for job in range(jobs)) <= 1)
    solver.Minimize(sum(float(costs[job, at]) * y[job][at] for job in range(jobs) for at in range(nodes)))
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(solver.Objective().Value())


def intervals(window: Window, scale: int = 10**4) -> float:
    """Intervals that do not overlap, once around and once more, by CP-SAT; costs are rounded to 1 / `scale`."""
    model, nodes = cp_model.CpModel(), len(window.idle)
    costs = np.rint(stretch_costs(window) * scale).astype(np.int64)
    spans, paid = [], []
    for job, size in enumerate(window.sizes.tolist()):
        start, cost = model.new_int_var(0, nodes - 1, ""), model.new_int_var(0, int(costs[job].max()), "")
        model.add_element(start, costs[job].tolist(), cost)
        spans.append(model.new_fixed_size_interval_var(start, size, ""))
        spans.append(model.new_fixed_size_interval_var(start + nodes, size, ""))
        paid.append(cost)
    model.add_no_overlap(spans)
    model.minimize(sum(paid))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value / scale
