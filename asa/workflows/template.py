"""Templates: the four ways of putting stages together that the Tigres library made known.

A template is itself callable like a stage, so templates nest::

    montage = sequence(parallel(project), background, parallel(correct), add)
    asa.run(montage(images))

References
----------
V. Hendrix et al., "Tigres workflow library: supporting scientific pipelines on HPC systems", CCGrid 2016.
Deviation: the result of the step before is passed on directly; there is no ``PREVIOUS`` to spell out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asa.core.errors import InvalidInput
from asa.workflows.stage import Node, Stage

Step = Callable[..., Any]


def sequence(*steps: Step) -> Step:
    """Each step gets the result of the one before; the first gets the template's arguments.

    >>> from asa.workflows.stage import stage
    >>> sequence(stage(len), stage(bin))("abc")
    <node bin>
    """
    first, *rest = _steps("sequence", steps)

    def run(*args: Any, **kwargs: Any) -> Any:
        value = first(*args, **kwargs)
        for step in rest:
            value = step(value)
        return value

    return run


def parallel(*steps: Step) -> Step:
    """One stage: a task per element of the input. Several steps: each gets the same input; the result is their list.

    >>> from asa.workflows.stage import stage
    >>> parallel(stage(abs))([-1, 2])
    <node abs.map>
    >>> parallel(stage(min), stage(max))([1, 2])
    [<node min>, <node max>]
    """
    _steps("parallel", steps)
    if len(steps) == 1:
        return _mapping(steps[0])
    return lambda *args, **kwargs: [step(*args, **kwargs) for step in steps]


def split(divide: Step, work: Step) -> Step:
    """`divide` makes a list of its input; `work` runs once per element of it.

    >>> from asa.workflows.stage import stage
    >>> split(stage(sorted), stage(str))("cab")
    <node str.map>
    """
    return sequence(divide, parallel(work))


def merge(work: Step, combine: Step) -> Step:
    """`work` runs once per element of the input; `combine` gets the list of results.

    >>> from asa.workflows.stage import stage
    >>> merge(stage(abs), stage(sum))([-1, 2])
    <node sum>
    """
    return sequence(parallel(work), combine)


def _mapping(step: Step) -> Step:
    if isinstance(step, Stage):
        return step.map

    def run(items: Any) -> Any:
        if isinstance(items, Node):
            raise InvalidInput(
                "a template can only be repeated over a list that is known before the workflow runs, and this one is "
                "the result of a stage: put the work of one element in one stage, or make the list beforehand"
            )
        return [step(item) for item in items]

    return run


def _steps(template: str, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    if not steps:
        raise InvalidInput(f"{template}() needs at least one stage")
    for step in steps:
        if not callable(step):
            raise InvalidInput(f"{template}() is made of stages and templates, not of {step!r}: call it afterwards")
    return steps
