"""Partitions: their limits, tiers and reservations; the engine against a slow scheduler of its own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.core.decision import NodeRun, Start
from asa.core.errors import IllegalDecision, InvalidInput
from asa.core.job import JobState
from asa.lab.core.cluster import ROOT, Association, Cluster, ClusterAccount, Partition, Qos
from asa.lab.core.schedule import OUTCOMES
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import Backfill, Easy
from asa.lab.simulator import operations
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.run import simulate
from asa.lab.simulator.state import REFUSALS, why_refused
from tests.lab.simulator.cases import SLOTS, pull, whole_numbers, workloads
from tests.lab.simulator.validate import violations

# -- A slow scheduler, in Slurm's words -------------------------------------------------------------------------------


BY_JOB = "cores", "nodes", "memory", "gpus"
MINUTES = "core_minutes", "gpu_minutes", "core_run_minutes", "gpu_run_minutes", "wall_minutes"
LONGEST_S = 2000.0
"""For so long after the last event, time alone may let a job start."""


NO_ACCOUNT, NO_LIMITS = ClusterAccount(), Association()


@dataclass
class Box:
    """Units on nodes, each of which takes so much, from one time until another [s]."""

    start: float
    end: float
    on: dict[int, int]
    need: tuple[int, ...] = (1,)


@dataclass
class Oracle:
    """Nodes by first fit. Everything is worked out anew, from the boxes, whenever it is asked."""

    jobs: Workload
    cluster: Cluster
    depth: float
    order: Callable[[Workload, int], float] = lambda jobs, row: 0.0
    window: float = math.inf
    interval: float = 0.0
    half_life: float = math.inf
    counts_each: float = 1.0
    boxes: list[Box] = field(default_factory=list)
    runs: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Start and end of each job that has started; infinite while it runs."""
    now: float = 0.0
    filled: float = math.nan
    """When gaps were filled last, and jobs left for others that start when they are filled next [s]."""

    def __post_init__(self) -> None:
        names, jobs = list(self.cluster.partitions), self.jobs
        self.part = [names.index(jobs.label("partition", row) or names[0]) for row in range(len(jobs))]
        self.partitions = [*self.cluster.partitions.values()]
        qos = self.cluster.qos
        self.qos = [qos[jobs.label("qos", row) or next(iter(qos))] if qos else Qos() for row in range(len(jobs))]
        self.wall = jobs.walltime.tolist()
        for row, limit in enumerate(self.partitions[part] for part in self.part):
            if math.isnan(self.wall[row]):
                most = self.of_job(row, "time_s")
                self.wall[row] = limit.default_time_s or min(limit.max_time_s, math.inf if most is None else most)

    def need(self, row: int) -> tuple[int, ...]:
        """What a unit of a job takes, in the order of the machine's resources."""
        return tuple(self.jobs.demands[self.jobs.kind[row]].tolist())

    def fitting(self, row: int, left: list[int]) -> int:
        """How many units of a job these amounts hold."""
        return min(has // need for has, need in zip(left, self.need(row), strict=True) if need)

    def free(self, row: int, node: int, start: float, end: float) -> int:
        """The fewest units of a job that a node has room for from one time until before another."""
        found = []
        for at in {start, *(box.start for box in self.boxes if start < box.start < end)}:
            left = self.cluster.capacity[node].tolist()
            for box in self.boxes:
                if box.start <= at < box.end:
                    left = [has - box.on.get(node, 0) * need for has, need in zip(left, box.need, strict=True)]
            found.append(self.fitting(row, left))
        return min(found)

    def eligible(self, row: int) -> set[int]:
        """Nodes of a job's partition that have what it asks for."""
        words = self.jobs.label("constraint", row)
        having = [set(self.cluster.features.get(name, ())) for name in words.replace("|", "&").split("&") if name]
        nodes = set(self.partitions[self.part[row]].nodes)
        return nodes & (set.union(*having) if "|" in words else nodes.intersection(*having))

    def place(self, row: int, start: float, closed: set[int]) -> dict[int, int]:
        """Nodes for a job from that time on, {} for none."""
        most = self.most_nodes(row)
        nodes = sorted(self.eligible(row) - closed - self.kept(row, start))
        end = start + self.wall[row] + (1.0 if self.interval else 0.0)  # not in the second in which another begins
        there = {node: self.free(row, node, start, end) for node in nodes}
        found = self.first(row, there)
        if most and len(found) > most:
            fullest = sorted(there, key=lambda node: (-there[node], node))[:most]
            found = self.first(row, {node: there[node] for node in sorted(fullest)})
        return found

    def kept(self, row: int, start: float) -> set[int]:
        """Nodes that windows keep from a job that starts then."""
        windows = [each for each in self.cluster.windows if self.jobs.label("user", row) not in each.users]
        hit = [each for each in windows if each.start < start + self.wall[row] and each.end > start]
        return {node for each in hit for node in each.nodes or range(self.cluster.nodes)}

    def first(self, row: int, there: dict[int, int]) -> dict[int, int]:
        left, found = int(self.jobs.units[row]), dict[int, int]()
        for node, cores in there.items():
            if (given := min(left, max(0, cores))) > 0:
                found[node], left = given, left - given
        return {} if left else found

    def starts(self) -> list[float]:
        """When each job starts [s]; NaN for one that is refused."""
        self.runs = {}
        jobs, ends, start = self.jobs, dict[int, tuple[float, Box]](), [math.nan] * len(self.jobs)
        waiting: list[int] = []
        coming = [row for row in range(len(jobs)) if self.allowed(row)]
        now, last = -math.inf, -math.inf
        while coming or waiting or ends:
            over = [window.end for window in self.cluster.windows if window.end > now]
            looks = [now // every * every + every for every in (1.0, self.interval) if self.interval and waiting]
            if any(self.without_time(row, [*ends]) for row in waiting):
                looks.append(now // self.counts_each * self.counts_each + self.counts_each)
            events = [*(jobs.submit[row] for row in coming), *(end for end, _ in ends.values()), *over]
            if not events and (not looks or now > last + LONGEST_S):
                break
            now = self.now = min([*events, *looks])
            last = now if now in events else last
            for row in [row for row, (end, _) in ends.items() if end <= now]:
                self.runs[row] = self.runs[row][0], now
                self.boxes.remove(ends.pop(row)[1])
            for row in [row for row in coming if jobs.submit[row] <= now]:
                if not self.too_many(row, [*waiting, *ends]):
                    waiting.append(row)
            coming = [row for row in coming if jobs.submit[row] > now]
            while found := self.decide(now, waiting, [*ends])[:1]:  # the queue is looked at anew after each start
                row, _, on = found[0]
                start[row] = now
                self.runs[row] = now, math.inf
                box = Box(now, now + self.wall[row], on, self.need(row))
                self.boxes.append(box)
                ends[row] = now + min(float(jobs.run[row]), self.wall[row]), box
                waiting.remove(row)
        return start

    def allowed(self, row: int) -> bool:
        limit = self.partitions[self.part[row]]
        there = (self.fitting(row, self.cluster.capacity[node].tolist()) for node in self.eligible(row))
        sizes = sorted(there, reverse=True)
        longest = self.of_job(row, "time_s")
        if longest is not None and (self.wall[row] > longest or longest == 0):
            return False
        alone = [(self.amount(row, what), self.of_job(row, what)) for what in BY_JOB]
        alone += [(self.amount(row, what) * self.wall[row] / 60, self.of_job(row, what)) for what in MINUTES[:2]]
        if self.held(row, []) or any(most is not None and amount > most for amount, most in alone):
            return False
        return self.wall[row] <= limit.max_time_s and sum(sizes[: limit.max_nodes or None]) >= self.jobs.units[row]

    def chain(self, row: int) -> list[str]:
        """The account of a job, and those above."""
        found = [self.jobs.label("group", row) or ROOT]
        while found[-1] != ROOT:
            found.append(self.cluster.accounts[found[-1]].parent if found[-1] in self.cluster.accounts else ROOT)
        return found

    def of_user(self, row: int, name: str) -> float | None:
        """A limit that a user has of his own, or from the nearest account."""
        accounts = [self.cluster.accounts.get(each, ClusterAccount()) for each in self.chain(row)]
        own = accounts[0].user_limits.get(self.jobs.label("user", row), Association())
        return next((most for each in (own, *accounts) if (most := getattr(each, name)) is not None), None)

    def whose(self, row: int) -> tuple[str, str]:
        return self.chain(row)[0], self.jobs.label("user", row)

    def amount(self, row: int, what: str) -> int:
        if what in MINUTES and what != "wall_minutes":
            what = f"{what.split('_')[0]}s"
        if what == "nodes":
            there = (self.fitting(row, self.cluster.capacity[node].tolist()) for node in self.eligible(row))
            sizes = sorted(there, reverse=True)
            fewest = [count for count in range(len(sizes) + 1) if sum(sizes[:count]) >= self.jobs.units[row]]
            return min(fewest, default=math.inf)
        if what in BY_JOB:
            column = [*self.cluster.resources].index(what) if what in self.cluster.resources else None
            return 0 if column is None else int(self.jobs.units[row]) * self.need(row)[column]
        return 1

    def of_job(self, row: int, what: str) -> float | None:
        """How much a job may have: as its QOS says, or else its user or the nearest account."""
        by_qos: float | None = getattr(self.qos[row], f"max_{what}")
        return self.of_user(row, f"max_{what}") if by_qos is None else by_qos

    def most_nodes(self, row: int) -> int:
        """How many nodes a job may have, 0 for any number."""
        limits = [*(most for most, _ in self.limits(row, "nodes")), self.of_job(row, "nodes")]
        found = [*filter(None, limits), *filter(None, [self.partitions[self.part[row]].max_nodes])]
        return min(found, default=0)

    def limits(self, row: int, what: str) -> Iterator[tuple[int | None, Callable[[int], bool]]]:
        """The limits that a job is under, and which others count towards each."""
        qos, accounts, (name, user) = self.qos[row], self.cluster.accounts, self.whose(row)
        by_qos = getattr(qos, f"grp_{what}")
        yield by_qos, lambda other: self.qos[other] is qos
        by_user = None if what in MINUTES else getattr(qos, f"max_{what}_per_user")
        if user:
            yield by_user, lambda other: self.qos[other] is qos and self.jobs.user[other] == self.jobs.user[row]
        if by_qos is None:
            for above in self.chain(row):
                most = getattr(accounts.get(above, ClusterAccount()), f"grp_{what}")
                yield most, lambda other, above=above: above in self.chain(other)
            own = accounts.get(name, NO_ACCOUNT).user_limits.get(user, NO_LIMITS)
            yield getattr(own, f"grp_{what}"), lambda other: self.whose(other) == (name, user)
        if user and by_user is None and what in ("jobs", "submit_jobs"):
            yield self.of_user(row, f"max_{what}"), lambda other: self.whose(other) == (name, user)

    def beyond(self, row: int, others: list[int], what: str) -> bool:
        """Whether a job beside these others is beyond a limit."""
        for most, counts in self.limits(row, what):
            together = sum(self.amount(each, what) for each in (row, *filter(counts, others)))
            if most is not None and together > most:
                return True
        return False

    def too_many(self, row: int, there: list[int]) -> bool:
        """Whether a job is refused beside so many that wait or run."""
        return self.beyond(row, there, "submit_jobs")

    def held(self, row: int, running: list[int]) -> bool:
        """Whether a limit keeps a job from starting beside these."""
        return any(self.beyond(row, running, what) for what in ("jobs", *BY_JOB)) or self.without_time(row, running)

    def without_time(self, row: int, running: list[int]) -> bool:
        """Whether too little time is left for a job beside these; in whole minutes, as of when it was last counted."""
        last = self.now // self.counts_each * self.counts_each
        for what in MINUTES:
            need = self.amount(row, what) * self.wall[row] / 60
            for place, (most, counts) in enumerate(self.limits(row, what)):
                if most is None or need == 0:
                    continue
                half = math.inf if place == 0 and not self.qos[row].decays else self.half_life
                left = 0.0
                for other in filter(counts, running):
                    began = self.runs.get(other, (self.now, math.inf))[0]
                    left += self.amount(other, what) * min(self.wall[other], began + self.wall[other] - last)
                used = self.used(what, last, half, counts) // 60
                beside = left // 60 if what != "wall_minutes" else 0.0
                beyond = used >= most or (self.cluster.safe_limits and used + beside + need > most)
                if beside + need > most if "run" in what else beyond:
                    return True
        return False

    def used(self, what: str, last: float, half: float, counts: Callable[[int], bool]) -> float:
        """What jobs have used, each moment of which counts half after a half-life; of those that run, by `last`."""
        mine = {row: both for row, both in self.runs.items() if counts(row)}
        ended = max([last, *(end for _, end in mine.values() if end < math.inf)])
        total = 0.0
        for row, (start, end) in mine.items():
            at, until = (last, max(start, last)) if end == math.inf else (ended, end)
            if half == math.inf:
                counted = until - start
            else:
                counted = (0.5 ** ((at - until) / half) - 0.5 ** ((at - start) / half)) * half / math.log(2)
            total += self.amount(row, what) * counted
        return total

    def depths(self, now: float) -> list[float]:
        """Where there are windows, Slurm's main scheduler comes first, which knows of no reservations of jobs; it comes
        alone, once a second, between the times of the backfill scheduler."""
        if self.interval and (now % self.interval or now == self.filled):
            return [] if now % 1 and now != self.filled else [0]
        return [0, self.depth] if self.depth and self.cluster.windows else [self.depth]

    def fits_beside_windows(self, row: int, now: float) -> bool:
        """Whether a job could start now if nothing else ran."""
        boxes, self.boxes = self.boxes, []
        on = self.place(row, now, set())
        self.boxes = boxes
        return bool(on)

    def leave(self, row: int, now: float, closed: set[int]) -> tuple[list[int], dict[int, int]]:
        """Which running jobs make room for a job, and the nodes that it then has."""
        return [], {}

    def without(self, rows: list[int]) -> list[Box]:
        """What stands when these running jobs have gone."""
        return self.boxes

    def below(self, row: int, now: float) -> list[int]:
        """The running jobs that it may preempt."""
        return []

    def decide(self, now: float, waiting: list[int], running: list[int]) -> list[tuple[int, list[int], dict[int, int]]]:
        """The jobs that start, which others leave for them, and where; until one preempts, or a limit holds others.

        A job without nodes does not start yet: the backfill scheduler has preempted for it behind another that waits.
        """
        before, reserved = list(self.boxes), [0] * len(self.partitions)
        begun: list[tuple[int, list[int], dict[int, int]]] = []
        later: list[tuple[int, list[int], dict[int, int]]] = []
        seen, going = set[int](), set[int]()
        held = [row for row in waiting if self.held(row, running)]
        ranked = sorted(waiting, key=lambda row: (-self.partitions[self.part[row]].tier, self.order(self.jobs, row)))
        for place, (depth, row) in enumerate(itertools.product(self.depths(now), ranked)):
            if place % len(ranked) == 0:
                closed, blocked = set[int](), set[int]()
            part = self.part[row]
            if (part in blocked and depth == 0) or row in held or row in seen:
                continue
            victims, on = [], self.place(row, now, closed)
            if not on:
                victims, on = self.leave(row, now, closed)
            if on:
                seen.add(row)
                if victims and depth and self.interval and part in blocked:
                    later.append((row, victims, {}))
                    left = self.without(victims)
                    going |= {node for box in self.boxes if not any(box is each for each in left) for node in box.on}
                    self.boxes, victims = left, []
                self.boxes = [*self.boxes, Box(now, now + self.wall[row], on, self.need(row))]
                if going & {*on}:
                    continue
                begun.append((row, victims, on))
                there = [*running, *(other for other, _, _ in begun)]
                if victims or any(self.held(other, there) for other in {*waiting} - {*held, *there}):
                    later = []
                    break
            elif depth == 0:
                if self.fits_beside_windows(row, now):
                    blocked.add(part)
                    closed |= set(self.partitions[part].nodes)
            else:
                blocked.add(part)
                if reserved[part] == depth:
                    continue
                kept, self.boxes = self.boxes, self.without(self.below(row, now))
                at = min(time for time in self.times(now) if self.place(row, time, set()))
                on, self.boxes = self.place(row, at, set()), kept
                if at <= now + self.window:
                    self.boxes = [*kept, Box(at, at + self.wall[row], on, self.need(row))]
                    reserved[part] += 1
        self.boxes = before
        return begun + later

    def times(self, now: float) -> list[float]:
        return sorted({each.end for each in (*self.boxes, *self.cluster.windows) if each.end > now})


def check_agreement(jobs: Workload, cluster: Cluster, depth: float, window: float = math.inf) -> None:
    """Compiled loop, pull loop and slow scheduler start all jobs at the same times, within the laws."""
    rule = Backfill(depth, window=window)
    schedule = simulate(jobs, cluster, rule)
    np.testing.assert_array_equal(schedule.start, Oracle(jobs, cluster, depth, window=window).starts())
    np.testing.assert_array_equal(schedule.start, pull(jobs, cluster, rule).start)
    assert violations(schedule) == []


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[Workload, Cluster]:
    """A few jobs on nodes of different sizes, in overlapping partitions with limits and tiers."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    some = st.sets(st.integers(0, len(sizes) - 1), min_size=1)
    partitions = {}
    for name in draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")])):
        longest = draw(st.sampled_from([4.0, 9.0]))
        partitions[name] = Partition(
            tuple(sorted(draw(some))), longest, draw(st.sampled_from([None, 2.0])), draw(st.integers(0, 3)),
            draw(st.integers(1, 2)),
        )  # fmt: skip
    count = draw(st.integers(1, 12))
    column = whole_numbers(draw, count)
    walltime = np.array([float(wall) or math.nan for wall in column(0, 10)])
    jobs = Workload.of(
        submit=column(0, 6), run=column(1, 12), cores=column(1, 6), walltime=walltime,
        partition=column(-1, len(partitions) - 1), labels={"partition": tuple(partitions)},
    )  # fmt: skip
    return jobs, Cluster(np.array(sizes)[:, None], partitions=partitions)


@pytest.mark.parametrize("depth", [0, 1, 2, math.inf])
@given(case=partitioned())
def test_compiled_loop_pull_loop_and_slow_scheduler_agree(depth: float, case: tuple[Workload, Cluster]) -> None:
    check_agreement(*case, depth)


@pytest.mark.parametrize("depth", [1, math.inf])
@given(case=partitioned(), window=st.sampled_from([0.5, 2.0, 5.0]))
def test_they_agree_where_reservations_reach_only_so_far(
    depth: float, window: float, case: tuple[Workload, Cluster]
) -> None:
    check_agreement(*case, depth, window)


@pytest.mark.parametrize("depth", [1, math.inf])
@given(case=partitioned(), interval=st.sampled_from([1.0, 2.5, 7.0]))
def test_gaps_are_filled_at_intervals_only(depth: float, interval: float, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    jobs = replace(jobs, submit=0.75 * jobs.submit, run=0.75 * jobs.run)
    schedule = simulate(jobs, cluster, Backfill(depth, interval=interval))
    np.testing.assert_array_equal(schedule.start, Oracle(jobs, cluster, depth, interval=interval).starts())
    assert violations(schedule) == []


@pytest.mark.parametrize("depth", [1, math.inf])
@given(jobs=workloads(), interval=st.sampled_from([1.0, 2.5, 7.0]))
def test_so_they_are_where_units_are_counted(depth: float, interval: float, jobs: Workload) -> None:
    jobs = replace(jobs, submit=0.75 * jobs.submit, run=0.75 * jobs.run)
    whole = Cluster(np.array([[SLOTS]]), partitions={"all": Partition((0,))})
    slots = replace(whole, partitions={})
    starts = simulate(jobs, slots, Backfill(depth, interval=interval)).start
    np.testing.assert_array_equal(starts, Oracle(jobs, whole, depth, interval=interval).starts())


def test_with_an_interval_a_job_ends_before_the_second_in_which_a_reservation_begins() -> None:
    """As on Slurm, where jobs of equal wall times that start together are in each other's way."""
    jobs = work((0, 60, 2, ""), (0, 60, 3, ""), (0, 60, 1, ""), (0, 59, 1, ""))
    for cluster in (Cluster.of(nodes=3), Cluster(np.array([[3]]), partitions={"all": Partition((0,))})):
        assert simulate(jobs, cluster, Backfill(1)).start[2:].tolist() == [0, 120]
        assert simulate(jobs, cluster, Backfill(1, interval=1)).start[2:].tolist() == [120, 0]


def test_an_interval_is_for_simulations_by_rules_that_have_names() -> None:
    with pytest.raises(InvalidInput, match="interval= is simulated with orders that have names"):
        Backfill(1, order=lambda job, now: 0.0, interval="30s")
    with pytest.raises(InvalidInput, match="interval= needs a rule that decides for a whole simulation"):
        pull(work((0, 1, 1, "")), Cluster.of(nodes=1), Backfill(1, interval=30))


@given(case=partitioned())
def test_tiers_come_before_the_order_of_the_dispatcher(case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    jobs = jobs.take(~np.isnan(jobs.walltime))
    shortest = Oracle(jobs, cluster, 1, lambda jobs, row: float(jobs.walltime[row])).starts()
    np.testing.assert_array_equal(simulate(jobs, cluster, Easy(order="sjf")).start, shortest)
    np.testing.assert_array_equal(pull(jobs, cluster, Easy(order="sjf")).start, shortest)


@pytest.mark.parametrize("dispatcher", ["random", "binpacking", "easy++"])
@given(case=partitioned())
def test_other_dispatchers_keep_the_limits(dispatcher: str, case: tuple[Workload, Cluster]) -> None:
    jobs, cluster = case
    jobs = jobs.take(~np.isnan(jobs.walltime))
    schedule = simulate(jobs, cluster, dispatcher)
    assert violations(schedule) == []
    assert np.isnan(schedule.start).tolist() == (why_refused(jobs, cluster) > 0).tolist()


# -- One by one -------------------------------------------------------------------------------------------------------


def site() -> Cluster:
    """Four nodes of two cores: short jobs may run on all, long ones on three, and only the first is for tests."""
    return Cluster(
        np.full((4, 1), 2),
        partitions={
            "long": Partition((1, 2, 3), 100.0, 20.0, 2),
            "short": Partition((0, 1, 2, 3), 10.0, tier=2),
            "test": Partition((0,), 10.0),
        },
    )


def work(*jobs: tuple[float, float, int, str]) -> Workload:
    """Jobs as (submission, wall time, cores, partition); they run as long."""
    submit, wall, cores, names = zip(*jobs, strict=True)
    labels = tuple(dict.fromkeys(names))
    return Workload.of(
        submit=submit, run=np.nan_to_num(wall, nan=50.0), walltime=wall, cores=cores,
        partition=[labels.index(name) for name in names], labels={"partition": labels},
    )  # fmt: skip


def test_a_job_beyond_a_limit_is_refused_and_the_reason_is_slurms() -> None:
    jobs = work((0, 11, 1, "short"), (0, 5, 5, "long"), (0, 5, 9, "short"), (0, 200, 5, "long"), (0, 5, 8, "short"))
    schedule = simulate(jobs, site())
    assert [OUTCOMES[code] for code in schedule.outcome] == [JobState.FAILED] * 4 + [JobState.COMPLETED]
    assert [REFUSALS[code] for code in why_refused(jobs, site())] == [
        "PartitionTimeLimit", "PartitionNodeLimit", "PartitionNodeLimit", "PartitionTimeLimit", "",
    ]  # fmt: skip


def test_a_job_without_a_wall_time_has_that_of_its_partition() -> None:
    jobs = work((0, math.nan, 1, "long"), (0, math.nan, 1, "short"))
    assert simulate(jobs, site()).end.tolist() == [20.0, 10.0]  # both would run for 50 s
    endless = Cluster(np.array([[1]]), partitions={"all": Partition((0,))})
    with pytest.raises(InvalidInput, match="1 of 1 jobs have no requested time"):
        simulate(replace(work((0, math.nan, 1, "all"))), endless)


def test_a_higher_tier_goes_first_but_takes_nothing_from_what_runs() -> None:
    jobs = work((0, 10, 4, "long"), (1, 10, 4, "long"), (2, 10, 8, "short"), (2, 5, 2, "test"))
    # short waits for the four nodes and keeps them; the test fits before that
    assert simulate(jobs, site(), "easy").start.tolist() == [0.0, 20.0, 10.0, 2.0]


def test_without_backfilling_a_blocked_job_keeps_the_nodes_of_its_partition_only() -> None:
    jobs = work((0, 10, 4, "long"), (1, 10, 4, "long"), (2, 10, 2, "test"), (3, 5, 2, "long"))
    assert simulate(jobs, site(), "fcfs").start.tolist() == [0.0, 10.0, 2.0, 10.0]


def test_each_partition_has_its_own_reservation() -> None:
    """The first job of each of two partitions that is blocked: with one reservation in all, `b`'s would starve."""
    nodes = Cluster(np.full((4, 1), 1), partitions={"a": Partition((0, 1)), "b": Partition((2, 3))})
    jobs = work((0, 4, 1, "a"), (0, 4, 1, "b"), (1, 4, 2, "a"), (1, 4, 2, "b"), (2, 9, 1, "b"), (2, 2, 1, "b"))
    assert simulate(jobs, nodes, "easy").start.tolist() == [0.0, 0.0, 4.0, 4.0, 8.0, 2.0]


def test_few_nodes_are_found_where_first_fit_would_take_many() -> None:
    cluster = Cluster(np.array([[1], [1], [4]]), partitions={"all": Partition((0, 1, 2), max_nodes=2)})
    schedule = simulate(work((0, 5, 3, "all"), (0, 5, 4, "all")), cluster)
    assert schedule.start.tolist() == [0.0, 5.0]
    assert schedule.placements is not None
    assert schedule.placements.of(0) == [NodeRun(0, 0, 1), NodeRun(2, 2, 2)]


def test_a_decision_beyond_the_limit_of_nodes_is_illegal() -> None:
    engine = Engine(work((0, 5, 3, "long")), site())
    engine.advance()
    with pytest.raises(IllegalDecision, match="it has 3 nodes: its partition gives it 2"):
        engine.apply([Start(0, (NodeRun(1, 3, 1),))])
    with pytest.raises(IllegalDecision, match="has no room for 2 units"):
        engine.apply([Start(0, (NodeRun(0, 0, 2), NodeRun(1, 1, 1)))])


def test_a_job_that_comes_on_the_way_keeps_the_limits_too() -> None:
    engine = Engine(work((0, 10, 8, "short")), site())
    with pytest.raises(InvalidInput, match="a job of 11 s: its partition allows 10 s"):
        operations.submit(engine, run=5, walltime=11, units=1, partition=1)
    with pytest.raises(InvalidInput, match="the machine could run 4 at most"):
        operations.submit(engine, run=5, walltime=11, units=5, partition=0)
    row = operations.submit(engine, run=5, walltime=9, units=2, partition=2, watched=False)
    engine.dispatch(Easy().numbers)
    assert engine.state.jobs["started"][row] == 10.0


def test_laws_of_partitions_are_checked() -> None:
    jobs, cluster = work((0, 5, 4, "long"), (5, 9, 2, "test")), site()
    schedule = simulate(jobs, cluster)
    assert violations(schedule) == []
    other = {
        "long": Partition((0, 2, 3), max_nodes=1), "short": Partition((0,)), "test": Partition((0,), 8.0),
    }  # fmt: skip
    moved = replace(schedule, cluster=replace(cluster, partitions=other))
    assert violations(moved) == [
        "job 1 is on node n1, which is not of partition 'long'",
        "job 1 has 2 nodes: partition 'long' gives 1 to a job",
        "job 2 asks for 9 s: partition 'test' allows 8 s",
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_time_s": 0.0}, "max_time_s 0.0: above 0 s"),
        ({"max_time_s": math.nan}, "max_time_s nan: above 0 s"),
        ({"max_time_s": 5.0, "default_time_s": 6.0}, "default_time_s 6.0: above 0 s, and at most its max_time_s of 5"),
        ({"default_time_s": math.nan}, "default_time_s nan"),
        ({"max_nodes": -1}, "max_nodes -1: a whole number"),
        ({"tier": 1.5}, "tier 1.5: a whole number"),
    ],
)
def test_a_partition_has_sensible_limits(values: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Partition((0,), **values)  # type: ignore[arg-type]
