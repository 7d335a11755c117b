"""A grey picture of an image, as PNG."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from fits import Array
from numpy.typing import NDArray


def stretch(pixels: Array, softening: float = 0.02) -> NDArray[np.uint8]:
    """Map brightness to 0..255 so that faint nebula and bright stars both show.

    Parameters
    ----------
    pixels
        Shape (height, width), the lowest row first as in FITS; nan becomes black.
    softening
        Up to this share of the range the scale is linear, beyond logarithmic; above 0.

    Returns
    -------
    array
        Shape (height, width), the highest row first as in pictures.

    References
    ----------
    Lupton et al. (2004), Preparing red-green-blue images from CCD data: the inverse hyperbolic sine.
    """
    low, high = np.nanpercentile(pixels, [1.0, 99.9])
    share = np.clip((np.nan_to_num(pixels, nan=low) - low) / max(high - low, 1e-12), 0.0, 1.0)
    grey = 255 * np.arcsinh(share / softening) / np.arcsinh(1 / softening)
    return np.asarray(grey.round()[::-1], np.uint8)


def write_png(path: Path, grey: NDArray[np.uint8]) -> None:
    """Write grey levels, shape (height, width), as PNG."""
    height, width = grey.shape
    rows = np.hstack([np.zeros((height, 1), np.uint8), grey])  # each row begins with its filter: 0, none

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits of grey, no interlacing
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
