"""Entry point of the command line: find the command, run it, show its result."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import shutil
import signal
import stat
import sys
import textwrap
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from asa.core.command import INTERRUPTED, CommandResult
from asa.core.errors import AsaError, AsaWarning, InvalidInput, UnknownName, cause
from asa.core.registry import COMMANDS, check_packages
from asa.log.messages import add_log_level, log_to_terminal, notify
from asa.report.outputs import check_outputs

FAILED, USAGE = 1, 2

MEANT = {
    **dict.fromkeys(("kill", "stop", "abort", "end", "scancel", "qdel"), "cancel"),
    **dict.fromkeys(("ls", "list", "jobs"), "runs"),
    **dict.fromkeys(("pause", "suspend", "freeze"), "hold"),
    **dict.fromkeys(("unpause", "unhold", "unfreeze"), "release"),
    **dict.fromkeys(("delete", "remove", "del", "prune"), "rm"),
    **dict.fromkeys(("log", "output", "stdout", "stderr", "tail", "print"), "logs"),
    **dict.fromkeys(("stat", "state", "info", "show", "progress", "ps", "squeue", "qstat"), "status"),
    **dict.fromkeys(("submit", "start", "exec", "sbatch", "execute"), "run"),
    **dict.fromkeys(("restart", "continue", "retry", "rerun"), "resume"),
    **dict.fromkeys(("watch", "monitor", "follow"), "top"),
    **dict.fromkeys(("reattach", "connect", "fg"), "attach"),
    **dict.fromkeys(("describe", "reason", "debug"), "explain"),
    "check": "doctor",
    "test": "selftest",
    **dict.fromkeys(("plot", "dag"), "graph"),
    **dict.fromkeys(("predict", "estimate", "eta", "cost", "forecast"), "quote"),
}
"""Words by which other tools, or people, call commands."""


GROUPS = {
    "run a workflow": ("run", "quote", "resume", "attach", "graph"),
    "look at runs": (
        "runs", "status", "explain", "logs", "top", "dashboard", "report", "export", "why", "waits", "history",
    ),
    "manage runs": ("hold", "release", "cancel", "rm", "clean"),
    "sites, pools and shared nodes": (
        "doctor", "selftest", "master", "agent", "pool", "cosched", "calibrate-contention", "completion",
    ),
    "laboratory": (
        "simulate", "tune", "bench", "twin", "compare", "calibrate", "replay-waits", "dispatch", "place", "train",
        "figure", "torture",
    ),
}  # fmt: skip
"""Commands by what they are for; those of other packages stand below them."""

_NAMES, _LEAST, _SHORT = 14, 40, 90


class _Parser(argparse.ArgumentParser):
    """Of all commands, which its help shows in groups."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.listed: dict[str, str] = {}

    def format_help(self) -> str:
        width = max(_LEAST, shutil.get_terminal_size().columns - 2)
        named = {name for names in GROUPS.values() for name in names}
        groups = GROUPS | {"others": tuple(name for name in self.listed if name not in named)}
        lines = [self.format_usage(), self.description or ""]
        for title, names in groups.items():
            if here := [name for name in names if name in self.listed]:
                lines += ["", f"{title}:"]
            for name in here:
                words = self.listed[name]
                words = words.partition(":")[0] if len(words) > _SHORT else words
                text = textwrap.wrap(words, width - _NAMES)
                lines += [f"  {name}"] if len(name) > _NAMES - 3 else [f"  {name:<{_NAMES - 2}}{text.pop(0)}"]
                lines += [" " * _NAMES + line for line in text]
        more = "'asa COMMAND --help' shows the options of a command, 'asa --version' the version."
        lines += ["", *textwrap.wrap(more, width)]
        return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        signal.signal(signal.SIGHUP, _interrupt)
    warnings.showwarning = _show_warning
    _open_closed()
    for stream in (sys.stdout, sys.stderr):  # what their encoding does not have is written as \xe9: it is no error
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        check_packages()
        parser, command = make_parser(words)
        options, unknown = parser.parse_known_args(words)
        if unknown:  # the error shows the usage of the command itself, with its options
            part = getattr(options, "parser", parser)
            near = get_close_matches(unknown[0].partition("=")[0], part._option_string_actions, 1)
            part.error(
                f"unrecognized arguments: {' '.join(unknown)}" + "".join(f": did you mean {each}?" for each in near)
            )
        if command is None:
            parser.print_help()
            return USAGE
        if options.json:
            check_outputs(options)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as `asa.__main__` leaves it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with log_to_terminal(options.log_level) if options.log_level else contextlib.nullcontext():
            return _show(command.run(options), options.json)
    except AsaError as error:
        notify(f"error: {error}")
        return USAGE if isinstance(error, UnknownName) else FAILED
    except KeyboardInterrupt as interrupt:
        notify(f"interrupted by {interrupt.args[0]}" if interrupt.args else "interrupted")
        return INTERRUPTED
    except OSError as error:  # of a pipe whose reader is gone, or of a full disk
        logging.getLogger(__name__).debug("%s", error, exc_info=True)
        if not isinstance(error, BrokenPipeError):
            gone = os.readlink("/proc/self/cwd").endswith(" (deleted)")
            where = f"{error.filename}: " if error.filename else "the working directory is gone: " * gone
            notify(f"error: {where}{cause(error)}")
        with contextlib.suppress(OSError, ValueError):  # as it ends, Python would try once more to write to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _open_closed() -> None:
    """Have all three streams go somewhere, as in ``asa runs >&-``: no file that is opened takes the place of one."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False) if stream is None else stream  # noqa: SIM115
        for number, (stream, mode) in enumerate(((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w")))
    )


def make_parser(words: Sequence[str]) -> tuple[argparse.ArgumentParser, Any]:
    """A parser for the command that is named first, or for all of them when none is; and that command."""
    parser = _Parser(prog="asa", description="Workflow-aware elastic execution for HPC.")
    import asa

    parser.add_argument("--version", action="version", version=f"asa {asa.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=argparse.ArgumentParser)
    name = words[0] if words and not words[0].startswith("-") else None
    if name is not None and name not in COMMANDS:
        raise UnknownName(
            "command", name, COMMANDS, {word: each for word, each in MEANT.items() if each in COMMANDS}, 0.65
        )
    chosen = None
    for each in [name] if name else COMMANDS:
        try:
            command = COMMANDS.load(each)()
        except InvalidInput as error:  # one package's mistake must not hide the commands of the others
            if name:
                raise
            notify(f"warning: {error}")
            continue
        chosen = command if name else None
        part = commands.add_parser(each, help=command.help, description=command.help)
        part.add_argument("--json", metavar="OUT", help="write the result as JSON to this file; '-' is standard output")
        add_log_level(part)
        part.set_defaults(parser=part)
        parser.listed[each] = command.help
        command.configure(part)
    return parser, chosen


def whole_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    return make_parser([])[0]


def _show(result: CommandResult, destination: str | None) -> int:
    if destination == "-":
        print(json.dumps(result.data, indent=2), flush=True)
        return result.exit_code
    if destination:
        Path(destination).write_text(json.dumps(result.data, indent=2) + "\n")
    if result.text:
        print(result.text, file=sys.stderr if result.exit_code and not result.trouble else sys.stdout, flush=True)
    if result.trouble:
        print(result.trouble, file=sys.stderr, flush=True)
    return result.exit_code


_show_others = warnings.showwarning


def _show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
    """Ours without the place in our code that they come from."""
    if issubclass(category, AsaWarning):
        notify(f"warning: {message}")
    else:
        _show_others(message, category, *where, **more)


def _interrupt(number: int, frame: object) -> NoReturn:
    """End as Ctrl-C does: what is done stays done. Where the terminal is gone, nothing is written to it any more."""
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            with contextlib.suppress(OSError):
                if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                    os.dup2(nowhere, descriptor)
        os.close(nowhere)
    raise KeyboardInterrupt(signal.Signals(number).name)
