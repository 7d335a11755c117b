"""Simulated annealing: the paper's baseline, corrected, and as its authors published it; and with a trained network
that puts jobs back. No library for learning is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.compiled import compiled, inner
from asa.lab.core.files import UNREADABLE, no_model, read_tensors
from asa.lab.core.workload import Reals
from asa.lab.placement.tjap.instance import Placed, Tables, Window, placed
from asa.lab.placement.tjap.native import (
    Random,
    accepts,
    below,
    count_left,
    draw,
    give_back,
    paid,
    rest_of,
    some_jobs,
    sort_front,
    stretch,
    take,
)
from asa.lab.placement.tjap.seq import in_order

# -- Network -----------------------------------------------------------------------------------------------------------

ATTRIBUTES, PLACES = 4, 100
"""Rows and columns of a state: attributes of a node, and how many nodes are seen (q). There are as many actions."""
LINEAR, CONVOLUTION, TANH = 0, 1, 2
STATES = ("steps", "paper")
"""What the first two attributes of a node are; see `asa.lab.placement.tjap.nsa.observe`."""


class RepairLayer(NamedTuple):
    """A layer: its kind, channels (or values) in and out, and a convolution's width and stride."""

    kind: int
    inputs: int = 0
    outputs: int = 0
    width: int = 1
    stride: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its weights, as torch has them."""
        return (self.outputs, self.inputs, self.width)[: 3 if self.kind == CONVOLUTION else 2]

    @property
    def parameters(self) -> int:
        """How many weights and biases it has."""
        return self.inputs * self.outputs * self.width + self.outputs


def _connected(*sizes: int) -> tuple[RepairLayer, ...]:
    """Linear layers of these sizes, with tanh between them."""
    values = (ATTRIBUTES * PLACES, *sizes)
    layers = [RepairLayer(LINEAR, values[k], values[k + 1]) for k in range(len(sizes))]
    return tuple(each for layer in layers for each in (layer, RepairLayer(TANH)))[:-1]


def _convolutional(first: int, second: int) -> tuple[RepairLayer, ...]:
    """Two convolutions of so many channels, tanh between them only, and two linear layers."""
    convolutions = (
        RepairLayer(CONVOLUTION, ATTRIBUTES, first, 10),
        RepairLayer(TANH),
        RepairLayer(CONVOLUTION, first, second, 5, 2),
    )
    return (*convolutions, RepairLayer(LINEAR, second * 44, 256), RepairLayer(LINEAR, 256, PLACES))


NETWORKS: Mapping[str, tuple[RepairLayer, ...]] = {
    "fcn-1": _connected(64, 64, PLACES),
    "fcn-2": _connected(64, 64, 64, PLACES),
    "fcn-3": _connected(96, 64, PLACES),
    "cnn-1": _convolutional(4, 4),
    "cnn-2": _convolutional(8, 4),
    "cnn-3": _convolutional(16, 8),
}
"""The actors of the paper's Table II, as printed."""


class RepairNetwork(NamedTuple):
    """A trained actor.

    Parameters
    ----------
    layers
        Kind, inputs, outputs, width, stride, and where in `weights` the layer's begin; shape (L, 6).
    weights
        Of all layers. A linear layer's are by input first; biases come after them.
    shares
        Of attributes (3) and (4), which are the same for all nodes that are seen: what the first layer makes of a 1,
        by how many nodes are seen; shape (2, PLACES + 1, outputs). No rows where it is a convolution.
    steps
        Whether its states are ``"steps"``; else ``"paper"``.
    biggest
        Most nodes that a job asks for where it was trained; states are shares of it.
    """

    layers: Ints
    weights: Reals
    shares: Reals
    steps: bool
    biggest: float


NONE = RepairNetwork(np.zeros((0, 6), np.int64), np.zeros(0, np.float32), np.zeros((0, 0, 0), np.float32), True, 1.0)
"""No network at all."""


def network(name: str, tensors: Mapping[str, npt.NDArray[np.floating]], state: str, biggest: float) -> RepairNetwork:
    """A network that runs, of weights as torch has them.

    Linear layers with nothing between them become one: the same function, with fewer products.

    Parameters
    ----------
    tensors
        ``K.weight``, shape (outputs, inputs) or (outputs, inputs, width), and ``K.bias``, shape (outputs,), for each
        layer K, counted from 0, that has any.

    Raises
    ------
    InvalidInput
        When a tensor is missing, or has another shape; says which.
    UnknownName
        When there is no such network, or no such state.
    """
    if name not in NETWORKS:
        raise UnknownName("network", name, NETWORKS)
    if state not in STATES:
        raise UnknownName("state", state, STATES)
    layers: list[RepairLayer] = []
    parts: list[tuple[Floats, Floats]] = []
    for place, layer in enumerate(NETWORKS[name]):
        weight, bias = np.zeros((0, 0)), np.zeros(0)
        if layer.kind != TANH:
            weight = _tensor(tensors, f"{place}.weight", layer.shape)
            bias = _tensor(tensors, f"{place}.bias", layer.shape[:1])
        if layers and layer.kind == layers[-1].kind == LINEAR:
            before, offset = parts.pop()
            weight, bias = weight @ before, weight @ offset + bias
            layer = RepairLayer(LINEAR, layers.pop().inputs, layer.outputs)
        layers.append(layer)
        parts.append((weight, bias))
    sizes = [weight.size + bias.size for weight, bias in parts]
    rows = [(*layer, begin) for layer, begin in zip(layers, np.cumsum([0, *sizes]).tolist(), strict=False)]
    flat = [(piece.T if piece.ndim == 2 else piece).ravel() for part in parts for piece in part]
    weights = np.concatenate(flat).astype(np.float32)
    return RepairNetwork(np.array(rows), weights, _shares(layers[0], parts[0][0]), state == "steps", float(biggest))


def _shares(layer: RepairLayer, weight: Floats) -> Reals:
    """See `RepairNetwork`."""
    if layer.kind != LINEAR:
        return np.zeros((0, 0, 0), np.float32)
    mine = weight.T.reshape(ATTRIBUTES, PLACES, layer.outputs)[2:]
    return np.pad(mine.cumsum(axis=1), ((0, 0), (1, 0), (0, 0))).astype(np.float32)


def _tensor(tensors: Mapping[str, npt.NDArray[np.floating]], name: str, shape: tuple[int, ...]) -> Floats:
    if name not in tensors or tensors[name].shape != shape:
        found = tensors[name].shape if name in tensors else "no such tensor"
        raise InvalidInput(f"{name}: {found}; shape {shape} expected")
    return np.asarray(tensors[name], dtype=np.float64)


def read_network(path: str | Path) -> RepairNetwork:
    """The actor in a file that `asa train nsa` wrote, or one that is installed under this name (`read_tensors`).

    Raises
    ------
    InvalidInput
        When it is no such file, or holds another network than it says.
    """
    try:
        tensors, about = read_tensors(path)
        return network(about["network"], tensors, about["state"], float(about["biggest"]))
    except UNREADABLE as error:
        raise no_model(path, error, "asa train nsa") from error


def widest(network: RepairNetwork) -> int:
    """Most values between two layers."""
    most, length = ATTRIBUTES * PLACES, PLACES
    for kind, _, outputs, width, stride, _ in network.layers.tolist():
        if kind == CONVOLUTION:
            length = (length - width) // stride + 1
            most = max(most, outputs * length)
        elif kind == LINEAR:
            most = max(most, outputs)
    return most


@compiled
def scores(network: RepairNetwork, state: Reals, seen: int) -> Reals:
    """What the network says of each action, before any mask: shape (PLACES,).

    Parameters
    ----------
    state
        Shape (ATTRIBUTES, PLACES); the last two rows have one value for the nodes that are seen, and 0 behind them.
    """
    room = np.zeros((2, max(state.size, 16 * PLACES)), np.float32)
    room[0, : state.size] = state.ravel()
    return room[forward(network, room, seen), :PLACES].copy()


@inner
def forward(network: RepairNetwork, room: Reals, seen: int) -> int:
    """Run the network on the state in `room[0]`; the row of `room`, shape (2, >= widest(network)), with the scores."""
    at, length, values = 0, PLACES, ATTRIBUTES * PLACES
    for row in range(len(network.layers)):
        kind, inputs, outputs = network.layers[row, 0], network.layers[row, 1], network.layers[row, 2]
        width, stride, begin = network.layers[row, 3], network.layers[row, 4], network.layers[row, 5]
        x, y, weights = room[at], room[1 - at], network.weights[begin:]
        if kind == TANH:
            for k in range(values):
                x[k] = squash(x[k])
            continue
        if kind == LINEAR:
            for o in range(outputs):
                y[o] = weights[inputs * outputs + o]
            if row == 0:
                for k in range(2):
                    share, one = network.shares[k, seen], x[(2 + k) * PLACES]
                    for o in range(outputs):
                        y[o] += share[o] * one
                inputs = 2 * PLACES
            linear(weights, inputs, outputs, x, y)
            values = outputs
        else:
            convolve(weights, (inputs, outputs, width, stride), length, x, y)
            length = (length - width) // stride + 1
            values = outputs * length
        at = 1 - at
    return at


@inner
def linear(weights: Reals, inputs: int, outputs: int, x: Reals, y: Reals) -> None:
    """Add `x` times weights to `y`. Inputs come in fours: four at once, so that `y` is read and written less often."""
    for i in range(0, inputs, 4):
        p, q, r, s = x[i], x[i + 1], x[i + 2], x[i + 3]
        if p == 0 and q == 0 and r == 0 and s == 0:
            continue  # nodes that are not there
        a, b = weights[i * outputs :], weights[(i + 1) * outputs :]
        c, d = weights[(i + 2) * outputs :], weights[(i + 3) * outputs :]
        for o in range(outputs):
            y[o] += a[o] * p + b[o] * q + c[o] * r + d[o] * s


@inner
def convolve(weights: Reals, sizes: tuple[int, int, int, int], length: int, x: Reals, y: Reals) -> None:
    """`y`, channel after channel, of a convolution of `x`, channel after channel."""
    inputs, outputs, width, stride = sizes
    made, bias = (length - width) // stride + 1, inputs * outputs * width
    for o in range(outputs):
        to = y[o * made : (o + 1) * made]
        to[:] = weights[bias + o]
        for i in range(inputs):
            for k in range(width):
                weight, of = weights[(o * inputs + i) * width + k], x[i * length + k : (i + 1) * length]
                if stride == 1:  # known when it is compiled: several places at once
                    for p in range(made):
                        to[p] += weight * of[p]
                else:
                    for p in range(made):
                        to[p] += weight * of[p * stride]


@inner
def squash(value: np.float32) -> np.float32:
    """tanh, within 7e-6, from Lambert's continued fraction: several at once, which the library's cannot be."""
    x = min(max(value, np.float32(-6.5)), np.float32(6.5))
    s = x * x
    over = (((s + np.float32(990)) * s + np.float32(135135)) * s + np.float32(4729725)) * s + np.float32(34459425)
    under = (((np.float32(45) * s + np.float32(13860)) * s + np.float32(945945)) * s + np.float32(16216200)) * s
    y = x * over / (under + np.float32(34459425))
    return min(max(y, np.float32(-1)), np.float32(1))


# -- Methods ----------------------------------------------------------------------------------------------------------

MODEL = "nsa"
"""The model of the distribution `asa-hpc-models`; docs/lab/papers/nsa.md tells how it was trained."""
Moves = tuple[int, int, int, int, bool, float, float]
"""Of a search: iterations, most jobs that one takes out, places drawn for a job, among how many of the first nodes left
(0: all), whether as published, and the temperatures at the beginning and at the end."""


class Anneal:
    """Take one or two jobs out, put each back at random among what is left; accept by Metropolis' rule.

    A job goes on neighbours in the ring of nodes that are left then. So a placement may have no order in which all
    jobs have neighbours, as the paper's text has it (DCAS): its authors' code does not ask for one either.

    Parameters
    ----------
    warmest, coldest
        Temperature at the beginning and at the end, in units of cost; `warmest` is 2500 unless given, 25000 with
        `as_published`.
    starts
        Among how many of the first nodes left a job's first node is drawn; 0 for all of them.
    as_published
        As the authors' code does it: a rejected move is not taken back, so that it is a random walk that remembers the
        best it has seen; what a job costs is rounded down, and at least 1; jobs go back in the window's order instead
        of the largest first; and `starts` is 100 unless given.

    References
    ----------
    Algorithm 1 of the paper without its network, and Table I: 500 iterations, 2500 to 2.5, two jobs. The authors' code
    (https://github.com/lzk23/hpcschedule, commit 1f87208) takes 25000 for 2500. S. Kirkpatrick, C. D. Gelatt and
    M. P. Vecchi, Science 220 (1983).
    """

    def __init__(
        self,
        *,
        iterations: int = 500,
        warmest: float | None = None,
        coldest: float = 2.5,
        removed: int = 2,
        starts: int | None = None,
        as_published: bool = False,
        seed: int = 0,
    ) -> None:
        if warmest is None:
            warmest = 25000.0 if as_published else 2500.0
        if iterations < 0 or removed < 1 or not warmest >= coldest > 0:
            raise InvalidInput(
                f"{iterations} iterations, {removed} jobs removed, temperatures from {warmest:g} to {coldest:g}: "
                "at least 0, at least 1, and falling, above 0, expected"
            )
        starts = (100 if as_published else 0) if starts is None else starts
        self._moves, self._seed = (iterations, removed, 1, starts, as_published, warmest, coldest), seed

    def place(self, window: Window) -> Placed:
        return _annealed(window, NONE, self._moves, self._seed)


class Neural:
    """As `Anneal`, but for where a job that was taken out begins: a network draws that.

    Parameters
    ----------
    iterations, warmest, coldest, removed, seed
        As there.
    tries
        How many places are drawn for a job, with one run of the network; it goes where its hops cost least of them.
        More of them make annealing better that is short, and worse that is long.
    anywhere
        Where more nodes are left than the network sees, whether it sees those from a random one on; else the first
        ones, as in the paper, where no job begins anywhere else then.
    model
        File of a network that `asa train nsa` wrote, or the name of one that is installed; None for `MODEL`;
        ``"none"`` for no network: all places are as likely, which shows what the network is worth.

    Raises
    ------
    InvalidInput
        When an option is out of its range, or the file is no such network.

    References
    ----------
    Algorithm 1 and section V-B of the paper.
    """

    def __init__(
        self,
        *,
        iterations: int = 500,
        warmest: float = 2500.0,
        coldest: float = 2.5,
        removed: int = 2,
        tries: int = 1,
        anywhere: bool = True,
        model: str | None = None,
        seed: int = 0,
    ) -> None:
        if iterations < 0 or removed < 1 or tries < 1 or not warmest >= coldest > 0:
            raise InvalidInput(
                f"{iterations} iterations, {removed} jobs removed, {tries} tries, temperatures from {warmest:g} to "
                f"{coldest:g}: at least 0, at least 1, at least 1, and falling, above 0, expected"
            )
        self._network = NONE if model == "none" else read_network(model or MODEL)
        starts = 0 if anywhere or model == "none" else PLACES
        self._moves, self._seed = (iterations, removed, tries, starts, False, warmest, coldest), seed

    def place(self, window: Window) -> Placed:
        return _annealed(window, self._network, self._moves, self._seed)


def _annealed(window: Window, network: RepairNetwork, moves: Moves, seed: int) -> Placed:
    room, state = np.zeros((2, widest(network)), np.float32), np.array([seed], dtype=np.uint64)
    search = window.tables, window.sizes, in_order(window), places_of(window)
    return placed(anneal(*search, network, room, moves, state), len(window.sizes))


def places_of(window: Window) -> Reals:
    """Of each idle node its leaf switch, and the switch above that: numbers in (0, 1], shape (2, N).

    The paper divides by how many switches there are. A window only knows those with idle nodes: the last of them is 1.
    """
    groups = window.groups[np.minimum([0, 1], len(window.groups) - 1)]
    return np.asarray((groups + 1) / (groups[:, -1:] + 1), dtype=np.float32)


@inner
def rotate(ring: Ints, count: int, by: int, again: Ints) -> None:
    """Turn a ring of so many places, so that it begins `by` places later; `again` is room to work in."""
    for k in range(count):
        again[k] = ring[k]
    for k in range(count):
        ring[k] = again[k + by if k + by < count else k + by - count]


@inner
def observe(
    t: Tables, where: Reals, scale: tuple[bool, float], ring: Ints, asked: tuple[int, int, float], state: Reals
) -> None:
    """Fill `state` with what the network sees: attribute after attribute of the first `PLACES` nodes left, then zeros.

    The attributes of section V-B: (1) the leaf switch and (2) the switch above it, as numbers; (3) nodes that the job
    asks for; (4) what the others that are still out ask for in the mean; (3) and (4) in shares of the most that a job
    asks for. For a network of ``"steps"``, (1) and (2) are how many nodes of the ring are below the same switch from
    this one on, in shares of the most that a job asks for.

    Parameters
    ----------
    scale
        Whether the network is one of ``"steps"``, and the most that a job asks for.
    asked
        How many places `ring` has, (3) and (4) in nodes.
    state
        Shape (>= ATTRIBUTES * PLACES,).
    """
    steps, biggest = scale
    count, size, others = asked
    seen = min(count, PLACES)
    for k in range(4 * PLACES):
        state[k] = 0.0
    mine, theirs, unit = np.float32(size / biggest), np.float32(others / biggest), 1.0 / biggest
    for k in range(seen):
        state[2 * PLACES + k] = mine
        state[3 * PLACES + k] = theirs
    for level in range(2):
        if not steps:
            for k in range(seen):
                state[level * PLACES + k] = where[level, ring[k]]
            continue
        switch, end = t.groups[min(level, len(t.groups) - 1)], seen
        while end < count and switch[ring[end]] == switch[ring[seen - 1]]:
            end += 1
        for k in range(seen - 1, -1, -1):
            if k + 1 < seen and switch[ring[k]] != switch[ring[k + 1]]:
                end = k + 1
            state[level * PLACES + k] = min((end - k) * unit, 1.0)


@inner
def weigh(scores: Reals, seen: int) -> float:
    """Turn the scores of the first actions into weights, by which they are drawn; their sum. Others are masked."""
    most, total = scores[0], 0.0
    for k in range(1, seen):
        most = max(most, scores[k])
    for k in range(seen):
        scores[k] = math.exp(scores[k] - most)
        total += scores[k]
    return total


@inner
def drawn(weights: Reals, seen: int, total: float, state: Random) -> int:
    """One of the first actions, by weight."""
    rest = draw(state) * total
    for k in range(seen - 1):
        rest -= weights[k]
        if rest < 0:
            return k
    return seen - 1


@compiled
def anneal(
    t: Tables,
    sizes: Ints,
    owner: Ints,
    where: Reals,
    network: RepairNetwork,
    room: Reals,
    moves: Moves,
    state: Random,
) -> Ints:
    """The best placement met on the way from `owner`, which is changed; see `Anneal`, and `Neural` with a network."""
    iterations, removed, tries, starts, published, warmest, coldest = moves
    jobs, seen, left = len(sizes), np.zeros(t.groups.shape, np.int64), np.zeros(t.groups.shape, np.int64)
    guided = len(network.layers) > 0
    ring, again = np.empty(len(owner), np.int64), np.empty(len(owner), np.int64)
    rank, last = np.arange(jobs) if published else -sizes, owner.copy()
    chosen, before = np.arange(jobs), np.empty(jobs)
    spent: Floats = paid(t, owner, jobs, ring, seen)
    known = whole(spent) if published else spent.sum()  # of the placement that rejected moves are compared with
    known -= count_left(t, ring, rest_of(owner, ring), left)
    best, kept = known, owner.copy()
    cooling = math.log(coldest / warmest)
    for turn in range(iterations):
        heat = warmest * math.exp(cooling * turn / iterations)
        if not published:
            last[:], before[:] = owner, spent
        many = 1 + below(state, min(removed, jobs))
        some_jobs(state, chosen, many)
        sort_front(chosen, many, rank)
        give_back(owner, chosen, many)
        count = rest_of(owner, ring)
        for k in range(many):
            job, others, within, total, weights = chosen[k], 0.0, min(count, PLACES), 0.0, room[0]
            if guided:
                for other in range(k + 1, many):
                    others += sizes[chosen[other]] / (many - 1 - k)
                if starts == 0 and count > PLACES:
                    rotate(ring, count, below(state, count), again)
                observe(t, where, (network.steps, network.biggest), ring, (count, sizes[job], others), room[0])
                weights = room[forward(network, room, within)]
                total = weigh(weights, within)
            among = min(count, starts) if starts > 0 else count
            start, spent[job] = 0, math.inf
            for _ in range(tries):
                at = drawn(weights, within, total, state) if guided else below(state, among)
                there = stretch(t, ring, count, at, sizes[job], seen)
                if there < spent[job]:
                    start, spent[job] = at, there
            take(owner, ring, count, start, sizes[job], job)
            count = rest_of(owner, ring)
        found = (whole(spent) if published else spent.sum()) - count_left(t, ring, count, left)
        if accepts(state, found, known, heat):
            known = found
            if found < best:
                best = found
                kept[:] = owner
        elif not published:
            owner[:], spent[:] = last, before
    return kept


@inner
def whole(spent: Floats) -> float:
    """What jobs cost together if each pays a whole number, and at least 1."""
    total = 0.0
    for each in spent:
        total += max(math.floor(each), 1.0)
    return total
