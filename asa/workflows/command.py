"""Stages that are programs: a command line with inputs in braces, and outputs that are checked."""

from __future__ import annotations

import inspect
import os
import shlex
import string
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from asa.core.errors import CommandFailed, InvalidInput
from asa.core.task import ending
from asa.workflows.stage import Stage, make_needs


class Command:
    """What runs in the worker: format, run, check.

    The command line is split into words *before* values are put in, and no shell is involved: a value is never
    taken apart, and nothing in it is executed. A word that is just ``{name}`` becomes several words for a list.
    """

    def __init__(
        self, template: str, outputs: Mapping[str, str], ok: Iterable[int], env: Mapping[str, str] | None = None
    ) -> None:
        try:
            self.words, self.outputs = shlex.split(template), dict(outputs)
        except ValueError as error:
            raise InvalidInput(f"the command {template!r} cannot be split into words: {error}") from None
        self.ok, self.env = frozenset(ok), dict(env or {})
        if not self.words:
            raise InvalidInput("the command is empty: write it like 'mProject {image} {out} {header}'")
        fields = [name for text in (*self.words, *outputs.values()) for name in _fields(text)]
        self.inputs = tuple(dict.fromkeys(name for name in fields if name not in self.outputs))
        self.__name__ = Path(self.words[0]).name
        self.__doc__ = f"Run `{template}`."

    @property
    def __signature__(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.inputs])

    def launched(self, prefix: Sequence[str], environment: Mapping[str, str]) -> Callable[..., Any]:
        """The same command, started through a launcher: see `asa.core.launch.Program`."""
        return partial(self._run, prefix, environment)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run((), os.environ, *args, **kwargs)

    def _run(self, prefix: Sequence[str], environment: Mapping[str, str], /, *args: Any, **kwargs: Any) -> Any:
        values = self.__signature__.bind(*args, **kwargs).arguments
        outputs = {name: Path(_filled(text, values)) for name, text in self.outputs.items()}
        inputs = {Path(value).absolute() for value in values.values() if isinstance(value, str | Path)}
        for name, path in outputs.items():
            if path.absolute() in inputs:
                raise CommandFailed(f"output {name} = {path} is also an input, and would be lost: name it differently")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # what an earlier attempt left must not pass for this one's
        argv = [*prefix, *(word for text in self.words for word in _expand(text, values | outputs))]
        try:
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, text=True, errors="replace", check=False, env={**environment, **self.env}
            )
        except OSError as error:
            raise CommandFailed(
                f"{argv[0]} cannot be started: {error.strerror}: is it installed, and on PATH?"
            ) from None
        if done.returncode not in self.ok:
            tail = done.stdout[-2000:].strip()
            raise CommandFailed(
                f"`{shlex.join(argv)}` {ending(done.returncode)}" + (f"; it printed: {tail}" if tail else "")
            )
        missing = [f"{name} = {path}" for name, path in outputs.items() if not path.exists()]
        if missing:
            raise CommandFailed(
                f"`{shlex.join(argv)}` ended well but did not write {', '.join(missing)}: "
                "is that where the program puts it?"
            )
        return done.stdout if not outputs else outputs if len(outputs) > 1 else next(iter(outputs.values()))


def command(
    template: str,
    *,
    outputs: Mapping[str, str] | None = None,
    ok: Iterable[int] = (0,),
    env: Mapping[str, str] | None = None,
    name: str | None = None,
    **needs: Any,
) -> Stage[..., Any]:
    """Make a stage of a program.

    Parameters
    ----------
    template
        The command line; names in braces are the stage's inputs, in order of appearance, and its outputs.
    outputs
        Name -> file name, formatted from the inputs. Each must exist when the program has ended.
    ok
        Exit codes that mean success.
    env
        Environment variables to add.
    name
        The stage's name; default the program's.
    needs
        As for `stage`: ``cores=``, ``walltime=`` and so on. With ``launcher=``, the launcher starts the program.

    Returns
    -------
    Stage
        Whose value is the one output's `Path`, a dict of them when there are several, or what the program printed
        when there are none.

    Raises
    ------
    InvalidInput
        When the template or a need cannot be used.

    Examples
    --------
    >>> project = command("mProject {image} {out} {header}", outputs={"out": "{image.stem}_p.fits"}, cores=4)
    >>> project.map([Path("a.fits"), Path("b.fits")], header=Path("m17.hdr"))
    <node mProject.map>
    """
    function = Command(template, outputs or {}, ok, env)
    stage_name = name or function.__name__
    return Stage(function, make_needs(stage_name, **needs), stage_name)


def _fields(text: str) -> list[str]:
    try:
        found = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} cannot be formatted ({error}): write '{{{{' for a brace that is meant as such"
        ) from None
    names = [name.replace("[", ".").split(".")[0] for name in found]
    if not all(name.isidentifier() for name in names):
        raise InvalidInput(f"{text!r}: every place in braces needs a name, like {{image}}")
    return names


def _expand(text: str, values: Mapping[str, Any]) -> list[str]:
    if text.startswith("{") and text.endswith("}") and isinstance(several := values.get(text[1:-1]), list | tuple):
        return [str(value) for value in several]
    return [_filled(text, values)]


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """A template with its values in it; what a value lacks, or how it cannot be written, is told."""
    try:
        return text.format_map(values)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CommandFailed(
            f"{text!r} cannot be filled in: {error}: parts of a name, such as {{image.stem}}, need a pathlib.Path"
        ) from None
