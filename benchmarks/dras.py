"""How long an episode of DRAS takes, and a decision, with the paper's networks.

    python benchmarks/dras.py TRACE [--jobs 3000] [--hidden 4000,1000] [--kind pg,dql] [--from-day 30] [--every 10]

The first jobs of a log from that day on, on one thread: processor time of the episode, what of it went into acting,
into changes of the network and into the simulated machine; and the time of a decision of the trained dispatcher.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measure import show

from asa.lab.cli.simulate import days
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.learned.dras import Rows, policy_of
from asa.lab.dras_paper.environment import Dispatching
from asa.lab.dras_paper.learners import episode
from asa.lab.dras_paper.training import KINDS, TrainingPlan, learner_of
from asa.lab.traces.load import load_trace

DECISIONS = 200


class Timed:
    """A function, and the processor time that it has taken [s]."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *given: Any) -> Any:
        began = time.thread_time()
        found = self._function(*given)
        self.seconds += time.thread_time() - began
        return found


def row(plan: TrainingPlan, jobs: Workload, cluster: Cluster, every: int) -> dict[str, Any]:
    """An episode of these jobs, and decisions on the same."""
    environment: Any = Dispatching([jobs], cluster, Rows(plan.window, plan.scaling), levels=KINDS[plan.kind].levels)
    learner: Any = learner_of(plan, environment.nodes)
    learner.act, learner.learn, environment.step = map(Timed, (learner.act, learner.learn, environment.step))
    began = time.process_time()
    lived = episode(environment, learner, every=every)
    took = time.process_time() - began
    return {
        "kind": plan.kind, "parameters": learner.network.shape.parameters, "jobs": len(jobs), "changes": lived.updates,
        "CPU [s]": took, "acting [s]": learner.act.seconds, "changing [s]": learner.learn.seconds,
        "machine [s]": environment.step.seconds, "a decision [ms]": 1e3 * decision(learner, environment),
    }  # fmt: skip


def decision(learner: Any, environment: Any) -> float:
    """Time in which the dispatcher selects a job, in the mean [s]."""
    policy = policy_of(learner.network.model(), greedy=True)
    state, _ = environment.reset(seed=0)
    times = []
    for _ in range(DECISIONS):
        mask = environment.action_masks()
        began = time.perf_counter()
        action = policy(state, mask)
        times.append(time.perf_counter() - began)
        state, _, over, _, _ = environment.step(action)
        if over:
            break
    return float(np.mean(times))


def main() -> None:
    parser = argparse.ArgumentParser(description="How long an episode of DRAS takes.")
    parser.add_argument("trace")
    parser.add_argument("--jobs", type=int, default=3000, help="of the episode (3000)")
    parser.add_argument("--hidden", default="4000,1000", help="sizes of the hidden layers (4000,1000)")
    parser.add_argument("--kind", default="pg,dql", help="which (pg,dql)")
    parser.add_argument("--from-day", type=float, default=30.0, help="of the log (30)")
    parser.add_argument("--every", type=int, default=10, help="scheduling instances until the network is changed (10)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trace = load_trace(options.trace)
    jobs = days(trace.workload, options.from_day, None).take(np.arange(options.jobs))
    first, second = (int(size) for size in options.hidden.split(","))
    plans = [TrainingPlan(kind=kind, hidden=(first, second)) for kind in options.kind.split(",")]
    show("an episode of DRAS", [row(plan, jobs, trace.machine(), options.every) for plan in plans])


if __name__ == "__main__":
    main()
