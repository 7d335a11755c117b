"""The two sites of the ASA paper, as models.

The paper gives their machines (section 4.2). Their loads, and that UPPMAX's batch system looks at 100 waiting jobs, are
taken as given. Everything else is a guess that was chosen by search so that jobs wait as in the paper's Table 1: what
its three Big Jobs waited, in the mean. Probes of an hour's wall time, submitted every hour for 13 days after a week
from the empty machine, in 16 workloads, wait (simulated; mean, and its standard deviation over the workloads):

=======  =====  =======  ===============  =========================
site     cores  Table 1  mean wait [s]    share that starts at once
=======  =====  =======  ===============  =========================
hpc2n       28       91     74 +-   50    .88
hpc2n       56      145    127 +-   73    .86
hpc2n      112      247    257 +-  120    .83
uppmax     160     3762   3227 +-  907    .32
uppmax     320     8068   6401 +- 1755    .23
uppmax     640    10152  10276 +- 2506    .14
=======  =====  =======  ===============  =========================

Table 1 has three runs for each row, which differ by a factor of two or more where waits are short. Its sequential
stages hardly wait on UPPMAX, and neither do probes of one core (10 s). The half minute that real batch systems take
over every job is not modelled: most of hpc2n's jobs start at once, and few wait long.

The paper's Table 2 has waits ten times as long, of another period; these models do not have them.
"""

from __future__ import annotations

from pathlib import Path

from asa.core.errors import InvalidInput, UnknownName
from asa.core.units import DAY, HOUR
from asa.lab.traces.mixture import JobClass
from asa.lab.traces.site import Site

_LITTLE = (0.01, 0.05, 0.12, 0.25, 0.45, 0.7, 1.0)
_HALF = (0.02, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
"""How much of what they request jobs use; the first is what logs show, the second what keeps UPPMAX's queue steady."""
_WORKDAYS = tuple(
    (1.0 if day < 5 else 0.7) * (0.7 if hour < 7 else 1.4 if 9 <= hour < 18 else 1.0)
    for day in range(7)
    for hour in range(24)
)


def _hours(*hours: float) -> tuple[float, ...]:
    return tuple(hour * HOUR for hour in hours)


HPC2N = Site(
    name="hpc2n",
    nodes=602,
    cores_per_node=28,
    load=0.775,
    classes=(
        JobClass(0.41, (1, 2, 4, 7, 14), _hours(2.5, 15, 30, 60), _LITTLE, (1, 1, 2, 4)),
        JobClass(0.38, (28, 28, 56, 84), _hours(2.5, 7.5, 15, 30), _LITTLE, (1, 1, 1, 2)),
        JobClass(0.12, (84, 112, 140, 224, 280), _hours(1.25, 5, 15, 30), _LITTLE, (1, 1, 2)),
        JobClass(0.08, (448, 560, 840, 1120), _hours(1.25, 5, 15), _LITTLE),
    ),
    week=_WORKDAYS,
    swing=0.055,
    swing_s=0.3 * DAY,
    dispatcher="easy",
    note="chosen so that jobs wait as in Table 1 of the ASA paper",
)
"""HPC2N's Kebnekaise: a volatile, short queue."""
UPPMAX = Site(
    name="uppmax",
    nodes=486,
    cores_per_node=20,
    load=0.963,
    classes=(
        JobClass(0.35, (1, 1, 2, 4, 8), _hours(8, 36, 72, 144), _HALF, (1, 1, 1, 2)),
        JobClass(0.26, (20, 20, 20, 40), _hours(8, 36, 72, 108), _HALF),
        JobClass(0.24, (80, 100, 160, 200), _hours(4, 8, 12), _HALF),
        JobClass(0.15, (640,), _hours(2, 4, 8), _HALF),
    ),
    even_s=3.5 * DAY,
    dispatcher="backfill:depth=1,limit=100",
    note="chosen so that jobs wait as in Table 1 of the ASA paper",
)
"""UPPMAX's Rackham: a long queue that changes slowly."""
SITES = {"hpc2n": HPC2N, "uppmax": UPPMAX}


def site(name: str) -> Site:
    """A site model by its name, or from the file of that name.

    Raises
    ------
    UnknownName
        When there is neither.
    InvalidInput
        When the file is not there, or holds no site model.

    Examples
    --------
    >>> site("uppmax").cluster()
    <Cluster of 486 nodes: 9720 cores>
    """
    if name in SITES:
        return SITES[name]
    if Path(name).is_file():
        return Site.read(name)
    if "/" in name or Path(name).suffix:
        raise InvalidInput(
            f"there is no file {name!r}: a site model is one of {', '.join(SITES)}, or a file that `asa calibrate` made"
        )
    raise UnknownName("site", name, SITES)
