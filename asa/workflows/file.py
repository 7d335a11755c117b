"""Workflows in files: ``FILE[:NAME]``, what they are called with, and how their values are shown."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from asa.core.errors import AsaError, InvalidInput, UnknownName
from asa.core.specs import convert
from asa.workflows.stage import Node, Stage, nodes_in

DEFAULT_NAME = "workflow"
SHOWN_MOST = 2000
"""How much of a value is shown [characters]."""


def load_workflow(target: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """The workflow that ``FILE[:NAME]`` names: what a name is bound to, or what the function of that name returns.

    The file is imported once, under a name of its own; its functions travel by value, so workers never import it.
    Modules that stand beside it can be imported, here and in the workers.

    Parameters
    ----------
    target
        A Python file, and what to run in it; default ``workflow``.
    arguments
        For a function.

    Raises
    ------
    InvalidInput
        When there is no such file or name, or it is no workflow; when the file, or the function, raises an error, which
        is told with the lines of the user's own that led to it.
    """
    file, _, name = target.partition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise InvalidInput(
            f"there is no file {file!r}: give the path of a Python file, as in 'asa run montage.py:main'"
        )
    try:
        module = _import(path)
    except AsaError:
        raise
    except Exception as error:  # the user's own code
        raise InvalidInput(_raised(file, error, path)) from error
    value = _bound(module, name, file)
    name = name or DEFAULT_NAME
    if isinstance(value, Stage) or callable(value):
        value = _called(value, arguments or {}, target, path)
    elif arguments:
        raise InvalidInput(f"{target} is no function, so it takes no --set")
    if not nodes_in(value):
        raise InvalidInput(
            f"{target} is {type(value).__name__}, no workflow: bind {name!r} to what calling a stage returns, "
            "or to a function that returns it"
        )
    return value


def assignment(text: str) -> tuple[str, object]:
    """Name and value of an argument as it stands on a command line, ``--set NAME=VALUE``.

    Raises
    ------
    InvalidInput
        When it does not look like that.

    Examples
    --------
    >>> assignment("cores=4"), assignment("out=mosaic")
    (('cores', 4), ('out', 'mosaic'))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InvalidInput(f"--set {text!r}: write NAME=VALUE")
    return name, convert(value)


def shown(value: Any) -> str:
    """A workflow's value, for people: long ones are cut.

    >>> shown({"mean": 2.5})
    "{'mean': 2.5}"
    """
    text = repr(value)
    return text if len(text) <= SHOWN_MOST else f"{text[:SHOWN_MOST]} ..."


def _bound(module: Any, name: str, file: str) -> Any:
    """What a name of the file, or else the usual one, is bound to."""
    if hasattr(module, name or DEFAULT_NAME):
        return getattr(module, name or DEFAULT_NAME)
    candidates = [key for key, value in vars(module).items() if isinstance(value, Node) or callable(value)]
    candidates = [key for key in candidates if not key.startswith("_")]
    if name:
        raise UnknownName(f"name in {file}:", name, candidates)
    raise InvalidInput(
        f"{file} binds no {DEFAULT_NAME!r}: bind it to what calling a stage returns, or to a function that returns it; "
        f"or say which name is meant, as in {file}:{next(iter(candidates), 'main')}"
    )


def _called(function: Any, arguments: Mapping[str, Any], target: str, path: Path) -> Any:
    try:
        return function(**arguments)
    except AsaError:
        raise
    except Exception as error:
        frames = error.__traceback__
        if isinstance(error, TypeError) and frames is not None and frames.tb_next is None:  # it was not even entered
            raise InvalidInput(f"{target}: {error}: give what it needs with --set NAME=VALUE") from error
        raise InvalidInput(_raised(target, error, path)) from error


def _raised(what: str, error: Exception, path: Path) -> str:
    """What the user's own code has raised, and the way there from its file on: the frames before are not theirs."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
        frames = frames.tb_next
    lines = "".join(traceback.format_tb(frames)).rstrip()
    return f"{what} raised {type(error).__name__}: {error}" + (f"\n{lines}" if lines else "")


def _import(path: Path) -> Any:
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = f"asa_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    cloudpickle.register_pickle_by_value(module)
    spec.loader.exec_module(module)
    return module
