"""Site models: a machine, the jobs its users submit, and how it starts them, in a few hundred numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput, cause
from asa.core.units import DAY, HOUR, WEEK
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.traces.cycle import Cycle
from asa.lab.traces.mixture import Drawn, JobClass, draw
from asa.lab.traces.users import zipf


@dataclass(frozen=True)
class Site:
    """A site: its machine, its users' jobs, and its batch system's settings.

    Users come in sessions, in which they submit the same job one or more times. Sessions begin as a Poisson process
    whose rate follows the hours of the week and, beyond that, swings: its logarithm wanders about (an
    Ornstein-Uhlenbeck process).

    Parameters
    ----------
    name
        What it is called.
    nodes, cores_per_node
        The machine: equal nodes; >= 1.
    load
        Work offered per core and second, in the mean over a workload; > 0.
    classes
        Which jobs come: a mixture; none larger than the machine.
    week
        Rate of sessions in equal parts of the week from Monday midnight on, relative to each other; >= 0.
    gap_s
        Mean time between the jobs of a session [s]; >= 0.
    alike
        Share of the jobs of a session that run as long as its first; in [0, 1].
    swing
        Standard deviation of the logarithm of the rate beyond the cycle; >= 0.
    swing_s
        Time [s] after which the correlation of these swings has fallen to 1/e; > 0.
    even_s
        In every stretch of this length [s] the same work is submitted (but for cycle and swings), because users have
        budgets; 0 where chance alone decides.
    users
        How many there are, with Zipf's law of activity; >= 1.
    dispatcher, priority
        Specs of what starts the jobs and in which order, as `asa.lab.simulator.run.simulate` takes them.
    note
        Where the numbers come from.

    Raises
    ------
    InvalidInput
        When a value is out of its bounds.
    """

    name: str
    nodes: int
    cores_per_node: int
    load: float
    classes: tuple[JobClass, ...]
    week: tuple[float, ...] = (1.0,)
    gap_s: float = 60.0
    alike: float = 0.5
    swing: float = 0.0
    swing_s: float = 2 * DAY
    even_s: float = 0.0
    users: int = 100
    dispatcher: str = "easy"
    priority: str = "fifo"
    note: str = ""

    def __post_init__(self) -> None:
        Cycle(self.week, WEEK)
        if self.nodes < 1 or self.cores_per_node < 1 or self.users < 1:
            raise InvalidInput(
                f"site {self.name!r} has {self.nodes} nodes of {self.cores_per_node} cores and {self.users} users: "
                "at least one of each expected"
            )
        if not self.classes:
            raise InvalidInput(f"site {self.name!r} has no job classes: at least one expected")
        if (most := max(max(each.cores) for each in self.classes)) > self.cores:
            raise InvalidInput(f"site {self.name!r} has jobs of {most} cores, more than its machine's {self.cores}")
        for field, low, high in (
            ("load", 1e-9, np.inf),
            ("gap_s", 0, np.inf),
            ("alike", 0, 1),
            ("swing", 0, np.inf),
            ("swing_s", 1e-9, np.inf),
            ("even_s", 0, np.inf),
        ):
            value = getattr(self, field)
            if not low <= value <= high or value == np.inf:
                raise InvalidInput(f"site {self.name!r} has {field} {value!r}: from {low:g} to {high:g} expected")

    @property
    def cores(self) -> int:
        """Cores of the whole machine."""
        return self.nodes * self.cores_per_node

    @property
    def longest_s(self) -> float:
        """Longest time that its users request [s]."""
        return max(max(each.walltime_s) for each in self.classes)

    def cluster(self) -> Cluster:
        """The machine."""
        return Cluster.of(self.nodes, self.cores_per_node)

    def workload(self, duration_s: float, seed: int) -> Workload:
        """Jobs submitted in [0, `duration_s`) that offer the site's load over that time, to within the last job.

        Time 0 is a Monday's midnight, on an empty machine: leave the first days out of what you count.

        Parameters
        ----------
        duration_s
            How long [s]; > 0.

        Raises
        ------
        InvalidInput
            When the duration is not above 0, or so long that there would be more than 10 million sessions.
        """
        if not 0 < duration_s < np.inf:
            raise InvalidInput(f"a workload over {duration_s!r} s: a finite time above 0 expected")
        rng = np.random.default_rng(seed)
        drawn = self._drawn(self.load * self.cores * duration_s, rng)
        sessions = int(drawn.session[-1]) + 1
        rate = self._rate(duration_s, rng)
        begin = rate.clock(self._places(drawn, duration_s, rng) * rate.operational(duration_s))
        gaps = np.where(np.diff(drawn.session, prepend=-1) == 0, rng.exponential(self.gap_s, len(drawn.run)), 0.0)
        passed = np.cumsum(gaps)
        first = np.searchsorted(drawn.session, np.arange(sessions))
        submit = (begin[drawn.session] + passed - passed[first][drawn.session]) % duration_s
        user = rng.choice(self.users, size=sessions, p=zipf(self.users))[drawn.session]
        return Workload.of(
            submit=np.minimum(submit, np.nextafter(duration_s, 0)),
            run=drawn.run,
            cores=drawn.cores,
            walltime=drawn.walltime,
            user=user,
            name=drawn.kind * self.users + user,
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON-able values; `from_dict` turns them back."""
        made = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        made["classes"] = [{key: _plain(value) for key, value in asdict(each).items()} for each in self.classes]
        return made

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Site:
        """A site from what `to_dict` gave.

        Raises
        ------
        InvalidInput
            When a value is missing, not known, of another type, or out of its bounds.
        """
        try:
            given = dict(values)
            given["classes"] = tuple(_make(JobClass, each) for each in given.get("classes", ()))
            made: Site = _make(cls, given)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"this is no site model: {error}") from error
        return made

    def write(self, path: str | Path) -> None:
        """Write it as a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Site:
        """A site from a JSON file.

        Raises
        ------
        InvalidInput
            When the file cannot be read or holds no site model.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text()))
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {cause(error)}") from error
        except (ValueError, AttributeError) as error:
            raise InvalidInput(f"{path} holds no site model: {error}") from error

    def _drawn(self, work: float, rng: np.random.Generator) -> Drawn:
        """Whole sessions that have this much work [core-seconds] together, the last one cut short."""
        shares = np.array([each.share for each in self.classes])
        mean = float(shares @ [each.mean_work for each in self.classes] / shares.sum())
        sessions = int(1.1 * work / max(mean, 1.0)) + 16
        while sessions <= 10_000_000:
            drawn = draw(self.classes, sessions, rng, self.alike)
            done = np.cumsum(drawn.cores * drawn.run)
            if done[-1] >= work:
                enough = int(np.searchsorted(done, work)) + 1
                return drawn.first(enough)
            sessions *= 2
        raise InvalidInput(f"site {self.name!r} would have more than 10 million sessions: ask for a shorter workload")

    def _places(self, drawn: Drawn, duration_s: float, rng: np.random.Generator) -> Floats:
        """When sessions begin, in shares of the whole operational time: anywhere in their stretch."""
        stretches = max(1, round(duration_s / self.even_s)) if self.even_s else 1
        work = np.bincount(drawn.session, drawn.cores * drawn.run)
        before = np.cumsum(work) - work
        place: Floats = (np.floor(before / work.sum() * stretches) + rng.random(len(work))) / stretches
        return place

    def _rate(self, duration_s: float, rng: np.random.Generator) -> Cycle:
        """How the rate of sessions goes over the whole time, hour by hour."""
        hours = int(np.ceil(duration_s / HOUR))
        week = Cycle(self.week, WEEK)
        weights = np.diff(week.operational(np.arange(hours + 1) * HOUR))
        if self.swing:
            weights = weights * np.exp(self.swing * _wander(hours, HOUR / self.swing_s, rng))
        if not weights.any():
            weights = np.ones(hours)  # all within hours that the week leaves empty
        return Cycle(tuple(weights.tolist()), hours * HOUR)


def _wander(steps: int, decay: float, rng: np.random.Generator) -> Floats:
    """A stationary Gaussian process of variance 1 whose correlation falls by exp(-decay) a step."""
    keep = np.exp(-decay)
    fresh = rng.standard_normal(steps) * np.sqrt(1 - keep**2)
    place, found = float(rng.standard_normal()), np.empty(steps)
    for step in range(steps):
        place = keep * place + fresh[step]
        found[step] = place
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _make(kind: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass of this kind; lists become tuples."""
    known = {item.name for item in fields(kind)}
    if unknown := set(values) - known:
        raise ValueError(f"{min(unknown)!r} is none of {', '.join(sorted(known))}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
