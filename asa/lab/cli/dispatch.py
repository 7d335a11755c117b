"""``asa dispatch``: plan one machine's queue, as it is at one instant."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, seconds, table
from asa.core.errors import InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.core.signals import ends_on_signals

if TYPE_CHECKING:  # NumPy is for those who plan, not for those who ask for help
    from asa.lab.dispatchers.planning.instance import Instance, QueuePlan

SHOWN = 20
"""Jobs that are shown to people; ``--json`` has all."""

BY = {
    "cp": "constraints alone have found it",
    "improved": "better than the list plan it began with",
    "warm start": "the list plan it began with: constraints have found none that is better",
}
"""Who has found a plan, where constraints are at work."""

WARM_UP_S = 0.05
"""For a first plan, of an example: what compiles does so then, and is no part of what is measured."""

DEFAULT = "listplan:scheme=both"
PLANNERS = "listplan, pcp20, pcp19 or hcp19"

MEASURED = """
listplan plans 500 jobs in some ten milliseconds of processor time; unless a scheme is named, both are tried and the
better plan is kept. Constraint programming (pcp20, pcp19, hcp19) begins with such a plan. It helps with about ten jobs
on 64 nodes: of five such queues it proved the best plan within half a second, at most 0.05 % better. On 1,173 nodes it
proved one plan of five. It does not help from a hundred jobs on: of twenty queues it improved no plan in a second,
where listplan's own search (--time-limit 1s) gained 0.09 to 1.1 % on all but one (one core, 2026-11-22; see
docs/lab/plans.md).
"""


class Dispatch:
    """Plan when and where all jobs of a queue start."""

    help = "plan a queue: when and where each job starts, and how far that is from the best"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = MEASURED
        add = parser.add_argument
        add("instance", metavar="INSTANCE.json", help="a machine, what runs on it, and its queue; gzipped or not")
        add("--dispatcher", default=DEFAULT, metavar="NAME[:OPTIONS]", help=f"who plans: {PLANNERS} ({DEFAULT})")
        limit = "time to look for a better plan, such as 250ms (listplan: none, the first one will do; others: 10s)"
        add("--time-limit", type=seconds, metavar="S", help=limit)

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        planner = DISPATCHERS.create(options.dispatcher)
        if not hasattr(planner, "solve"):
            raise InvalidInput(f"dispatcher {options.dispatcher!r} makes no plans of whole queues: {PLANNERS} expected")
        from asa.lab.dispatchers.planning.bound import lower_bound
        from asa.lab.dispatchers.planning.instance import example, read_instance
        from asa.lab.dispatchers.planning.verify import violations

        instance = read_instance(options.instance)
        limit = getattr(planner, "default_limit_s", 0.0) if options.time_limit is None else options.time_limit
        planner.solve(example(), min(limit, WARM_UP_S))
        began = time.perf_counter()
        found = planner.solve(instance, limit)
        seconds = time.perf_counter() - began
        about = {"dispatcher": options.dispatcher, "status": found.status, "seconds": seconds}
        if found.plan is None:
            text = f"{options.dispatcher} has found no plan in {limit:g} s: give it more (--time-limit)"
            return CommandResult(about | dict(found.notes), text, 1)
        if broken := violations(instance, found.plan):
            return CommandResult(about | {"violations": broken}, "the plan breaks laws:\n" + "\n".join(broken), 1)
        objective, bound = found.plan.objective(instance), max(lower_bound(instance), found.bound or 0.0)
        data = about | {"objective": objective, "bound": bound, "gap": objective / bound - 1 if bound else 0.0}
        jobs = _jobs(instance, found.plan)
        by = found.notes.get("by")
        text = _text(data, jobs, f"{BY[by]}\n" if by else "")
        return CommandResult(data | {"notes": dict(found.notes), "jobs": jobs}, text)


def _jobs(instance: Instance, plan: QueuePlan) -> list[dict[str, Any]]:
    slowdown = instance.slowdown(plan.start).tolist()
    columns = zip(instance.names, plan.start.tolist(), slowdown, strict=True)
    return [
        {"id": name, "start": start, "slowdown": slow, "nodes": plan.nodes(job)}
        for job, (name, start, slow) in enumerate(columns)
    ]


def _text(data: dict[str, Any], jobs: list[dict[str, Any]], by: str) -> str:
    first = sorted(jobs, key=lambda job: job["start"])[:SHOWN]
    rows = [
        {"job": job["id"], "start [s]": job["start"], "slowdown": job["slowdown"], "nodes": _nodes(job["nodes"])}
        for job in first
    ]
    more = f"\n... and {len(jobs) - len(first)} more: --json has all" if len(jobs) > len(first) else ""
    return (
        f"{data['dispatcher']}: {data['status']} plan of {len(jobs)} jobs in {data['seconds']:.3g} s\n"
        f"mean slowdown {data['objective']:.4f}; none is below {data['bound']:.4f} (gap {data['gap']:.1%})\n{by}\n"
        f"{table(rows, 'no job waits')}{more}"
    )


def _nodes(nodes: list[tuple[int, int]]) -> str:
    """Nodes, and units on each where there are several.

    >>> _nodes([(3, 1), (7, 2)])
    '3 7*2'
    """
    return " ".join(f"{node}*{units}" if units > 1 else str(node) for node, units in nodes)
