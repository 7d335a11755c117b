"""The Montage example."""

import functools
import gzip
import importlib
import importlib.util
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import replace

import numpy as np
import pytest

import asa


@pytest.fixture(scope="session")
def montage(load_example):
    return load_example("montage", "fits", "picture", "toolkit", "stages", "make_data", "check")


@pytest.fixture(scope="session")
def any_form(montage):
    """Whichever form of Montage there is."""
    try:
        return montage.toolkit.implementation()
    except montage.toolkit.MontageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def workflow(any_form, load_example):
    return load_example("montage", "workflow").workflow


@pytest.fixture
def use_form(monkeypatch, tmp_path_factory, montage):
    """Call it to make one form of Montage the one that is found; skips the test where that is missing."""
    path = os.environ["PATH"]

    def use(form):
        monkeypatch.setenv("PATH", path)
        if form == "programs":
            if missing := [program for program in montage.toolkit.PROGRAMS if not shutil.which(program)]:
                pytest.skip(f"not on PATH: {', '.join(missing)} (Debian package montage)")
        else:
            if not importlib.util.find_spec("MontagePy"):
                pytest.skip("MontagePy is not installed")
            bare = tmp_path_factory.mktemp("path")
            for program in ("sh", "gzip", "gunzip"):  # what MontagePy runs to read gzipped tiles
                if found := shutil.which(program):
                    (bare / program).symlink_to(found)
            monkeypatch.setenv("PATH", str(bare))
        assert montage.toolkit.implementation() == form

    return use


@pytest.fixture(params=["programs", "MontagePy"])
def form(request, use_form):
    """Each form of Montage in turn."""
    use_form(request.param)
    return request.param


@pytest.fixture(scope="session")
def run_by_hand(montage):
    """Call it to run all stages in this process, one after another."""

    def run(tiles, out):
        stages = montage.stages
        plan = stages.plan(tiles, out)
        projected = [stages.project(tile, plan.header, out, False) for tile in plan.tiles]
        fits = [stages.fit(pair, projected, plan.header, out) for pair in plan.pairs]
        planes = stages.model(stages.concat(fits, projected, out), projected, out)
        corrected = [stages.correct(image, plane, out) for image, plane in zip(projected, planes, strict=True)]
        mosaic = stages.add(stages.tabulate(corrected, out), plan.header, out)
        return stages.picture(stages.shrink(mosaic, out), mosaic, out)

    return run


@pytest.fixture
def pixels():
    return np.random.default_rng(1).normal(100, 10, (5, 7)).astype(np.float32).astype(float)


def look(montage, angle=3.0):
    return montage.fits.Projection.rotated(83.8, -5.4, 200.5, 100.5, scale=1 / 3600, angle=angle)


def test_what_is_written_is_read(montage, tmp_path, pixels):
    path = tmp_path / "a.fits"
    montage.fits.write_image(path, pixels, look(montage).header())
    header, back = montage.fits.read_image(path)
    np.testing.assert_array_equal(back, pixels)
    assert (header["NAXIS1"], header["NAXIS2"], header["CTYPE1"]) == (7, 5, "RA---TAN")
    assert montage.fits.Projection.of(header) == look(montage)
    assert path.stat().st_size % 2880 == 0


def test_gzipped_files_are_read(montage, tmp_path, pixels):
    plain, zipped = tmp_path / "a.fits", tmp_path / "a.fits.gz"
    montage.fits.write_image(plain, pixels, look(montage).header())
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert montage.fits.read_header(zipped) == montage.fits.read_header(plain)
    np.testing.assert_array_equal(montage.fits.read_image(zipped)[1], pixels)


def test_pixels_and_sky_are_inverse(montage):
    x, y = np.mgrid[-500:1000:100.0, -500:1000:100.0]
    there = look(montage).sky(x, y)
    np.testing.assert_allclose(look(montage).pixel(*there), (x, y), atol=1e-6)


def test_north_is_up_and_east_is_left(montage):
    ra, dec = look(montage, angle=0.0).sky([200.5, 199.5, 200.5], [100.5, 100.5, 101.5])
    assert ra[1] > ra[0] == pytest.approx(83.8)
    assert dec[2] - dec[0] == pytest.approx(1 / 3600)


def test_rotation_may_be_given_as_an_angle(montage):
    header = look(montage).header()
    turned = {key: value for key, value in header.items() if not key.startswith("CD")}
    turned |= {"CDELT1": -1 / 3600, "CDELT2": 1 / 3600, "CROTA2": 3.0}
    np.testing.assert_allclose(montage.fits.Projection.of(turned).cd, look(montage).cd)


def test_other_projections_are_refused(montage):
    with pytest.raises(ValueError, match="expected the projection TAN, not CTYPE1 = 'RA---SIN'"):
        montage.fits.Projection.of({"CTYPE1": "RA---SIN"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "not a FITS file"),
        (b"", "not a FITS file"),
        (f"{'SIMPLE  =                    T':2880}".encode(), "not a FITS file: expected cards from SIMPLE to END"),
        (f"{'SIMPLE  =                    T':80}{'NAXIS   = 3':80}{'END':2720}".encode(), "no floating-point image"),
    ],
)
def test_bad_files_are_named(montage, tmp_path, content, message):
    path = tmp_path / "bad.fits"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"bad.fits.*{message}"):
        montage.fits.read_image(path)


def test_a_truncated_file_is_refused(montage, tmp_path, pixels):
    path = tmp_path / "short.fits"
    montage.fits.write_image(path, pixels, look(montage).header())
    path.write_bytes(path.read_bytes()[: 2880 + 100])
    with pytest.raises(ValueError, match=r"short.fits ends after 100 of 140 bytes"):
        montage.fits.read_image(path)


def test_text_keeps_slashes_and_comments_go(montage, tmp_path):
    template = tmp_path / "a.hdr"
    template.write_text("CTYPE1  = 'RA---TAN' / comment\nUNIT = 'km/s'\nCRPIX1  =  256.5 / pixel\nSIMPLE = T\nEND\n")
    assert montage.fits.read_template(template) == {
        "CTYPE1": "RA---TAN", "UNIT": "km/s", "CRPIX1": 256.5, "SIMPLE": "T",
    }  # fmt: skip


def test_astropy_agrees(montage, tmp_path, pixels):
    astropy = pytest.importorskip("astropy.io.fits", reason="astropy is not installed")
    wcs = pytest.importorskip("astropy.wcs")
    path = tmp_path / "a.fits"
    montage.fits.write_image(path, pixels, look(montage).header())
    with astropy.open(path) as file:
        file.verify("exception")
        np.testing.assert_array_equal(file[0].data, pixels)
        x, y = np.array([-300.0, 1.0, 777.0]), np.array([5.0, 100.5, 900.0])
        ra, dec = wcs.WCS(file[0].header).all_pix2world(x, y, 1)
    np.testing.assert_allclose(look(montage).sky(x, y), (ra, dec), rtol=0, atol=1e-10)


def test_astropy_agrees_about_rotation(montage):
    wcs = pytest.importorskip("astropy.wcs", reason="astropy is not installed")
    header = {
        "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRVAL1": 83.8, "CRVAL2": -5.4, "CRPIX1": 5.0, "CRPIX2": 6.0,
        "CDELT1": -2 / 3600, "CDELT2": 3 / 3600, "CROTA2": 30.0,
    }  # fmt: skip
    ra, dec = wcs.WCS(header).all_pix2world([100.0], [200.0], 1)
    np.testing.assert_allclose(montage.fits.Projection.of(header).sky([100.0], [200.0]), (ra, dec), rtol=0, atol=1e-9)


def test_stretch_shows_faint_and_bright_north_up(montage):
    pixels = np.full((20, 20), 10.0)
    pixels[0, 0], pixels[0, 1], pixels[-1, -1] = 1000.0, 20.0, np.nan
    grey = montage.picture.stretch(pixels)
    assert grey[-1, 0] == 255
    assert 5 < grey[-1, 1] < 250
    assert grey[0, -1] == grey[5, 5] == 0


def test_stretch_of_an_even_image_is_black(montage):
    assert not montage.picture.stretch(np.full((4, 4), 7.0)).any()


def test_png_holds_the_grey_levels(montage, tmp_path):
    path = tmp_path / "a.png"
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    montage.picture.write_png(path, grey)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack(">I", data[place + 8 + size : place + 12 + size]) == (zlib.crc32(kind + body),)
        chunks[kind], place = body, place + 12 + size
    assert struct.unpack(">IIB", chunks[b"IHDR"][:9]) == (3, 2, 8)
    assert zlib.decompress(chunks[b"IDAT"]) == b"\0\0\1\2\0\3\4\5"
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]


def test_another_reader_agrees(montage, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    grey = np.random.default_rng(1).integers(0, 256, (30, 40)).astype(np.uint8)
    montage.picture.write_png(tmp_path / "a.png", grey)
    with image.open(tmp_path / "a.png") as opened:
        np.testing.assert_array_equal(np.asarray(opened), grey)


def fake(tmp_path, monkeypatch, montage, script):
    """Put programs on PATH that all run one shell script."""
    shell = shutil.which("sh")
    for program in montage.toolkit.PROGRAMS:
        path = tmp_path / program
        path.write_text(f"#!{shell}\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('[struct stat="OK", module="mAdd", time=2]\n', {"stat": "OK", "module": "mAdd", "time": 2.0}),
        ('[struct stat="OK", a=-8.5e-08, b=2,  c=3]', {"stat": "OK", "a": -8.5e-08, "b": 2.0, "c": 3.0}),
        ('[struct stat="ERROR", msg="No, [x] is not\n"]', {"stat": "ERROR", "msg": "No, [x] is not"}),
        ('info\n[struct stat="A"]\n[struct stat="B", bunit=""]\n', {"stat": "B", "bunit": ""}),
        ("Segmentation fault", {}),
        ("", {}),
    ],
)
def test_parse_status(montage, text, status):
    assert montage.toolkit.parse_status(text) == status


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('noise\n{"status": "0", "count": 9, "a": -8.5e-08}\n', {"stat": "OK", "count": 9, "a": -8.5e-08}),
        ('{"status": "1", "msg": "No {overlap}"}', {"stat": "ERROR", "msg": "No {overlap}"}),
        ("Traceback", {}),
        ("", {}),
    ],
)
def test_parse_answer(montage, text, status):
    assert montage.toolkit.parse_answer(text) == status


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("""echo '[struct stat="ERROR", msg="Invalid header"]'; exit 1""", "^mOverlaps: Invalid header$"),
        ("""echo '[struct stat="OK", count=7, failed=2]'""", "mOverlaps: failed = 2: part of the input"),
        ("""echo '[struct stat="OK", count=7, badfits=2]'""", "mOverlaps: badfits = 2: part of the input"),
        ("""echo '[struct stat="OK", count=7, badwcs=2]'""", "mOverlaps: badwcs = 2: part of the input"),
        ("echo 'cannot open display' >&2; exit 3", "exit code 3 and no status: cannot open display"),
        ("""echo '[struct stat="OK"]'; exit 4""", "mOverlaps: .*exit code 4"),
    ],
)
def test_a_program_that_failed_or_left_something_out_is_an_error(montage, tmp_path, monkeypatch, script, message):
    fake(tmp_path, monkeypatch, montage, script)
    with pytest.raises(montage.toolkit.MontageError, match=message):
        montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b")


def test_images_that_the_table_lacks_are_noticed(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, """echo '[struct stat="OK", count=1, badfits=0, badwcs=0]'""")
    with pytest.raises(montage.toolkit.MontageError, match=r"mImgtbl: 1 images found in .*, not 2"):
        montage.toolkit.mImgtbl([tmp_path / "a.fits", tmp_path / "b.fits"], tmp_path / "t.tbl")


def test_figures_come_back(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, """echo '[struct stat="OK", count=17]'""")
    assert montage.toolkit.implementation() == "programs"
    assert montage.toolkit.mOverlaps(tmp_path / "a", tmp_path / "b") == {"stat": "OK", "count": 17.0}


def test_some_programs_are_not_enough(montage, tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, montage, "exit 0")
    (tmp_path / "mAdd").unlink()
    monkeypatch.setitem(sys.modules, "MontagePy", None)
    with pytest.raises(montage.toolkit.MontageError, match=r"not on PATH: mAdd; .*install Debian's montage"):
        montage.toolkit.implementation()


def test_errors_travel_between_processes(montage, monkeypatch):
    monkeypatch.setitem(sys.modules, "toolkit", montage.toolkit)
    error = pickle.loads(pickle.dumps(montage.toolkit.MontageError("mAdd", "no")))
    assert (error.program, error.message, str(error)) == ("mAdd", "no", "mAdd: no")


def test_both_forms_report_errors_alike(montage, form, tmp_path):
    with pytest.raises(montage.toolkit.MontageError, match=r"^mProjectPP: File .*nothing.fits not found"):
        montage.toolkit.mProjectPP(tmp_path / "nothing.fits", tmp_path / "out.fits", tmp_path / "a.hdr")


def test_both_forms_notice_a_file_that_is_no_image(montage, form, tmp_path):
    (tmp_path / "bad.fits").write_text("hello")
    with pytest.raises(montage.toolkit.MontageError, match=r"mImgtbl: badfits = 1"):
        montage.toolkit.mImgtbl([tmp_path / "bad.fits"], tmp_path / "t.tbl")


def test_a_bad_file_is_not_held_against_the_next_call(montage, form, tmp_path):
    bad, good = tmp_path / "bad" / "bad.fits", tmp_path / "good"
    bad.parent.mkdir()
    bad.write_text("hello")
    montage.make_data.make_tiles(good, 1, 1, 64)
    with pytest.raises(montage.toolkit.MontageError):
        montage.toolkit.mImgtbl([bad], tmp_path / "t.tbl")
    assert montage.toolkit.mImgtbl([good / "tile_0_0.fits"], tmp_path / "t.tbl")["count"] == 1


def test_the_same_arguments_give_the_same_bytes(montage, tmp_path):
    for folder in ("a", "b"):
        montage.make_data.make_tiles(tmp_path / folder, 2, 1, 64, seed=7)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["tile_0_0.fits", "tile_0_1.fits", "truth.json"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_another_seed_gives_another_sky(montage):
    one, two = (montage.make_data.imagine(2, 2, 64, seed) for seed in (1, 2))
    assert one.stars != two.stars
    assert one.tiles != two.tiles


def test_the_truth_is_read_back(montage, tmp_path):
    sky = montage.make_data.imagine(2, 3, 64, seed=1)
    sky.save(tmp_path / "truth.json")
    assert montage.make_data.Sky.load(tmp_path / "truth.json") == sky


def test_neighbouring_tiles_overlap_and_tiles_differ_in_background(montage):
    sky = montage.make_data.imagine(3, 1, 400, seed=1)
    first, second, _ = sky.tiles
    assert 0.8 * 400 < second.x - first.x < 0.9 * 400
    assert len({tile.level for tile in sky.tiles}) == 3


def test_a_star_is_where_the_truth_says_and_as_bright(montage):
    make_data = montage.make_data
    tile = make_data.Tile("t.fits", 10.0, -20.0, 0.5, level=0.0, slope_x=0.0, slope_y=0.0)
    star = [float(value) for value in make_data.plane().sky(12.3, -31.4)]
    sky = make_data.Sky(0.0, [[*star, 1000.0]], [], [tile])
    look, pixels = make_data.expose(sky, tile, 101, np.random.default_rng(1))
    y, x = np.mgrid[1:102, 1:102]
    assert pixels.sum() == pytest.approx(1000.0, rel=1e-3)
    centre = (pixels * x).sum() / pixels.sum(), (pixels * y).sum() / pixels.sum()
    np.testing.assert_allclose(centre, [float(value) for value in look.pixel(*star)], atol=0.01)


def test_a_background_rises_from_edge_to_edge(montage):
    make_data = montage.make_data
    tile = make_data.Tile("t.fits", 0.0, 0.0, 0.0, level=100.0, slope_x=10.0, slope_y=-5.0)
    _, pixels = make_data.expose(make_data.Sky(0.0, [], [], [tile]), tile, 99, np.random.default_rng(1))
    assert pixels[49, 49] == pytest.approx(100.0)
    np.testing.assert_allclose(pixels[49, [0, -1]], [90.2, 109.8])
    np.testing.assert_allclose(pixels[[0, -1], 49], [104.9, 95.1])


@pytest.mark.parametrize("wrong", [(0, 1, 64, 1), (1, 0, 64, 1), (1, 1, 63, 1), (1, 1, 64, 1, -1.0)])
def test_bad_sizes_are_refused(montage, wrong):
    with pytest.raises(ValueError, match="expected tiles of at least 1x1"):
        montage.make_data.imagine(*wrong)


def test_tiles_of_another_set_are_not_mixed_in(montage, tmp_path):
    montage.make_data.make_tiles(tmp_path, 2, 1, 64)
    with pytest.raises(ValueError, match=r"other FITS files \(tile_0_1.fits\): give an empty folder"):
        montage.make_data.make_tiles(tmp_path, 1, 1, 64)


def test_make_data_from_the_command_line(montage, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", f"make_data.py --tiles 2x1 --size 64 --out {tmp_path}".split())
    montage.make_data.main()
    assert "2 tiles with 2 stars" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", f"make_data.py --tiles 2 --out {tmp_path}".split())
    with pytest.raises(SystemExit, match="2"):
        montage.make_data.main()
    assert "invalid grid value: '2'" in capsys.readouterr().err


@pytest.fixture(scope="session")
def standard(montage, tmp_path_factory):
    """The standard small data set."""
    folder = tmp_path_factory.mktemp("tiles")
    return folder, montage.make_data.make_tiles(folder)


@pytest.fixture
def golden(montage):
    return montage.check.Figures(**json.loads((montage.folder / "golden.json").read_text()))


@pytest.mark.slow
def test_tables_are_read_by_their_bars(montage, tmp_path):
    table = tmp_path / "a.tbl"
    table.write_text(
        "\\fixlen = T\n| id |  name  |  x |\n| int|  char  |real|\n   1  a b.fits -.5 \n   22 c        3   \n\n"
    )
    assert list(montage.stages.rows(table)) == [
        {"id": "1", "name": "a b.fits", "x": "-.5"},
        {"id": "22", "name": "c", "x": "3"},
    ]


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_folder_without_tiles_is_refused(montage, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no .fits or .fits.gz files in .*empty"):
        montage.stages.plan(tmp_path / "empty", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_mosaic_is_the_known_sky(montage, form, standard, standard_mosaic, golden):
    out, made = standard_mosaic(form)
    assert montage.check.measure(made["mosaic"], standard[1]).problems(golden) == []
    assert made["picture"].read_bytes().startswith(b"\x89PNG")
    assert list((out / "differences").iterdir()) == []


@pytest.mark.slow
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


@pytest.mark.slow
def test_leftovers_of_other_tiles_do_not_join_the_mosaic(montage, any_form, run_by_hand, tmp_path):
    montage.make_data.make_tiles(tmp_path / "old", 2, 1, 64)
    montage.make_data.make_tiles(tmp_path / "new", 1, 1, 64)
    run_by_hand(tmp_path / "old", tmp_path / "out")
    again = run_by_hand(tmp_path / "new", tmp_path / "out")["mosaic"].read_bytes()
    assert again == run_by_hand(tmp_path / "new", tmp_path / "fresh")["mosaic"].read_bytes()


@pytest.mark.slow
def test_one_gzipped_tile_alone_needs_no_matching(montage, form, run_by_hand, tmp_path):
    sky = montage.make_data.make_tiles(tmp_path / "tiles", 1, 1, 300)
    tile = tmp_path / "tiles" / "tile_0_0.fits"
    (tmp_path / "tiles" / "tile_0_0.fits.gz").write_bytes(gzip.compress(tile.read_bytes()))
    tile.unlink()
    made = run_by_hand(tmp_path / "tiles", tmp_path / "out")
    assert montage.check.measure(made["mosaic"], sky).position_error < 0.1
    assert [path.name for path in (tmp_path / "tiles").glob("*.fits*")] == ["tile_0_0.fits.gz"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_tiles_that_share_no_pixel_have_no_fit(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 3, 1, 64)
    plan = montage.stages.plan(tmp_path / "tiles", tmp_path / "out")
    projected = [montage.stages.project(tile, plan.header, tmp_path / "out", False) for tile in plan.tiles]
    assert plan.pairs == [(0, 1), (1, 2)]
    assert montage.stages.fit((0, 2), projected, plan.header, tmp_path / "out") is None
    assert montage.stages.fit((0, 1), projected, plan.header, tmp_path / "out")[0] == (0, 1)


@pytest.mark.slow
def test_a_missing_projection_is_not_taken_for_a_pair_without_overlap(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    plan = montage.stages.plan(tmp_path / "tiles", tmp_path / "out")
    with pytest.raises(montage.toolkit.MontageError, match=r"^mDiff: "):
        montage.stages.fit((0, 1), [tmp_path / "a.fits", tmp_path / "b.fits"], plan.header, tmp_path / "out")


@pytest.mark.slow
def test_a_broken_tile_stops_the_planning(montage, form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    (tmp_path / "tiles" / "tile_0_1.fits").write_text("broken")
    with pytest.raises(montage.toolkit.MontageError, match="mImgtbl: badfits = 1"):
        montage.stages.plan(tmp_path / "tiles", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.shared
def test_real_tiles_of_the_orion_nebula(montage, any_form, run_by_hand, shared_data, tmp_path):
    made = run_by_hand(shared_data / "fits" / "2mass-j-0.25deg", tmp_path)
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


@pytest.fixture(scope="module")
def truth(montage):
    """A sky, and a mosaic of it as good as a mosaic can be: one exposure without faults."""
    sky = replace(montage.make_data.imagine(1, 1, 400, seed=3), noise=0.1)
    tile = montage.make_data.Tile("t.fits", 0.0, 0.0, 0.0, level=50.0, slope_x=5.0, slope_y=0.0)
    look, pixels = montage.make_data.expose(sky, tile, 400, np.random.default_rng(1))
    return sky, look, pixels


def measure(montage, tmp_path, sky, look, pixels):
    montage.fits.write_image(tmp_path / "mosaic.fits", pixels, look.header())
    return montage.check.measure(tmp_path / "mosaic.fits", sky)


def test_a_perfect_mosaic(montage, tmp_path, truth):
    figures = measure(montage, tmp_path, *truth)
    assert (figures.width, figures.height) == (400, 400)
    assert figures.stars >= 5
    assert figures.position_error < 0.01
    assert figures.flux_error < 0.005
    assert figures.noise == pytest.approx(0.1, rel=0.2)
    assert figures.unevenness < 0.03
    assert figures.problems(figures) == []


def test_stars_out_of_place_are_noticed(montage, tmp_path, truth):
    sky, look, pixels = truth
    good, bad = (
        measure(montage, tmp_path, *truth),
        measure(montage, tmp_path, sky, replace(look, x=look.x + 0.3), pixels),
    )
    assert bad.position_error == pytest.approx(0.3, abs=0.02)
    assert any(problem.startswith("position_error is 0.29") for problem in bad.problems(good))


def test_lost_light_is_noticed(montage, tmp_path, truth):
    sky, look, pixels = truth
    assert measure(montage, tmp_path, sky, look, 0.9 * pixels).flux_error == pytest.approx(0.1, abs=0.005)


def test_coarser_pixels_are_allowed_for(montage, tmp_path, truth):
    sky, look, pixels = truth
    halved = pixels.reshape(200, 2, 200, 2).mean(axis=(1, 3))
    coarse = replace(look, x=(look.x + 0.5) / 2, y=(look.y + 0.5) / 2, cd=tuple(2 * element for element in look.cd))
    assert measure(montage, tmp_path, sky, coarse, halved).flux_error < 0.02


def test_a_seam_is_noticed_but_a_plane_is_not(montage, tmp_path, truth):
    sky, look, pixels = truth
    seam = pixels + np.where(np.arange(400) < 200, 0.0, 3.0)
    plane = pixels + np.linspace(0, 100, 400)
    level = measure(montage, tmp_path, *truth).unevenness
    assert measure(montage, tmp_path, sky, look, seam).unevenness > 0.5
    assert measure(montage, tmp_path, sky, look, plane).unevenness == pytest.approx(level, abs=0.005)


def test_blank_pixels_are_left_out(montage, tmp_path, truth):
    sky, look, pixels = truth
    holed = pixels.copy()
    holed[:150] = np.nan
    figures = measure(montage, tmp_path, sky, look, holed)
    assert 0 < figures.stars < measure(montage, tmp_path, *truth).stars
    assert figures.position_error < 0.01


def test_a_mosaic_of_elsewhere_is_refused(montage, tmp_path, truth):
    sky, look, pixels = truth
    with pytest.raises(ValueError, match="none of the 32 stars"):
        measure(montage, tmp_path, sky, replace(look, dec=look.dec + 2.0), pixels)


def test_figures_that_are_no_number_are_a_problem(montage, tmp_path, truth):
    good = measure(montage, tmp_path, *truth)
    assert replace(good, noise=float("nan"), width=410).problems(good) == [
        "width is 410, expected 400 within 1",
        f"noise is nan, expected at most {1.2 * good.noise:.4g}",
    ]


def test_check_from_the_command_line(montage, tmp_path, truth, monkeypatch, capsys):
    sky, *_ = truth
    figures = measure(montage, tmp_path, *truth)
    sky.save(tmp_path / "truth.json")
    golden = tmp_path / "golden.json"
    golden.write_text(json.dumps(vars(figures) | {"stars": 99}))
    monkeypatch.setattr(sys, "argv", ["check.py", str(tmp_path / "mosaic.fits"), str(tmp_path / "truth.json")])
    assert montage.check.main() == 0
    assert json.loads(capsys.readouterr().out) == vars(figures)
    sys.argv += ["--golden", str(golden)]
    assert montage.check.main() == 1
    assert "expected 99 within 1" in capsys.readouterr().err
    sys.argv[1] = str(tmp_path / "nothing.fits")
    with pytest.raises(SystemExit, match="2"):
        montage.check.main()
    assert "nothing.fits" in capsys.readouterr().err


STAGES = {  # number of tasks for the standard 3 x 3 tiles
    "project": 9,
    "fit": 20,
    "concat": 1,
    "model": 1,
    "correct": 9,
    "tabulate": 1,
    "add": 1,
    "shrink": 1,
    "picture": 1,
}
PARALLEL = "project", "fit", "correct"  # the paper's first two stages and its fifth


@pytest.fixture(scope="module")
def graph(workflow, tmp_path_factory):
    """Of the standard small data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("example"))
        return asa.make_graph(workflow.workflow(cores=4))


@pytest.mark.slow
def test_nine_stages_grouped_as_in_the_paper(graph):
    assert list(graph.nodes) == list(STAGES)
    assert {name: graph.width(name) for name in graph.nodes} == STAGES
    assert [name for name, node in graph.nodes.items() if node.mapped] == list(PARALLEL)
    assert {name: node.stage.needs.resources.cores for name, node in graph.nodes.items()} == {
        name: 4 if name in PARALLEL else 1 for name in STAGES
    }


@pytest.mark.slow
def test_every_stage_waits_for_the_one_before(graph):
    for before, name in zip(list(STAGES), list(STAGES)[1:], strict=False):
        assert before in graph.predecessors[name]


@pytest.mark.slow
def test_a_folder_without_tiles_is_refused_before_anything_runs(workflow, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no .fits or .fits.gz files in .*: give a folder of tiles"):
        workflow.build(tmp_path, tmp_path / "out")


@pytest.mark.slow
def test_command_line_names_what_is_wrong(workflow, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", f"workflow.py --tiles {tmp_path} --out {tmp_path}/out".split())
    with pytest.raises(SystemExit, match=r"no .fits or .fits.gz files"):
        workflow.main()


@pytest.mark.slow
def test_it_runs_and_gives_what_the_functions_give_by_hand(workflow, montage, run_by_hand, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    by_hand = run_by_hand(tmp_path / "tiles", tmp_path / "hand")
    node = workflow.build(tmp_path / "tiles", tmp_path / "out", cores=2)
    made = asa.run(node, backend="local:cores=2", strategy="per-stage", state=tmp_path / "state").result()
    assert made == {"mosaic": tmp_path / "out" / "mosaic.fits", "picture": tmp_path / "out" / "mosaic.png"}
    for name, path in by_hand.items():
        assert made[name].read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_a_tile_that_breaks_later_fails_the_run_with_the_program_s_words(workflow, montage, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    node = workflow.build(tmp_path / "tiles", tmp_path / "out", cores=2)
    tile = tmp_path / "tiles" / "tile_0_1.fits"
    tile.write_bytes(tile.read_bytes()[:2880])
    with pytest.raises(asa.RunFailed, match=r"mProjectPP: ") as failure:
        asa.run(node, backend="local:cores=2", state=tmp_path / "state").result()
    assert failure.value.stage == "project"


@pytest.mark.slow
def test_as_a_script_its_workers_find_the_modules_beside_it(montage, any_form, tmp_path):
    montage.make_data.make_tiles(tmp_path / "tiles", 2, 1, 64)
    script = montage.folder / "workflow.py"
    done = subprocess.run(
        [sys.executable, str(script), "--tiles", "tiles", "--out", "out", "--cores", "1", "--backend", "local:cores=1"],
        cwd=tmp_path,
        env=os.environ | {"ASA_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout == f"mosaic: {tmp_path}/out/mosaic.fits\npicture: {tmp_path}/out/mosaic.png\n"
    assert (tmp_path / "out" / "mosaic.png").exists()
