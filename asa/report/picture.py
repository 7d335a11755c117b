"""What all pictures have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.report.outputs import check_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_IN = 7.2
"""Two columns of most journals [in]."""

_MARKERS = "osD^vPX*<>"


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure of this size [in].

    Raises
    ------
    InvalidInput
        When matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def marker(position: int) -> str:
    """Shape of the points of the series at this position; they repeat after ten.

    >>> marker(0), marker(10)
    ('o', 'o')
    """
    return _MARKERS[position % len(_MARKERS)]
