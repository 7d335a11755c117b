"""Networks of DRAS as files, and what they say of the jobs in a window. No library for learning is needed to run one.

References
----------
Y. Fan et al., "Deep Reinforcement Agent for Scheduling in HPC", IPDPS 2021, section III-B and Table III.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.tensors import UNREADABLE, read_tensors, write_tensors
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.observation import SCALINGS

KINDS = ("pg", "dql")
"""A policy over the window, or the value of one job."""
SHIPPED = Path(__file__).parent / "models"
"""Where the models are that ship: each is called by the name of its file without the suffix, as in ``theta-pg``."""
SLOPE = 0.01
"""Of the leaky rectifier below 0. The paper names none; this is the usual one, also of the book that it refers to."""


@dataclass(frozen=True)
class Shape:
    """A network: a filter of 1 x 2 over the rows, two fully connected layers with a leaky rectifier, an output layer.

    The filter makes one number of each row. Hidden layers have no bias; filter and output have one. So the numbers of
    parameters are those of Table III, but for DRAS-DQL on Cori: 160,784,004 with the input that the table gives, where
    it prints 161,764,004.

    Parameters
    ----------
    kind
        ``"pg"``: sees all jobs of the window, has one output for each. ``"dql"``: sees one job, and has one output.
    nodes
        Nodes of the machine, N; >= 1.
    window
        Jobs in the window, W; >= 1.
    hidden
        Sizes of the fully connected layers; >= 1. The paper's for Theta; 10,000 and 4,000 for Cori.
    scaling
        A name of `asa.lab.dispatchers.learned.observation.SCALINGS`.
    levels
        Whether it was trained to select at two levels (DRAS) or at none (Decima-PG).

    Raises
    ------
    InvalidInput
        When a size is below 1.
    UnknownName
        When there is no such kind or scaling.

    Examples
    --------
    >>> Shape("pg", nodes=4360).parameters, Shape("dql", nodes=4360).parameters
    (21890053, 21449004)
    """

    kind: str
    nodes: int
    window: int = 50
    hidden: tuple[int, int] = (4000, 1000)
    scaling: str = "raw"
    levels: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownName("kind of network", self.kind, KINDS)
        if self.scaling not in SCALINGS:
            raise UnknownName("scaling", self.scaling, SCALINGS)
        if len([*self.hidden]) != 2 or min(self.nodes, self.window, *self.hidden) < 1:
            raise InvalidInput(f"{self}: sizes of at least 1 expected, and two hidden layers")

    @property
    def jobs(self) -> int:
        """How many jobs it sees at once."""
        return self.window if self.kind == "pg" else 1

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its weights, (outputs, inputs), and biases, by name."""
        first, second = self.hidden
        return {
            "filter.weight": (1, 2),
            "filter.bias": (1,),
            "first.weight": (first, 2 * self.jobs + self.nodes),
            "second.weight": (second, first),
            "output.weight": (self.jobs, second),
            "output.bias": (self.jobs,),
        }

    @property
    def parameters(self) -> int:
        """How many weights and biases it has."""
        return sum(int(np.prod(shape)) for shape in self.tensors.values())


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its weights.

    Parameters
    ----------
    shape
        The network.
    tensors
        Arrays of float32 as `Shape.tensors` has them.

    Raises
    ------
    InvalidInput
        When a tensor is missing, or has another shape; says which.
    """

    shape: Shape
    tensors: Mapping[str, Reals]

    def __post_init__(self) -> None:
        for name, shape in self.shape.tensors.items():
            found = self.tensors[name].shape if name in self.tensors else "no such tensor"
            if found != shape:
                raise InvalidInput(f"{name}: {found}; shape {shape} expected")

    def scores(self, observation: Reals) -> Reals:
        """What it says of each place of the window before any mask, shape (W,): logits, or values.

        Parameters
        ----------
        observation
            As `asa.lab.dispatchers.learned.observation.observe` makes it, shape (2 W + N, 2).
        """
        t, window = self.tensors, self.shape.window
        rows = observation @ t["filter.weight"][0] + t["filter.bias"]
        if self.shape.kind == "pg":
            first = t["first.weight"] @ rows
        else:  # all jobs see the same nodes: these need to be multiplied once only
            seen = t["first.weight"][:, 2:] @ rows[2 * window :]
            first = rows[: 2 * window].reshape(window, 2) @ t["first.weight"][:, :2].T + seen
        second = rectified(first) @ t["second.weight"].T
        found: Reals = rectified(second) @ t["output.weight"].T + t["output.bias"]
        return found.reshape(window)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, for the option `model` of a dispatcher.

        Raises
        ------
        InvalidInput
            When the library for these files is not installed.
        """
        write_tensors(path, self.tensors, asdict(self.shape))


def rectified(values: Reals) -> Reals:
    """The leaky rectifier."""
    found: Reals = np.maximum(values, SLOPE * values)
    return found


def read_model(path: str | Path) -> Model:
    """The model in a safetensors file, or one that ships. Such files hold numbers only: reading one runs nothing.

    Raises
    ------
    InvalidInput
        When it is no such file, or holds another network than it says.
    """
    shipped = SHIPPED / f"{path}.safetensors"
    path = shipped if Path(path).name == str(path) and shipped.is_file() and not Path(path).exists() else path
    try:
        tensors, about = read_tensors(path)
        return Model(Shape(**about | {"hidden": tuple(about["hidden"])}), tensors)
    except UNREADABLE as error:
        raise InvalidInput(f"{path}: {error!r}. Expected a model of DRAS: a safetensors file") from error
