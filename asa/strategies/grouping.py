"""Which stages share an allocation: those where one for all ends sooner than is too dear.

Stages that follow on one another make a chain, whose links are stages, or branches side by side between two of them. On
a chain, every way to cut it into allocations is weighed at once: what each is charged, and when each would end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from asa.core.decision import Predict
from asa.core.job import QueueRegime, Resources
from asa.core.stage import StageSpec
from asa.core.units import brief
from asa.core.view import StageView, WorkflowView
from asa.strategies.asking import lacks_allocation
from asa.strategies.bigjob import largest

MOST = 12
"""Stages that one allocation is for, at most: how far ahead is looked from each."""
DEARER = 2.0
"""How often as much merged stages may be charged where the narrower of them might not start by themselves for as long
as others submit wider jobs."""
FREE_S = 900.0
"""A job whose place was held waits for so long yet, once it may start [s], until so many nodes are free; or half as
long as was predicted, if that is shorter. It hardly depends on size or predicted wait (docs/shape-experiments.md)."""
LATE = 0.9
"""The quantile of the wait that is asked for where places are held: one at the front has to wait so long now and then,
also where half of the jobs start soon."""
WORTH = 0.4
"""What a second is worth where the user says nothing of it: this part of what the stages at hand cost a second, if each
has an allocation of its own (docs/shape-experiments.md)."""
_SAME_S = 1e-6
_LABELS = 8  # ways to cut a chain up to a place that are followed up

Group = tuple[StageView, ...]
"""Stages that share an allocation, each after those of them that it waits for."""
Link = tuple[Group, ...]
"""Branches that run side by side; one of one stage for most."""


class Shape(NamedTuple):
    """What an allocation for some stages asks for; its times are in [s]."""

    resources: Resources
    walltime_s: float
    run_time_s: float


class Gain(NamedTuple):
    """What one allocation for several stages is expected to bring: how much sooner the last of them ends [s], infinite
    where else it might never start, and what they are charged together and apart [core-s]; `cores` is its size, `jobs`
    how many it replaces, `worth` how many core-seconds a second is worth."""

    saved_s: float
    together: float
    apart: float
    cores: int
    jobs: int
    worth: float = 0.0

    def explained(self, names: Sequence[str] = ()) -> str:
        """Why they are merged; or, with their names, why the first of them is not merged with the others.

        >>> Gain(2.5, 71.0, 74.0, 12, 2).explained()
        'one allocation of 12 cores for these 2 stages: expected to end 2.5 s sooner than 2, charged 71 instead of 74 \
core-seconds'
        >>> Gain(60.0, 900.0, 500.0, 12, 2, 4.0).explained(["a", "b"])
        'an allocation of its own: one of 12 cores for a and b would be expected to end 1 min sooner than 2, charged \
900 instead of 500 core-seconds; a second is worth 4 of them (patience)'
        """
        whole = f"{self.cores} core{'s' * (self.cores != 1)} for"
        if self.saved_s == math.inf:
            sooner = "narrower jobs wait here for as long as others submit wider ones"
        elif self.saved_s <= _SAME_S:
            sooner = "expected to end no sooner"
        else:
            sooner = f"expected to end {brief(self.saved_s)} sooner than {self.jobs}"
        said = f"one allocation of {whole} these {self.jobs} stages: {sooner}"
        if names:
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            said = f"an allocation of its own: one of {whole} {listed} would be {sooner}"
        said += f", charged {self.together:.0f} instead of {self.apart:.0f} core-seconds"
        dearer = self.together > self.apart and self.saved_s < math.inf
        return said + (f"; a second is worth {self.worth:.3g} of them (patience)" if dearer else "")


class _Label(NamedTuple):
    """A way to cut a chain up to some link: how many of its stages may never start, what it is charged [core-s], when
    it ends [s from now], and its groups."""

    starving: int
    cost: float
    end: float
    groups: tuple[Group, ...]

    def key(self, worth: float) -> tuple[float, ...]:
        """Less is better; if all is equal, as few stages as may be share an allocation."""
        return self.starving, round(self.cost + worth * self.end, 6), round(self.end, 6), -len(self.groups)


class _Costed(NamedTuple):
    """An allocation for a group: its cores, how long it waits from now on and is held [s], what it is charged [core-s],
    and how many stages it is for that may never start."""

    group: Group
    cores: int
    wait_s: float
    held_s: float
    cost: float
    starving: int


class Grouping:
    """Which stages of a run share an allocation, found out as far as it is asked for.

    Stages that share one that was asked for, and takes tasks yet, go on to do so. Of the others only those are looked
    at that no job was asked for; those with checkpoints, with other options of the batch system, or other GPUs, than
    the ones beside them are left alone.

    Parameters
    ----------
    view
        The run.
    patience
        How many core-seconds more a second that it is sooner may cost; None for `WORTH`.
    max_overhead
        How much more stages may be charged together than apart, as a share of that; None for any.
    late
        The quantile of the wait that is asked for where none was predicted; None for what the estimator plans with.
    """

    def __init__(
        self,
        view: WorkflowView,
        patience: float | None = None,
        max_overhead: float | None = None,
        late: float | None = None,
    ) -> None:
        self._view, self._patience, self._late = view, patience, late
        self._dearest = math.inf if max_overhead is None else 1.0 + max_overhead
        self._waits = view.regime is not QueueRegime.IMMEDIATE
        self._groups: dict[str, Group] = {}
        self.why: dict[str, str] = {}
        """Why a group is merged or, if it is one stage, is not; by its first stage."""
        self.unknown: dict[str, tuple[Predict, ...]] = {}
        """By stage that is not to be asked for yet: whose waits have to be known before."""

    def of(self, name: str) -> Group:
        """The stages that share an allocation with one, itself included, in order."""
        if (found := self._groups.get(name)) is not None:
            return found
        stage = self._view[name]
        if not is_fresh(stage):
            return self._asked(stage)
        todo = [stage]
        while (before := self._before(todo[-1])) is not None and before.spec.name not in self._groups:
            todo.append(before)
        while todo:
            if (head := todo.pop()).spec.name not in self._groups:
                self._plan(head)
        return self._groups[name]

    def _asked(self, stage: StageView) -> Group:
        """Those that share what was asked for, if none of them has another allocation."""
        for item in stage.allocations:
            if not item.leaving and len(item.stages) > 1:
                group = tuple(map(self._view.__getitem__, item.stages))
                if all(each.leaving or each.stages == item.stages for one in group for each in one.allocations):
                    return self._note(group)
        return self._note((stage,))

    def _note(self, group: Group) -> Group:
        for stage in group:
            self._groups[stage.spec.name] = group
        return group

    # -- chains --------------------------------------------------------------------------------------------------------

    def _next(self, stage: StageView) -> StageView | None:
        """The only one that follows on a stage, if no job was asked for it and it may share an allocation with it."""
        names = self._view.followers(stage.spec.name)
        found = self._view[names[0]] if len(names) == 1 else None
        return found if found is not None and is_fresh(found) and _alike(found, stage) else None

    def _before(self, stage: StageView) -> StageView | None:
        """A stage of the link before that of a stage, or the one before it in its branch, as far as no job was asked
        for it."""
        names = stage.spec.predecessors
        if not names or len(names) > MOST:
            return None
        before = self._view[names[0]]
        if not (is_fresh(before) and _alike(before, stage)):
            return None
        if len(names) == 1:
            if self._next(before) is stage:
                return before
            link = self._link(stage)
            return before if len(link) > 1 and len(link) == len(self._view.followers(before.spec.name)) else None
        head = before
        while (earlier := self._before(head)) is not None and self._next(earlier) is head:
            head = earlier
        link = self._link(head)
        return head if len(link) > 1 and self._next(link[0][-1]) is stage else None

    def _link(self, head: StageView) -> Link:
        """The branches of which a stage begins one: all that begin after the same stages and end before one other; else
        itself."""
        branch = [head]
        while len(branch) <= MOST:
            behind = self._next(branch[-1])
            if behind is None:
                return ((head,),)
            if len(behind.spec.predecessors) > 1:
                break
            branch.append(behind)
        else:
            return ((head,),)
        ends, left = behind.spec.predecessors, MOST
        branches: list[Group] = []
        for name in ends:
            found = [self._view[name]]
            left -= 1
            while found[0].spec.predecessors != head.spec.predecessors and len(found[0].spec.predecessors) == 1:
                earlier = self._view[found[0].spec.predecessors[0]]
                if left <= 0 or not is_fresh(earlier) or self._next(earlier) is not found[0]:
                    return ((head,),)
                found.insert(0, earlier)
                left -= 1
            if found[0].spec.predecessors != head.spec.predecessors or self._next(found[-1]) is not behind:
                return ((head,),)
            if left < 0 or not all(is_fresh(each) and _alike(each, head) for each in found):
                return ((head,),)
            branches.append(tuple(found))
        return tuple(branches)

    def _chain(self, head: StageView) -> list[Link]:
        """Links from that of a stage on, of `MOST` stages at most."""
        link, links, count = self._link(head), list[Link](), 0
        while (count := count + sum(map(len, link))) <= MOST:
            links.append(link)
            last = link[0][-1]
            if (behind := self._next(last)) is not None and len(behind.spec.predecessors) == len(link):
                link = ((behind,),)
                continue
            names = self._view.followers(last.spec.name)
            if len(link) > 1 or not 1 < len(names) <= MOST or not is_fresh(first := self._view[names[0]]):
                break
            link = self._link(first)
            if {branch[0].spec.name for branch in link} != {*names} or not _alike(first, last):
                break
            if first.spec.predecessors != (last.spec.name,):
                break
        return links

    # -- cuts ----------------------------------------------------------------------------------------------------------

    def _plan(self, head: StageView) -> None:
        """Settle who shares an allocation from a stage on: up to the middle of what is seen, or to its end."""
        links = self._chain(head)
        stages = [*chain.from_iterable(chain.from_iterable(links))]
        if len(stages) == 1:
            self._note((head,))
            return
        waits, unknown = self._known(stages)
        weighed = _Weighed(self._view, links, waits, self._patience, self._dearest)
        best = weighed.best()
        if unknown and any(len(group) > 1 for group in best.groups):
            # it may pay, if waits are as long as may be: they have to be known first
            self.unknown |= dict.fromkeys((stage.spec.name for stage in stages), unknown)
            for stage in stages:
                self._note((stage,))
            return
        done, ends = 0, len(stages) < MOST  # else there is more of it than is seen
        begins = {link[0][0].spec.name for link in links}  # no link is settled in part
        for group in best.groups:
            if done >= MOST // 2 and not ends and group[0].spec.name in begins:
                break
            done += len(group)
            self._note(group)
            if (why := weighed.why(group)) and group[0].spec.name not in self.why:
                self.why[group[0].spec.name] = why

    def _known(self, stages: Sequence[StageView]) -> tuple[dict[str, float], tuple[Predict, ...]]:
        """How long each would wait [s], by size; as long as counts where that was not predicted, and what to ask."""
        if not self._waits:
            return {stage.spec.name: 0.0 for stage in stages}, ()
        sizes = {each.spec.resources: each.predicted_wait_s for each in stages if each.predicted_wait_s is not None}
        waits, unknown = dict[str, float](), dict[Resources, Predict]()
        for stage in stages:
            wait_s = stage.predicted_wait_s
            wait_s = sizes.get(stage.spec.resources) if wait_s is None else wait_s
            if wait_s is None:
                unknown.setdefault(stage.spec.resources, Predict(stage.spec.name, self._late))
            waits[stage.spec.name] = 2 * FREE_S if wait_s is None else wait_s
        return waits, tuple(unknown.values())


class _Weighed:
    """A chain, and all ways to cut it.

    A job's wait begins now, while those before it wait and run; once it may start, what `FREE_S` says is left. A job
    for several waits as long as the one of them that waits longest.
    """

    def __init__(
        self,
        view: WorkflowView,
        links: Sequence[Link],
        waits: dict[str, float],
        patience: float | None,
        dearest: float,
    ) -> None:
        self._view, self._links, self._waits, self._dearest = view, links, waits, dearest
        self._jobs: dict[tuple[str, ...], _Costed | None] = {}
        stages = [*chain.from_iterable(chain.from_iterable(links))]
        self._widest = max(stage.spec.resources.cores for stage in stages)
        self._ready = self._ready_s(stages[0])
        core_s = sum(view.charged(stage.spec.resources) * stage.spec.run_time_s for stage in stages)
        run_s = sum(max(sum(stage.spec.run_time_s for stage in branch) for branch in link) for link in links)
        self.worth = patience if patience is not None else WORTH * core_s / run_s if run_s else 0.0
        self._starts: dict[str, float] = {}  # first stage of a group -> when it may begin by the best way [s from now]

    def _ready_s(self, first: StageView) -> float:
        """When the first may begin [s from now]; so late that all places are old where that is not known."""
        before = [self._view[name] for name in first.spec.predecessors]
        if any(not stage.state.final and stage.expected_end is None for stage in before):
            return max(self._waits.values(), default=0.0)
        ends = [stage.expected_end for stage in before if stage.expected_end is not None]
        return max(ends, default=self._view.now) - self._view.now

    def best(self) -> _Label:
        """The best way to cut all of it."""
        found = self._ways(self._links, _Label(0, 0.0, self._ready, ()))
        best = min(found, key=lambda label: label.key(self.worth))
        ends: dict[str, float] = {}
        for group in best.groups:
            start = self._before(group[0], ends, self._ready)
            self._starts[group[0].spec.name] = start.end
            if (job := self._job(group)) is not None:
                ends |= dict.fromkeys((stage.spec.name for stage in group), self._with(start, job).end)
        return best

    @staticmethod
    def _before(stage: StageView, ends: Mapping[str, float], ready: float) -> _Label:
        """What came before a stage, by the ends of others [s from now]; `ready`, where it waits for none of these."""
        before = [ends[name] for name in stage.spec.predecessors if name in ends]
        return _Label(0, 0.0, max(before, default=ready), ((stage,),) if before else ())

    def _ways(self, links: Sequence[Link], start: _Label) -> list[_Label]:
        """Ways to cut some links, as good ones as there are."""
        labels: list[list[_Label]] = [[start]]
        for stop in range(1, len(links) + 1):
            found = [way for label in labels[stop - 1] if (way := self._apart(label, links[stop - 1])) is not None]
            for begin in range(stop - 1, -1, -1):
                group = tuple(chain.from_iterable(chain.from_iterable(links[begin:stop])))
                if len(group) > 1 and (job := self._job(group)) is not None and not self._is_too_dear(group):
                    found += [self._with(label, job) for label in labels[begin]]
            labels.append(self._some(found))
        return labels[-1]

    def _apart(self, label: _Label, link: Link) -> _Label | None:
        """With a link cut off on both sides: each of its branches by itself, as is best for that."""
        if len(link) == 1:
            return None if (job := self._job(link[0])) is None else self._with(label, job)
        ways = [
            min(self._ways([((stage,),) for stage in branch], label), key=lambda way: way.key(self.worth))
            for branch in link
        ]
        return _Label(
            label.starving + sum(way.starving - label.starving for way in ways),
            label.cost + sum(way.cost - label.cost for way in ways),
            max(way.end for way in ways),
            (*label.groups, *chain.from_iterable(way.groups[len(label.groups) :] for way in ways)),
        )

    def _some(self, found: list[_Label]) -> list[_Label]:
        """Those of which no other is as cheap and as soon; the best of many."""
        found.sort(key=lambda label: label.key(self.worth))
        kept: list[_Label] = []
        for label in found:
            if len(kept) < _LABELS and not any(
                other.starving <= label.starving and other.cost <= label.cost and other.end <= label.end
                for other in kept
            ):
                kept.append(label)
        return kept

    def _with(self, label: _Label, job: _Costed) -> _Label:
        """With one more allocation."""
        held_back = label.groups or self._ready
        end = max(job.wait_s, label.end + (min(job.wait_s / 2, FREE_S) if held_back else 0.0)) + job.held_s
        return _Label(label.starving + job.starving, label.cost + job.cost, end, (*label.groups, job.group))

    def _job(self, group: Group) -> _Costed | None:
        """The job for a group, if there can be such a one: as long, and as wide as no stage of these is by itself,
        unless that fits on a node."""
        key = tuple([stage.spec.name for stage in group])
        if key not in self._jobs:
            self._jobs[key] = self._made(group)
        return self._jobs[key]

    def _made(self, group: Group) -> _Costed | None:
        shape = shape_of(group, self._view.cores_per_node)
        if shape is None:
            return None
        cores = shape.resources.cores
        if len(group) > 1:
            widest = max(stage.spec.resources.cores for stage in group)
            beside = any(len(row) > 1 for row in _rows([stage.spec for stage in group]))
            most = max(self._widest, self._view.cores_per_node or 0) if beside else widest
            if cores > most or shape.walltime_s > self._view.longest_s:
                return None
        wait_s = max(self._waits[stage.spec.name] for stage in group)
        held_s = _fixed_s(shape.resources, self._view) + shape.run_time_s
        starving = len(group) if self._view.wide_first and cores < self._widest else 0
        return _Costed(group, cores, wait_s, held_s, self._view.charged(shape.resources) * held_s, starving)

    def _is_too_dear(self, group: Group) -> bool:
        mixed = self._view.wide_first and len({stage.spec.resources.cores for stage in group}) > 1
        most = min(self._dearest, DEARER if mixed else math.inf)
        if most == math.inf:
            return False
        gain = self._gain(group, self._ready)
        return gain.together > most * gain.apart

    def _gain(self, group: Group, ready: float) -> Gain:
        """What a group brings beside an allocation for each of its stages."""
        cost, ends = 0.0, dict[str, float]()
        for stage in group:
            if (job := self._job((stage,))) is not None:
                ends[stage.spec.name] = self._with(self._before(stage, ends, ready), job).end
                cost += job.cost
        whole = self._job(group)
        assert whole is not None, "it was found to be possible"
        mixed = self._view.wide_first and len({stage.spec.resources.cores for stage in group}) > 1
        saved_s = math.inf if mixed else max(ends.values()) - self._with(_Label(0, 0.0, ready, ()), whole).end
        return Gain(saved_s, whole.cost, cost, whole.cores, len(group), self.worth)

    def why(self, group: Group) -> str:
        """Why a group is one, or why its only stage has not been merged with what follows; "" if nothing is gained."""
        start = self._starts[group[0].spec.name]
        if len(group) > 1:
            return self._gain(group, start).explained()
        names = [link[0][0].spec.name for link in self._links]
        if group[0].spec.name not in names:
            return ""
        first = names.index(group[0].spec.name)
        found: list[tuple[float, Gain, Group]] = []
        for last in range(first + 2, len(self._links) + 1):
            other = tuple(chain.from_iterable(chain.from_iterable(self._links[first:last])))
            if self._job(other) is not None:
                gain = self._gain(other, start)
                if _SAME_S < gain.saved_s < math.inf:
                    found.append((self.worth * gain.saved_s - gain.together + gain.apart, gain, other))
        if not found:
            return ""
        _, gain, other = max(found, key=lambda item: item[0])
        return gain.explained([stage.spec.name for stage in other])


def shape_of(group: Group, cores_per_node: int | None) -> Shape | None:
    """What one job for some stages has to ask for, or None where none holds them.

    Stages that do not follow on one another run side by side: as many stages after the first as each is. Those that
    state their memory share none with those that do not: what suffices for the ones need not for the others.
    """
    if len({stage.spec.resources.memory is None for stage in group}) > 1:
        return None
    rows = [*_rows([stage.spec for stage in group])]
    needs = [row[0].resources if len(row) == 1 else _beside(row) for row in rows]
    if any(need is None for need in needs):
        return None
    whole = largest([need for need in needs if need is not None], cores_per_node)
    walltime_s = sum(max(spec.walltime_s for spec in row) for row in rows)
    return Shape(whole, walltime_s, sum(max(spec.run_time_s for spec in row) for row in rows))


def rest_s(group: Group) -> float:
    """How long those stages of a group run together that have not begun [s]."""
    rows = _rows([stage.spec for stage in group if not stage.state.final and stage.expected_end is None])
    return sum(max(spec.run_time_s for spec in row) for row in rows)


def _rows(specs: Sequence[StageSpec]) -> Iterator[list[StageSpec]]:
    """Stages by how many of them come before each."""
    depth: dict[str, int] = {}
    rows: dict[int, list[StageSpec]] = {}
    for spec in specs:
        depth[spec.name] = place = max((depth[name] + 1 for name in spec.predecessors if name in depth), default=0)
        rows.setdefault(place, []).append(spec)
    yield from rows.values()


def _beside(row: Sequence[StageSpec]) -> Resources | None:
    """What stages need that run side by side; None where they want nodes or GPUs of their own."""
    sizes = [spec.resources for spec in row]
    first = sizes[0]
    if any(size.nodes is not None or size.gpus or size.unit != first.unit for size in sizes):
        return None
    memory = sum(size.memory or 0 for size in sizes) or None
    return Resources(sum(size.cores for size in sizes), None, memory, 0, first.unit, first.options)


def _fixed_s(size: Resources, view: WorkflowView) -> float:
    """How long an allocation of this size is charged for beside its tasks [s]."""
    one, several = view.fixed_s
    return several if (size.packed(view.cores_per_node).nodes or 1) > 1 else one


def is_fresh(stage: StageView) -> bool:
    """Whether no job was asked for a stage that needs one."""
    return not (stage.attempts or stage.state.final or stage.spec.checkpoint) and lacks_allocation(stage)


def _alike(one: StageView, other: StageView) -> bool:
    """Whether two may share an allocation: GPUs would idle, and one job cannot be in two partitions."""
    a, b = one.spec.resources, other.spec.resources
    return a.gpus == b.gpus and a.options == b.options
