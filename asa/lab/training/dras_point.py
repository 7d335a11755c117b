"""A point of the curve of a training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """An episode.

    Parameters
    ----------
    episode
        Its number, from 1.
    phase, jobs
        What it had.
    reward, actions, updates
        Sum of the rewards while it learned, and how many actions and changes of the network there were.
    cpu_s
        Processor time of the episode [s].
    validation_reward
        Sum of the rewards of the model after it, on the validation jobs; these are the same for all episodes.
    mean_wait_s, max_wait_s, mean_bounded_slowdown, utilisation
        Of the same.
    """

    episode: int
    phase: str
    jobs: int
    reward: float
    actions: int
    updates: int
    cpu_s: float
    validation_reward: float
    mean_wait_s: float
    max_wait_s: float
    mean_bounded_slowdown: float
    utilisation: float
