"""Names that nothing else has."""

from __future__ import annotations

import re
import secrets

from asa.core.errors import InvalidInput

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def new_token(prefix: str = "asa") -> str:
    """A name with 128 random bits: fit for a URL, a file and a Slurm job.

    It is in lower case after the prefix, so that it stays unique where case is not told apart. As a job's name it is
    shown to everybody by ``squeue``: it finds a job again, but lets nobody in.

    Parameters
    ----------
    prefix
        A letter, then up to 63 letters, digits, ``-`` or ``_``: what people see first in a list of jobs.

    Raises
    ------
    InvalidInput
        When the prefix holds anything else.

    Examples
    --------
    >>> len(new_token("asa")), new_token("asa").startswith("asa-")
    (36, True)
    """
    if not _PREFIX.fullmatch(prefix):
        raise InvalidInput(f"token prefix {prefix!r} must be a letter and then at most 63 letters, digits, '-' or '_'")
    return f"{prefix}-{secrets.token_hex(16)}"
