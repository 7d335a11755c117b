"""Places in the queue, held for stages whose time has not come: one technique for each kind of site.

Which edits of a waiting job keep its age, and which cannot start too early, was measured on Slurm (docs/queue-age.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from asa.core.decision import Amend, Ask
from asa.core.errors import UnknownName
from asa.core.job import QueueRegime, Reason, Resources
from asa.core.ports import PlaceHolding
from asa.core.stage import StageState
from asa.core.units import WEEK
from asa.core.view import AllocationView, StageView, WorkflowView
from asa.strategies.ahead import ask_after
from asa.strategies.asking import ask_for

SETTLE_S = 5.0
"""Jobs that are not to start at once may not do so for so long [s]; their age counts from then on."""

SETTLED_S = 30.0
"""Jobs that have not begun to age so long after submission [s] have lost their places."""

PARKED_MOST_S = WEEK
"""A parked job whose driver is gone leaves the queue after so long [s]."""


class AfterOk:
    """Every job waits for those of the stages before it from the start.

    For sites where that costs no place: first come, first served, and ``ACCRUE_ALWAYS``.
    """

    name = "afterok"

    def ask(self, stages: Sequence[StageView], view: WorkflowView) -> list[Ask]:
        return ask_after(view, {stage.spec.name for stage in stages})

    def tend(self, view: WorkflowView, wanted: frozenset[str]) -> list[Amend]:
        return _free(view, wanted)

    def kept(self, item: AllocationView, view: WorkflowView) -> bool:
        return view.regime is not QueueRegime.ACCRUE_ALWAYS or _ages(item, view, Reason.DEPENDENCY)


class AgedAfterOk:
    """Every job waits for those of the stages before it from the start, and has a begin time a moment ahead.

    For multifactor priority without enforced limits: there a begin time says since when a job ages, and a dependency,
    which alone would keep the age from being set, leaves it be.
    """

    name = "aged-afterok"

    def ask(self, stages: Sequence[StageView], view: WorkflowView) -> list[Ask]:
        return ask_after(view, {stage.spec.name for stage in stages}, delay_s=SETTLE_S)

    def tend(self, view: WorkflowView, wanted: frozenset[str]) -> list[Amend]:
        return _free(view, wanted)

    def kept(self, item: AllocationView, view: WorkflowView) -> bool:
        return not item.refused and _ages(item, view, Reason.DEPENDENCY)


class Throttled:
    """Stages that follow on one another are the elements of one job array, in order.

    For multifactor priority with enforced limits, where any dependency costs the age: elements behind the throttle go
    on ageing. One element runs at a time, and the next may start when it has ended; the array is throttled wider while
    the next is wanted before that. A stage with which no stage before it has such a chain in common is asked for when
    it is ready, with those that follow on it.

    Only the first that waits has its own size: the others are as wide and as long as the largest in front of them, so
    that none of them finds room where those do not.
    """

    name = "array"

    def ask(self, stages: Sequence[StageView], view: WorkflowView) -> list[Ask]:
        lacking = {stage.spec.name for stage in stages}
        found: list[Ask] = []
        if all(stage.state is StageState.WAITING for stage in stages):
            return found
        for chain in chains(view.stages):
            members = [stage for stage in chain if stage.spec.name in lacking]
            if members and members[0].state is not StageState.WAITING:
                found += self._array(members)
        return found

    def _array(self, members: Sequence[StageView]) -> list[Ask]:
        if len(members) == 1:
            return [ask_for(members[0])]
        array = f"{members[0].spec.name}+{len(members) - 1}"  # unique: stages are asked for once
        found: list[Ask] = []
        for stage in members:
            ask, front = ask_for(stage, array=array), found[-1] if found else None
            if front is not None:
                largest = max(front.resources, ask.resources, key=lambda size: size.cores)
                ask = replace(ask, resources=largest, walltime_s=max(front.walltime_s, ask.walltime_s))
            found.append(ask)
        return found

    def tend(self, view: WorkflowView, wanted: frozenset[str]) -> list[Amend]:
        arrays: dict[str, list[AllocationView]] = {}
        for item in view.allocations:
            if item.array and not (item.leaving and item.started is None):
                arrays.setdefault(item.array, []).append(item)
        found = []
        for elements in arrays.values():
            found += self._resize(elements, view)
            going = [item for item in elements if item.started is not None and not item.leaving]
            running = sum(not view[item.stages[0]].state.final for item in going)  # others are about to end
            behind = next((item for item in elements if item.started is None), None)
            throttle = running + 1 if behind is not None and behind.stages[0] in wanted else 1
            first = elements[0]
            if first.queued and throttle != first.throttle and not any(item.amending for item in elements):
                found.append(Amend(first.key, throttle=throttle))
        return found

    def _resize(self, elements: Sequence[AllocationView], view: WorkflowView) -> list[Amend]:
        """Give the first one that waits its own size; before, where its stage has grown, as much to those behind it."""
        waiting = [item for item in elements if item.started is None]
        if not waiting or not (first := waiting[0]).queued or first.amending or first.refused:
            return []
        spec = view[first.stages[0]].spec
        size, walltime_s = spec.resources, spec.walltime_s
        behind = [item for item in waiting[1:] if item.queued and not item.refused]
        if small := [item for item in behind if item.resources.cores < size.cores or item.walltime_s < walltime_s]:
            return [
                _to_be(item, max(size, item.resources, key=lambda one: one.cores), max(item.walltime_s, walltime_s))
                for item in small
                if not item.amending
            ]
        return [] if (first.resources, first.walltime_s) == (size, walltime_s) else [_to_be(first, size, walltime_s)]

    def kept(self, item: AllocationView, view: WorkflowView) -> bool:
        return not item.refused and _ages(item, view, Reason.THROTTLED)


def _to_be(item: AllocationView, size: Resources, walltime_s: float) -> Amend:
    """Give a job in the queue this size and wall time."""
    return Amend(
        item.key,
        resources=None if item.resources == size else size,
        walltime_s=None if item.walltime_s == walltime_s else walltime_s,
    )


class Parked:
    """Every job asks for nodes that are not to be had until it is wanted.

    It goes on ageing under multifactor priority, but shows as a job that can never run, which some operators remove:
    only for users who say so.
    """

    name = "parked"

    def ask(self, stages: Sequence[StageView], view: WorkflowView) -> list[Ask]:
        found = []
        for stage in stages:
            ask = ask_for(stage)
            found.append(replace(ask, delay_s=SETTLE_S, lives_s=PARKED_MOST_S) if stage.spec.predecessors else ask)
        return found

    def tend(self, view: WorkflowView, wanted: frozenset[str]) -> list[Amend]:
        found = []
        for item in _waiting(view):
            park = not _is_wanted(item, view, wanted)
            may = not park or any(view[name].spec.predecessors for name in item.stages)  # a chain's first has none now
            change = park if may and item.parked is not park and not item.refused else None
            # one that came in the place of a lost one waits for others, which may be parked
            after = () if item.after and not park else None
            if change is not None or after is not None:
                found.append(Amend(item.key, after=after, parked=change))
        return found

    def kept(self, item: AllocationView, view: WorkflowView) -> bool:
        return not item.refused and (not item.parked or _ages(item, view, ""))


TECHNIQUES: dict[str, type[PlaceHolding]] = {kind.name: kind for kind in (AfterOk, AgedAfterOk, Throttled, Parked)}
"""Techniques by name."""


def check_technique(name: str) -> str:
    """The name of a technique, or ``auto``.

    Raises
    ------
    UnknownName
        When there is no such technique.
    """
    if name not in ("auto", *TECHNIQUES):
        raise UnknownName("technique of holding places", name, ["auto", *TECHNIQUES])
    return name


def technique_for(view: WorkflowView, asked: str = "auto") -> PlaceHolding | None:
    """The technique that holds places at a site, or the one that is asked for; None where the site allows none."""
    name = usable(view.regime, asked, view.dependencies, view.arrays, view.parks)
    return None if name is None else TECHNIQUES[name]()


@lru_cache
def usable(
    regime: QueueRegime, asked: str = "auto", dependencies: bool = True, arrays: bool = False, parks: bool = False
) -> str | None:
    """Name of the technique for a queue of this regime, or of the one that is asked for, if the site has what it takes.

    >>> usable(QueueRegime.LIMITS, arrays=True), usable(QueueRegime.LIMITS), usable(QueueRegime.FIFO)
    ('array', None, 'afterok')
    """
    name = asked
    if asked == "auto":
        if regime.dependents_age:
            name = AfterOk.name
        else:
            name = AgedAfterOk.name if regime is QueueRegime.MULTIFACTOR else Throttled.name
    able = {AfterOk.name: dependencies, AgedAfterOk.name: dependencies, Throttled.name: arrays, Parked.name: parks}
    return name if able[name] else None


def _free(view: WorkflowView, wanted: frozenset[str]) -> list[Amend]:
    """Remove the dependencies of jobs that are wanted: the jobs before them take a moment to end, and Slurm computes
    the priority of a job that is changed at once, instead of once every few minutes."""
    return [Amend(item.key, after=()) for item in _waiting(view) if item.after and _is_wanted(item, view, wanted)]


def _waiting(view: WorkflowView) -> Iterable[AllocationView]:
    """Jobs in the queue for stages that are not over, each once, unless they are being changed."""
    items = (item for stage in view.stages if not stage.state.final for item in stage.allocations)
    found = {item.key: item for item in items if item.started is None and item.queued}
    return [item for item in found.values() if not (item.leaving or item.amending)]


def _is_wanted(item: AllocationView, view: WorkflowView, wanted: frozenset[str]) -> bool:
    """Whether one of its stages, in this view or not, is wanted: several may share a job."""
    begun = (StageState.READY, StageState.RUNNING)
    return any(name in wanted or view[name].state in begun for name in item.stages)


def _ages(item: AllocationView, view: WorkflowView, reason: str) -> bool:
    """Whether a job that waits for this reason grows older, as far as is known; it has a while to begin."""
    held_back = item.reason and item.reason.startswith(reason)
    return not held_back or item.ages_since is not None or view.now < item.submitted + SETTLED_S


def chains(stages: Sequence[StageView]) -> list[list[StageView]]:
    """Stages as chains; every stage is in one.

    A stage follows the one of its predecessors that is expected to end last if none waits, unless the batch system is
    asked for them with different options. Of several that follow the same one, the widest does (of equal ones the
    longest), and the others begin chains of their own.

    Parameters
    ----------
    stages
        All of a workflow, each after its predecessors.

    Examples
    --------
    >>> from asa.core.job import Resources
    >>> from asa.core.stage import StageSpec, StageState
    >>> def stage(name, cores, *before):
    ...     spec = StageSpec(name, Resources(cores), Resources(), 60.0, 60.0, before)
    ...     return StageView(spec, StageState.WAITING, (), None, None, None, None, 0, True)
    >>> fork = [stage("split", 1), stage("wide", 8, "split"), stage("narrow", 2, "split"), stage("join", 1, "wide")]
    >>> [[stage.spec.name for stage in chain] for chain in chains(fork)]
    [['split', 'wide', 'join'], ['narrow']]
    """
    ends: dict[str, float] = {}
    options = {stage.spec.name: stage.spec.resources.options for stage in stages}
    follower: dict[str, StageView] = {}  # stage -> who follows it
    for stage in stages:
        before = stage.spec.predecessors
        ends[stage.spec.name] = max((ends[name] for name in before), default=0.0) + stage.spec.run_time_s
        if before:
            last = max(before, key=lambda name: ends[name])
            if options[last] != stage.spec.resources.options:
                continue
            follower[last] = max((item for item in (follower.get(last), stage) if item is not None), key=_size)
    followers = {stage.spec.name for stage in follower.values()}
    found = []
    for stage in stages:
        if stage.spec.name not in followers:
            chain = [stage]
            while (behind := follower.get(chain[-1].spec.name)) is not None:
                chain.append(behind)
            found.append(chain)
    return found


def _size(stage: StageView) -> tuple[int, float]:
    return stage.spec.resources.cores, stage.spec.run_time_s
