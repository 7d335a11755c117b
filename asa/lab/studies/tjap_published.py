"""What the topology-aware allocation paper printed, and its authors published beside it.

References
----------
Z. Lan et al., tables III and IV; the figures behind figure 6 are files ``simanneal/comm_wait_cost_*.txt`` of
github.com/lzk23/hpcschedule, here as means over their ten epochs.
"""

from __future__ import annotations

TABLES: dict[str, tuple[float, float | None]] = {
    "seq": (105_023.5, None),
    "sa:as_published=yes,iterations=500": (91_813.2, 0.76),
    "sa:as_published=yes,iterations=1000": (90_809.7, 1.55),
    "nsa": (89_588.7, 1.54),
    "scas": (83_092.3, 18.96),
}
"""Placement method: cost by period, and time for a window [s]; means of ten epochs. SCAS was solved by SCIP."""

FIGURE_6: dict[str, tuple[float, float]] = {
    "fcfs": (34_902.4, 165.4),
    "easy": (34_892.5, 163.3),
    "nwp 10 s": (31_351.9, 185.6),
    "nwp 20 s": (31_255.5, 198.1),
    "nwp 30 s": (31_011.1, 211.7),
    "nwp 40 s": (30_845.6, 225.6),
    "nwp 50 s": (30_679.9, 244.7),
    "nwp 60 s": (30_598.5, 259.2),
}
"""Dispatcher and window: cost of a job, and its wait [s]; windows with the paper's neural method."""
