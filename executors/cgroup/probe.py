"""Which means of keeping quotas works here, found by trying; and ``asa doctor``'s rows about it."""

from __future__ import annotations

import logging
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from asa.core.errors import InvalidInput, StateError
from executors.cgroup import kernel
from executors.cgroup.group import Group, Quotas
from executors.cgroup.kernel import V1, V2

log = logging.getLogger(__name__)

PATIENCE_S = 10.0


class Found(NamedTuple):
    """One means: the quotas, or why they cannot be had."""

    name: str
    quotas: Quotas | None
    why: str


def best(space: str, only: str | None = None) -> Quotas:
    """The best means that works here.

    Parameters
    ----------
    space
        Whose groups these will be: letters, digits, ``-``, ``_`` and ``.``; no two agents of a node may share it.
    only
        Take this one, by its name (``cgroup v2``, ``cgroup v1``, ``systemd scopes``, ``duty cycle``).

    Raises
    ------
    InvalidInput
        When there is no means of that name.
    StateError
        When it does not work; `only` apart, when nothing does.
    """
    reasons = []
    for found in means(space, only=only):
        if found.quotas:
            log.info("quotas by %s: %s", found.name, found.why)
            return found.quotas
        log.info("no quotas by %s: %s", found.name, found.why)
        reasons.append(f"{found.name}: {found.why}")
    if not reasons:
        raise InvalidInput(f"no means of keeping quotas is called {only!r}: expected one of {', '.join(_ORDER)}")
    raise StateError(
        f"quotas cannot be kept here ({'; '.join(reasons)}): go on without them (`--quotas none`), or have an "
        "administrator delegate the cpu controller"
    )


_SYSTEMD, _DUTY_CYCLE = "systemd scopes", "duty cycle"
_ORDER = (V2.name, V1.name, _SYSTEMD, _DUTY_CYCLE)


def means(space: str, *, only: str | None = None, gentle: bool = False) -> Iterator[Found]:
    """Every means, the best first, each tried when it is asked for.

    Parameters
    ----------
    space, only
        As for `best`.
    gentle
        Take for granted what could not be tried without moving other processes to another group.
    """
    own = kernel.own_groups(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    for name, make in _makers(own, space, os.environ).items():
        if only in (None, name):
            try:
                quotas = make()
                if not (gentle and isinstance(quotas, V2) and quotas.processes_to_move()):
                    attempt(quotas)
            except StateError as error:
                yield Found(name, None, str(error))
            else:
                yield Found(name, quotas, quotas.why)


def _makers(own: Mapping[str, Path], space: str, environment: Mapping[str, str]) -> dict[str, Callable[[], Quotas]]:
    def version_2() -> Quotas:
        group = own.get("")
        quotas = V2(group, space)
        if group and (who := kernel.claimed_by(group)):
            raise StateError(f"{group} belongs to {who}")
        return quotas

    def systemd() -> Quotas:
        from executors.cgroup.systemd import Systemd  # here and below: an agent starts sooner without it

        return Systemd(own.get(""), space, environment)

    def duty_cycle() -> Quotas:
        from executors.cgroup.dutycycle import DutyCycle

        return DutyCycle(space)

    return {V2.name: version_2, V1.name: lambda: V1(own, space), _SYSTEMD: systemd, _DUTY_CYCLE: duty_cycle}


def attempt(quotas: Quotas) -> None:
    """Start a process in a group, change its quota, end it, and check each step.

    Raises
    ------
    StateError
        When a step has failed.
    """
    name = f"probe-{uuid.uuid4().hex}"
    group = quotas.group(name, weight=1.0, cores=0.5, memory=None)
    try:
        with subprocess.Popen(
            group.wrap(("/bin/sh", "-c", "echo; read line")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                _observe(group, process)
            finally:
                group.kill()
                with suppress(ProcessLookupError):
                    process.kill()
    finally:
        group.close()


def _observe(group: Group, process: subprocess.Popen[bytes]) -> None:
    assert process.stdout and process.stderr
    group.adopt(process.pid)
    if not process.stdout.readline():
        said = process.stderr.read().decode(errors="replace").strip()
        raise StateError(f"a process that was to enter a group ended: {said or process.wait()}")
    if process.pid not in group.pids():
        raise StateError("a process that was to enter a group is not in it")
    group.limit(0.25)
    group.usage()
    group.kill()
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    if process.poll() is None:
        raise StateError("a process of a group does not end when the group is killed")


def rows() -> Iterator[dict[str, Any]]:
    """What ``asa doctor`` says of quotas: what agents will use here, and why nothing better."""
    ok = False
    for found in means(f"doctor-{os.getpid()}", gentle=True):
        if found.quotas:
            ok = True
            yield {"what": "cpu quotas", "ok": True, "found": f"{found.name}: {found.why}"}
            break
        yield {"what": f"cpu quotas: {found.name}", "ok": None, "found": f"passed over: {found.why}"}
    if not ok:
        yield {"what": "cpu quotas", "ok": False, "found": "none: containers run without limits"}
