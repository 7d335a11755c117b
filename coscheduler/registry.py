"""Names of sharing rules and experts that users type; importing this is quick."""

from __future__ import annotations

from asa.core.registry import Registry

EXPERTS = Registry("expert", group="asa.experts", owes=("vote",))
SHARING_RULES = Registry("sharing rule", group="asa.sharing_rules", owes=("decide", "learn", "state", "restore"))
