"""Compare a mosaic with the sky its tiles were made of.

    python check.py mosaic.fits truth.json [--golden golden.json]

Stars must be where they are, and as bright; what is left when they and the nebula are taken away must be
level. A plane is taken off first: matching backgrounds fixes the tiles against one another, not the mosaic
against the sky.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from fits import Array, Projection, read_image
from make_data import SCALE, SEEING, Sky

REACH = 10  # half the side of the square a star is measured in [pixels]
APART = 2.5 * REACH  # a star is measured if no other is closer [pixels]
BRIGHT = 2000.0  # and if its flux is at least this
BLOCK = 40  # side of the squares whose mean tells how level the background is [pixels]


@dataclass(frozen=True)
class Figures:
    """How good a mosaic is.

    Attributes
    ----------
    width, height
        Its size [pixels].
    stars
        How many bright, single stars were measured.
    position_error
        Root mean square distance from their true places [pixels].
    flux_error
        Median relative error of their fluxes.
    noise
        Standard deviation of neighbouring background pixels from their common mean.
    unevenness
        Standard deviation of the background's level from place to place.
    """

    width: int
    height: int
    stars: int
    position_error: float
    flux_error: float
    noise: float
    unevenness: float

    def problems(self, golden: Figures) -> list[str]:
        """Return what is worse than in the golden figures by more than installations of Montage differ."""
        problems = []
        for name, slack in {"width": 1, "height": 1, "stars": 1}.items():
            mine, expected = getattr(self, name), getattr(golden, name)
            if abs(mine - expected) > slack:
                problems.append(f"{name} is {mine}, expected {expected} within {slack}")
        for name in ("position_error", "flux_error", "noise", "unevenness"):
            mine, most = getattr(self, name), 1.2 * getattr(golden, name)
            if not mine <= most:
                problems.append(f"{name} is {mine:.4g}, expected at most {most:.4g}")
        return problems


def measure(mosaic: Path, sky: Sky) -> Figures:
    """Measure a mosaic against the sky.

    Raises
    ------
    ValueError
        If it is not a FITS image in the projection TAN, or shows none of the stars.
    """
    header, pixels = read_image(mosaic)
    look = Projection.of(header)
    height, width = pixels.shape
    y, x = np.mgrid[1 : height + 1, 1 : width + 1].astype(float)
    left = pixels - sky.nebula(*look.sky(x, y))
    stars = np.array(sky.stars)
    places = np.column_stack(look.pixel(stars[:, 0], stars[:, 1]))
    brightening = SCALE**2 / look.pixel_area  # a mosaic keeps brightness by area, a flux is a sum over pixels

    distances, ratios = [], []
    for number, (place, flux) in enumerate(zip(places, stars[:, 2], strict=True)):
        others = np.delete(places, number, axis=0)
        if flux < BRIGHT or np.hypot(*(others - place).T).min(initial=np.inf) < APART:
            continue
        found = centroid(left, place)
        if found is not None:
            seen, sum_ = found
            distances.append(np.hypot(*(seen - place)))
            ratios.append(sum_ / (flux * brightening))
    if not distances:
        raise ValueError(f"none of the {len(stars)} stars of the truth is in {mosaic}")

    for place_x, place_y in places:
        left[around(place_y, height), around(place_x, width)] = np.nan
    noise, unevenness = background(left, x, y)
    return Figures(
        width,
        height,
        len(distances),
        float(np.sqrt(np.mean(np.square(distances)))),
        float(np.median(np.abs(np.array(ratios) - 1))),
        noise,
        unevenness,
    )


def around(middle: float, size: int) -> slice:
    """Return the part of an axis within reach of a pixel coordinate, which counts from 1."""
    nearest = round(middle) - 1
    return slice(max(nearest - REACH, 0), max(min(nearest + REACH + 1, size), 0))


def centroid(pixels: Array, place: Array) -> tuple[Array, float] | None:
    """Return centre and flux of the star near a place, above the level around it; None at or over an edge."""
    height, width = pixels.shape
    rows, columns = around(place[1], height), around(place[0], width)
    stamp = pixels[rows, columns]
    if stamp.shape != (2 * REACH + 1, 2 * REACH + 1) or np.isnan(stamp).any():
        return None
    y, x = np.mgrid[rows, columns] + 1.0
    away = np.hypot(x - place[0], y - place[1])
    star = stamp - np.median(stamp[away > 5 * SEEING])
    near = away < 4 * SEEING
    flux = float(star[near].sum())
    return np.array([(star * x)[near].sum(), (star * y)[near].sum()]) / flux, flux


def background(left: Array, x: Array, y: Array) -> tuple[float, float]:
    """Return noise and unevenness of what is left of a mosaic, shape (height, width) like its coordinates."""
    known = ~np.isnan(left)
    plane = np.column_stack([x[known], y[known], np.ones(known.sum())])
    level = left.copy()
    level[known] -= plane @ np.linalg.lstsq(plane, left[known], rcond=None)[0]
    height, width = (size // BLOCK * BLOCK for size in left.shape)
    squares = level[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK).swapaxes(1, 2)
    blocks = squares.reshape(-1, BLOCK * BLOCK)
    blocks = blocks[np.isnan(blocks).mean(axis=1) < 0.5]
    return float(np.median(np.nanstd(blocks, axis=1))), float(np.std(np.nanmean(blocks, axis=1)))


def main() -> int:
    """Print the figures of a mosaic; return 1 if they are worse than the golden ones."""
    parser = argparse.ArgumentParser(description="Compare a mosaic with the sky its tiles were made of.")
    parser.add_argument("mosaic", type=Path)
    parser.add_argument("truth", type=Path, help="truth.json beside the tiles")
    parser.add_argument("--golden", type=Path, help="figures that it must reach")
    options = parser.parse_args()
    try:
        figures = measure(options.mosaic, Sky.load(options.truth))
        golden = Figures(**json.loads(options.golden.read_text())) if options.golden else figures
    except (OSError, ValueError, TypeError, KeyError) as error:
        parser.error(str(error))
    print(json.dumps(asdict(figures), indent=1))
    problems = figures.problems(golden)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
