"""The dispatcher `compact`: a small network that scores the waiting jobs of any machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asa.core.arrays import Bools
from asa.lab.core.workload import Reals
from asa.lab.dispatchers.learned.compact_network import Network, read_network
from asa.lab.dispatchers.learned.compact_sight import Shares
from asa.lab.dispatchers.learned.dispatcher import Policy, Selecting, seconds
from asa.lab.dispatchers.learned.selection import Turns

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

    def __init__(self, model: str | Network = "", threshold: float | str = THRESHOLD, window: int = 64) -> None:
        network = model if isinstance(model, Network) else read_network(model or MODEL)
        super().__init__(greedy(network), Shares(window), turns=turns(threshold))


def turns(threshold: float | str) -> Turns:
    """Whose turn it is, in training and after it."""
    return Turns(threshold=seconds(threshold), keeps=False)


def greedy(network: Network) -> Policy:
    """The policy that selects the job with the highest score."""

    def policy(observation: Reals, mask: Bools) -> int:
        there = int(np.flatnonzero(mask)[-1]) + 1
        if there == 1:
            return 0
        scores = network.scores(observation[: 1 + there])
        return int(np.argmax(np.where(mask[:there], scores, -np.inf)))

    return policy
