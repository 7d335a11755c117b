import sys

import numpy as np
import pytest


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


def test_command_line(montage, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", f"make_data.py --tiles 2x1 --size 64 --out {tmp_path}".split())
    montage.make_data.main()
    assert "2 tiles with 2 stars" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", f"make_data.py --tiles 2 --out {tmp_path}".split())
    with pytest.raises(SystemExit, match="2"):
        montage.make_data.main()
    assert "invalid grid value: '2'" in capsys.readouterr().err
