"""Just enough FITS for this example: one two-dimensional image a file and a tangent-plane projection.

The workflow and its data maker thereby need numpy alone. For anything beyond this use astropy, which the
tests compare with. A file written here carries its pixel scale as a CD matrix: Montage does not read the PC
matrix with unit CDELT that astropy writes, and takes such a pixel for one degree.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Header = dict[str, str | float]

CARD = 80  # a header is made of 80-character cards
BLOCK = 2880  # and, like the pixels, of blocks of 2880 bytes


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _card(text: str) -> tuple[str, str | float]:
    """Return keyword and value of a card such as ``CRPIX1  = 256.5 / pixel``; others stay text."""
    keyword, _, rest = text.partition("=")
    rest = rest.strip()
    if rest.startswith("'"):
        return keyword.strip(), rest[1:].partition("'")[0].strip()
    rest = rest.partition("/")[0].strip()
    try:
        return keyword.strip(), float(rest)
    except ValueError:
        return keyword.strip(), rest


def _read_header(file: IO[bytes], path: Path) -> Header:
    header: Header = {}
    while block := file.read(BLOCK).decode("ascii", "replace"):
        if not header and not block.startswith("SIMPLE  ="):
            break
        for start in range(0, len(block), CARD):
            card = block[start : start + CARD]
            if card.rstrip() == "END":
                return header
            if card[8:9] == "=":
                keyword, value = _card(card)
                header[keyword] = value
    raise ValueError(f"{path} is not a FITS file: expected cards from SIMPLE to END")


def read_header(path: Path) -> Header:
    """Return the primary header of a FITS file, plain or gzipped.

    Raises
    ------
    ValueError
        If the file does not begin with a complete FITS header.
    """
    with _open(path) as file:
        return _read_header(file, path)


def read_template(path: Path) -> Header:
    """Return a Montage header template: the cards of a FITS header as lines of text."""
    return dict(_card(line) for line in path.read_text().splitlines() if "=" in line)


def read_image(path: Path) -> tuple[Header, Array]:
    """Return header and pixels, shape (NAXIS2, NAXIS1), of the primary image; blank pixels are nan.

    Raises
    ------
    ValueError
        If the file is not FITS, holds no floating-point image of two dimensions, or ends early.
    """
    with _open(path) as file:
        header = _read_header(file, path)
        if header.get("NAXIS") != 2 or header.get("BITPIX") not in (-32, -64):
            raise ValueError(f"{path} holds no floating-point image of two dimensions")
        width, height, bits = (int(float(header[key])) for key in ("NAXIS1", "NAXIS2", "BITPIX"))
        size = width * height * -bits // 8
        pixels = file.read(size)
    if len(pixels) < size:
        raise ValueError(f"{path} ends after {len(pixels)} of {size} bytes of pixels")
    return header, np.frombuffer(pixels, f">f{-bits // 8}").reshape(height, width).astype(float)


def write_image(path: Path, pixels: Array, header: Header) -> None:
    """Write pixels, shape (height, width), as 32-bit floats under the given header."""
    height, width = pixels.shape
    cards = [f"{'SIMPLE':8}= {'T':>20}"]
    for keyword, value in ({"BITPIX": -32, "NAXIS": 2, "NAXIS1": width, "NAXIS2": height} | header).items():
        text = f"'{value:8}'" if isinstance(value, str) else f"{str(value).upper():>20}"
        cards.append(f"{keyword:8}= {text}")
    head = "".join(f"{card:{CARD}}" for card in [*cards, "END"]).encode("ascii")
    body = pixels.astype(">f4").tobytes()
    with path.open("wb") as file:
        file.write(head + b" " * (-len(head) % BLOCK) + body + b"\0" * (-len(body) % BLOCK))


@dataclass(frozen=True)
class Projection:
    """A gnomonic projection (TAN) of the sky onto pixels, which count from 1 as in FITS.

    Attributes
    ----------
    ra, dec
        Where the plane touches the sky [deg].
    x, y
        The pixel there.
    cd
        Degrees a pixel, row by row: the CD matrix.

    References
    ----------
    Calabretta & Greisen (2002), Representations of celestial coordinates in FITS, section 5.1.3.
    """

    ra: float
    dec: float
    x: float
    y: float
    cd: tuple[float, float, float, float]

    @staticmethod
    def rotated(ra: float, dec: float, x: float, y: float, *, scale: float, angle: float) -> Projection:
        """Return one with square pixels, a scale [deg] wide, north up, turned by an angle [deg]."""
        cos, sin = float(np.cos(np.radians(angle))), float(np.sin(np.radians(angle)))
        return Projection(ra, dec, x, y, (-scale * cos, -scale * sin, -scale * sin, scale * cos))

    @staticmethod
    def of(header: Header) -> Projection:
        """Read the projection of a header, given as CD matrix or as CDELT and CROTA2.

        Raises
        ------
        ValueError
            If the header's projection is not TAN.
        """
        if not str(header.get("CTYPE1", "")).endswith("TAN"):
            raise ValueError(f"expected the projection TAN, not CTYPE1 = {header.get('CTYPE1')!r}")
        number = {key: float(value) for key, value in header.items() if not isinstance(value, str)}
        centre = number["CRVAL1"], number["CRVAL2"], number["CRPIX1"], number["CRPIX2"]
        if "CD1_1" in number:
            return Projection(*centre, (number["CD1_1"], number["CD1_2"], number["CD2_1"], number["CD2_2"]))
        angle = np.radians(number.get("CROTA2", 0.0))
        cos, sin = float(np.cos(angle)), float(np.sin(angle))
        dx, dy = number["CDELT1"], number["CDELT2"]
        return Projection(*centre, (dx * cos, -dy * sin, dx * sin, dy * cos))

    def header(self) -> Header:
        """Return the cards that describe this projection."""
        matrix = {f"CD{row}_{column}": self.cd[2 * row + column - 3] for row in (1, 2) for column in (1, 2)}
        return {
            "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRVAL1": self.ra, "CRVAL2": self.dec,
            "CRPIX1": self.x, "CRPIX2": self.y, **matrix, "EQUINOX": 2000.0,
        }  # fmt: skip

    @property
    def pixel_area(self) -> float:
        """The area of a pixel [deg^2]."""
        a, b, c, d = self.cd
        return abs(a * d - b * c)

    def sky(self, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        """Return right ascension and declination [deg] of pixel coordinates of any one shape."""
        a, b, c, d = np.radians(self.cd)
        dx, dy = np.asarray(x, float) - self.x, np.asarray(y, float) - self.y
        xi, eta = a * dx + b * dy, c * dx + d * dy
        dec0 = np.radians(self.dec)
        away = np.cos(dec0) - eta * np.sin(dec0)
        ra = np.radians(self.ra) + np.arctan2(xi, away)
        dec = np.arctan2(np.sin(dec0) + eta * np.cos(dec0), np.hypot(xi, away))
        return np.degrees(ra), np.degrees(dec)

    def pixel(self, ra: ArrayLike, dec: ArrayLike) -> tuple[Array, Array]:
        """Return pixel coordinates of right ascensions and declinations [deg] of any one shape."""
        dra, dec_ = np.radians(np.asarray(ra, float) - self.ra), np.radians(np.asarray(dec, float))
        dec0 = np.radians(self.dec)
        toward = np.sin(dec0) * np.sin(dec_) + np.cos(dec0) * np.cos(dec_) * np.cos(dra)
        xi = np.cos(dec_) * np.sin(dra) / toward
        eta = (np.cos(dec0) * np.sin(dec_) - np.sin(dec0) * np.cos(dec_) * np.cos(dra)) / toward
        a, b, c, d = np.radians(self.cd)
        area = a * d - b * c
        return self.x + (d * xi - b * eta) / area, self.y + (a * eta - c * xi) / area
