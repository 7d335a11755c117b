"""State tables as the documentation shows them."""

from __future__ import annotations

from asa.core.run import Table


def drawn(table: Table) -> str:
    """A table as a state diagram in Mermaid's language; arrows with the same ends are drawn as one."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, what), after in table.items():
        ends = [str(getattr(each, "name", each)).lower() for each in (state, after)]
        arrows.setdefault((ends[0], ends[1]), []).append(what.replace(":", ""))
    return "\n".join(["stateDiagram-v2", *(f"    {a} --> {b}: {', '.join(what)}" for (a, b), what in arrows.items())])
