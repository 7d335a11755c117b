"""``asa completion``: what makes a shell complete asa's commands, options and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from asa.core.command import CommandResult
from asa.core.registry import Registry


class CompletionCommand:
    """Print a script that makes a shell complete asa's command line."""

    help = "print the shell script that completes commands, options and names"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="source <(asa completion bash)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.cli.main import whole_parser

        found = list(places(whole_parser()))
        script = SHELLS[options.shell](found)
        return CommandResult({"shell": options.shell, "script": script}, script.rstrip("\n"))


FILES = ("FILES",)
"""Stands for names of files."""
RUNS = ("RUNS",)
"""Stands for names of runs."""
ANYTHING: tuple[str, ...] = ()
"""Stands for values that cannot be listed, such as numbers."""

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
    takes
        What may follow: names, `FILES`, `RUNS` or `ANYTHING`; None for an option without a value.
    """

    names: tuple[str, ...]
    help: str
    takes: tuple[str, ...] | None


@dataclass(frozen=True)
class CommandNode:
    """A command, or a part of one.

    Parameters
    ----------
    parts
        Names of commands that may follow, with what they are for.
    takes
        What else may follow.
    """

    words: tuple[str, ...]
    options: tuple[Option, ...]
    parts: tuple[tuple[str, str], ...]
    takes: tuple[str, ...]


def places(parser: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[CommandNode]:
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
    yield CommandNode(words, tuple(options), tuple(parts), takes)
    for name, part in below:
        yield from places(part, (*words, name))


def _taken(action: argparse.Action) -> tuple[str, ...]:
    """What an option or an argument takes."""
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if offered := getattr(action, "offered", ()):
        return tuple(offered)
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


_RUNS = '$(command ls "${ASA_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/asa}/runs" 2>/dev/null)'


def bash(places: Sequence[CommandNode]) -> str:
    """For bash, 4 or newer."""
    takes = [f"        {options}) {_bash_offer(taken)};;" for options, taken in _takes(places)]
    options = [f"        {_quoted(_key(place))}) offered={_quoted(' '.join(_names(place)))};;" for place in places]
    others = [f"        {_quoted(_key(place))}) {_bash_offer(_after(place))};;" for place in places if _after(place)]
    return f"""\
# Completion of asa for bash. To use it: source <(asa completion bash)
_asa() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at= word offered=
    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
    COMPREPLY=()
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$at $word" in {_paths(places)}) at="${{at:+$at }}$word";; esac
    done
    case "$at:$prev" in
{_lines(takes)}
        *) if [[ $cur == -* ]]; then case $at in
{_lines(options)}
        esac; else case $at in
{_lines(others)}
        esac; fi;;
    esac
    local before= list
    if [[ $cur == *,* ]]; then before=${{cur%,*}},; cur=${{cur##*,}}; fi
    read -r -d '' -a list <<<"$offered"
    for word in "${{list[@]}}"; do
        if [[ $word == "$cur"* ]]; then COMPREPLY+=("$before$word"); fi
    done
}}
complete -o default -o bashdefault -F _asa asa
"""


def zsh(places: Sequence[CommandNode]) -> str:
    """For zsh, sourced or from a file `_asa` in its ``fpath``."""
    takes = [f"        {options}) {_zsh_offer(taken)}; return;;" for options, taken in _takes(places)]
    options = [f"        {_quoted(_key(place))}) offered=({_described(_pairs(place.options))});;" for place in places]
    others = [f"        {_quoted(_key(place))}) {_zsh_other(place)};;" for place in places if _after(place)]
    return f"""\
#compdef asa
# Completion of asa for zsh. To use it: source <(asa completion zsh), or as a file _asa in a folder of fpath.
_asa() {{
    local cur=$words[CURRENT] prev=$words[CURRENT-1] at= word
    local -a offered
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$at $word" in ({_paths(places)}) at="${{at:+$at }}$word";; esac
    done
    if [[ $cur == --*=* ]]; then prev=${{cur%%=*}}; compset -P '*='; fi
    case "$at:$prev" in
{_lines(takes)}
    esac
    if [[ $cur == -* ]]; then
        case $at in
{_lines(options)}
        esac
        _describe -o option offered
        return
    fi
    case $at in
{_lines(others)}
        *) _files;;
    esac
}}
if [[ $funcstack[1] == _asa ]]; then _asa "$@"; else compdef _asa asa; fi
"""


def fish(places: Sequence[CommandNode]) -> str:
    """For fish, 3 or newer."""
    lines = []
    for place in places:
        here = f"complete -c asa -n \"__asa_at '{_key(place)}'\""
        lines += [f"{here} -f -a {_quoted(name)} -d {_quoted(help)}" for name, help in place.parts]
        if place.takes and not place.parts:
            lines.append(f"{here} {_fish_offer(place.takes)}")
        for option in place.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = "-f" if option.takes is None else f"-r {_fish_offer(option.takes)}"
            lines.append(f"{here} {names} {value} -d {_quoted(option.help)}")
    return f"""\
# Completion of asa for fish. To use it: asa completion fish > ~/.config/fish/completions/asa.fish
function __asa_at -d 'Whether these are the commands that were typed'
    set -l at ''
    for word in (commandline -opc)[2..-1]
        if contains -- "$at $word" {" ".join(_quoted(_step(place)) for place in places if place.words)}
            set at (string trim -- "$at $word")
        end
    end
    test "$at" = "$argv[1]"
end
function __asa_runs -d 'Names of runs'
    set -l state ~/.local/state/asa
    set -q XDG_STATE_HOME; and set state $XDG_STATE_HOME/asa
    set -q ASA_STATE_DIR; and set state $ASA_STATE_DIR
    command ls $state/runs 2>/dev/null
end
{chr(10).join(lines)}
"""


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def _key(place: CommandNode) -> str:
    return " ".join(place.words)


def _step(place: CommandNode) -> str:
    """The commands before the last one, and that one, as a script sees them when it comes along."""
    return f"{' '.join(place.words[:-1])} {place.words[-1]}"


def _paths(places: Iterable[CommandNode]) -> str:
    return _or(_step(place) for place in places if place.words)


def _or(patterns: Iterable[str]) -> str:
    return "|".join(_quoted(pattern) for pattern in patterns)


def _takes(places: Iterable[CommandNode]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options that take something, all that take the same as one pattern; and what that is."""
    found: dict[tuple[str, ...], list[str]] = {}
    for place in places:
        for option in place.options:
            if option.takes is not None:
                found.setdefault(option.takes, []).extend(f"{_key(place)}:{name}" for name in option.names)
    for taken, names in found.items():
        yield _or(names), taken


def _names(place: CommandNode) -> list[str]:
    return [name for option in place.options for name in option.names]


def _after(place: CommandNode) -> tuple[str, ...]:
    """What may follow a command, but options: its parts where it has some."""
    return tuple(name for name, _ in place.parts) or place.takes


def _pairs(options: Iterable[Option]) -> list[tuple[str, str]]:
    return [(name, option.help) for option in options for name in option.names]


def _described(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(_quoted(f"{name}:{help}") for name, help in pairs)


def _bash_offer(takes: tuple[str, ...]) -> str:
    if takes == RUNS:
        return f'offered="{_RUNS}"'
    return "offered=" if takes in (FILES, ()) else f"offered={_quoted(' '.join(takes))}"


def _zsh_offer(takes: tuple[str, ...]) -> str:
    if takes == RUNS:
        return f'compadd -- ${{(f)"{_RUNS}"}}'
    if takes == FILES:
        return "_files"
    return f"compset -P '*,'; compadd -- {' '.join(map(_quoted, takes))}" if takes else "_message value"


def _zsh_other(place: CommandNode) -> str:
    if place.parts:
        return f"offered=({_described(place.parts)}); _describe command offered"
    return _zsh_offer(place.takes)


def _fish_offer(takes: tuple[str, ...]) -> str:
    if takes == FILES:
        return "-F"
    if takes == RUNS:
        return "-f -a '(__asa_runs)'"
    return f"-f -a {_quoted(' '.join(takes))}" if takes else "-f"


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Text in single quotes, as all three shells take it."""
    return "'" + text.replace("'", "’").replace("\\", "") + "'"
