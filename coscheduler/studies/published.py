"""What the ASA_X paper printed: Tables 2 and 3."""

from __future__ import annotations

from typing import NamedTuple

RULES = {"slurm": "space", "static": "static", "asax": "asax"}
"""The paper's names of what we call otherwise, or not."""


class QueueFigures(NamedTuple):
    """A line of Table 3: times [h], CPU use [%]."""

    wait_h: float
    cpu: float
    response_h: float


class WorkflowFigures(NamedTuple):
    """A cell of Table 2: run time [h], CPU and memory use [%]."""

    run_time_h: float
    cpu: float
    memory: float


TABLE3 = {
    ("space", 64): QueueFigures(3.5, 53, 4.4),
    ("space", 128): QueueFigures(1.5, 45, 2.4),
    ("space", 256): QueueFigures(0.5, 32, 1.4),
    ("static", 64): QueueFigures(1.7, 90, 4.8),
    ("static", 128): QueueFigures(0.8, 92, 2.8),
    ("static", 256): QueueFigures(0.3, 89, 2.0),
    ("asax", 64): QueueFigures(1.8, 82, 3.5),
    ("asax", 128): QueueFigures(1.0, 84, 2.0),
    ("asax", 256): QueueFigures(0.3, 83, 0.9),
}
"""By rule and cores. Waits and responses of the paper are about twice those of a queue that is submitted at once."""

_TABLE2 = """\
64 montage 0.35 45 10 0.38 94 10 0.35 95 10
64 blast 0.71 96 44 0.82 99 44 0.75 99 44
64 statistics 0.69 26 5 0.77 51 6 0.73 61 5
64 synthetic 0.49 99 95 0.57 99 95 0.56 99 95
128 montage 0.32 33 7 0.35 73 7 0.33 75 7
128 blast 0.72 95 45 0.79 99 44 0.73 99 44
128 statistics 0.70 16 1 0.76 36 2 0.72 43 1
128 synthetic 0.50 99 93 0.57 99 93 0.55 99 93
256 montage 0.29 21 5 0.32 55 5 0.30 51 5
256 blast 0.70 91 42 0.80 99 43 0.76 99 43
256 statistics 0.72 10 1 0.76 26 1 0.73 86 1
256 synthetic 0.48 99 92 0.53 99 91 0.52 99 93"""


def _table2() -> dict[tuple[str, int, str], WorkflowFigures]:
    found = {}
    for line in _TABLE2.split("\n"):
        cores, workflow, *words = line.split()
        numbers = [float(word) for word in words]
        for place, rule in enumerate(RULES.values()):
            found[rule, int(cores), workflow] = WorkflowFigures(*numbers[3 * place : 3 * place + 3])
    return found


TABLE2 = _table2()
"""By rule, cores and workflow."""
