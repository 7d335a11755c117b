"""OR-Tools' CP-SAT: imported when a plan is made, and stopped in time."""

from __future__ import annotations

import importlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from asa.core.errors import InvalidInput

_TIMELESS = ("graph_arc_lns", "fj", "fj_lin", "ls", "ls_lin")
"""Parts of CP-SAT 9.15 that forget the time limit over PCP'20's boxes: a neighbourhood, or a jump, takes minutes."""


class TimeOver(Exception):
    """There is no time left to build a model."""


class SolverBudget:
    """Time that building and solving have together."""

    def __init__(self, seconds: float) -> None:
        self._until = time.perf_counter() + seconds

    @property
    def left(self) -> float:
        """Time that is left [s], at least 0."""
        return max(0.0, self._until - time.perf_counter())

    def check(self) -> None:
        """Raise `TimeOver` when there is none left."""
        if not self.left:
            raise TimeOver


def cp_sat() -> Any:
    """The module of CP-SAT.

    Raises
    ------
    InvalidInput
        When OR-Tools is not installed, or cannot be loaded beside HiGHS, whose symbols it brings in another version.
    """
    if "highspy" in sys.modules:
        raise InvalidInput("ortools and highspy cannot be loaded into one process: plan in another one")
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise InvalidInput("planning by constraints needs ortools: pip install 'asa-hpc[cp]'") from error


@dataclass(frozen=True)
class Effort:
    """How the solver works."""

    workers: int
    seed: int


@dataclass(frozen=True)
class SolverOutcome:
    """What the solver has come to.

    Parameters
    ----------
    complete
        Whether the search is: the solution is the best one, or there is none.
    bound
        No solution of the model costs less.
    """

    found: bool
    complete: bool
    bound: float
    seconds: float
    solver: Any

    def value(self, variable: Any) -> int:
        return int(self.solver.value(variable))


def run(model: Any, budget: SolverBudget, effort: Effort, *, ordered: bool = False) -> SolverOutcome:
    """Solve a model in what is left of the time; `ordered`: by the decision strategies that it has.

    Raises
    ------
    TimeOver
        When there is none left.
    InvalidInput
        When the solver refuses the model: it counts in 64 bits, and the amounts are too large for that.
    """
    budget.check()
    module = cp_sat()
    solver = module.CpSolver()
    given = solver.parameters
    given.max_time_in_seconds = budget.left
    given.num_workers, given.random_seed = effort.workers, effort.seed
    given.cp_model_probing_level = 0  # takes seconds on a thousand nodes, and gains nothing on sixty
    given.symmetry_level = 0  # CP-SAT 9.15 loses a variable of some models when it looks for symmetry (IndexError)
    given.ignore_subsolvers.extend(_TIMELESS)
    if ordered and effort.workers == 1:
        given.search_branching = module.FIXED_SEARCH
    elif ordered:
        given.subsolvers.extend(["fixed", "default_lp"])  # as many of these, in this order, as there are threads
    began = time.perf_counter()
    status = solve_interruptibly(solver, model)
    seconds = time.perf_counter() - began
    if status == module.MODEL_INVALID:
        raise InvalidInput(f"the solver refuses this queue, give amounts in larger units: {model.validate()}")
    found, complete = status in (module.OPTIMAL, module.FEASIBLE), status in (module.OPTIMAL, module.INFEASIBLE)
    return SolverOutcome(found, complete, float(solver.best_objective_bound), seconds, solver)


def solve_interruptibly(solver: Any, model: Any) -> Any:
    """Solve in a thread, so that Ctrl-C reaches this one, as it would reach any other program, and stops the search."""
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(1) as pool:
        solving = pool.submit(solver.solve, model)
        try:
            return solving.result()
        except BaseException:
            solver.stop_search()
            raise
