"""What can be typed after ``asa``: commands, their options, and what these take; read off the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from asa.core.registry import Registry

FILES = ("FILES",)
"""Stands for names of files."""
RUNS = ("RUNS",)
"""Stands for names of runs."""
ANYTHING: tuple[str, ...] = ()
"""What nobody can list, such as a number."""

_GROUPS = {
    "backend": "asa.backends",
    "executor": "asa.executors",
    "strategy": "asa.strategies",
    "strategies": "asa.strategies",
    "estimators": "asa.estimators",
    "dispatcher": "asa.dispatchers",
    "predictor": "asa.predictors",
    "placement": "asa.placements",
    "method": "asa.placement_methods",
    "priority": "asa.priorities",
    "figure": "asa.figures",
    "sharing": "asa.sharing_rules",
    "rules": "asa.sharing_rules",
}
"""Options and arguments that take names, as `argparse` calls them, and the entry-point groups of these."""
_FILE_WORDS = ("FILE", "PATH", "DIR", "OUT", "TRACE", "LOG", "WORKFLOW", "JSON", ".")


@dataclass(frozen=True)
class Option:
    """An option of a command.

    Parameters
    ----------
    names
        As they are typed.
    help
        What it is for.
    takes
        What may follow: names, `FILES`, `RUNS` or `ANYTHING`; None for an option without a value.
    """

    names: tuple[str, ...]
    help: str
    takes: tuple[str, ...] | None


@dataclass(frozen=True)
class Place:
    """A command, or a part of one.

    Parameters
    ----------
    words
        What is typed after ``asa`` to get there.
    options
        What it takes.
    parts
        Names of commands that may follow, with what they are for.
    takes
        What else may follow.
    """

    words: tuple[str, ...]
    options: tuple[Option, ...]
    parts: tuple[tuple[str, str], ...]
    takes: tuple[str, ...]


def places(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[Place]:
    """The place of a parser, and all those below it."""
    options, parts, takes = [], [], ANYTHING
    below = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts += [(part.dest, _help(part)) for part in action._choices_actions]
            below += [(name, part) for name, part in action.choices.items()]
        elif action.option_strings:
            value = None if action.nargs == 0 else _taken(action)
            options.append(Option(tuple(action.option_strings), _help(action), value))
        else:
            takes = takes or _taken(action)
    yield Place(words, tuple(options), tuple(parts), takes)
    for name, part in below:
        yield from places(part, (*words, name))


def _taken(action: argparse.Action) -> tuple[str, ...]:
    """What an option or an argument takes."""
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if group := _GROUPS.get(action.dest):
        return tuple(Registry(action.dest, group=group))
    shown = " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar or action.dest.upper()
    if shown == "RUN":
        return RUNS
    return FILES if any(word in shown for word in _FILE_WORDS) else ANYTHING


def _help(action: argparse.Action) -> str:
    """One line on it."""
    text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
    return " ".join(text.replace("%%", "%").split())
