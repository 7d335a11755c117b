"""Jobs that others may yet submit: what they submitted lately, once more."""

from __future__ import annotations

import numpy as np

from asa.lab.forecast.futures import NOBODY, Coming
from asa.lab.forecast.sightings import Sightings

LEAST_S = 3 * 3600.0
"""What was seen of a shorter time [s] says nothing of the times to come."""


def coming(sightings: Sightings, now: float, until: float, rng: np.random.Generator) -> Coming:
    """One guess at the jobs that are submitted from `now` until `until` [s]: a stretch of what was seen, moved.

    It begins at any of the times seen, and goes on with the first ones behind the last.
    """
    came, since = sightings.recent()
    span = sightings.at - since
    if not (len(came) and span >= LEAST_S and until > now):
        return NOBODY
    later = (came[:, 0] - since - rng.uniform(0.0, span)) % span
    rounds = np.arange(int(np.ceil((until - now) / span)))
    submit = (now + later + span * rounds[:, None]).ravel()
    cores, walltime = np.tile(came[:, 1], len(rounds)), np.tile(came[:, 2], len(rounds))
    chosen = np.flatnonzero(submit < until)
    chosen = chosen[np.argsort(submit[chosen], kind="stable")]
    share = sightings.table.share(np.zeros(len(chosen)), rng.random(len(chosen)))
    asked = walltime[chosen]
    return Coming(submit[chosen], cores[chosen].astype(np.int64), asked, share * asked)
