"""``asa logs``: what tasks have printed."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import sys
import zlib
from collections.abc import Iterator
from typing import TextIO

from asa.core.command import CommandResult
from asa.core.errors import InvalidInput
from asa.log.messages import notify
from asa.log.output import OutputLine, parsed_task
from asa.report.words import counted
from asa.workflows.run import Run, open_run

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_FAINT, _RED, _PLAIN = "\033[2m", "\033[31m", "\033[0m"


class LogsCommand:
    """Print what the tasks of a run have printed."""

    help = "print what tasks have printed: standard output and standard error, labelled by task"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run", metavar="RUN", nargs="?", default="@last", help="name of a run, a beginning of it, or @last (@last)"
        )
        parser.add_argument(
            "task", metavar="STAGE[INDEX]", nargs="?", help="a stage, or one task of it such as 'align[3]' (all)"
        )
        parser.add_argument("-f", "--follow", action="store_true", help="follow until the run is over")
        parser.add_argument("--failed", action="store_true", help="only of attempts that failed")
        parser.add_argument("--grep", metavar="PATTERN", help="only lines in which this regular expression is found")
        parser.add_argument("--nodes", action="store_true", help="print on which node, and when the task began, too")
        parser.add_argument("--bare", action="store_true", help="print the text alone, without the names of tasks")

    def run(self, options: argparse.Namespace) -> CommandResult:
        run = open_run(options.run)
        stage, index = (None, None) if options.task is None else parsed_task(options.task)
        lines = run.logs(stage, index, failed=options.failed, grep=options.grep, follow=options.follow)
        if options.json:
            if options.follow:
                raise InvalidInput("--json writes what there is once: leave --follow out")
            return CommandResult({"rows": [dataclasses.asdict(line) for line in lines]}, "")
        if not write_lines(lines, sys.stdout, nodes=options.nodes, bare=options.bare):
            notify(_nothing(run, options))
        return CommandResult(None, "")


def _nothing(run: Run, options: argparse.Namespace) -> str:
    if options.grep:
        return "no line matches"
    what = f"of {options.task} " if options.task else ""
    if options.failed:
        return f"no task {what}has failed in run {run.name}"
    so_far = " so far" if run.status.value == "running" else ""
    reused = sum(stage.reused for stage in run.summarise(0).stages)
    elsewhere = f"; {counted(reused, 'result')} of earlier runs stood for tasks (asa why)" if reused else ""
    return f"no task {what}has printed anything in run {run.name}{so_far}{elsewhere}"


def write_lines(lines: Iterator[OutputLine], stream: TextIO, *, nodes: bool = False, bare: bool = False) -> int:
    """Print lines behind the names of their tasks, in colour on a terminal; how many there were.

    Parameters
    ----------
    nodes
        Whether to print the node, and when the task began, too.
    bare
        Whether to print the text alone.
    """
    coloured = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    paint = _painted if coloured else _plain
    count = 0
    for line in lines:
        count += 1
        label = "" if bare else paint(line, f"{line.task}{_place(line) if nodes else ''}") + " "
        text = f"{_RED}{line.text}{_PLAIN}" if coloured and line.note else line.text
        print(f"{label}{text}", file=stream, flush=coloured)
    stream.flush()
    return count


def _place(line: OutputLine) -> str:
    began = f"{datetime.datetime.fromtimestamp(line.started):%H:%M:%S}" if line.started else "-"
    return f" {line.node} {began}"


def _plain(line: OutputLine, label: str) -> str:
    return label


def _painted(line: OutputLine, label: str) -> str:
    if not line.stage:
        return f"{_FAINT}{label}{_PLAIN}"
    return f"\033[{_COLOURS[zlib.crc32(line.stage.encode()) % len(_COLOURS)]}m{label}{_PLAIN}"
