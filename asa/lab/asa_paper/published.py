"""What the ASA paper printed: Table 1, against which models are made and comparisons are held."""

from __future__ import annotations

from dataclasses import dataclass

SCALES = {"hpc2n": (28, 56, 112), "uppmax": (160, 320, 640)}
"""The paper's two systems, and the cores that its workflows used there."""

STRATEGIES = ("big-job", "per-stage", "asa")
"""The paper's strategies, in the order of Table 1."""

STRATEGIES_SHOWN = (*STRATEGIES, "asa-naive")
"""What is compared unless something else is asked for: those, and ASA where no job can depend on another."""

PAPER_ESTIMATOR = "algorithm1:sampling=tuned"
"""What the paper judges in its Table 2."""


@dataclass(frozen=True)
class PublishedRun:
    """One run of Table 1."""

    system: str
    workflow: str
    cores: int
    strategy: str
    total_wait_s: float
    makespan_s: float
    core_hours: float


def _table(text: str) -> tuple[PublishedRun, ...]:
    runs = []
    for line in text.split("\n"):
        workflow, cores, *numbers = line.split()
        system = next(name for name, scales in SCALES.items() if int(cores) in scales)
        for position, strategy in enumerate(STRATEGIES):
            wait, makespan, core_hours = map(float, numbers[3 * position : 3 * position + 3])
            runs.append(PublishedRun(system, workflow, int(cores), strategy, wait, makespan, core_hours))
    return tuple(runs)


TABLE1 = _table(
    """montage 28 150 1287 9 258 1408 7 132 1277 7
montage 56 206 1261 16 426 1496 12 219 1280 12
montage 112 452 1513 33 699 1779 20 393 1464 20
montage 160 1415 2718 58 2220 3507 40 1652 2921 39
montage 320 8135 10126 177 15582 17170 106 10062 11637 105
montage 640 10200 11940 309 16600 18200 171 11851 13436 169
blast 28 70 2750 20 68 2727 20 75 2749 20
blast 56 133 1476 20 153 1508 21 111 1477 21
blast 112 165 926 23 194 965 24 144 907 23
blast 160 7100 7846 33 7125 7880 33 7041 7800 33
blast 320 8133 8494 32 8240 8611 33 8194 8557 32
blast 640 10133 10394 46 10150 10429 47 10144 10419 48
statistics 28 52 5593 43 48 5487 42 51 5549 43
statistics 56 96 4397 66 263 4644 34 116 4444 33
statistics 112 124 4110 124 191 4193 62 70 4085 62
statistics 160 2772 7095 192 4960 9241 95 2712 6986 95
statistics 320 7935 11886 351 18008 21993 177 7471 11439 176
statistics 640 10122 13868 665 21014 24817 338 9497 13369 344"""
)
"""All 54 runs.

References
----------
A. Souza et al., "ASA: the adaptive scheduling algorithm", Table 1. Statistics on 28 cores was charged 42 to 43
core-hours under all three strategies, twice what its stages explain; at all other scales they explain it.
"""
