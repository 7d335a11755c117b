"""``asa simulate``: a trace, run once more under dispatchers of one's choice."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, positive
from asa.core.energy import NodePower
from asa.core.errors import AsaError, InvalidInput
from asa.core.registry import DISPATCHERS
from asa.core.units import DAY
from asa.lab.core.registry import PLACEMENTS, PRIORITIES
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs, progress_bar
from asa.report.words import counted

if TYPE_CHECKING:  # NumPy is for those who simulate, not for those who ask for help
    from asa.lab.core.cluster import Cluster, NodeWindow
    from asa.lab.core.schedule import Schedule
    from asa.lab.core.workload import Workload
    from asa.lab.simulator.decisions import DecisionSample
    from asa.lab.traces.records import Trace
    from asa.lab.traces.site import SiteModel


SETTINGS = ("placement", "priority", "predictor", "overrun", "node_failure", "instant", "resize_s")
"""Options that are settings of the machine, and stand in the result."""


PARALLEL = 0.95
"""Part of the work of a drawn job that runs in parallel, unless another is given."""

GAINS = {
    "mean_wait_s": "mean wait [s]",
    "mean_turnaround_s": "turnaround [s]",
    "mean_bounded_slowdown": "bounded slowdown",
    "utilisation": "utilisation",
}
"""What is compared with rigid jobs."""


class Simulate:
    """Simulate a batch system on a trace."""

    help = "simulate a batch system on a trace"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("trace", metavar="TRACE", help="log of jobs: SWF, sacct --parsable2 or PBS accounting, gzipped or not")
        add(
            "--dispatcher",
            metavar="NAME[:OPTIONS]",
            action="append",
            help=f"which job starts: {', '.join(DISPATCHERS)} (easy; easy:width=fair with moldable jobs, "
            "easy:width=fair,resize=both with malleable ones); several, repeated or with commas, are compared",
        )
        add(
            "--site",
            metavar="FILE",
            help="a site model: its machine, partitions, windows and QOS, and its dispatcher and priority unless given",
        )
        add("--nodes", type=positive, metavar="N", help="nodes of the machine (those of the trace's header)")
        add("--cores-per-node", type=positive, metavar="C", help="cores of each node (those of the header, or 1)")
        add("--from-day", type=float, metavar="D", help="leave out jobs submitted earlier; the first job's day is 0")
        add("--to-day", type=float, metavar="D", help="leave out jobs submitted on that day or later")
        add("--moldable", metavar="SHARE", help="so many jobs (30%%) may start with a quarter to 4 times their cores")
        add("--malleable", metavar="SHARE", help="so many may also change their cores while they run")
        add("--resize-s", type=float, default=0.0, metavar="S", help="how long such a change stops a job [s] (0)")
        add("--parallel", type=float, default=PARALLEL, metavar="F", help="parallel part of their work (0.95)")
        add("--placement", default="first-fit", metavar="NAME", help="on which nodes a job runs (first-fit)")
        add("--priority", metavar="NAME", help="the queue's order (the site's, or fifo)")
        add("--predictor", default="user", metavar="NAME", help="what dispatchers take for run times (user: request)")
        add(
            "--instant",
            default="together",
            choices=("together", "one-by-one"),
            help="when events of one instant are decided on: after all of them, or after each, as pyss does (together)",
        )
        add(
            "--ties",
            default="file",
            choices=("file", "number"),
            help="who of those submitted at one instant comes first: as the log has them, or by job number (file)",
        )
        add("--overrun", default="clip", choices=("clip", "allow"), help="jobs beyond their request: killed, or not")
        add("--failures", metavar="each=T,repair=T", help="nodes fail by chance, each after T in the mean (the site's)")
        add(
            "--node-failure",
            default="requeue",
            choices=("requeue", "fail"),
            help="what becomes of the jobs of a node that fails (requeue)",
        )
        add(
            "--dispatch-time",
            default="ignore",
            choices=("ignore", "charge"),
            help="time that decisions take: none passes for the jobs (ignore), or they start so much later",
        )
        add("--save-decisions", metavar="DIR", help="write some of the decisions as instances for asa dispatch")
        add("--decisions", type=positive, default=2000, metavar="N", help="how many, drawn at random (2000)")
        add("--seed", type=int, default=0, metavar="S", help="seed of what is drawn (0)")
        add_energy_options(parser)
        add("--csv", metavar="OUT", help="write the jobs as Batsim does; evalys reads it")
        add("--swf", metavar="OUT", help="write the schedule as an SWF log; gzipped when the name ends in .gz")
        add("--plot", metavar="OUT", help="draw the schedule, or the comparison: .png, .pdf or .svg")
        add("--quiet", action="store_true", help="show no progress")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        site = _site(options)
        plain = "easy" if options.moldable is None else "easy:width=fair"
        plain = plain if options.malleable is None else "easy:width=fair,resize=both"
        names = DISPATCHERS.split(options.dispatcher or [site.dispatcher if site else plain])
        options.priority = options.priority or (site.priority if site else "fifo")
        _check_outputs(options, len(names))
        for name in names:
            DISPATCHERS.create(name)  # a misspelt one is found before the others have run
        PLACEMENTS.create(options.placement)
        PRIORITIES.create(options.priority)
        import numpy as np

        from asa.lab.metrics.schedule import summarise
        from asa.lab.report.schedule_text import comparison, in_words, title
        from asa.lab.traces.load import load_trace

        trace = load_trace(options.trace, amounts=site is not None and len(site.machine.resources) > 1)
        cluster = site.cluster(trace.epoch) if site else trace.machine(options.nodes or 0, options.cores_per_node or 0)
        trace = _at_site(trace, cluster) if site else trace
        workload = days(trace.workload, options.from_day, options.to_day)
        if options.ties == "number":
            workload = workload.take(np.lexsort((workload.number, workload.submit)))
        cluster = _failing(with_energy(cluster, options, trace.epoch), options)
        workload = _molded(workload, cluster, options)
        about: dict[str, Any] = {"trace": Path(options.trace).name, "nodes": cluster.nodes, "cores": cluster.cores}
        about |= {"site": site.name} if site else {}
        said = ""
        if cluster.windows:
            about["windows"] = [_window(window, cluster) for window in cluster.windows]
            said = _of_windows(about["windows"], workload)
        if cluster.failures is not None and len(workload):
            drawn = cluster.failures.drawn(cluster.nodes, float(workload.submit[0]), float(workload.submit[-1]))
            about["node_failures"] = len(drawn)
            said = "\n".join(
                filter(None, [said, f"{counted(len(drawn), 'failure')} of nodes while jobs are submitted"])
            )
        about |= {name: getattr(options, name) for name in SETTINGS}
        about |= {"ties": options.ties, "dispatch_time": options.dispatch_time}
        if workload.moldable is not None:
            found = workload.moldable
            about |= {"moldable": int((found.least < found.most).sum())}
            about |= {"malleable": int((found.malleable & (found.least < found.most)).sum())}
        sample = _sample(options)
        rows: list[dict[str, Any]] = []
        refused: list[str] = []
        for name in names:
            try:
                schedule = _simulated(name, workload, cluster, options, sample)
            except AsaError as error:  # of one that does not fit the machine, after others were computed
                if len(names) == 1:
                    raise
                refused.append(f"{name}: {error}")
                continue
            rows.append({"dispatcher": name, **about, **summarise(schedule), "odd_records": trace.report.counts})
            if site:
                rows[-1]["refusals"] = _refusals(schedule)
            if workload.moldable is not None:
                rigid = summarise(_simulated(name, replace(workload, moldable=None), cluster, options, None))
                rows[-1]["rigid"] = {key: rigid[key] for key in GAINS}
            if len(names) == 1:
                _write(schedule, options)
                saved = sample.write(options.save_decisions) if sample else ""
                said = "\n".join(filter(None, [_of_refusals(rows), _of_widths(rows), said]))
                text = "\n\n".join(filter(None, [in_words(rows[0]), said, saved, str(trace.report)]))
                return CommandResult(rows[0], text)
        if not rows:
            raise InvalidInput("none of these dispatchers fits:\n" + "\n".join(refused))
        if options.plot:
            from asa.lab.report.charts import save_comparison

            save_comparison(rows, options.plot, title=title(rows[0]))
        said = "\n".join(filter(None, [_of_refusals(rows), _of_widths(rows), said]))
        text = "\n\n".join(filter(None, [comparison(rows), said, "\n".join(refused), str(trace.report)]))
        return CommandResult({"rows": rows, "refused": refused}, text, 1 if refused else 0)


def _molded(workload: Workload, cluster: Cluster, options: argparse.Namespace) -> Workload:
    """The jobs, some of them moldable or malleable where that is wanted."""
    from asa.lab.core.workload import Moldable

    malleable = options.malleable is not None
    if options.resize_s and not malleable and not (workload.moldable and workload.moldable.malleable.any()):
        raise InvalidInput(f"--resize-s {options.resize_s:g}: no job is malleable: give --malleable SHARE as well")
    if (share := options.malleable if malleable else options.moldable) is None:
        if options.parallel != PARALLEL:
            raise InvalidInput(f"--parallel {options.parallel:g}: give --moldable SHARE or --malleable SHARE as well")
        return workload
    option = f"--{'malleable' if malleable else 'moldable'} {share}"
    if malleable and options.moldable is not None:
        raise InvalidInput(f"{option}: such jobs are moldable, too: leave --moldable out")
    if workload.moldable is not None:
        raise InvalidInput(f"{option}: {options.trace} has moldable jobs of its own: leave it out")
    drawn = Moldable.drawn(
        workload, cluster.cores, share, parallel=options.parallel, malleable=malleable, seed=options.seed
    )
    return replace(workload, moldable=drawn)


def _of_widths(rows: list[dict[str, Any]]) -> str:
    """What moldable jobs gain, beside the same log with rigid ones; or that a dispatcher starts them as they ask."""
    found = []
    for row in rows:
        if "rigid" in row:
            name, rigid = row["dispatcher"], row["rigid"]
            gains = ", ".join(f"{words} {_change(rigid[key], row[key])}" for key, words in GAINS.items())
            rule = DISPATCHERS.create(name)
            if not getattr(rule, "width", 0) and not (row["malleable"] and getattr(rule, "resize", 0)):
                gains = "as many cores as they ask for, as with width=as-asked: " + gains
            jobs = counted(row["moldable"], "moldable job")
            if row["malleable"]:
                jobs += (
                    f" ({row['malleable']:,} malleable)" if row["malleable"] < row["moldable"] else ", all malleable"
                )
            found.append(f"{jobs}, {name}, beside rigid ones: {gains}")
    return "\n".join(found)


def _change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "-"
    change = f" ({(after / before - 1):+.0%})" if before else ""
    return " -> ".join(f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in (before, after)) + change


def add_energy_options(parser: argparse.ArgumentParser) -> None:
    """Options for `with_energy`."""
    add = parser.add_argument
    add(
        "--power",
        metavar="idle_w=W,busy_w=W",
        help="what nodes draw with no core busy, and with all; off_w=W,off_after_s=S: powered down (the site's)",
    )
    add(
        "--intensity",
        metavar="G|FILE",
        help="CO2 of the grid [g/kWh]: a number, or a CSV file of times and such numbers (the site's)",
    )


def with_energy(cluster: Cluster, options: argparse.Namespace, epoch: float) -> Cluster:
    """The machine with the power and the intensity of these options, for jobs whose clock reads 0 at `epoch`."""
    if options.power:
        cluster = replace(cluster, power=NodePower.of(options.power))
    if options.intensity:
        from asa.metrics.intensity import intensity_of

        cluster = replace(cluster, intensity=intensity_of(options.intensity, epoch))
    if cluster.intensity is not None and cluster.power is None and options.intensity:
        raise InvalidInput(f"--intensity {options.intensity}: give --power as well, what nodes draw")
    return cluster


def _failing(cluster: Cluster, options: argparse.Namespace) -> Cluster:
    """The machine, whose nodes fail by chance where that is wanted."""
    from asa.lab.core.cluster import NodeFailures

    failures = NodeFailures.of(options.failures) if options.failures else cluster.failures
    return cluster if failures is None else replace(cluster, failures=replace(failures, seed=options.seed))


def _site(options: argparse.Namespace) -> SiteModel | None:
    """The site model, which says all of the machine."""
    if not options.site:
        return None
    if options.nodes or options.cores_per_node:
        raise InvalidInput(f"--site {options.site} has a machine of its own: leave --nodes and --cores-per-node out")
    from asa.lab.traces.site import site

    return site(options.site)


def _at_site(trace: Trace, cluster: Cluster) -> Trace:
    """The jobs that the site has all for, those without a limit of their run time with the limit that it has for them:
    a year where there is none, for which Slurm plans them, too."""
    import numpy as np

    from asa.lab.simulator.state import walltimes

    trace = trace.on(cluster)
    jobs = trace.workload
    usual = {name: replace(each, default_time_s=None) for name, each in cluster.partitions.items()}
    limits = np.nan_to_num(walltimes(jobs, replace(cluster, partitions=usual)), nan=365 * DAY)
    return replace(trace, workload=replace(jobs, walltime=np.where(trace.unlimited, limits, jobs.walltime)))


def _refusals(schedule: Schedule) -> dict[str, int]:
    """How many jobs the machine has refused, by reason."""
    import numpy as np

    from asa.lab.metrics.schedule import refused
    from asa.lab.simulator.state import REFUSALS, why_refused

    why = why_refused(schedule.workload, schedule.cluster)
    why[refused(schedule) & (why == 0)] = len(REFUSALS) - 1  # the only reason that is found on the way
    counts = np.bincount(why, minlength=len(REFUSALS)).tolist()
    return {reason: count for reason, count in zip(REFUSALS, counts, strict=True) if reason and count}


def _of_refusals(rows: list[dict[str, Any]]) -> str:
    """Why jobs were refused; by dispatcher where that differs."""
    found = [(row["dispatcher"], row.get("refusals")) for row in rows]
    alike = all(why == found[0][1] for _, why in found)
    return "\n".join(
        f"refused{'' if alike else ' by ' + name}: " + ", ".join(f"{count:,} {reason}" for reason, count in why.items())
        for name, why in (found[:1] if alike else found)
        if why
    )


def _window(window: NodeWindow, cluster: Cluster) -> dict[str, Any]:
    times = {"start_s": window.start, "end_s": window.end}
    return {"name": window.name, **times, "nodes": len(window.nodes) or cluster.nodes}


def _of_windows(windows: list[dict[str, Any]], workload: Workload) -> str:
    """How many windows there are, and how many of them while jobs are submitted: other dates are soon mistaken."""
    first, last = (float(workload.submit[row]) for row in (0, -1)) if len(workload) else (0.0, 0.0)
    within = sum(each["start_s"] < last and each["end_s"] > first for each in windows)
    return f"windows: {len(windows):,}, of which {within:,} while jobs are submitted; utilisation counts their nodes"


def days(workload: Workload, begin: float | None, until: float | None) -> Workload:
    """Jobs submitted from one day until before another; days of 24 hours, from the first submission."""
    if begin is None and until is None:
        return workload
    first = float(workload.submit[0]) if len(workload) else 0.0
    begin = begin or 0.0
    chosen = workload.between(first + begin * DAY, math.inf if until is None else first + until * DAY)
    if not len(chosen):
        last = (float(workload.submit[-1]) - first) / DAY if len(workload) else 0.0
        raise InvalidInput(
            f"no job was submitted from day {begin:g} {'on' if until is None else f'until before day {until:g}'}: "
            f"the first one was on day 0, the last one on day {last:.2f}"
        )
    return chosen


def _sample(options: argparse.Namespace) -> DecisionSample | None:
    """What draws the decisions that are to be saved."""
    if not options.save_decisions:
        return None
    from asa.lab.simulator.decisions import DecisionSample

    return DecisionSample(options.decisions, options.seed)


def _simulated(
    name: str, workload: Workload, cluster: Cluster, options: argparse.Namespace, sample: DecisionSample | None
) -> Schedule:
    from asa.lab.simulator.run import simulate

    with progress_bar(name, quiet=options.quiet) as progress:
        return simulate(
            workload,
            cluster,
            name,
            **{name: getattr(options, name) for name in SETTINGS},
            dispatch_time=options.dispatch_time,
            watch=sample,
            progress=progress,
        )


def _write(schedule: Schedule, options: argparse.Namespace) -> None:
    if options.csv:
        from asa.lab.report.schedule_text import write_csv

        write_csv(schedule, options.csv, Path(options.trace).name)
    if options.swf:
        from asa.lab.traces.swf import log_of, write_swf

        write_swf(log_of(schedule), options.swf)
    if options.plot:
        from asa.lab.report.schedule_picture import save_schedule

        save_schedule(schedule, options.plot)


def _check_outputs(options: argparse.Namespace, dispatchers: int) -> None:
    """Refuse outputs that cannot be written, or not for so many dispatchers."""
    check_outputs(options, "csv", "swf", picture="plot")
    if dispatchers > 1 and (options.csv or options.swf):
        raise InvalidInput(f"--csv and --swf write one schedule: give one dispatcher, not {dispatchers}")
    if folder := options.save_decisions:
        if dispatchers > 1:
            raise InvalidInput(f"--save-decisions saves those of one dispatcher: give one, not {dispatchers}")
        if Path(folder).exists() and (not Path(folder).is_dir() or any(Path(folder).iterdir())):
            raise InvalidInput(f"--save-decisions {folder}: a folder that is empty, or not there yet, expected")
    if options.plot:
        from asa.lab.report.charts import DISPATCHERS_MOST

        if dispatchers > DISPATCHERS_MOST:
            raise InvalidInput(f"--plot tells at most {DISPATCHERS_MOST} dispatchers apart, not {dispatchers}")
