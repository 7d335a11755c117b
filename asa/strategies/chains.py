"""A workflow as chains of stages, each of which follows on the one before it."""

from __future__ import annotations

from collections.abc import Sequence

from asa.core.view import StageView


def chains(stages: Sequence[StageView]) -> list[list[StageView]]:
    """Stages as chains; every stage is in one.

    A stage follows the one of its predecessors that is expected to end last if nobody waits. Of several that follow the
    same one, the widest does (of equal ones the longest), and the others begin chains of their own.

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
    follower: dict[str, StageView] = {}  # stage -> who follows it
    for stage in stages:
        before = stage.spec.predecessors
        ends[stage.spec.name] = max((ends[name] for name in before), default=0.0) + stage.spec.run_time_s
        if before:
            last = max(before, key=lambda name: ends[name])
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
