from __future__ import annotations

import itertools

import numpy as np
import pytest

from asa.report.palette import DARK, LIGHT

# Machado, Oliveira, Fernandes 2009: full protanopia and deuteranopia, on linear RGB.
SIGHTS = {
    "normal": np.eye(3),
    "red-blind": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "green-blind": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(channels: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ np.clip(channels, 0, 1) / [0.9505, 1, 1.089], 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize(("colours", "least"), [(LIGHT, 15), (DARK, 26)], ids=["light", "dark"])
def test_any_two_stages_can_be_told_apart(colours: tuple[str, ...], least: float, sight: str) -> None:
    seen = [lab(SIGHTS[sight] @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) >= least


@pytest.mark.parametrize("colour", DARK)
def test_contrast_on_dark_ground(colour: str) -> None:
    bright, ground = (float(TO_XYZ[1] @ linear(each)) + 0.05 for each in (colour, "#14161a"))
    assert bright / ground >= 3
