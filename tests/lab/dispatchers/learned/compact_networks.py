"""Networks of the compact policy that nobody trained."""

from __future__ import annotations

import numpy as np

from asa.lab.dispatchers.learned.compact import COLUMNS, SHAPES, WIDTH, CompactNetwork


def drawn(seed: int) -> CompactNetwork:
    """Weights drawn at random."""
    draw = np.random.default_rng(seed)
    return CompactNetwork({name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in SHAPES.items()})


def by_column(column: int, sign: float) -> CompactNetwork:
    """Scores are a number of a job's row, times `sign`; numbers from -2 to 2."""
    tensors = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    tensors["first.weight"][0, column] = 1
    tensors["first.bias"][0] = 2  # no rectifier is to cut it off
    tensors["second.weight"][0, 0] = tensors["third.weight"][0, 0] = 1
    tensors["score.weight"][0, 0] = sign
    assert tensors["first.weight"].shape == (WIDTH, 2 * COLUMNS)
    return CompactNetwork(tensors)
