"""Days of a log to learn from, and days to choose a model by."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from asa.core.command import positive
from asa.core.errors import InvalidInput
from asa.lab.cli.simulate import days

if TYPE_CHECKING:
    from asa.lab.core.workload import Workload


def add_days(parser: argparse.ArgumentParser) -> None:
    """Options of trainings on a log; see `parts`."""
    add = parser.add_argument
    add("--trace", required=True, metavar="TRACE", help="log of jobs, as asa simulate takes it")
    add("--from-day", type=float, default=0.0, metavar="D", help="learn from jobs submitted on that day or later (0)")
    add("--to-day", type=float, metavar="D", help="and before that day (the first that validates)")
    add("--validate", type=_span, required=True, metavar="D-D", help="days to choose a model by, as in 90-120")
    add("--nodes", type=positive, metavar="N", help="nodes of the machine (those of the trace's header)")


def parts(workload: Workload, options: argparse.Namespace) -> tuple[Workload, Workload]:
    """Jobs to learn from, and jobs to choose a model by; no job is both.

    Raises
    ------
    InvalidInput
        When the days overlap, or there are no jobs on some.
    """
    (begin, until), to_day = options.validate, options.to_day
    if to_day is None and options.from_day < begin:
        to_day = begin
    if options.from_day < until and (to_day is None or to_day > begin):
        raise InvalidInput(
            f"days {options.from_day:g} to {'the end' if to_day is None else f'{to_day:g}'} to learn from, days "
            f"{begin:g} to {until:g} to validate: give days that do not overlap"
        )
    return days(workload, options.from_day, to_day), days(workload, begin, until)


def _span(text: str) -> tuple[float, float]:
    """Two days, as in 90-120."""
    begin, _, until = text.partition("-")
    try:
        found = float(begin), float(until)
    except ValueError:
        found = 0.0, 0.0
    if not 0 <= found[0] < found[1]:
        raise argparse.ArgumentTypeError(f"{text!r}: two days expected, the later one second, as in 90-120")
    return found
