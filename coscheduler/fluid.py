"""Jobs in progress as a fluid: how fast each gets on, and when that changes next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from coscheduler.contention import Contention, capped, weighted
from coscheduler.happiness import happiness, smoothed
from coscheduler.history import Use
from coscheduler.ledger import Ledger
from coscheduler.nouns import JobStates
from coscheduler.workload import Load, Phase

_DUST = 1e-6  # [s] of work that is taken for none


@dataclass(slots=True)
class Flow:
    """A job in progress."""

    load: Load
    phase: int = 0
    """Place of what it does among the phases of its load."""
    left_s: float = 0.0
    """Work that is left in this phase: so long would it take alone [s]."""
    done_s: float = 0.0
    """Work that is done [s]."""
    rate: float = 0.0
    """Its speed, 1 when alone."""
    granted: float = 0.0
    """Cores that it gets."""
    cpu_s: float = 0.0
    """CPU time so far [s]."""
    crowd_cpu: float = 0.0
    """Cores in use among its own, by everybody on them; 0 for a guest."""
    crowd_memory: float = 0.0
    """Memory of its own cores in use, by everybody on them [cores]; 0 for a guest."""
    busy_s: float = 0.0
    """Integral of `crowd_cpu` [core-seconds]."""
    memory_s: float = 0.0
    """Integral of `crowd_memory` [core-seconds]."""
    mean_rate: float = math.nan
    """Average of `rate` over the last minutes."""
    mean_cpu: float = math.nan
    """Average share of its cores that it uses, over the last minutes."""

    @property
    def doing(self) -> Phase:
        """The phase it is in."""
        return self.load.phases[self.phase]

    @property
    def wanted(self) -> float:
        """Cores that it could use now."""
        return self.doing.demand * self.load.request.cores

    @property
    def used(self) -> Use:
        """What this run has used so far."""
        return Use(self.cpu_s, self.busy_s, self.memory_s)

    def move(self, over_s: float) -> bool:
        """Get on for a time [s]; whether the phase has ended."""
        self.left_s -= over_s * self.rate
        self.done_s += over_s * self.rate
        self.cpu_s += over_s * self.granted
        self.busy_s += over_s * self.crowd_cpu
        self.memory_s += over_s * self.crowd_memory
        cpu = min(1.0, self.granted / self.load.request.cores)
        self.mean_rate = smoothed(self.mean_rate, self.rate, over_s)
        self.mean_cpu = smoothed(self.mean_cpu, cpu, over_s)
        return self.left_s <= _DUST


class Fluid:
    """Running jobs of a simulated machine.

    Parameters
    ----------
    contention
        What sharing costs.
    form
        Of the happiness that is measured: see `coscheduler.happiness.happiness`.
    """

    def __init__(self, contention: Contention, form: str) -> None:
        self._contention, self._form = contention, form
        self.flows: dict[str, Flow] = {}

    def begin(self, load: Load) -> None:
        """A job starts, from nothing."""
        self.flows[load.request.name] = Flow(load, left_s=load.phases[0].alone_s)

    def next_s(self) -> float:
        """Time until a phase of any job ends [s]."""
        return min((flow.left_s / flow.rate for flow in self.flows.values()), default=math.inf)

    def step(self, over_s: float) -> tuple[list[str], bool]:
        """Let a time pass [s], at most `next_s`: who has ended, and whether rates have changed."""
        ended, changed = [], False
        for name, flow in self.flows.items():
            if not flow.move(over_s):
                continue
            changed = True
            flow.phase += 1
            if flow.phase == len(flow.load.phases):
                ended.append(name)
            else:
                flow.left_s = flow.doing.alone_s
        return ended, changed

    def set_rates(self, ledger: Ledger) -> None:
        """Share the cores of every host out, as the ledger says."""
        for name, placed in ledger.running.items():
            if placed.host is None:
                self._share_out([name, *placed.guests], ledger)

    def states(self, ledger: Ledger, now: float) -> JobStates:
        """What monitoring says of the running jobs, in the ledger's order."""
        flows = [self.flows[name] for name in ledger.running]
        loads = [flow.load for flow in flows]
        walltime = np.array([load.request.walltime_s for load in loads])
        elapsed = now - np.array([placed.started for placed in ledger.running.values()])
        left = np.array([1 - flow.done_s / flow.load.alone_s for flow in flows])
        rate = np.array([_or_now(flow.mean_rate, flow.rate) / flow.load.alone_s for flow in flows])
        return JobStates(
            cpu=np.array([_or_now(flow.mean_cpu, flow.granted / flow.load.request.cores) for flow in flows]),
            memory=np.array([load.memory for load in loads]),
            parallel=np.array([flow.doing.parallel for flow in flows], dtype=np.bool_),
            elapsed=elapsed / walltime,
            happiness=happiness(walltime, elapsed, left, rate, self._form),
        )

    def _share_out(self, names: list[str], ledger: Ledger) -> None:
        """Cores and speed of a host, which is named first, and of its guests."""
        flows = [self.flows[name] for name in names]
        cores = flows[0].load.request.cores
        wanted = [flow.wanted for flow in flows]
        shares = [ledger.own_share(name) for name in names]
        hard = any(ledger.running[name].hard for name in names[1:])
        granted = (capped if hard else weighted)(cores, wanted, shares)
        memory = sum(flow.load.memory * flow.load.request.cores for flow in flows)
        factor = self._contention.factor(len(flows), memory / cores)
        for flow, want, got in zip(flows, wanted, granted, strict=True):
            flow.granted, flow.rate, flow.crowd_cpu, flow.crowd_memory = got, factor * got / want, 0.0, 0.0
        flows[0].crowd_cpu, flows[0].crowd_memory = sum(granted), min(memory, cores)


def _or_now(average: float, now: float) -> float:
    """An average, or what there is now while that is not known."""
    return now if math.isnan(average) else average
