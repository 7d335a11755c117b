"""DRAS-PG, DRAS-DQL and Decima-PG: dispatchers that select jobs by a trained network, in NumPy alone.

References
----------
Y. Fan, T. Childers, P. Rich, W. Allcock, M. Papka and Z. Lan, "Deep Reinforcement Agent for Scheduling in HPC", IPDPS
2021, sections III-A (State), III-B (shapes, Table III) and IV-A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.decision import Reserve, Start
from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY, duration
from asa.core.view import QueueView
from asa.lab.core.files import UNREADABLE, no_model, read_tensors, write_tensors
from asa.lab.core.table import TableView
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.selection import Memory, QueueColumns, Selection, Turns, queue_of

# -- Observation encoder ----------------------------------------------------------------------------------------------


class ObservationEncoder(Protocol):
    """What a policy sees of a decision, and of how many jobs."""

    @property
    def window(self) -> int:
        """Jobs to select from at most, W; >= 1."""

    def shape(self, nodes: int) -> tuple[int, ...]:
        """Of what is seen of a machine of so many nodes."""

    def __call__(self, selection: Selection) -> Reals:
        """What is seen of a decision with something to select, or with nothing."""


@dataclass(frozen=True)
class Rows:
    """What DRAS sees (section III-A): see `observe`."""

    window: int = 50
    scaling: str = "raw"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InvalidInput(f"the window must have room for at least 1 job, not {self.window}")
        if self.scaling not in SCALINGS:
            raise UnknownName("scaling", self.scaling, SCALINGS)

    def shape(self, nodes: int) -> tuple[int, ...]:
        """``(2 W + N, 2)``."""
        return 2 * self.window + nodes, 2

    def __call__(self, selection: Selection) -> Reals:
        return observe(selection.queue, selection.places, self.window, self.scaling)


def job_rows(size: Ints, estimate: Floats, priority: Floats, wait: Floats, window: int) -> Floats:
    """Two rows for each job, then zeros: (size, estimated run time [s]) and (priority, time queued [s]).

    Parameters
    ----------
    size, estimate, priority, wait
        Of at most `window` jobs, shape (j,).

    Returns
    -------
    ndarray
        Shape (2 W, 2).
    """
    rows = np.zeros((2 * window, 2))
    here = slice(0, 2 * len(size), 2), slice(1, 2 * len(size), 2)
    rows[here[0]] = np.column_stack([size, estimate])
    rows[here[1]] = np.column_stack([priority, wait])
    return rows


def node_rows(now: float, free: int, total: int, ends: Floats, held: Ints) -> Floats:
    """A row for each node: (1, 0) where it is free, or (0, time [s] until it is expected to be).

    Deviation: free nodes come first, then busy ones by their expected ends. The paper numbers nodes; but equal nodes
    have no order that matters, and so the same situation always looks the same. Nodes that are down, which are neither
    free nor expected back, come last, as (0, 0).

    Returns
    -------
    ndarray
        Shape (total, 2).
    """
    order = np.argsort(ends, kind="stable")
    until = np.repeat(np.asarray(ends)[order] - now, np.asarray(held)[order])
    rows = np.zeros((total, 2))
    rows[:free, 0] = 1.0
    rows[free : free + len(until), 1] = until
    return rows


def observe(queue: QueueColumns, places: Ints, window: int, scaling: str = "raw") -> Reals:
    """The state of a decision about the jobs at these places of the queue; shape (2 W + N, 2).

    Jobs come first, then nodes. N is what the machine has.

    Examples
    --------
    One job that asks for two of three nodes for a minute, and came 5 s ago; a node is free, two others will be in 30 s.

    >>> queue = QueueColumns(100.0, ["A"], np.array([2]), np.array([60.0]), np.array([5.0]), np.array([1.0]), 1, 3,
    ...               ends=np.array([130.0]), held=np.array([2]))
    >>> observe(queue, np.array([0]), window=1).tolist()
    [[2.0, 60.0], [1.0, 5.0], [1.0, 0.0], [0.0, 30.0], [0.0, 30.0]]
    """
    q = queue
    jobs = job_rows(q.size[places], q.estimate[places], q.priority[places], q.wait[places], window)
    nodes = node_rows(queue.now, queue.free, queue.total, queue.ends, queue.held)
    return scaled(np.concatenate([jobs, nodes]), window, scaling)


def scaled(rows: Floats, window: int, scaling: str) -> Reals:
    """The same in other units: see `SCALINGS`."""
    if scaling not in SCALINGS:
        raise UnknownName("scaling", scaling, SCALINGS)
    found: Reals = SCALINGS[scaling](rows, window).astype(np.float32)
    return found


def _raw(rows: Floats, window: int) -> Floats:
    return rows


def _shares(rows: Floats, window: int) -> Floats:
    rows = rows.copy()
    rows[:, 1] /= DAY
    rows[: 2 * window : 2, 0] /= len(rows) - 2 * window
    return rows


SCALINGS: Mapping[str, Callable[[Floats, int], Floats]] = {"raw": _raw, "shares": _shares}
"""``"raw"``: nodes and seconds, as in the paper. ``"shares"``: sizes in shares of the machine, times in days, so that
one learning rate suits all columns."""


def one_by_one(observation: Reals, window: int) -> Reals:
    """What DRAS-DQL's network sees: each job on its own, with all nodes; shape (W, 2 + N, 2)."""
    jobs, nodes = observation[: 2 * window].reshape(window, 2, 2), observation[2 * window :]
    return np.concatenate([jobs, np.broadcast_to(nodes, (window, *nodes.shape))], axis=1)


# -- Models -----------------------------------------------------------------------------------------------------------

KINDS = ("pg", "dql")
"""A policy over the window, or the value of one job."""
SLOPE = 0.01
"""Of the leaky rectifier below 0. The paper names none; this is the usual one, also of the book that it refers to."""


@dataclass(frozen=True)
class NetworkShape:
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
        A name of `asa.lab.dispatchers.learned.dras.SCALINGS`.
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
    >>> NetworkShape("pg", nodes=4360).parameters, NetworkShape("dql", nodes=4360).parameters
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
class DrasModel:
    """A network with its weights.

    Raises
    ------
    InvalidInput
        When a tensor is missing, or has another shape; says which.
    """

    shape: NetworkShape
    tensors: Mapping[str, Reals]

    def __post_init__(self) -> None:
        for name, shape in self.shape.tensors.items():
            found = self.tensors[name].shape if name in self.tensors else "no such tensor"
            if found != shape:
                raise InvalidInput(f"{name}: {found}; shape {shape} expected")

    def scores(self, observation: Reals) -> Reals:
        """What it says of each place of the window before any mask, shape (W,): logits, or values."""
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
        """Write a safetensors file, for the option `model` of a dispatcher."""
        write_tensors(path, self.tensors, asdict(self.shape))


def rectified(values: Reals) -> Reals:
    """The leaky rectifier."""
    found: Reals = np.maximum(values, SLOPE * values)
    return found


def read_model(path: str | Path) -> DrasModel:
    """The model in a safetensors file, or one that is installed under this name (`read_tensors`).

    Raises
    ------
    InvalidInput
        When it is no such file, or holds another network than it says.
    """
    try:
        tensors, about = read_tensors(path)
        return DrasModel(NetworkShape(**about | {"hidden": tuple(about["hidden"])}), tensors)
    except UNREADABLE as error:
        raise no_model(path, error, "asa train dras") from error


# -- Dispatchers ------------------------------------------------------------------------------------------------------

PATIENCE = 50.0
"""Reservations for others before the head of the queue must be selected: as many as the paper's window has jobs. A
policy that selects at random gives the head one in so many."""
TURNS = Turns(PATIENCE)
"""Without a threshold, as in the paper."""


class SelectionPolicy(Protocol):
    """What selects a job."""

    def __call__(self, observation: Reals, mask: Bools) -> int:
        """An action that `mask`, shape (W,), has."""


def policy_of(model: DrasModel, *, greedy: bool, seed: int = 0) -> SelectionPolicy:
    """What a model says: the action of the highest score, or one drawn by the softmax of the scores."""
    draw = np.random.default_rng(seed)

    def policy(observation: Reals, mask: Bools) -> int:
        scores = np.where(mask, model.scores(observation), -np.inf)
        return int(np.argmax(scores)) if greedy else int(np.argmax(scores + draw.gumbel(size=len(scores))))

    return policy


class Selecting:
    """Decide with a policy: see `asa.lab.dispatchers.learned.selection.Selection`.

    It has a memory, of the job that it has reserved for. A view that lies before the last one begins another life.
    """

    needs_estimates = True

    def __init__(
        self,
        policy: SelectionPolicy,
        sight: ObservationEncoder = Rows(),
        *,
        levels: bool = True,
        turns: Turns = TURNS,
    ) -> None:
        self._policy, self._sight, self._levels = policy, sight, levels
        self._turns, self._memory, self._last = turns, Memory(turns), -math.inf

    def decide(self, view: QueueView | TableView) -> list[Start | Reserve]:
        queue = queue_of(view)
        if queue.now < self._last:
            self._memory = Memory(self._turns)
        self._last = queue.now
        self._check(queue)
        selection = Selection(queue, self._sight.window, self._memory, levels=self._levels)
        while not selection.over:
            selection.select(self._policy(self._sight(selection), selection.mask))
        return selection.decisions

    def _check(self, queue: QueueColumns) -> None:
        """Refuse a machine that the policy cannot decide about; any will do."""


def seconds(threshold: float | str) -> float:
    """A threshold [s], which may be infinite."""
    return duration(threshold, what="threshold", endless=True)


class NetworkDispatcher(Selecting):
    """Decide with a trained network.

    Parameters
    ----------
    model
        A safetensors file, the name of an installed model, or a `DrasModel`.
    greedy
        Whether the job with the highest score is selected; else one is drawn by the policy's probabilities.

    Raises
    ------
    InvalidInput
        When there is no such model, or it was trained for another dispatcher; later, for another size of machine.
    """

    def __init__(
        self, kind: str, levels: bool, model: str | DrasModel, *, greedy: bool, seed: int = 0, turns: Turns = TURNS
    ) -> None:
        if not model:
            raise InvalidInput("a learned dispatcher needs a model: say model=FILE")
        found = model if isinstance(model, DrasModel) else read_model(model)
        self._shape = shape = found.shape
        if (shape.kind, shape.levels) != (kind, levels):
            raise InvalidInput(
                f"a model of kind {shape.kind!r} with {2 * shape.levels} levels: {kind!r} with {2 * levels} expected"
            )
        policy = policy_of(found, greedy=greedy, seed=seed)
        super().__init__(policy, Rows(shape.window, shape.scaling), levels=levels, turns=turns)

    def _check(self, queue: QueueColumns) -> None:
        if queue.total != self._shape.nodes:
            raise InvalidInput(
                f"the model was trained for a machine of {self._shape.nodes} nodes, not {queue.total}: train one for it"
            )


class DrasPg(NetworkDispatcher):
    """DRAS-PG: two levels; a network gives each job of the window a probability, and one is drawn.

    Parameters
    ----------
    model
        A safetensors file, the name of an installed model, or a `DrasModel`.
    greedy
        Whether the likeliest job is selected instead.
    patience
        Reservations for others, in a row, before the head of the queue must be selected; infinite: as in the paper.
    threshold
        Jobs that have waited for longer come first: seconds, or like ``"60h"``; infinite: as in the paper.
    """

    def __init__(
        self,
        model: str | DrasModel = "",
        greedy: bool = False,
        seed: int = 0,
        patience: float = PATIENCE,
        threshold: float | str = math.inf,
    ) -> None:
        super().__init__("pg", True, model, greedy=greedy, seed=seed, turns=Turns(patience, seconds(threshold)))


class DrasDql(NetworkDispatcher):
    """DRAS-DQL: two levels; a network tells what selecting a job is worth; the best is selected. Options: `DrasPg`."""

    def __init__(
        self, model: str | DrasModel = "", patience: float = PATIENCE, threshold: float | str = math.inf
    ) -> None:
        super().__init__("dql", True, model, greedy=True, turns=Turns(patience, seconds(threshold)))


class DecimaPg(NetworkDispatcher):
    """Decima-PG: as DRAS-PG, but jobs of the window that fit are selected until none does. Nothing is reserved.

    Deviation: the paper does not say what becomes of a selected job that does not fit; here such jobs are masked, as
    its Random passes over them. Options are as for `DrasPg`.
    """

    def __init__(self, model: str | DrasModel = "", greedy: bool = False, seed: int = 0) -> None:
        super().__init__("pg", False, model, greedy=greedy, seed=seed)
