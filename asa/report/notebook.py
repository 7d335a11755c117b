"""Runs and workflows as a notebook shows them: HTML and SVG in the colours of the page around them.

Nothing is loaded and no script runs; every text of a run is escaped. What lives is replaced as a whole, through the
display handles that every front end of Jupyter has."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Self, TypeVar

from asa.core.event import Event, TasksDone
from asa.core.run import FoldedRun
from asa.core.units import brief
from asa.metrics.workflow import RunSummary, html_table, summary
from asa.report.progress import stage_lines, stages_shown, standing
from asa.report.words import shortened

K = TypeVar("K", bound=Hashable)

BAR, BARS = "#3b82c4", {"done": "#2e9e4f", "failed": "#d64545", "skipped": "#d64545"}
"""Colours of bars, and of those of stages in some states. They are seen on white and on black."""

DRAWN_MOST = 150
"""Stages in a drawn graph; more are a list."""

_WIDTH, _HEIGHT, _RIGHT, _DOWN, _LETTERS = 132, 38, 52, 14, 17


def notebook() -> Any | None:
    """IPython's shell where its front end shows HTML, as in Jupyter; None elsewhere. Loads nothing."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None


def progress_html(run: RunSummary) -> str:
    """How a run stands: a bar for each stage, and a line about the whole."""
    lines = stages_shown(stage_lines(run))
    rows = []
    for line in lines:
        share = 100 * line.done / line.tasks if line.tasks else 0
        look = f"width:{share:.0f}%;height:100%;border-radius:2px;background:{BARS.get(line.state, BAR)}"
        bar = (
            '<div style="width:9em;height:.7em;background:rgba(127,127,127,.3);border-radius:2px">'
            f'<div style="{look}"></div></div>'
        )
        rows.append(
            [
                escape(line.name),
                bar,
                f"{line.done:,}/{'?' if line.tasks is None else format(line.tasks, ',')}",
                f"{line.running:,} under way" if line.running else "",
                escape(line.state),
                "" if line.wait_s is None else f"waited {brief(line.wait_s)}",
                escape(line.note),
            ]
        )
    return html_table((), rows, escape(standing(run, len(run.stages) - len(lines))))


class NotebookDisplay:
    """Shows a run's stages in a notebook, fed with its events as they come: as `ProgressDisplay` does in a terminal."""

    def __init__(self) -> None:
        self._run = FoldedRun()
        self._shown: RunSummary | None = None
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """What was shown last stays."""

    def update(self, events: Iterable[Event | TasksDone], now: float) -> None:
        for event in events:
            self._run.on(event)
        if self._run.start is None:
            return
        self._shown = summary(self._run, now)
        if self._handle is None:
            self._handle = sys.modules["IPython"].display.display(self, display_id=True)
        else:
            self._handle.update(self)

    def _repr_html_(self) -> str | None:
        return None if self._shown is None else progress_html(self._shown)

    def __repr__(self) -> str:
        return "" if self._shown is None else standing(self._shown)


def graph_svg(nodes: Mapping[K, tuple[str, bool]], edges: Sequence[tuple[K, K]]) -> str | None:
    """A workflow from left to right; None where it cannot be drawn, because it is too large or has a cycle.

    Parameters
    ----------
    nodes
        What is written on each, in lines, and whether it is a parallel stage, which is drawn as a stack.
    edges
        From which node to which.
    """
    ranks = _ranks(nodes, edges) if len(nodes) <= DRAWN_MOST else None
    if not ranks:
        return None
    columns, paths = _columns(ranks, edges)
    places = {
        item: (column * (_WIDTH + _RIGHT) + 6, row * (_HEIGHT + _DOWN) + 6)
        for column, items in enumerate(columns)
        for row, item in enumerate(items)
    }
    shapes, half = [], _HEIGHT // 2
    for path in paths:  # curves between columns, straight through those that it only passes
        (x, y), *others = [places[item] for item in path]
        line = f"M{x + _WIDTH} {y + half}"
        for left, right in pairwise([(x, y), *others]):
            middle = (left[0] + _WIDTH + right[0]) // 2
            curve = f"{middle} {left[1] + half} {middle} {right[1] + half} {right[0]} {right[1] + half}"
            line += f"H{left[0] + _WIDTH}C{curve}"
        shapes.append(f'<path d="{line}" fill="none" stroke="currentColor" stroke-opacity=".45"/>')
    for key, (label, mapped) in nodes.items():
        (x, y), lines = places[key], label.splitlines()
        frame = f'width="{_WIDTH}" height="{_HEIGHT}" rx="5" stroke="currentColor" fill="#8b9dc3" fill-opacity=".22"'
        behind = f'<rect x="{x + 4}" y="{y + 4}" {frame}/>' if mapped else ""
        words = "".join(
            f'<tspan x="{x + _WIDTH / 2:g}" y="{y + _HEIGHT / 2 + 4 + 15 * (number - (len(lines) - 1) / 2):g}">'
            f"{escape(shortened(line, _LETTERS))}</tspan>"
            for number, line in enumerate(lines)
        )
        shapes.append(
            f'<g><title>{escape(label)}</title>{behind}<rect x="{x}" y="{y}" {frame}/>'
            f'<text text-anchor="middle" font-size="12" fill="currentColor">{words}</text></g>'
        )
    width = len(columns) * (_WIDTH + _RIGHT) - _RIGHT + 16
    height = max(map(len, columns)) * (_HEIGHT + _DOWN) - _DOWN + 16
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="max-width:100%;height:auto;color:inherit" role="img" font-family="sans-serif">{"".join(shapes)}</svg>'
    )


def _ranks(nodes: Iterable[K], edges: Sequence[tuple[K, K]]) -> dict[K, int] | None:
    """The column of each node: after all that it waits for. None where there is a cycle."""
    before = dict.fromkeys(nodes, 0)
    after: dict[K, list[K]] = {node: [] for node in before}
    for first, second in edges:
        before[second] += 1
        after[first].append(second)
    ranks = {node: 0 for node, count in before.items() if not count}
    free = list(ranks)
    for node in free:
        for other in after[node]:
            ranks[other] = max(ranks.get(other, 0), ranks[node] + 1)
            before[other] -= 1
            if not before[other]:
                free.append(other)
    return ranks if len(free) == len(before) else None


def _columns(ranks: Mapping[K, int], edges: Sequence[tuple[K, K]]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Columns from top to bottom, with a place in each that an edge passes, and the way that each edge takes."""
    columns: list[list[Any]] = [[] for _ in range(max(ranks.values()) + 1)]
    for node, rank in ranks.items():
        columns[rank].append(node)
    paths = []
    for number, (first, second) in enumerate(edges):
        passed = [("passes", number, rank) for rank in range(ranks[first] + 1, ranks[second])]
        for item in passed:
            columns[item[2]].append(item)
        paths.append([first, *passed, second])
    beside: dict[Any, list[Any]] = {}
    for path in paths:
        for left, right in pairwise(path):
            beside.setdefault(right, []).append(left)
    for column, items in enumerate(columns[1:], 1):  # each near the middle of what leads to it
        rows = {item: row for row, item in enumerate(columns[column - 1])}
        items.sort(key=lambda item: sum(rows[each] for each in beside[item]) / len(beside[item]))
    return columns, paths
