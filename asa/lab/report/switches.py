"""Where the jobs of a window are in the network: switches as bars over what is below them, nodes coloured by job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asa.core.arrays import Ints
from asa.core.errors import InvalidInput
from asa.lab.placement.tjap.instance import Placed, Window
from asa.report.picture import DPI, GRID, LIGHT, LINE, TITLE_PT, WIDTH_IN, charts, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NODES_MOST = 4000
"""Idle nodes that a picture has room for."""
JOBS_NAMED = 27
"""Jobs that the key names, the first ones."""

_ROW = 60  # leaf switches side by side, unless one switch below the root has more
_KEYS = 6  # side by side
_SIDE, _BAR, _LEVEL = 0.86, 0.45, 0.75  # of a node, of a switch, and from level to level; a leaf switch is 1 wide
_HATCHES = ("", "//////", "......", "xxxxxx")  # of the first nine jobs, of the next nine, ...


def save_placement(window: Window, found: Placed, path: str | Path, *, title: str = "", dpi: int = DPI) -> None:
    """Draw a placement to a PNG, PDF or SVG file, as the name ends; see `placement_figure`."""
    save_figure(placement_figure(window, found, title), path, dpi=dpi)


def placement_figure(window: Window, found: Placed, title: str = "") -> Figure:
    """The idle nodes below their switches, each in the colour of its job. Nodes that are not idle are left out.

    Raises
    ------
    InvalidInput
        When matplotlib is not installed, or there are no idle nodes or more than `NODES_MOST`.
    """
    if not 1 <= len(window.idle) <= NODES_MOST:
        raise InvalidInput(f"a picture of a placement shows 1 to {NODES_MOST} idle nodes, not {len(window.idle)}")
    groups = window.tables.groups
    owner = np.full(len(window.idle), -1, dtype=np.int64)
    for job, places in enumerate(found.places):
        owner[places] = job
    rows = _rows(groups)
    wide = max(int(groups[0, row[-1]] - groups[0, row[0]]) + 1 for row in rows)
    heights = [_LEVEL * len(groups) + int(np.bincount(groups[0, row]).max()) + 0.5 for row in rows]
    named = [*range(min(len(found.places), JOBS_NAMED)), *([-1] if (owner < 0).any() else [])]
    inches = min(0.16, WIDTH_IN / (wide + 1))
    made = new_figure(WIDTH_IN, inches * sum(heights) + 0.18 * -(-len(named) // _KEYS) + 0.6)
    from matplotlib.patches import Patch

    for axes, row in zip(charts(made, len(rows), grid="", height_ratios=heights), rows, strict=True):
        _draw_row(axes, groups[:, row], owner[row], wide)
    keys = [Patch(label=_words(window, job), **_look(job)) for job in named]
    made.legend(handles=keys, loc="outside lower center", ncols=_KEYS, fontsize=6.5, frameon=False, handlelength=1.2)
    made.suptitle(title, fontsize=TITLE_PT, parse_math=False)
    return made


def _rows(groups: Ints) -> list[Ints]:
    """Places of the idle nodes of each row of the picture: switches below the root, as many as have room."""
    rows: list[Ints] = []
    wide = 0
    for switch in range(int(groups[-2, -1]) + 1):
        mine = np.flatnonzero(groups[-2] == switch)
        leaves = len(np.unique(groups[0, mine]))
        if not rows or wide + leaves > _ROW:
            rows.append(mine)
            wide = leaves
        else:
            rows[-1] = np.append(rows[-1], mine)
            wide += leaves
    return rows


def _draw_row(axes: Axes, groups: Ints, owner: Ints, wide: int) -> None:
    """Bars of switches, the root's on top, and nodes below the leaf switches' bars."""
    from matplotlib.patches import Rectangle

    leaf, edge = groups[0] - groups[0, 0], (1 - _SIDE) / 2
    for level, numbers in enumerate(groups):
        for switch in np.unique(numbers):
            below = leaf[numbers == switch]
            corner = float(below.min()) + edge, _LEVEL * level + edge
            axes.add_patch(Rectangle(corner, float(np.ptp(below)) + _SIDE, _BAR, color=LINE, linewidth=0))
    filled = np.zeros(int(leaf[-1]) + 1)
    for column, job in zip(leaf.tolist(), owner.tolist(), strict=True):
        filled[column] += 1
        axes.add_patch(Rectangle((column + edge, -float(filled[column])), _SIDE, _SIDE, **_look(job)))
    axes.set(xlim=(-edge, wide + edge), ylim=(-filled.max() - edge, _LEVEL * len(groups)), aspect="equal")
    axes.axis("off")


def _look(job: int) -> dict[str, Any]:
    """How nodes of a job are filled; of no job, below 0."""
    if job < 0:
        return {"facecolor": "white", "edgecolor": GRID, "linewidth": 0.6}
    hatch = _HATCHES[job // len(LIGHT) % len(_HATCHES)]
    return {"facecolor": LIGHT[job % len(LIGHT)], "edgecolor": "white", "linewidth": 0, "hatch": hatch}


def _words(window: Window, job: int) -> str:
    if job < 0:
        return "stay idle"
    size = int(window.sizes[job])
    return f"job {job}: {size} node{'s' * (size > 1)}"
