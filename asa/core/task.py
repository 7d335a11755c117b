"""Tasks: what an executor is given to run. Payloads are opaque bytes here; only workers open them."""

from __future__ import annotations

from dataclasses import dataclass

from asa.core.job import Resources
from asa.core.launch import Launch


@dataclass(frozen=True, slots=True)
class Value:
    """A pickled value, in memory or in a file of the run's directory.

    Exactly one of the two is set. Files are written once, under a temporary name first, and never changed.
    """

    data: bytes | None = None
    path: str | None = None


ONE_CORE = Resources()


@dataclass(frozen=True, slots=True)
class Task:
    """One call of a stage's function.

    Parameters
    ----------
    stage, index
        Which task it is: stage name and position in the stage, counted from 0.
    function
        File with the stage's pickled function; a worker loads it once.
    arguments
        Pickled ``(args, kwargs)``, in which an ``Input(n)`` stands for ``inputs[n]``.
    inputs
        Results of other tasks that the arguments refer to.
    resources
        What it needs while it runs.
    launch
        How its ranks are started, or None for a plain call.
    """

    stage: str
    index: int
    function: str
    arguments: Value
    inputs: tuple[Value, ...] = ()
    resources: Resources = ONE_CORE
    launch: Launch | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """In pickled arguments: the place of an input value.

    Parameters
    ----------
    first
        Position in ``Task.inputs``.
    count
        None for that one value; otherwise the list of this many values from `first` on.
    """

    first: int
    count: int | None = None
