"""The paper's four trees, one per metric.

The paper shows one of them and no numbers but its thresholds; the centres of the leaves are a reading of its words: a
busy or unhappy job gives nothing, an idle and happy one most of what it leaves idle.
"""

from __future__ import annotations

import numpy as np

from asa.core.arrays import Floats
from coscheduler.experts.simplex import bump
from coscheduler.experts.tree import Tree

HAPPY_CUTS = (1.0, 1.1)
_MOODS = np.array([0.0, 0.5, 1.0])  # of what a happy job gives, an unhappy one and one near 1 give this much


def cpu() -> Tree:
    """A happy job gives what it leaves idle, less 5 %; in steps of 10 %."""
    cuts = np.arange(1, 10) / 10
    return _tree("cpu", cuts, np.maximum(0.0, 1 - (np.arange(10) / 10 + 0.05) - 0.05))


def memory() -> Tree:
    """Nothing above 75 % of the memory, 30 % above 40 %, else 50 %."""
    return _tree("memory", np.array([0.4, 0.75]), np.array([0.5, 0.3, 0.0]))


def stage() -> Tree:
    """70 % in a sequential stage, 20 % in a parallel one."""
    return _tree("parallel", np.array([0.5]), np.array([0.7, 0.2]))


def elapsed() -> Tree:
    """20, 30, 40 and 60 % in the four quarters of the wall time."""
    return _tree("elapsed", np.array([0.25, 0.5, 0.75]), np.array([0.2, 0.3, 0.4, 0.6]))


def _tree(metric: str, cuts: Floats, centres: Floats) -> Tree:
    return Tree(metric, cuts, np.array(HAPPY_CUTS), bump(centres[:, None] * _MOODS))
