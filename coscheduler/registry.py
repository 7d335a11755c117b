"""Names of experts and sharing rules that users type; third parties add some by entry point."""

from __future__ import annotations

from asa.core.registry import Registry

EXPERTS = Registry(
    "expert",
    {
        "cpu": "coscheduler.experts.literal:cpu",
        "memory": "coscheduler.experts.literal:memory",
        "stage": "coscheduler.experts.literal:stage",
        "elapsed": "coscheduler.experts.literal:elapsed",
        "contention": "coscheduler.experts.contention:LearnedContention",
    },
    group="asa.experts",
    owes=("vote",),
)
SHARING_RULES = Registry(
    "sharing rule",
    {
        "space": "coscheduler.sharing.space:Space",
        "static": "coscheduler.sharing.static:Static",
        "asax": "coscheduler.sharing.asax:AsaX",
        "scavenger": "coscheduler.sharing.scavenger:Scavenger",
    },
    group="asa.sharing_rules",
    owes=("decide", "learn", "state", "restore"),
)
