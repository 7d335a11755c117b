"""What the header of a Standard Workload Format log says of the machine and of the log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from asa.lab.core.cluster import Cluster

_FIELD = re.compile(r"([A-Z][A-Za-z]*):(?!//)[ \t]*(.*)")
_NUMBER = re.compile(r"[-+]?\d+")
_NAMED = re.compile(r"(\d+)\s+(.*)")


@dataclass(frozen=True, slots=True)
class SwfHeader:
    """Header fields of an SWF log, in order; some (Note, Queue, Partition) may come more than once.

    Lines that begin no field go on with the one above; behind an empty line, or at the top, they have the key "".

    Parameters
    ----------
    fields
        Keys with their texts; a line break in a text is one in the log.

    References
    ----------
    S. J. Chapin et al., "Benchmarks and standards for the evaluation of parallel job schedulers", JSSPP 1999, sec. 2;
    version 2.2 of the format in the Parallel Workloads Archive.

    Examples
    --------
    >>> header = SwfHeader.parse(["; MaxNodes: 338 (batch partition; 512 total)", "; Queue: 1 express"])
    >>> header.max_nodes, header.max_procs, header.queues
    (338, None, {1: 'express'})
    >>> header.machine()
    <Cluster of 338 nodes: 338 cores>
    """

    fields: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, lines: Iterable[str]) -> SwfHeader:
        """The header in these lines; each begins with ``;``."""
        fields: list[tuple[str, str]] = []
        going_on = False
        for line in lines:
            text = line.lstrip().lstrip(";").strip()
            if match := _FIELD.fullmatch(text):
                fields.append((match[1], match[2]))
            elif text and going_on:
                key, before = fields[-1]
                fields[-1] = (key, f"{before}\n{text}")
            elif text:
                fields.append(("", text))
            going_on = bool(text)
        return cls(tuple(fields))

    def lines(self) -> list[str]:
        """The header as it is written; `parse` gives it back."""
        found = []
        for key, text in self.fields:
            first, *others = text.split("\n")
            found += [f"; {key}: {first}".rstrip()] if key else [";", f"; {first}"]
            found += [f";   {line}" for line in others]
        return found

    def get(self, key: str) -> str | None:
        """Text of the first field of this name, or None."""
        return next((text for name, text in self.fields if name == key), None)

    def number(self, key: str) -> int | None:
        """The whole number that a field begins with; None where it is absent, no number, or -1 (unknown)."""
        match = _NUMBER.match(self.get(key) or "")
        return int(match[0]) if match and int(match[0]) >= 0 else None

    @property
    def max_nodes(self) -> int | None:
        """Nodes of the machine."""
        return self.number("MaxNodes")

    @property
    def max_procs(self) -> int | None:
        """Processors of the machine."""
        return self.number("MaxProcs")

    @property
    def unix_start_time(self) -> int | None:
        """Time [s since the epoch] at which the log's clock reads 0."""
        return self.number("UnixStartTime") or None

    @property
    def queues(self) -> dict[int, str]:
        """Number of a queue -> its name."""
        return self._named("Queue")

    @property
    def partitions(self) -> dict[int, str]:
        """Number of a partition -> its name."""
        return self._named("Partition")

    def _named(self, key: str) -> dict[int, str]:
        texts = (text for name, text in self.fields if name == key)
        return {int(match[1]): match[2].split("\n")[0].strip() for match in map(_NAMED.match, texts) if match}

    def machine(self) -> Cluster | None:
        """The machine, or None when the header does not give its size.

        MaxNodes nodes of MaxProcs / MaxNodes processors when that is a whole number. Otherwise (nodes unknown, or of
        several kinds) as many nodes of one processor as there are processors: SWF jobs are processors anywhere.
        """
        nodes, processors = self.max_nodes, self.max_procs
        if not nodes and not processors:
            return None
        if nodes and processors and processors % nodes == 0:
            return Cluster.of(nodes, processors // nodes)
        return Cluster.of(processors or nodes or 1)


def make_header(fields: Mapping[str, object]) -> SwfHeader:
    """A header with these fields; those that are None are left out, and those of a list come once for each item."""
    found: list[tuple[str, str]] = []
    for key, value in fields.items():
        items = value if isinstance(value, list) else [value]
        found += [(key, str(item)) for item in items if item is not None]
    return SwfHeader(tuple(found))
