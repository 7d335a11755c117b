"""The dispatcher `compact`: a small network scores the waiting jobs of a machine of any size.

It observes sizes as shares of the machine and times as logarithms, both also relative to the rest of the queue. A queue
looks the same on a machine of twice as many nodes, when all jobs ask for twice as many.

Each job is seen together with the machine, by the same two layers; their mean and maximum over all jobs are the
context, and a job's score is made of its own values and the context. So the order of the jobs does not matter, and
there may be any number of them.

References
----------
M. Zaheer, S. Kottur, S. Ravanbakhsh, B. Poczos, R. Salakhutdinov and A. Smola, "Deep sets", NeurIPS 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Bools, Floats, Ints
from asa.core.errors import InvalidInput
from asa.core.units import HOUR
from asa.lab.core.files import UNREADABLE, read_tensors, write_tensors
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.dras import Selecting, SelectionPolicy, seconds
from asa.lab.dispatchers.learned.selection import Selection, Turns

# -- Observation encoder ----------------------------------------------------------------------------------------------

MINUTE = 60.0
COLUMNS = 16
"""Numbers in a row, of a job and of the machine alike."""
AHEAD_S = HOUR * np.array([1 / 6, 1 / 2, 1, 3, 6, 12, 24])
"""How far ahead it sees what is expected to be free [s]."""


@dataclass(frozen=True)
class Shares:
    """A row for the machine, then one for each job of the window, then zeros: see `machine_row` and `job_rows`."""

    window: int = 64

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InvalidInput(f"the window must have room for at least 1 job, not {self.window}")

    def shape(self, nodes: int) -> tuple[int, ...]:
        """``(1 + W, COLUMNS)``, whatever the number of nodes."""
        return 1 + self.window, COLUMNS

    def __call__(self, selection: Selection) -> Reals:
        rows = np.zeros((1 + self.window, COLUMNS), np.float32)
        seen = rows_of(selection)
        rows[: len(seen)] = seen
        return rows


def rows_of(selection: Selection) -> Reals:
    """The same without the zeros, shape (1 + k, COLUMNS) for k jobs in the window."""
    queue = selection.queue
    order = np.argsort(queue.ends, kind="stable")
    ends, free = queue.ends[order] - queue.now, queue.free + np.cumsum([0, *queue.held[order]])
    rows = np.empty((1 + len(selection.places), COLUMNS))
    rows[0] = machine_row(selection, ends, free)
    rows[1:] = job_rows(selection, ends, free)
    return rows.astype(np.float32)


def machine_row(selection: Selection, ends: Floats, free: Ints) -> Floats:
    """A row for the machine; shape (COLUMNS,).

    In order: what is free now, and what is expected to be free `AHEAD_S` from now, in shares of the machine; whether
    something is reserved for; how long until that starts, and what is spare then; how many jobs wait, and how long they
    would keep the machine busy; which share of them fits now; the longest wait; the mean expected run time.

    Parameters
    ----------
    ends
        In how long running jobs are expected to end [s], rising, shape (r,).
    free
        What is expected to be free before the first of these, after it, and so on; shape (r + 1,).
    """
    queue, total = selection.queue, selection.queue.total
    left = selection.waiting
    size, estimate, wait = queue.size[left], queue.estimate[left], queue.wait[left]
    row = np.zeros(COLUMNS)
    row[0] = queue.free / total
    row[1:8] = free[np.searchsorted(ends, AHEAD_S, side="right")] / total
    if not math.isnan(selection.shadow):
        row[8] = 1.0
        row[9] = math.log1p((selection.shadow - queue.now) / MINUTE) / 8
        row[10] = max(selection.spare, 0) / total
    count = max(1, len(size))
    row[11] = math.log1p(len(size)) / 6
    row[12] = math.log1p(float((size * estimate).sum()) / (total * HOUR)) / 5
    row[13] = int((size <= queue.free).sum()) / count
    row[14] = math.log1p(float(wait.max(initial=0.0)) / MINUTE) / 8
    row[15] = math.log1p(float(estimate.sum()) / count / MINUTE) / 8
    return row


def job_rows(selection: Selection, ends: Floats, free: Ints) -> Floats:
    """A row for each job of the window; shape (k, COLUMNS).

    In order: 1; its size, and the logarithm of that; the logarithms of its expected run time, its wait and its expected
    slowdown so far; its wait in shares of the longest; whether it fits now, would end before what is reserved for
    starts, and fits beside that; the logarithm of its area; which share of the window is expected to run no longer, and
    which has no larger area; how long until it fits; what it would leave free, and where it stands in the queue.
    """
    queue, places = selection.queue, selection.places
    size, wait = queue.size[places], queue.wait[places]
    estimate: Floats = np.maximum(queue.estimate[places], 1.0)
    share: Floats = size / queue.total
    area = share * estimate
    fits = size <= queue.free
    rows = np.empty((len(places), COLUMNS))
    rows[:, 0] = 1.0
    rows[:, 1] = share
    rows[:, 2] = np.log(share) / 8
    rows[:, 3] = np.log(estimate / HOUR) / 4
    rows[:, 4] = np.log1p(wait / MINUTE) / 8
    rows[:, 5] = np.log1p(wait / np.maximum(estimate, MINUTE)) / 5
    rows[:, 6] = wait / max(float(queue.wait[selection.waiting].max(initial=0.0)), 1.0)
    rows[:, 7] = fits
    rows[:, 8] = ~(queue.now + estimate > selection.shadow)  # nothing is reserved for: NaN, and nothing is late
    rows[:, 9] = fits if math.isnan(selection.shadow) else size <= selection.spare
    rows[:, 10] = np.log(area / HOUR) / 8
    rows[:, 11] = _no_more(estimate)
    rows[:, 12] = _no_more(area)
    later = np.searchsorted(free, size)
    rows[:, 13] = (
        np.log1p(np.where(later > 0, ends[np.minimum(later, len(ends)) - 1] if len(ends) else 0.0, 0.0) / MINUTE) / 8
    )
    rows[:, 14] = np.maximum(queue.free - size, 0) / queue.total
    rows[:, 15] = places / max(1, len(queue.keys))
    return rows


def _no_more(values: Floats) -> Floats:
    """Which share of the values is no larger than each; equal values have equal shares."""
    return np.searchsorted(np.sort(values), values, side="right") / max(1, len(values))


# -- Network -----------------------------------------------------------------------------------------------------------

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
class CompactNetwork:
    """The network with its weights.

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
        """Logits of the jobs, shape (k,), whose rows follow the machine's, shape (1 + k, COLUMNS)."""
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
        """Write a safetensors file, for the option `model` of the dispatcher `compact`."""
        write_tensors(path, self.tensors, {"kind": "compact", **self.about})


def read_network(path: str | Path) -> CompactNetwork:
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
        return CompactNetwork(tensors, about)
    except UNREADABLE as error:
        raise InvalidInput(f"{path}: {error!r}. Expected a model that `asa train compact` wrote") from error


# -- Dispatcher -------------------------------------------------------------------------------------------------------

MODEL = Path(__file__).parent / "models" / "compact.safetensors"
"""The model that ships with ASA; docs/compact.md tells how it was trained."""
THRESHOLD = "60h"
"""Found on the days of Theta that the model learned from, and was chosen by: see docs/compact.md."""


class Compact(Selecting):
    """Select the job with the highest score, start it or reserve for it, then fill the gaps by score.

    It takes the two levels of DRAS (`asa.lab.dispatchers.learned.selection`), but makes its reservation anew at each
    decision, as EASY does; the network is another one. It needs nodes that are equal, but any number of them.

    Parameters
    ----------
    model
        A file that `asa train compact` wrote; "" for the model that ships with ASA.
    threshold
        Jobs that have waited for longer come first: seconds, or like ``"60h"``; > 0.
    window
        Jobs, from the head of the queue, to select from; >= 1.

    Raises
    ------
    InvalidInput
        When there is no such model, or an option is out of its range.
    """

    def __init__(self, model: str | CompactNetwork = "", threshold: float | str = THRESHOLD, window: int = 64) -> None:
        network = model if isinstance(model, CompactNetwork) else read_network(model or MODEL)
        super().__init__(greedy(network), Shares(window), turns=turns(threshold))


def turns(threshold: float | str) -> Turns:
    """Whose turn it is, in training and after it."""
    return Turns(threshold=seconds(threshold), keeps=False)


def greedy(network: CompactNetwork) -> SelectionPolicy:
    """The policy that selects the job with the highest score."""

    def policy(observation: Reals, mask: Bools) -> int:
        there = int(np.flatnonzero(mask)[-1]) + 1
        if there == 1:
            return 0
        scores = network.scores(observation[: 1 + there])
        return int(np.argmax(np.where(mask[:there], scores, -np.inf)))

    return policy
