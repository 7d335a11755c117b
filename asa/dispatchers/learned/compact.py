"""The dispatcher `compact`: a small network that scores the waiting jobs of any machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from asa.core.cluster import Bools
from asa.core.workload import Reals
from asa.dispatchers.learned.compact_network import Network, read_network
from asa.dispatchers.learned.compact_sight import Shares
from asa.dispatchers.learned.dispatcher import Policy, Selecting

MODEL = Path(__file__).parent / "models" / "compact.safetensors"
"""The model that ships with ASA; docs/compact.md tells how it was trained."""
PATIENCE = 10.0
"""Found on the validation days of the log that the model learned from."""


class Compact(Selecting):
    """Select the job with the highest score, start it or reserve for it, then fill the gaps by score.

    It takes the two levels of DRAS (`asa.dispatchers.learned.selection`), and so its promises; the network is another
    one. It needs nodes that are equal, but any number of them.

    Parameters
    ----------
    model
        A file that `asa train compact` wrote; "" for the model that ships with ASA.
    patience
        Reservations for others, in a row, before the head of the queue must be selected; >= 0.
    window
        Jobs, from the head of the queue, to select from; >= 1.

    Raises
    ------
    InvalidInput
        When there is no such model, or an option is out of its range.
    """

    def __init__(self, model: str | Network = "", patience: float = PATIENCE, window: int = 64) -> None:
        network = model if isinstance(model, Network) else read_network(model or MODEL)
        super().__init__(greedy(network), Shares(window), patience=patience)


def greedy(network: Network) -> Policy:
    """The policy that selects the job with the highest score."""

    def policy(observation: Reals, mask: Bools) -> int:
        there = int(np.flatnonzero(mask)[-1]) + 1
        if there == 1:
            return 0
        scores = network.scores(observation[: 1 + there])
        return int(np.argmax(np.where(mask[:there], scores, -np.inf)))

    return policy
