"""The compact policy's network: a function of a set of jobs, run without any library for learning.

Each job is seen together with the machine, by the same two layers; their mean and maximum over all jobs are the
context, and a job's score is made of its own values and the context. So the order of the jobs does not matter, and
there may be any number of them.

References
----------
M. Zaheer, S. Kottur, S. Ravanbakhsh, B. Poczos, R. Salakhutdinov and A. Smola, "Deep sets", NeurIPS 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.errors import InvalidInput
from asa.lab.core.tensors import UNREADABLE, read_tensors, write_tensors
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.compact_sight import COLUMNS

WIDTH = 64
"""Values between two layers."""
LAYERS: Mapping[str, tuple[int, int]] = {
    "first": (WIDTH, 2 * COLUMNS),
    "second": (WIDTH, WIDTH),
    "context": (WIDTH, 2 * WIDTH),
    "third": (WIDTH, 2 * WIDTH),
    "score": (1, WIDTH),
}
"""Outputs and inputs of the layers: of ``first`` a job's row and the machine's, of ``context`` mean and maximum, of
``third`` a job's values and the context. A rectifier follows each but the last."""
SHAPES: Mapping[str, tuple[int, ...]] = {f"{name}.weight": shape for name, shape in LAYERS.items()} | {
    f"{name}.bias": shape[:1] for name, shape in LAYERS.items()
}
"""Shapes of weights and biases, by name."""
PARAMETERS = sum(int(np.prod(shape)) for shape in SHAPES.values())
"""How many weights and biases there are."""


@dataclass(frozen=True, eq=False)
class Network:
    """The network with its weights.

    Parameters
    ----------
    tensors
        Arrays of float32 as `SHAPES` has them.
    about
        What is told with them: JSON-able.

    Raises
    ------
    InvalidInput
        When a tensor is missing, has another shape, or a number that is not finite; says which.
    """

    tensors: Mapping[str, Reals]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, shape in SHAPES.items():
            found = self.tensors[name].shape if name in self.tensors else "no such tensor"
            if found != shape:
                raise InvalidInput(f"{name}: {found}; shape {shape} expected")
            if not np.isfinite(self.tensors[name]).all():
                raise InvalidInput(f"{name}: finite numbers expected")

    def scores(self, rows: Reals) -> Reals:
        """What it says of each job, shape (k,): logits.

        Parameters
        ----------
        rows
            As `asa.lab.dispatchers.learned.compact_sight.rows_of` makes them, shape (1 + k, COLUMNS); k >= 1.
        """
        t = self.tensors
        machine = t["first.weight"][:, COLUMNS:] @ rows[0] + t["first.bias"]  # the same for all jobs
        first = np.maximum(rows[1:] @ t["first.weight"][:, :COLUMNS].T + machine, 0)
        jobs = np.maximum(first @ t["second.weight"].T + t["second.bias"], 0)
        pooled = np.concatenate([jobs.mean(axis=0), jobs.max(axis=0)])
        context = np.maximum(t["context.weight"] @ pooled + t["context.bias"], 0)
        shared = t["third.weight"][:, WIDTH:] @ context + t["third.bias"]
        third = np.maximum(jobs @ t["third.weight"][:, :WIDTH].T + shared, 0)
        found: Reals = third @ t["score.weight"][0] + t["score.bias"]
        return found

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, for the option `model` of the dispatcher `compact`.

        Raises
        ------
        InvalidInput
            When the library for these files is not installed.
        """
        write_tensors(path, self.tensors, {"kind": "compact", **self.about})


def read_network(path: str | Path) -> Network:
    """The network in a safetensors file that `asa train compact` wrote.

    Raises
    ------
    InvalidInput
        When it is no such file, or holds another network.
    """
    try:
        tensors, about = read_tensors(path)
        if about.pop("kind") != "compact":
            raise ValueError("a model of another dispatcher")
        return Network(tensors, about)
    except UNREADABLE as error:
        raise InvalidInput(f"{path}: {error!r}. Expected a model that `asa train compact` wrote") from error
