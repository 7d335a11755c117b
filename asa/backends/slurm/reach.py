"""Which way Slurm is reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from asa.backends.slurm.cli import Commands
from asa.backends.slurm.directives import Options, job_script, sbatch_options
from asa.backends.slurm.transport import Transport
from asa.core.errors import InvalidInput
from asa.core.job import JobRequest, Resources


def reach(
    *,
    transport: Transport | None,
    options: Options,
    rest: str | None,
    rest_token: str | Path | None,
    rest_user: str | None,
    rest_unencrypted: bool,
    timeout_s: float,
    now: Callable[[], float],
) -> Transport:
    """The transport that the backend's options ask for; those of `Slurm` tell what they mean.

    Raises
    ------
    InvalidInput
        When options contradict each other, or cannot be given through slurmrestd, or the server's address cannot be
        used.
    StateError
        When the token's file cannot be read, or others can read it.
    """
    clusters = options.flags.get("clusters")
    if clusters is not None and "," in str(clusters):
        raise InvalidInput(f"Slurm option clusters={clusters!r}: expected one, jobs of a run must know each other")
    others = {"rest_token": rest_token, "rest_user": rest_user, "rest_unencrypted": rest_unencrypted}
    given = ", ".join(name for name, value in others.items() if value)
    if transport is not None:
        if rest or given:
            raise InvalidInput(f"transport and {'rest' if rest else given}: give one way to reach Slurm")
        return transport
    if rest is None:
        if given:
            raise InvalidInput(f"{given} without rest: add rest=ADDRESS, that of slurmrestd, or leave out {given}")
        return Commands(None if clusters is None else str(clusters), timeout_s, os.environ)
    if clusters is not None:
        raise InvalidInput(f"clusters={clusters!r} with rest={rest!r}: name the slurmrestd of that cluster instead")
    from asa.backends.slurm import rest_job
    from asa.backends.slurm.rest import Rest  # here, because requests costs more than all else of this backend
    from asa.backends.slurm.rest_http import Server
    from asa.backends.slurm.rest_token import Tokens, own_name

    anything = JobRequest("anything", Resources(), 60.0, ("true",))
    rest_job.given_options(sbatch_options(anything, options), job_script(anything, options))
    user = own_name() if rest_user is None else str(rest_user)
    tokens = Tokens(user, None if rest_token is None else Path(rest_token), os.environ, timeout_s, now)
    server = Server(
        str(rest),
        tokens,
        always=rest_token is not None,
        unencrypted=rest_unencrypted,
        timeout_s=timeout_s,
        authorities=os.environ.get("REQUESTS_CA_BUNDLE"),
    )
    return Rest(server, user, timeout_s, os.environ)
