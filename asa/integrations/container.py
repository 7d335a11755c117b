"""Stages whose programs, or functions, run inside a container image, through Apptainer."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asa.core.errors import CommandFailed, InvalidInput
from asa.core.launch import Program
from asa.core.task import TAIL, ending
from asa.integrations.call import raised
from asa.log.values import dump
from asa.security.files import write_private
from asa.workflows.stage import Stage, run_program


def container(
    image: str | Path,
    *,
    bind: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    program: str = "apptainer",
    python: str = "python3",
) -> Callable[[Any], Any]:
    """Have a stage run inside an image: a decorator for functions, and for stages such as `asa.command` makes.

    Parameters
    ----------
    image
        The image, on a file system that the nodes see, or an address such as ``docker://python:3.11``.
    bind
        Directories of the node that are to be seen inside, besides those that Apptainer shows by itself.
    options
        Other options of ``apptainer exec``, such as ``--nv`` for GPUs.
    program
        Apptainer, or what is called like it: ``singularity``.
    python
        Python inside the image, for functions. Functions that travel by value need cloudpickle there, and the same
        minor version of Python as here; ASA is not needed.

    Returns
    -------
    Callable
        Makes of a stage another with the same needs, and of a function one to put under ``@asa.stage``.

    Raises
    ------
    InvalidInput
        When no image is named.

    Notes
    -----
    With ``launcher="mpirun"`` the launcher starts a container for each rank; the MPI inside must be one that it knows.
    A program's inputs and outputs must be in directories that are seen inside.

    Examples
    --------
    >>> from asa.workflows.stage import command
    >>> project = container("montage.sif")(command("mProject {image} {out}", outputs={"out": "p.fits"}, cores=4))
    >>> project.name, project.needs.resources.cores
    ('mProject', 4)
    """
    if not str(image).strip():
        raise InvalidInput("container() needs an image: a file, or an address such as docker://python:3.11")
    words = [program, "exec", *(word for path in bind for word in ("--bind", str(path))), *options]

    def enter(target: Any) -> Any:
        if isinstance(target, Stage):
            return Stage(enter(target.function), target.needs, target.name)
        if not callable(target):
            raise InvalidInput(f"container() is for functions and stages, not for {target!r}")
        if isinstance(target, Program):
            return ContainedProgram(target, (*words, str(image)))
        return ContainedFunction(target, tuple(words), str(image), python)

    return enter


class ContainedProgram:
    """A stage's program, started inside an image; satisfies `asa.core.launch.Program`."""

    def __init__(self, inner: Any, words: tuple[str, ...]) -> None:
        self._inner, self._words = inner, words
        self.__name__, self.__doc__ = inner.__name__, inner.__doc__
        self.outputs, self.written = getattr(inner, "outputs", {}), getattr(inner, "written", None)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._inner)

    def launched(self, prefix: Sequence[str], environment: Mapping[str, str]) -> Callable[..., Any]:
        """The same program, started through a launcher, which starts the containers."""
        started: Callable[..., Any] = self._inner.launched([*prefix, *self._words], environment)
        return started

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.launched((), os.environ)(*args, **kwargs)


class ContainedFunction:
    """A stage's function, called inside an image."""

    def __init__(self, inner: Callable[..., Any], words: tuple[str, ...], image: str, python: str) -> None:
        self._inner, self._words, self._image, self._python = inner, words, image, python
        functools.update_wrapper(self, inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with tempfile.TemporaryDirectory(prefix="asa-container-") as folder:
            source, target = Path(folder, "call"), Path(folder, "answer")
            write_private(source, pickle.dumps((sys.path, dump((self._inner, args, kwargs)))))
            words = [*self._words, "--bind", folder, "--pwd", os.getcwd(), self._image, self._python]
            code = _run([*words, "-c", _inside(), str(source), str(target)])
            if not target.exists():
                raise CommandFailed(f"the call in {self._image} {ending(code)} without an answer; see its output")
            answer = pickle.loads(target.read_bytes())
        if answer[0]:
            return answer[1]
        raise raised(answer)


def _run(words: Sequence[str]) -> int:
    """Run a program; its exit code. What it prints is passed on, and the end of it is in the error if it fails."""
    try:
        code, printed, _ = run_program(words, os.environ)
    except OSError as error:
        raise CommandFailed(
            f"{words[0]} cannot be started: {error.strerror}: is Apptainer installed on the nodes, and on PATH?"
        ) from None
    if code:
        said = printed[-TAIL:].strip()
        raise CommandFailed(f"{words[0]} {ending(code)}" + (f"; it said: {said}" if said else ""))
    return code


@functools.cache
def _inside() -> str:
    """The program that runs inside, which is not to be looked for in the image."""
    from asa.integrations import inside

    return inspect.getsource(inside)
