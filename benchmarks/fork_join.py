"""A workflow that is no chain: two branches of unlike width between a start and a join. For `asa compare`."""

from __future__ import annotations

from typing import Any

import asa


@asa.stage(cores=1, walltime="1h", run_time="5m")
def split(_x: int) -> None: ...


@asa.stage(cores=64, walltime="1h", run_time="15m")
def wide(_x: int) -> None: ...


@asa.stage(cores=8, walltime="1h", run_time="20m")
def narrow(_x: int) -> None: ...


@asa.stage(cores=8, walltime="1h", run_time="10m")
def refine(_x: int) -> None: ...


@asa.stage(cores=16, walltime="1h", run_time="10m")
def join(_wide: Any, _refined: Any) -> None: ...


def workflow(cores: int = 64) -> Any:
    """`cores` is the width of the wide branch; the other one is an eighth as wide, and has two stages."""
    some = max(1, cores // 8)
    first = split(1)
    left = wide.options(cores=cores).map(range(cores)).after(first)
    right = narrow.options(cores=some).map(range(some)).after(first)
    refined = refine.options(cores=some).map(range(some)).after(right)
    return join.options(cores=max(1, cores // 4))(left, refined)
