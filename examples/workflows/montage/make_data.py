"""Make FITS tiles of a sky that is known exactly, for the Montage workflow and its check.

The sky is Gaussian stars on a smooth nebula. Each tile looks at its own part of it, overlapping its
neighbours, a little rotated and off the regular grid, and adds noise and a background plane of its own, as
the sky's glow and the detector do: unmatched, the tiles show as a chequerboard in the mosaic.

    python make_data.py --tiles 3x3 --size 400 --seed 1 --out tiles

writes ``tile_0_0.fits`` ... and ``truth.json``. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from fits import Array, Projection, write_image

SCALE = 1 / 3600  # a pixel of 2MASS's Atlas images [deg]
CENTRE = 83.82, -5.39  # Orion, as good as anywhere [deg]
SEEING = 1.8  # standard deviation of a star's image [pixels]
PITCH = 0.85  # between the centres of neighbouring tiles, as a share of a tile's side
TURN = 1.0  # tiles are turned by up to this angle [deg]
DRIFT = 0.02  # and off the grid by up to this share of their side
PIXELS_PER_STAR = 5000
FAINTEST, BRIGHTEST = 500.0, 50_000.0
LEVEL, LEVEL_SPREAD, SLOPE_SPREAD = 120.0, 20.0, 10.0  # of the tiles' background planes


@dataclass(frozen=True)
class Tile:
    """Where a tile looks and what it adds to the sky.

    Attributes
    ----------
    name
        Of its file.
    x, y
        Its centre in the plane of the whole sky [pixels].
    turn
        Its rotation [deg].
    level, slope_x, slope_y
        Its background: at the centre, and the rise from there to the edges.
    """

    name: str
    x: float
    y: float
    turn: float
    level: float
    slope_x: float
    slope_y: float


@dataclass(frozen=True)
class Sky:
    """The truth that a mosaic is compared with.

    Attributes
    ----------
    noise
        Standard deviation of a tile's pixel.
    stars
        Right ascension, declination [deg] and flux of each.
    clouds
        Gaussians of the nebula: centre x, y and width [pixels] in the plane of the whole sky, and height.
    tiles
        What was cut out of it.
    """

    noise: float
    stars: list[list[float]]
    clouds: list[list[float]]
    tiles: list[Tile]

    def nebula(self, ra: Array, dec: Array) -> Array:
        """Return the brightness of the nebula at positions [deg] of any one shape."""
        x, y = plane().pixel(ra, dec)
        bright = np.zeros_like(x)
        for centre_x, centre_y, width, height in self.clouds:
            bright += height * np.exp(-((x - centre_x) ** 2 + (y - centre_y) ** 2) / (2 * width**2))
        return bright

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Sky:
        """Read what `save` wrote."""
        record = json.loads(path.read_text())
        return Sky(**record | {"tiles": [Tile(**tile) for tile in record["tiles"]]})


def plane() -> Projection:
    """Return the plane in which the sky is laid out, its origin at the field's centre."""
    return Projection.rotated(*CENTRE, 0.0, 0.0, scale=SCALE, angle=0.0)


def imagine(columns: int, rows: int, size: int, seed: int, noise: float = 1.0) -> Sky:
    """Draw a sky and the tiles that look at it.

    Parameters
    ----------
    columns, rows
        Tiles across and up, at least 1 each.
    size
        Pixels along a tile's side, at least 64.
    seed
        The same seed draws the same sky.
    noise
        Standard deviation of a pixel, at least 0.

    Raises
    ------
    ValueError
        If a size or count is too small.
    """
    if columns < 1 or rows < 1 or size < 64 or noise < 0:
        raise ValueError(
            "expected tiles of at least 1x1, a size of at least 64 and noise of at least 0, "
            f"not {columns}x{rows}, {size} and {noise}"
        )
    rng = np.random.default_rng(seed)
    tiles = []
    for row in range(rows):
        for column in range(columns):
            x, y = np.array([column - (columns - 1) / 2, row - (rows - 1) / 2]) * PITCH * size
            x, y = np.array([x, y]) + rng.uniform(-DRIFT, DRIFT, 2) * size
            turn, level, *slopes = rng.uniform(-1, 1, 4) * [TURN, LEVEL_SPREAD, SLOPE_SPREAD, SLOPE_SPREAD]
            tiles.append(Tile(f"tile_{row}_{column}.fits", x, y, turn, LEVEL + level, *slopes))
    width, height = (np.array([columns - 1, rows - 1]) * PITCH + 1) * size
    count = round(width * height / PIXELS_PER_STAR)
    x, y = (rng.uniform(-side / 2, side / 2, count) for side in (width, height))
    ra, dec = plane().sky(x, y)
    flux = np.exp(rng.uniform(np.log(FAINTEST), np.log(BRIGHTEST), count))
    low, high = [-0.35, -0.35, 0.06, 5.0], [0.35, 0.35, 0.2, 25.0]  # of a cloud's place, width and height
    clouds = rng.uniform(low, high, (5, 4)) * [width, height, min(width, height), 1.0]
    return Sky(noise, np.column_stack([ra, dec, flux]).tolist(), clouds.tolist(), tiles)


def expose(sky: Sky, tile: Tile, size: int, rng: np.random.Generator) -> tuple[Projection, Array]:
    """Return the projection and the pixels, shape (size, size), of one tile."""
    middle = (size + 1) / 2
    ra, dec = plane().sky(tile.x, tile.y)
    look = Projection.rotated(float(ra), float(dec), middle, middle, scale=SCALE, angle=tile.turn)
    y, x = np.mgrid[1 : size + 1, 1 : size + 1].astype(float)
    pixels = sky.nebula(*look.sky(x, y))
    pixels += tile.level + (tile.slope_x * (x - middle) + tile.slope_y * (y - middle)) / middle
    pixels += rng.normal(0.0, sky.noise, pixels.shape)
    stars = np.array(sky.stars).reshape(-1, 3)
    reach = 6 * SEEING
    for star_x, star_y, flux in zip(*look.pixel(stars[:, 0], stars[:, 1]), stars[:, 2], strict=True):
        left, right = (int(np.clip(edge, 0, size)) for edge in (star_x - reach, star_x + reach))
        low, high = (int(np.clip(edge, 0, size)) for edge in (star_y - reach, star_y + reach))
        near = np.s_[low:high, left:right]
        image = np.exp(-((x[near] - star_x) ** 2 + (y[near] - star_y) ** 2) / (2 * SEEING**2))
        pixels[near] += flux / (2 * np.pi * SEEING**2) * image
    return look, pixels


def make_tiles(
    out: Path, columns: int = 3, rows: int = 3, size: int = 400, *, seed: int = 1, noise: float = 1.0
) -> Sky:
    """Write tiles and ``truth.json`` into a folder, made if missing, and return the truth.

    Parameters
    ----------
    out
        The folder.
    columns, rows, size, seed, noise
        As in `imagine`.

    Raises
    ------
    ValueError
        If a size or count is too small, or the folder has other FITS files, which would join the mosaic.
    """
    sky = imagine(columns, rows, size, seed, noise)
    out.mkdir(parents=True, exist_ok=True)
    if others := {path.name for path in out.glob("*.fits*")} - {tile.name for tile in sky.tiles}:
        raise ValueError(f"{out} already has other FITS files ({min(others)}): give an empty folder")
    for number, tile in enumerate(sky.tiles):
        look, pixels = expose(sky, tile, size, np.random.default_rng([seed, number]))
        write_image(out / tile.name, pixels, look.header())
    sky.save(out / "truth.json")
    return sky


def grid(text: str) -> tuple[int, int]:
    """Return columns and rows of a text such as ``3x3``."""
    columns, _, rows = text.partition("x")
    return int(columns), int(rows)


def main() -> None:
    """Make tiles from the command line."""
    parser = argparse.ArgumentParser(description="Make FITS tiles of a known sky.")
    parser.add_argument("--tiles", type=grid, default=(3, 3), metavar="CxR", help="columns x rows (3x3)")
    parser.add_argument("--size", type=int, default=400, help="pixels along a tile's side (400)")
    parser.add_argument("--seed", type=int, default=1, help="of the sky and the noise (1)")
    parser.add_argument("--noise", type=float, default=1.0, help="standard deviation of a pixel (1)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    options = parser.parse_args()
    try:
        columns, rows = options.tiles
        sky = make_tiles(options.out, columns, rows, options.size, seed=options.seed, noise=options.noise)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{len(sky.tiles)} tiles with {len(sky.stars)} stars in {options.out}")


if __name__ == "__main__":
    main()
