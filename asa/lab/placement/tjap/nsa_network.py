"""The networks of the neural repair operator, run without any library for learning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asa.core.arrays import Floats, Ints
from asa.core.errors import InvalidInput, UnknownName
from asa.lab.core.compiled import compiled, inner
from asa.lab.core.tensors import UNREADABLE, read_tensors
from asa.lab.core.workload import Reals

ATTRIBUTES, PLACES = 4, 100
"""Rows and columns of a state: attributes of a node, and how many nodes are seen (q). There are as many actions."""
LINEAR, CONVOLUTION, TANH = 0, 1, 2
STATES = ("steps", "paper")
"""What the first two attributes of a node are; see `asa.lab.placement.tjap.nsa.observe`."""


class Layer(NamedTuple):
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


def _connected(*sizes: int) -> tuple[Layer, ...]:
    """Linear layers of these sizes, with tanh between them."""
    values = (ATTRIBUTES * PLACES, *sizes)
    layers = [Layer(LINEAR, values[k], values[k + 1]) for k in range(len(sizes))]
    return tuple(each for layer in layers for each in (layer, Layer(TANH)))[:-1]


def _convolutional(first: int, second: int) -> tuple[Layer, ...]:
    """Two convolutions of so many channels, tanh between them only, and two linear layers."""
    convolutions = Layer(CONVOLUTION, ATTRIBUTES, first, 10), Layer(TANH), Layer(CONVOLUTION, first, second, 5, 2)
    return (*convolutions, Layer(LINEAR, second * 44, 256), Layer(LINEAR, 256, PLACES))


NETWORKS: Mapping[str, tuple[Layer, ...]] = {
    "fcn-1": _connected(64, 64, PLACES),
    "fcn-2": _connected(64, 64, 64, PLACES),
    "fcn-3": _connected(96, 64, PLACES),
    "cnn-1": _convolutional(4, 4),
    "cnn-2": _convolutional(8, 4),
    "cnn-3": _convolutional(16, 8),
}
"""The actors of the paper's Table II, as printed."""


class Network(NamedTuple):
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
        Most nodes that a job asks for where it was trained; states are told in shares of it.
    """

    layers: Ints
    weights: Reals
    shares: Reals
    steps: bool
    biggest: float


NONE = Network(np.zeros((0, 6), np.int64), np.zeros(0, np.float32), np.zeros((0, 0, 0), np.float32), True, 1.0)
"""No network at all."""


def network(name: str, tensors: Mapping[str, npt.NDArray[np.floating]], state: str, biggest: float) -> Network:
    """A network that runs, of weights as torch has them.

    Linear layers with nothing between them become one: the same function, with fewer products.

    Parameters
    ----------
    name
        One of `NETWORKS`.
    tensors
        ``K.weight``, shape (outputs, inputs) or (outputs, inputs, width), and ``K.bias``, shape (outputs,), for each
        layer K, counted from 0, that has any.
    state, biggest
        See `Network`.

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
    layers: list[Layer] = []
    parts: list[tuple[Floats, Floats]] = []
    for place, layer in enumerate(NETWORKS[name]):
        weight, bias = np.zeros((0, 0)), np.zeros(0)
        if layer.kind != TANH:
            weight = _tensor(tensors, f"{place}.weight", layer.shape)
            bias = _tensor(tensors, f"{place}.bias", layer.shape[:1])
        if layers and layer.kind == layers[-1].kind == LINEAR:
            before, offset = parts.pop()
            weight, bias = weight @ before, weight @ offset + bias
            layer = Layer(LINEAR, layers.pop().inputs, layer.outputs)
        layers.append(layer)
        parts.append((weight, bias))
    sizes = [weight.size + bias.size for weight, bias in parts]
    rows = [(*layer, begin) for layer, begin in zip(layers, np.cumsum([0, *sizes]).tolist(), strict=False)]
    flat = [(piece.T if piece.ndim == 2 else piece).ravel() for part in parts for piece in part]
    weights = np.concatenate(flat).astype(np.float32)
    return Network(np.array(rows), weights, _shares(layers[0], parts[0][0]), state == "steps", float(biggest))


def _shares(layer: Layer, weight: Floats) -> Reals:
    """See `Network`."""
    if layer.kind != LINEAR:
        return np.zeros((0, 0, 0), np.float32)
    mine = weight.T.reshape(ATTRIBUTES, PLACES, layer.outputs)[2:]
    return np.pad(mine.cumsum(axis=1), ((0, 0), (1, 0), (0, 0))).astype(np.float32)


def _tensor(tensors: Mapping[str, npt.NDArray[np.floating]], name: str, shape: tuple[int, ...]) -> Floats:
    if name not in tensors or tensors[name].shape != shape:
        found = tensors[name].shape if name in tensors else "no such tensor"
        raise InvalidInput(f"{name}: {found}; shape {shape} expected")
    return np.asarray(tensors[name], dtype=np.float64)


def read_network(path: str | Path) -> Network:
    """The actor in a safetensors file that `asa train nsa` wrote.

    Raises
    ------
    InvalidInput
        When it is no such file, or holds another network than it says.
    """
    try:
        tensors, about = read_tensors(path)
        return network(about["network"], tensors, about["state"], float(about["biggest"]))
    except UNREADABLE as error:
        raise InvalidInput(f"{path}: {error!r}. Expected a model that `asa train nsa` wrote") from error


def widest(network: Network) -> int:
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
def scores(network: Network, state: Reals, seen: int) -> Reals:
    """What the network says of each action, before any mask: shape (PLACES,).

    Parameters
    ----------
    state
        Shape (ATTRIBUTES, PLACES); the last two rows have one value for the nodes that are seen, and 0 behind them.
    seen
        How many nodes are seen.
    """
    room = np.zeros((2, max(state.size, 16 * PLACES)), np.float32)
    room[0, : state.size] = state.ravel()
    return room[forward(network, room, seen), :PLACES].copy()


@inner
def forward(network: Network, room: Reals, seen: int) -> int:
    """Run the network on the state in `room[0]`, see `scores`; the row of `room` that has what comes out.

    Parameters
    ----------
    room
        Room to work in, shape (2, >= widest(network)).
    """
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
