"""Rules for odd records: each has a name, is counted, and says what becomes of the record; none is left out in secret.

A *record* is what a log has of one job, or a part of it; a *job* is what a reader makes of it. Whatever the format,
the records of a log are the jobs of its workload and those that were left out, and a report says of each rule how many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from asa.core.errors import UnknownName


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done with records that are odd in one way.

    Parameters
    ----------
    name
        The word for it in reports.
    says
        What is odd.
    done
        What becomes of such a record.
    drops
        Whether it is left out of the workload.
    """

    name: str
    says: str
    done: str
    drops: bool = False


_LEFT_OUT = "left out"
RULES = {
    rule.name: rule
    for rule in (
        Rule("unreadable-line", "a line that is no record of this format", _LEFT_OUT, drops=True),
        Rule("delimiter-in-name", "a job name with the delimiter of the fields in it", "put together again"),
        Rule("short-line", "a line with too few fields, as if cut off", _LEFT_OUT, drops=True),
        Rule("extra-fields", "a line with more fields than the format has", "the further ones are ignored"),
        Rule("step", "a step of a job, which has a record of its own", _LEFT_OUT, drops=True),
        Rule("event", "an event in a job's life other than its end", _LEFT_OUT, drops=True),
        Rule("repeated", "a record, or the heading, once more", _LEFT_OUT, drops=True),
        Rule("partial", "a part of a job that was checkpointed, beside the record of the whole", _LEFT_OUT, drops=True),
        Rule("unfinished", "a job that was waiting or running when the log was written", _LEFT_OUT, drops=True),
        Rule("cancelled", "cancelled before it had started", _LEFT_OUT, drops=True),
        Rule("no-submit-time", "no time of submission, or one before the log begins", _LEFT_OUT, drops=True),
        Rule("no-run-time", "no run time", _LEFT_OUT, drops=True),
        Rule("negative-run-time", "a run time below zero", _LEFT_OUT, drops=True),
        Rule("no-processors", "neither requested nor allocated processors", _LEFT_OUT, drops=True),
        Rule("processors-missing", "no processors of the kind asked for", "those of the other kind are taken"),
        Rule("processors-differ", "requested and allocated processors are not as many", "taken as asked for"),
        Rule("uneven", "a request that is not the same on all its nodes", "spread over equal units as well as can be"),
        Rule("larger-than-machine", "more processors than the machine has", "kept: no simulator will start it"),
        Rule("out-of-order", "submitted before the record above it", "put in order of submission"),
        Rule("duplicate-number", "a job number that came before", "kept as a job of its own"),
        Rule("requeued", "a further run of a job that was requeued", "kept as a job of its own"),
        Rule("component", "a part of a heterogeneous job", "kept as a job of its own"),
        Rule("zero-run-time", "ended in the second in which it started", "kept"),
        Rule("no-requested-time", "no requested time", "kept: dispatchers must do without, or with a prediction"),
        Rule("overrun", "ran past its requested time", "kept: the simulator's rule for overruns decides"),
        Rule("no-memory", "no memory, where it was asked for", "kept: it needs none"),
        Rule("no-wait", "no observed wait", "kept, with an unknown wait"),
        Rule("bad-preceding", "waits for a job that is not there, or not above it", "kept, without that dependency"),
    )
}
"""All rules, by name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How often a rule applied, and where it did first (a line or a job of the log)."""

    rule: Rule
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the records of a log.

    Parameters
    ----------
    source
        Where they came from.
    records
        How many there were.
    jobs
        How many jobs they gave.
    findings
        Rules that applied, those that drop records first.

    Examples
    --------
    >>> report = Sieve("my.log", 3, "job {}".format).drop("no-run-time", [False, True, False]).report()
    >>> print(report)
    my.log: 2 jobs of 3 records
      no-run-time: 1, first job 1: no run time; left out
    >>> report.count("no-run-time"), report.count("overrun")
    (1, 0)
    """

    source: str
    records: int
    jobs: int
    findings: tuple[Finding, ...] = ()

    def count(self, rule: str) -> int:
        """How many records the rule of this name applied to.

        Raises
        ------
        UnknownName
            When there is no such rule.
        """
        if rule not in RULES:
            raise UnknownName("rule", rule, RULES)
        return sum(finding.count for finding in self.findings if finding.rule.name == rule)

    @property
    def counts(self) -> dict[str, int]:
        """Name of each rule that applied -> how often."""
        return {finding.rule.name: finding.count for finding in self.findings}

    def then(self, later: Report) -> Report:
        """The report of two steps, where `later` began with what this one left."""
        found = {finding.rule.name: finding for finding in self.findings}
        for finding in later.findings:
            before = found.get(finding.rule.name)
            found[finding.rule.name] = replace(before, count=before.count + finding.count) if before else finding
        return Report(self.source, self.records, later.jobs, tuple(sorted(found.values(), key=_place)))

    def __str__(self) -> str:
        lines = [f"{self.source}: {self.jobs} jobs of {self.records} records"]
        lines += [
            f"  {item.rule.name}: {item.count}, first {item.first}: {item.rule.says}; {item.rule.done}"
            for item in self.findings
        ]
        return "\n".join(lines)


def _place(finding: Finding) -> tuple[bool, int]:
    return not finding.rule.drops, list(RULES).index(finding.rule.name)


class Sieve:
    """Applies rules to the records of a log, one after the other; a record that one has dropped concerns no other.

    Parameters
    ----------
    source
        Where the records come from.
    count
        How many there are.
    where
        Index of a record -> how to find it in the log (``"line 7"``).
    """

    def __init__(self, source: str, count: int, where: Callable[[int], str]) -> None:
        self.source, self.count, self.where = source, count, where
        self.keep = np.ones(count, dtype=np.bool_)
        self._dropped: dict[str, npt.NDArray[np.bool_]] = {}
        self._noted: dict[str, npt.NDArray[np.bool_]] = {}

    def drop(self, rule: str, wrong: npt.ArrayLike) -> Sieve:
        """Leave these records out (a mask); those that an earlier rule left out are not counted again."""
        assert RULES[rule].drops, rule
        hit = np.asarray(wrong, dtype=np.bool_) & self.keep
        self._dropped[rule] = hit | self._dropped.get(rule, False)
        self.keep &= ~hit
        return self

    def drop_repeated(self, keys: Iterable[Hashable]) -> Sieve:
        """Leave out the records whose key stands further up already, as where two dumps overlap."""
        seen: set[Hashable] = set()
        again = np.zeros(self.count, dtype=np.bool_)
        for row, (key, keep) in enumerate(zip(keys, self.keep.tolist(), strict=True)):
            again[row] = keep and key in seen
            if keep:
                seen.add(key)
        return self.drop("repeated", again)

    def note(self, rule: str, odd: npt.ArrayLike) -> Sieve:
        """Count these records (a mask) as far as they are kept in the end."""
        assert not RULES[rule].drops, rule
        self._noted[rule] = np.asarray(odd, dtype=np.bool_) | self._noted.get(rule, False)
        return self

    def note_rows(self, rule: str, rows: npt.NDArray[np.int64]) -> Sieve:
        """Count these records, given by their indices, as far as they are kept in the end."""
        odd = np.zeros(self.count, dtype=np.bool_)
        odd[rows] = True
        return self.note(rule, odd)

    def report(self) -> Report:
        """What was found."""
        hits = self._dropped | {rule: odd & self.keep for rule, odd in self._noted.items()}
        findings = [
            Finding(RULES[rule], int(hit.sum()), self.where(int(np.argmax(hit))))
            for rule, hit in hits.items()
            if hit.any()
        ]
        return Report(self.source, self.count, int(self.keep.sum()), tuple(sorted(findings, key=_place)))
