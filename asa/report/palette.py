"""Colours that colour-blind readers can tell apart, on white and on dark ground.

The nine stage colours on white are Paul Tol's scheme "muted". Those on dark ground have about the same hues;
lightness and saturation were searched so that any two stay well apart (26 or more in CIELAB, for normal, red-blind and
green-blind sight as simulated by Machado et al. 2009) and each has a contrast of at least 3 to the ground.
"""

LIGHT = ("#332288", "#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499")
DARK = ("#8b4ae4", "#29b6ff", "#d1efe6", "#4af77d", "#d7d219", "#92832a", "#ef818c", "#904e6c", "#a144a1")

BUSY, IDLE = "#8fbbe3", "#f0c27b"
"""Cores in use; what waits, or is held and not used."""
LINE, GRID = "#5d6570", "#d9dce1"
"""Lines and words beside the data; lines of the grid."""
BAD = "#b3261e"
"""What failed, and the worst."""

_TELLING = (0, 6, 2, 5, 1, 7, 3, 8, 4)  # of the stage colours, so that a few are told apart best


def stage_colour(position: int) -> str:
    """Colour of the stage at this position of the workflow, on white; they repeat after nine.

    >>> stage_colour(0), stage_colour(9)
    ('#332288', '#332288')
    """
    return LIGHT[position % len(LIGHT)]


def series_colour(position: int) -> str:
    """Colour of what is compared, at this position, on white: neighbours differ most; they repeat after nine.

    >>> series_colour(0), series_colour(1), series_colour(9)
    ('#332288', '#cc6677', '#332288')
    """
    return LIGHT[_TELLING[position % len(_TELLING)]]
