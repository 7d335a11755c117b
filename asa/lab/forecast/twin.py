"""What other dispatchers would do to a queue: a twin of its machine goes on from what can be seen of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.backfill import BackfillRule, rule_of
from asa.lab.forecast.futures import NO_JOBS, Coming, Visible
from asa.lab.simulator.engine import Engine
from asa.lab.simulator.loop import dispatch_loop
from asa.lab.simulator.settings import MachineSettings
from asa.lab.simulator.state import StopReason

COMPARED = ("fcfs", "easy", "conservative", "easy:order=sjf,threshold=60h", "easy++")
"""Dispatchers that are compared unless others are named. `easy++` has no log to predict from: it predicts limits, so
that the shortest limit fills a gap first."""

_SETTINGS = MachineSettings(keep_nodes=False)


@dataclass(frozen=True, eq=False, slots=True)
class DispatchOutcome:
    """What a dispatcher would do to the waiting jobs.

    Parameters
    ----------
    starts
        When each would start [s, as the view counts], NaN for one that needs more than the machine has; shape (w,).
    waits
        From their submission on, what they have waited by now included [s], NaN likewise; shape (w,).
    """

    dispatcher: str
    starts: Floats
    waits: Floats

    def to_json(self) -> dict[str, Any]:
        """A row: mean, 90 % quantile and longest of the waits [s], None where no job starts; jobs that never start."""
        waits = self.waits[~np.isnan(self.waits)]
        some = len(waits) > 0
        return {
            "dispatcher": self.dispatcher,
            "mean_wait_s": float(waits.mean()) if some else None,
            "p90_wait_s": float(np.quantile(waits, 0.9)) if some else None,
            "max_wait_s": float(waits.max()) if some else None,
            "never": len(self.waits) - len(waits),
        }


@dataclass(frozen=True, eq=False, slots=True)
class Twin:
    """A queue on a machine of its own, at one moment; it can go on from there as often as one likes.

    Only cores count, as for `Visible`. Jobs that run already do so; the others stand in the order of the view.

    Parameters
    ----------
    engine
        The machine at that moment, before anything is decided; it is only copied.
    foreseen
        Whether jobs run until their limits, and none comes: then plans are carried out as they are made.

    Examples
    --------
    Six of eight cores are taken for 100 s. The first job needs all; the second could fill the gap before it.

    >>> from asa.core.job import Resources
    >>> from asa.core.view import QueuedJob, QueueView, RunningJob
    >>> from asa.lab.forecast.futures import visible
    >>> waiting = QueuedJob("a", Resources(8), 50.0, -10.0), QueuedJob("b", Resources(2), 60.0, 0.0)
    >>> twin = Twin.of(visible(QueueView(0.0, Resources(8), waiting, (RunningJob("c", Resources(6), 100.0),))))
    >>> [twin.under(name).starts.tolist() for name in ("fcfs", "easy")]
    [[100.0, 150.0], [100.0, 0.0]]
    >>> twin.under("fcfs").to_json()["mean_wait_s"]
    130.0
    """

    engine: Engine
    seen: Visible
    foreseen: bool

    @classmethod
    def of(
        cls, seen: Visible, *, left_s: Floats | None = None, run_s: Floats | None = None, coming: Coming = NO_JOBS
    ) -> Twin:
        """The queue as it was seen.

        Parameters
        ----------
        left_s
            How long the running jobs go on [s], shape (r,); None: until their limits.
        run_s
            Run times of the waiting jobs [s], shape (w,); None: their limits. No job runs for longer than its limit.
        coming
            Jobs that will be submitted, none before the view's `now`, in order of submission.

        Raises
        ------
        InvalidInput
            When `left_s` or `run_s` is of another shape, or holds a number that is not finite or below 0.
        """
        running, waiting = len(seen.running), len(seen.waiting)
        left = _checked("left_s", left_s, seen.left_s)
        run = _checked("run_s", run_s, seen.walltime_s)
        there = np.full(running + waiting, seen.now)
        jobs = Workload.of(
            submit=np.concatenate([there, np.maximum(coming.submit, seen.now)]),
            run=np.concatenate([left, run, coming.run_s]),
            cores=np.concatenate([seen.running_cores, seen.waiting_cores, coming.cores]),
            walltime=np.concatenate([seen.left_s, seen.walltime_s, coming.walltime_s]),
        )
        # Jobs on nodes that are to go down hold cores that the view does not count.
        engine = Engine(jobs, Cluster.of(nodes=1, cores=max(seen.cores, int(seen.running_cores.sum()))), _SETTINGS)
        _start_first(engine, running)
        engine.state.jobs["submit"][running : running + waiting] = seen.submitted
        engine.state.world[0]["dirty"] = 1
        foreseen = np.array_equal(left, seen.left_s) and np.array_equal(run, seen.walltime_s) and not len(coming.submit)
        return cls(engine, seen, foreseen)

    def under(self, dispatcher: Any) -> DispatchOutcome:
        """What a backfilling rule would do; a dispatcher, or its name and options.

        Raises
        ------
        InvalidInput
            When it is not one that compiled loops know.
        UnknownName
            When there is none of this name.
        """
        rule, engine = rule_of(dispatcher), self.engine.copy()
        planned = self.foreseen and rule == BackfillRule(math.inf)  # it would make the same plan again at every end
        if planned:
            engine.dispatch(rule, promise=True, most=1)
        else:
            while engine.dispatch(rule) is not StopReason.OVER:
                pass
        first = len(self.seen.running)
        jobs = engine.state.jobs[first : first + len(self.seen.waiting)]
        starts: Floats = np.where(planned & np.isnan(jobs["started"]), jobs["planned"], jobs["started"])
        return DispatchOutcome(str(dispatcher), starts, starts - self.seen.submitted)


def _start_first(engine: Engine, count: int) -> None:
    """Let all jobs of this instant be submitted, and the first ones start, which have room."""
    engine.dispatch(BackfillRule(depth=0), engine.now, most=0)
    while (left := count - int(engine.state.world[0]["running"])) > 0:
        rule = BackfillRule(depth=0, limit=left)  # where the tables are too small for all of them, some have started
        if dispatch_loop(engine.state, engine.now, rule, engine.weights, False, 1) == StopReason.GROW:
            engine.grow()


def _checked(name: str, given: Floats | None, limits: Floats) -> Floats:
    """Run times [s], no longer than the limits."""
    if given is None:
        return limits
    if given.shape != limits.shape or not (np.isfinite(given) & (given >= 0)).all():
        raise InvalidInput(f"{name}: {len(limits)} finite numbers of at least 0 expected, one for each job")
    return np.minimum(given, limits)
