"""The exceptions that callers may want to catch.

::

    AsaError
    ├── InvalidInput (also a ValueError)   what the caller gave cannot be used
    │   ├── UnknownName                    no such backend, strategy, estimator ...
    │   ├── GraphError                     a workflow with a cycle, an unknown input, a stage too large
    │   ├── InvalidHostList                a text that is no list of host names (`asa.core.hostlist`)
    │   └── Unpicklable                    an argument or function that cannot travel to another process
    ├── BackendError                       the batch system said no, or did not answer (``transient``)
    ├── IllegalDecision                    a decision of a dispatcher or rule breaks a law of the machine
    ├── Starved                            a dispatcher or rule never starts a job that it could start
    ├── CommandFailed                      a program ended badly, or did not write what it declared
    ├── StateError                         the state directory cannot be read or written
    ├── RunNotFound                        no run of that name
    └── RunFailed                          raised by ``asa.run()``, ``Run.result()``: what failed, where, its last words

``AsaWarning`` is a warning: of what is allowed and seldom meant.

Outcomes that are to be expected (a job that failed, a wall time reached) are states, not exceptions.
Only ``BackendError.transient`` decides whether a call is tried again.

Elsewhere are kinds of these that only their own package tells apart (`BackendError`: ``CommandError``,
``SiteRefusal``, and others of the Slurm backend), and those of the Mesos protocol (``BadMessage``, ``Refused`` ...),
which become the status of an answer and are no `AsaError`.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Mapping
from typing import Any


def cause(error: Exception) -> str:
    """What an error says; of one of the operating system its words alone, without number and file.

    >>> cause(FileNotFoundError(2, "No such file or directory", "x.swf")), cause(ValueError("no JSON"))
    ('No such file or directory', 'no JSON')
    """
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


class AsaError(Exception):
    """Root of the tree: ``except asa.AsaError`` catches whatever ASA raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process as it is, whatever its own constructor takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidInput(AsaError, ValueError):
    """What the caller gave cannot be used; the message says what was expected."""


class UnknownName(InvalidInput):
    """A name that no table knows.

    Parameters
    ----------
    kind, name, known
        What it is a name of, the name, and those that there are.
    meant
        Other words for some of these, which are suggested for them.
    alike
        How much like the name must be what is suggested, from 0 to 1.

    Examples
    --------
    >>> print(UnknownName("strategy", "bigjob", ["asa", "big-job", "per-stage"]))
    unknown strategy 'bigjob': did you mean 'big-job'? Known: asa, big-job, per-stage
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], meant: Mapping[str, str] | None = None, alike: float = 0.5
    ) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        spelt = {each.casefold(): each for each in self.known} | dict(meant or {})
        import difflib  # workers load this module, and hardly ever need it

        near = difflib.get_close_matches(name.casefold(), spelt, n=1, cutoff=alike)
        hint = f": did you mean {spelt[near[0]]!r}?" if near else "."
        super().__init__(f"unknown {kind} {name!r}{hint} Known: {', '.join(self.known) or 'none'}")


class GraphError(InvalidInput):
    """The workflow cannot run as it stands: a cycle, an unknown input, a stage larger than the machine."""


class Unpicklable(InvalidInput):
    """A function, an argument or a result that cannot travel to another process."""


class BackendError(AsaError):
    """The batch system refused a call or did not answer.

    Parameters
    ----------
    message
        What happened, with the site's own words.
    transient
        True when the same call may succeed later (controller restarting, time-out).
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class IllegalDecision(AsaError):
    """A decision, of a dispatcher or a sharing rule, breaks a law of the machine.

    Parameters
    ----------
    message
        The law.
    decision
        The decision.
    """

    def __init__(self, message: str, decision: object) -> None:
        super().__init__(f"{decision}: {message}")
        self.decision = decision


class Starved(AsaError):
    """Jobs wait on a machine that has room for them, and nothing will happen any more."""


class CommandFailed(AsaError):
    """A program of the workflow ended badly, or did not write what it had declared.

    Parameters
    ----------
    message
        What happened.
    exit
        Its exit code, negative for a signal; None where it had none.
    """

    def __init__(self, message: str, *, exit: int | None = None) -> None:
        super().__init__(message)
        self.exit = exit


class StateError(AsaError):
    """The state directory cannot be used: read-only, full, or written by another user."""


class RunNotFound(AsaError):
    """No run of that name in the state directory."""


class RunFailed(AsaError):
    """A run did not reach its result.

    Parameters
    ----------
    message
        The whole story in a few lines: stage, task, node, error, last lines of its output, what was skipped.
    stage
        The stage that failed first, or None when the run was cancelled.
    run
        The `Run`, to look at what was done; None in another process than the run's own.
    """

    def __init__(self, message: str, *, stage: str | None = None, run: Any = None) -> None:
        super().__init__(message)
        self.stage, self.run = stage, run

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, state = super().__reduce__()
        return make, arguments, {**state, "run": None}


class AsaWarning(UserWarning):
    """What is allowed, and seldom meant."""
