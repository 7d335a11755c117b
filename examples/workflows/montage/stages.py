"""The nine stages of the Montage workflow as plain functions, and the planning before them.

Planning reads nothing but the headers of the tiles: which are there, what region they cover, which pairs
overlap. The stages exchange paths and plain values. Each writes into the folder ``out`` only, and writing
again what is there already does no harm, so a task that was interrupted can be run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import toolkit
from fits import Header, read_header, read_template

TANGENT_PLANE = "TAN", "SIN", "ZEA", "STG", "ARC"  # the projections mProjectPP can go between
WIDEST_PICTURE = 1000  # [pixels]
FIT_COLUMNS = (
    "a", "b", "c", "crpix1", "crpix2", "xmin", "xmax", "ymin", "ymax", "xcenter", "ycenter", "npixel", "rms",
    "boxx", "boxy", "boxwidth", "boxheight", "boxang",
)  # fmt: skip
SHARING_NOTHING = "don't overlap", "blank", "too few pixels"  # said of a pair whose frames alone overlap

Pair = tuple[int, int]  # numbers of two tiles, as in Plan.tiles
Fit = tuple[Pair, list[float]]  # a pair and, for each of FIT_COLUMNS, a figure of its difference
Plane = tuple[float, float, float]  # a, b, c of a x + b y + c


@dataclass(frozen=True)
class Plan:
    """What is known before any pixel is read.

    Attributes
    ----------
    tiles
        The files of the mosaic, by name.
    header
        The mosaic's header template.
    pairs
        Numbers of tiles that overlap.
    """

    tiles: list[Path]
    header: Path
    pairs: list[Pair]


def plan(tiles: Path, out: Path) -> Plan:
    """Look at the headers of all tiles (mImgtbl, mMakeHdr, mOverlaps).

    Parameters
    ----------
    tiles
        A folder with at least one ``.fits`` or ``.fits.gz`` file.
    out
        Where the mosaic's header and the tables go; made if missing.

    Raises
    ------
    FileNotFoundError
        If there are no tiles.
    ValueError
        If a tile is there twice, plain and gzipped.
    MontageError
        If a tile cannot be read, or the toolkit is not installed.
    """
    found = sorted(path for path in tiles.glob("*") if path.name.endswith((".fits", ".fits.gz")))
    if not found:
        raise FileNotFoundError(f"no .fits or .fits.gz files in {tiles}: give a folder of tiles, or make some")
    if twice := {tile.name for tile in found} & {tile.stem for tile in found}:
        raise ValueError(f"{tiles} has {min(twice)} twice, plain and gzipped: remove one")
    out.mkdir(parents=True, exist_ok=True)
    table, header, overlaps = out / "tiles.tbl", out / "mosaic.hdr", out / "overlaps.tbl"
    toolkit.mImgtbl(found, table)
    toolkit.mMakeHdr(table, header)
    toolkit.mOverlaps(table, overlaps)
    number = {tile.name: index for index, tile in enumerate(found)}
    pairs = sorted((number[row["plus"]], number[row["minus"]]) for row in rows(overlaps))
    return Plan(found, header, pairs)


def project(tile: Path, header: Path, out: Path, exact: bool) -> Path:
    """Stage 1, parallel: bring a tile onto the mosaic's pixels (mProjectPP, else mProject)."""
    projected = folder(out, "projected") / tile.name.removesuffix(".gz")
    plain = not exact and all(map(in_tangent_plane, (read_header(tile), read_template(header))))
    (toolkit.mProjectPP if plain else toolkit.mProject)(tile, projected, header)
    return projected


def fit(pair: Pair, projected: Sequence[Path], header: Path, out: Path) -> Fit | None:
    """Stage 2, parallel: fit a plane to a difference (mDiff, mFitplane); None if the tiles share nothing."""
    plus, minus = pair
    difference = folder(out, "differences") / f"{plus}-{minus}.fits"
    try:
        toolkit.mDiff(projected[plus], projected[minus], difference, header)
        figures = toolkit.mFitplane(difference)
    except toolkit.MontageError as error:
        if any(reason in error.message.lower() for reason in SHARING_NOTHING):
            return None
        raise
    finally:
        for leftover in (difference, area_of(difference)):
            leftover.unlink(missing_ok=True)
    return pair, [float(figures[column]) for column in FIT_COLUMNS]


def concat(fits: Sequence[Fit | None], projected: Sequence[Path], out: Path) -> tuple[Path, Path]:
    """Stage 3, sequential: write the tables of projected tiles and of fits (mImgtbl, mConcatFit)."""
    images, table = out / "projected.tbl", out / "fits.tbl"
    toolkit.mImgtbl(projected, images)
    counter = {row["fname"]: row["cntr"] for row in rows(images)}
    lines = ["|" + "|".join(f"{name:>16}" for name in ("plus", "minus", *FIT_COLUMNS)) + "|"]
    for pair, figures in filter(None, fits):
        ends = (counter[projected[number].name] for number in pair)
        values = [*ends, *(f"{figure:.9g}" for figure in figures)]
        lines.append(" " + " ".join(f"{value:>16}" for value in values) + " ")
    table.write_text("\n".join(lines) + "\n")
    return images, table


def model(tables: tuple[Path, Path], projected: Sequence[Path], out: Path) -> list[Plane]:
    """Stage 4, sequential: find the plane to take off each tile so that all meet (mBgModel)."""
    images, fits = tables
    corrections = out / "corrections.tbl"
    toolkit.mBgModel(images, fits, corrections)
    plane = {row["id"]: (float(row["a"]), float(row["b"]), float(row["c"])) for row in rows(corrections)}
    counter = {row["fname"]: row["cntr"] for row in rows(images)}
    alone = 0.0, 0.0, 0.0  # a tile without neighbours is not in the table
    return [plane.get(counter[image.name], alone) for image in projected]


def correct(projected: Path, plane: Plane, out: Path) -> Path:
    """Stage 5, parallel: take its plane off a tile (mBackground)."""
    corrected = folder(out, "corrected") / projected.name
    toolkit.mBackground(projected, corrected, *plane)
    return corrected


def tabulate(corrected: Sequence[Path], out: Path) -> Path:
    """Stage 6, sequential: table of the corrected tiles (mImgtbl)."""
    table = out / "corrected.tbl"
    toolkit.mImgtbl(corrected, table)
    return table


def add(table: Path, header: Path, out: Path) -> Path:
    """Stage 7, sequential: add the tiles up (mAdd)."""
    mosaic = out / "mosaic.fits"
    toolkit.mAdd(out / "corrected", table, header, mosaic)
    return mosaic


def shrink(mosaic: Path, out: Path) -> Path:
    """Stage 8, sequential: make the mosaic small enough to look at (mShrink)."""
    small = out / "mosaic_small.fits"
    header = read_header(mosaic)
    longest = max(float(header["NAXIS1"]), float(header["NAXIS2"]))
    toolkit.mShrink(mosaic, small, max(1.0, longest / WIDEST_PICTURE))
    return small


def picture(small: Path, mosaic: Path, out: Path) -> dict[str, Path]:
    """Stage 9, sequential: draw it (mViewer); return the files that are worth keeping."""
    drawing = out / "mosaic.png"
    toolkit.mViewer(small, drawing)
    return {"mosaic": mosaic, "picture": drawing}


def in_tangent_plane(header: Header) -> bool:
    """Whether both axes of a header are in a projection that mProjectPP knows."""
    return all(str(header.get(axis, ""))[-3:] in TANGENT_PLANE for axis in ("CTYPE1", "CTYPE2"))


def area_of(image: Path) -> Path:
    """Return the companion of an image that tells how much of each pixel is covered."""
    return image.with_name(f"{image.stem}_area.fits")


def folder(out: Path, name: str) -> Path:
    """Return a folder inside another, made if missing."""
    path = out / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def rows(table: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of an IPAC table, whose columns are where the bars of its head are."""
    lines = table.read_text().splitlines()
    heads = [line for line in lines if line.startswith("|")]
    bars = [place for place, character in enumerate(heads[0]) if character == "|"]
    spans = list(pairwise(bars))
    names = [heads[0][start + 1 : end].strip() for start, end in spans]
    for line in lines:
        if line.strip() and line[0] not in "|\\":
            fields = (line[start + 1 : end + 1].strip() for start, end in spans)
            yield dict(zip(names, fields, strict=True))
