import gzip

import numpy as np
import pytest


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
