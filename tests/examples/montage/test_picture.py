import struct
import zlib

import numpy as np
import pytest


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
