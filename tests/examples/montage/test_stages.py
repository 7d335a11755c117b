import functools
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

SHARED = Path(__file__).parents[4] / "shared" / "data" / "fits" / "2mass-j-0.25deg"


@pytest.fixture(scope="session")
def standard(montage, tmp_path_factory):
    """The standard small data set."""
    folder = tmp_path_factory.mktemp("tiles")
    return folder, montage.make_data.make_tiles(folder)


@pytest.fixture
def golden(montage):
    return montage.check.Figures(**json.loads((montage.folder / "golden.json").read_text()))


def test_tables_are_read_by_their_bars(montage, tmp_path):
    table = tmp_path / "a.tbl"
    table.write_text(
        "\\fixlen = T\n| id |  name  |  x |\n| int|  char  |real|\n   1  a b.fits -.5 \n   22 c        3   \n\n"
    )
    assert list(montage.stages.rows(table)) == [
        {"id": "1", "name": "a b.fits", "x": "-.5"},
        {"id": "22", "name": "c", "x": "3"},
    ]


@pytest.mark.parametrize(
    ("axes", "plain"),
    [
        (("RA---TAN", "DEC--TAN"), True),
        (("RA---SIN", "DEC--SIN"), True),
        (("GLON-CAR", "GLAT-CAR"), False),
        (("RA---AIT", "DEC--AIT"), False),
        (("", ""), False),
    ],
)
def test_which_projections_the_fast_program_is_valid_for(montage, axes, plain):
    assert montage.stages.in_tangent_plane(dict(zip(("CTYPE1", "CTYPE2"), axes, strict=True))) is plain


def test_a_folder_without_tiles_is_refused(montage, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no .fits or .fits.gz files in .*empty"):
        montage.stages.plan(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tile_that_is_there_twice_is_refused(montage, tmp_path):
    for name in ("a.fits", "a.fits.gz", "b.fits"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"has a.fits twice, plain and gzipped: remove one"):
        montage.stages.plan(tmp_path, tmp_path / "out")


@pytest.fixture(scope="session")
def standard_mosaic(montage, standard, run_by_hand, tmp_path_factory):
    """Call it with the form of Montage in use: makes the mosaic of the standard set once."""

    @functools.cache
    def make(form):
        out = tmp_path_factory.mktemp(form)
        return out, run_by_hand(standard[0], out)

    return make


def test_the_mosaic_is_the_known_sky(montage, form, standard, standard_mosaic, golden):
    out, made = standard_mosaic(form)
    assert montage.check.measure(made["mosaic"], standard[1]).problems(golden) == []
    assert made["picture"].read_bytes().startswith(b"\x89PNG")
    assert list((out / "differences").iterdir()) == []


def test_both_forms_of_montage_give_the_same_mosaic(montage, standard, standard_mosaic, use_form):
    _, sky = standard
    mosaics = []
    for form in ("programs", "MontagePy"):
        use_form(form)
        mosaics.append(montage.fits.read_image(standard_mosaic(form)[1]["mosaic"])[1])
    one, two = mosaics
    assert one.shape == two.shape
    assert np.count_nonzero(np.isnan(one) != np.isnan(two)) < 10
    off = np.abs(one - two)[~np.isnan(one - two)]
    assert np.median(off) < 0.25 * sky.noise  # a plane that matching leaves open
    assert np.quantile(off, 0.999) < sky.noise  # the rest: stars cut by the edge of a tile


def test_leftovers_of_other_tiles_do_not_join_the_mosaic(montage, any_form, run_by_hand, tmp_path):
    montage.make_data.make_tiles(tmp_path / "old", 2, 1, 64)
    montage.make_data.make_tiles(tmp_path / "new", 1, 1, 64)
    run_by_hand(tmp_path / "old", tmp_path / "out")
    again = run_by_hand(tmp_path / "new", tmp_path / "out")["mosaic"].read_bytes()
    assert again == run_by_hand(tmp_path / "new", tmp_path / "fresh")["mosaic"].read_bytes()


def test_one_gzipped_tile_alone_needs_no_matching(montage, form, run_by_hand, tmp_path):
    sky = montage.make_data.make_tiles(tmp_path / "tiles", 1, 1, 300)
    tile = tmp_path / "tiles" / "tile_0_0.fits"
    (tmp_path / "tiles" / "tile_0_0.fits.gz").write_bytes(gzip.compress(tile.read_bytes()))
    tile.unlink()
    made = run_by_hand(tmp_path / "tiles", tmp_path / "out")
    assert montage.check.measure(made["mosaic"], sky).position_error < 0.1
    assert [path.name for path in (tmp_path / "tiles").glob("*.fits*")] == ["tile_0_0.fits.gz"]


def test_the_slow_program_gives_the_same_picture(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 1, 1, 64)
    plan = montage.stages.plan(tmp_path / "tiles", tmp_path / "out")
    middles = []
    for exact in (False, True):
        projected = montage.stages.project(plan.tiles[0], plan.header, tmp_path / str(exact), exact)
        header, pixels = montage.fits.read_image(projected)
        x, y = int(header["CRPIX1"]), int(header["CRPIX2"])  # each is cut out of the mosaic a little differently
        middles.append(pixels[y - 25 : y + 25, x - 25 : x + 25])
    fast, slow = middles
    assert fast.shape == slow.shape == (50, 50)
    off = np.abs(fast - slow)
    assert 0 < np.quantile(off, 0.97) < 0.05
    assert off.max() < 1.0  # the noise


def test_tiles_that_share_no_pixel_have_no_fit(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 3, 1, 64)
    plan = montage.stages.plan(tmp_path / "tiles", tmp_path / "out")
    projected = [montage.stages.project(tile, plan.header, tmp_path / "out", False) for tile in plan.tiles]
    assert plan.pairs == [(0, 1), (1, 2)]
    assert montage.stages.fit((0, 2), projected, plan.header, tmp_path / "out") is None
    assert montage.stages.fit((0, 1), projected, plan.header, tmp_path / "out")[0] == (0, 1)


def test_a_missing_projection_is_not_taken_for_a_pair_without_overlap(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    plan = montage.stages.plan(tmp_path / "tiles", tmp_path / "out")
    with pytest.raises(montage.toolkit.MontageError, match=r"^mDiff: "):
        montage.stages.fit((0, 1), [tmp_path / "a.fits", tmp_path / "b.fits"], plan.header, tmp_path / "out")


def test_a_broken_tile_stops_the_planning(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    (tmp_path / "tiles" / "tile_0_1.fits").write_text("broken")
    with pytest.raises(montage.toolkit.MontageError, match="mImgtbl: badfits = 1"):
        montage.stages.plan(tmp_path / "tiles", tmp_path / "out")


@pytest.mark.shared
def test_real_tiles_of_the_orion_nebula(montage, any_form, run_by_hand, tmp_path):
    if not SHARED.is_dir():
        pytest.skip(f"no shared data: {SHARED} is missing")
    made = run_by_hand(SHARED, tmp_path)
    header, pixels = montage.fits.read_image(made["mosaic"])
    height, width = pixels.shape
    assert (width, height) == (header["NAXIS1"], header["NAXIS2"])
    trapezium = montage.fits.Projection.of(header).pixel(83.8186, -5.3897)
    x, y = (int(coordinate) for coordinate in trapezium)
    nebula = np.median(pixels[y - 100 : y + 100, x - 100 : x + 100])
    rest = np.nanmedian(pixels)
    assert nebula > 2 * rest  # the brightest part of M42
    assert np.nanmin(pixels) > 0  # (nothing was over-corrected)
    assert os.path.getsize(made["picture"]) > 50_000
