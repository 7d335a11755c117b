"""What stages ask for, of memory and wall time, where that is learned: by what their tasks used in earlier runs."""

from __future__ import annotations

import logging
import math
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from asa.core.errors import GraphError, StateError
from asa.core.history import Frozen, Usage
from asa.core.job import Capabilities
from asa.core.ports import Advice
from asa.core.stage import LearnedRequest, StageSpec, again, kind_of
from asa.core.units import MIB, brief, size
from asa.log.history import HISTORY, UsageHistory
from asa.workflows.fingerprint import meaning
from asa.workflows.graph import Graph
from asa.workflows.stage import MEMORY, WALLTIME, Needs, Node

RISK = 0.01
"""Share of tasks that may need more than is asked for, and are tried again."""

IDLE_TIME = 0.1
"""What a second of wall time costs that is asked for and not used, as a share of one that is lost with a failed
attempt: it is not charged, but the longer the wall time, the longer the wait."""

OWN_MEMORY = 96 * MIB
"""What a supervisor and its idle workers need on a node beside the tasks [bytes]: 50 to 80 MiB, rounded up."""

OWN_TIME_S, MINUTE_S = 60.0, 60.0
"""How long an allocation has nodes before and after its tasks, at most [s]; in what steps wall times are asked for."""

_INPUTS_MOST = 10_000
"""Of so many arguments of a stage, or of a task, ASA looks whether they are files."""

_log = logging.getLogger(__name__)


class LearnedRequests:
    """What is asked for at a site, by the history of a state directory. Opened when first needed.

    No run fails for what was or could be learned: where that cannot be read, what is declared is asked for.

    Parameters
    ----------
    state
        The state directory.
    site
        The site.
    everything
        Whether it is learned for all stages, and not only for those that say so.
    workdir
        Where tasks run: names of files are relative to it.
    """

    def __init__(self, state: Path, site: Capabilities, *, everything: bool = False, workdir: str = ".") -> None:
        self._path, self._site, self._everything, self._workdir = state / HISTORY, site, everything, workdir

    def ask(self, graph: Graph, specs: tuple[StageSpec, ...]) -> tuple[StageSpec, ...]:
        """Stages, with what is learned in place of what is declared.

        Raises
        ------
        GraphError
            When tasks of one have used more than the site gives to a job.
        """
        if not self._everything and not any(node.stage.needs.auto for node in graph.nodes.values()):
            return specs
        history = self._open()
        try:
            return tuple(self._learned(spec, graph.nodes[spec.name], history) for spec in specs)
        finally:
            if history is not None:
                history.close()

    def _open(self) -> UsageHistory | None:
        try:
            return UsageHistory(self._path) if self._path.exists() else None
        except StateError as error:
            _log.warning("what earlier runs used is not known, and what is declared asked for: %s", error)
            return None

    def _learned(self, spec: StageSpec, node: Node, history: UsageHistory | None) -> StageSpec:
        needs = node.stage.needs
        site = self._site.for_jobs(needs.options)
        rows, frozen = self._known(spec, node, history)
        given = largest_input(node, self._workdir) if rows else None
        if (self._everything or MEMORY in needs.auto) and not needs.launcher:
            spec = self._with_memory(spec, needs, site, rows, frozen, given)
        if self._everything or WALLTIME in needs.auto:
            spec = self._with_walltime(spec, needs, site, rows, frozen, given)
        return spec

    def _known(self, spec: StageSpec, node: Node, history: UsageHistory | None) -> tuple[list[Usage], Frozen | None]:
        """What tasks used that did the same as it does now, here; and what is frozen."""
        if history is None:
            return [], None
        stage, machine, code = kind_of(spec.name), self._site.site, spec.code or meaning(node.stage)
        try:
            rows = [row for row in history.of(stage, machine=machine) if row.code in ("", code) or not code]
            return rows, history.frozen(stage, machine)
        except StateError as error:
            _log.warning("what %s used in earlier runs is not known: %s", spec.name, error)
            return [], None

    def _with_memory(
        self,
        spec: StageSpec,
        needs: Needs,
        site: Capabilities,
        rows: list[Usage],
        frozen: Frozen | None,
        given: int | None,
    ) -> StageSpec:
        """The stage with so much memory as its tasks need that run at once, and ASA on their nodes."""
        at_once = max(1, spec.resources.cores // spec.task.cores)
        uses = [(row.memory, max(row.run_time_s, 1e-3), row.input, row.tasks) for row in rows if _used(row, row.memory)]
        lacked = [row.asked_memory or row.memory or 0 for row in rows if row.outcome == "memory"]
        most = site.largest.memory if site.largest is not None else None
        largest, own = 0, OWN_MEMORY * (spec.resources.nodes or 1)
        if frozen is not None and frozen.memory:
            each, own, why = frozen.memory, 0, "frozen with asa history freeze"
        elif (found := advised(uses, lacked, given)) is not None:
            advice, short = found
            each, largest = math.ceil(advice.amount), math.ceil(max(advice.largest, short + 1 if short else 0))
            why = _words(advice, short, size)
        elif spec.task.memory is not None:
            each, own, why = spec.task.memory, 0, "as declared: what its tasks use is not known yet"
        elif most is not None and site.largest is not None:
            each, own = most // site.largest.cores * spec.task.cores, 0
            why = "what its tasks use is not known yet, and this is the share of memory that goes with its cores"
        else:
            return replace(spec, learned=_also(spec, "memory: the site's default, what its tasks use is not known yet"))
        whole = _up(each * at_once + own, MIB)
        if most is not None and whole > most:
            if max(largest, each if frozen is not None and frozen.memory else 0) > most:
                raise GraphError(
                    f"stage {spec.name!r}: one task needs {size(each)} of memory ({why}), more than the {size(most)} "
                    f"that {site.site} gives to one job{f'; {site.bounds}' if site.bounds else ''}: choose a larger "
                    "machine, or lower what it needs"
                )
            whole, why = most, f"{why}; {site.site} gives no job more than {size(most)}"
            each = min(each, most)
        else:
            each = whole // at_once
        reason = f"memory {size(whole)}{f' for {at_once} tasks at a time' if at_once > 1 else ''}: {why}"
        return replace(
            spec,
            resources=replace(spec.resources, memory=whole),
            task=replace(spec.task, memory=each),
            learned=_also(spec, reason, memory=largest),
        )

    def _with_walltime(
        self,
        spec: StageSpec,
        needs: Needs,
        site: Capabilities,
        rows: list[Usage],
        frozen: Frozen | None,
        given: int | None,
    ) -> StageSpec:
        """The stage with so much wall time as its tasks take, one after the other where not all run at once."""
        at_once = 1 if needs.launcher else max(1, spec.resources.cores // spec.task.cores)
        turns = -(-(spec.width or spec.expect or 1) // at_once)
        uses = [(row.run_time_s, 1.0, row.input, row.tasks) for row in rows if _used(row, row.run_time_s)]
        lacked = [row.asked_s or row.run_time_s for row in rows if row.outcome == "time"]
        longest = 0.0
        if frozen is not None and frozen.walltime_s:
            needed, why = frozen.walltime_s, "frozen with asa history freeze"
        elif (found := advised(uses, lacked, given, IDLE_TIME)) is not None:
            advice, short = found
            longest = _up(max(advice.largest, short) + OWN_TIME_S, MINUTE_S)
            mean = sum(use[0] * use[3] for use in uses) / sum(use[3] for use in uses) if uses else advice.amount
            needed, why = advice.amount + (turns - 1) * mean + OWN_TIME_S, _words(advice, short, brief)
            why += f", {turns} one after the other" if turns > 1 else ""
        else:
            needed, why = spec.walltime_s, "as declared: how long its tasks take is not known yet"
        walltime_s = _up(needed, MINUTE_S)
        if site.longest_s is not None and walltime_s > site.longest_s:
            known_s = needed if frozen is not None and frozen.walltime_s else longest
            if known_s > site.longest_s and not spec.checkpoint:
                raise GraphError(
                    f"stage {spec.name!r}: its tasks need a wall time of {brief(walltime_s)} ({why}), more than the "
                    f"{brief(site.longest_s)} that {site.site} allows{f'; {site.bounds}' if site.bounds else ''}: make "
                    "its tasks shorter, or say checkpoint=True"
                )
            walltime_s, why = site.longest_s, f"{why}; {site.site} allows no more than {brief(site.longest_s)}"
        reason = f"wall time {brief(walltime_s)}: {why}"
        return replace(
            spec,
            walltime_s=walltime_s,
            run_time_s=min(spec.run_time_s, walltime_s),
            learned=_also(spec, reason, run_time_s=longest),
        )


def advised(
    uses: Sequence[tuple[float | None, float, int | None, int]],
    lacked: Sequence[float],
    given: int | None,
    idle: float = 1.0,
) -> tuple[Advice, float] | None:
    """What to ask for, and what a task had that needed more than any that returned, or 0; None if nothing is known.

    Parameters
    ----------
    uses
        What tasks used, for how long, how large their inputs were, and how many tasks that stands for.
    lacked
        What tasks had that had too little.
    given
        How large the largest input is [bytes], if known.
    idle
        As for `asa.estimators.requests.Quantile`.
    """
    from asa.estimators import requests  # here: NumPy takes a tenth of a second to import

    estimator = requests.make(risk=RISK, idle=idle)
    for used, seconds, about, tasks in uses:
        estimator.learn(used or 0.0, seconds, about, tasks)
    short = max(lacked, default=0.0)
    advice = estimator.ask(given)
    if short and (advice is None or short >= advice.largest):
        return Advice(again(short, 0.0), len(lacked), advice.largest if advice else 0.0), short
    return None if advice is None else (advice, 0.0)


def largest_input(node: Node, workdir: str) -> int | None:
    """The most bytes in files that arguments of one of its tasks name, as far as they are there; None without any."""
    if node.predecessors:
        return None
    columns = [column for column in node.args if isinstance(column, list | tuple)] if node.mapped else []
    if sum(map(len, columns)) > _INPUTS_MOST:
        return None
    common, bytes_in = _named(node.kwargs.values(), workdir), cache(_bytes_in)
    tasks = zip(*columns, strict=False) if columns else [node.args]
    own = max((sum(map(bytes_in, _named(task, workdir) - common)) for task in tasks), default=0)
    return sum(map(bytes_in, common)) + own or None


def _named(values: Iterable[Any], workdir: str) -> set[str]:
    """Files that these values, and what is in lists and dicts of them, might name."""
    names, left = set[str](), [*islice(values, _INPUTS_MOST)]
    for value in left:  # it grows meanwhile; a list may be in itself
        if isinstance(value, list | tuple | dict):
            parts = value.values() if isinstance(value, dict) else value
            left += islice(parts, max(0, _INPUTS_MOST - len(left)))
        elif isinstance(value, str | Path) and len(str(value)) < 4096:
            names.add(os.path.join(workdir, value))
    return names


def _bytes_in(name: str) -> int:
    """The size of a file [bytes]; 0 where there is none."""
    with suppress(OSError, ValueError):
        found = os.stat(name)
        return found.st_size if stat.S_ISREG(found.st_mode) else 0
    return 0


def _used(row: Usage, used: float | None) -> bool:
    return row.outcome == "ok" and bool(used)


def _words(advice: Advice, short: float, said: Callable[..., str]) -> str:
    """Why so much is asked for."""
    if short:
        return f"tasks had too little with {said(short)}, and this is twice as much"
    largest = said(advice.largest if said is brief else math.ceil(advice.largest))
    tasks = f"{advice.tasks:,} task{'s' * (advice.tasks != 1)}{advice.which}"
    if not advice.above:
        return f"largest of {tasks} {largest}"
    return f"of {tasks} {advice.above:,} used more, {largest} at most, and would be tried again"


def _also(spec: StageSpec, reason: str, memory: int | None = None, run_time_s: float | None = None) -> LearnedRequest:
    """What is learned of a stage, with one thing more."""
    before = spec.learned or LearnedRequest("")
    lines = f"{before.reason}; {reason}" if before.reason else reason
    return LearnedRequest(
        lines,
        before.memory if memory is None else memory,
        before.run_time_s if run_time_s is None else run_time_s,
    )


def _up(value: float, step: float) -> Any:
    return type(step)(math.ceil(value / step) * step)
