import json
import sys
from dataclasses import replace

import numpy as np
import pytest


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


def test_command_line(montage, tmp_path, truth, monkeypatch, capsys):
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
