"""What the embedded batch system must remember when its driver is killed: a small JSON file per job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from asa.backends.local_program import Identity
from asa.backends.queue_entry import Entry
from asa.core.errors import StateError
from asa.core.serial import from_json, to_json
from asa.security.files import private_directory, write_private


@dataclass(frozen=True, slots=True)
class Record:
    """A job's books, and the process that runs it once it has started."""

    entry: Entry
    process: Identity | None = None


class Journal:
    """Records of one embedded batch system.

    Parameters
    ----------
    directory
        Where the files are, 0700; made when it is absent. One driver uses it at a time.

    Raises
    ------
    StateError
        When the directory cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = private_directory(directory)

    def exit_file(self, job_id: str) -> Path:
        """Where a job's exit code is kept."""
        return self._directory / f"{job_id}.exit"

    def write(self, record: Record) -> None:
        """Keep the latest record of a job.

        Raises
        ------
        StateError
            When it cannot be written.
        """
        text = json.dumps(to_json(record), separators=(",", ":"))
        write_private(self._directory / f"{record.entry.job_id}.json", text.encode())

    def read(self) -> list[Record]:
        """All records, in order of submission.

        Raises
        ------
        StateError
            When a file cannot be read.
        """
        paths = [path for path in self._directory.glob("*.json") if path.stem.isdecimal()]
        return [_read(path) for path in sorted(paths, key=lambda path: int(path.stem))]


def _read(path: Path) -> Record:
    try:
        record: Record = from_json(Record, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise StateError(f"{path} is not the record of a job ({error}): move it away to go on without it") from error
    return record
