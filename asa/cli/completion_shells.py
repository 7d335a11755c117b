"""Scripts that complete a command line: the same table of `Place`s in the words of three shells.

Each script first finds where it is: it walks along the words that were typed, as far as they name commands. Then it
offers what the option before takes, else options or parts of the command, else what the command takes. Where nothing is
known, and for files, the shell's own completion goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from asa.cli.completion_words import FILES, RUNS, Option, Place

_RUNS = '$(command ls "${ASA_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/asa}/runs" 2>/dev/null)'


def bash(places: Sequence[Place]) -> str:
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


def zsh(places: Sequence[Place]) -> str:
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


def fish(places: Sequence[Place]) -> str:
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


def _key(place: Place) -> str:
    return " ".join(place.words)


def _step(place: Place) -> str:
    """The commands before the last one, and that one, as a script sees them when it comes along."""
    return f"{' '.join(place.words[:-1])} {place.words[-1]}"


def _paths(places: Iterable[Place]) -> str:
    return _or(_step(place) for place in places if place.words)


def _or(patterns: Iterable[str]) -> str:
    return "|".join(_quoted(pattern) for pattern in patterns)


def _takes(places: Iterable[Place]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Options that take something, all that take the same as one pattern; and what that is."""
    found: dict[tuple[str, ...], list[str]] = {}
    for place in places:
        for option in place.options:
            if option.takes is not None:
                found.setdefault(option.takes, []).extend(f"{_key(place)}:{name}" for name in option.names)
    for taken, names in found.items():
        yield _or(names), taken


def _names(place: Place) -> list[str]:
    return [name for option in place.options for name in option.names]


def _after(place: Place) -> tuple[str, ...]:
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


def _zsh_other(place: Place) -> str:
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
