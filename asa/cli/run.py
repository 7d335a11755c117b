"""``asa run``: a workflow file, to its end."""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import sys
from contextlib import closing, redirect_stdout
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.cli.manage import remove_by_policy
from asa.core.command import INTERRUPTED, CommandResult, add_set_option, fitted
from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import RunState
from asa.core.job import Capabilities
from asa.core.registry import BACKENDS, EXECUTORS, STRATEGIES, convert, with_options
from asa.core.serial import to_json
from asa.core.units import brief
from asa.log.messages import notify
from asa.log.rundir import RunDirectory, state_directory
from asa.report.words import counted, expected
from asa.workflows.clean import awaits_driver, next_drivers
from asa.workflows.driver import (
    DriverJobs,
    Turn,
    detach,
    pipe_to_starter,
    say_started,
    succeeded_by_job,
    take_turn,
)
from asa.workflows.run import Run as WorkflowRun
from asa.workflows.run import finish, open_run, prepare, prepare_resume, resume, show_progress, submit

if TYPE_CHECKING:
    from asa.workflows.quote import Quote


class RunCommand:
    """Run the workflow in a Python file."""

    help = "run the workflow in a Python file"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_workflow_options(parser)
        parser.add_argument("--backend", default="local", help=f"where jobs go: {', '.join(BACKENDS)} (local)")
        add_strategy_options(parser)
        _add_queue_options(parser)
        parser.add_argument(
            "--executor", help=f"how tasks run in allocations: {', '.join(EXECUTORS)} (mesos; local on this machine)"
        )
        parser.add_argument("--pool", default="shared", help="shared, per-stage or shared:NAME (shared)")
        parser.add_argument("--name", help="beginning of the run's name")
        parser.add_argument(
            "--keep-going",
            action="store_true",
            help="after a failed task run all that does not need it, with exit code 3",
        )
        _add_request_option(parser)
        parser.add_argument(
            "--reuse", action="store_true", help="take results of earlier runs for whatever has not changed"
        )
        parser.add_argument(
            "--reuse-from", action="append", default=[], metavar="DIR", help="take them from this state directory, too"
        )
        parser.add_argument("--workdir", default=".", help="directory that tasks run in (.)")
        parser.add_argument(
            "--orphan-grace", help="how long allocations outlive a dead driver (60s; with --driver=job 10m)"
        )
        parser.add_argument(
            "--output-limit", default="10M", metavar="SIZE", help="how much is kept of what each task prints (10M)"
        )
        add_notify_option(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be submitted, and charged at most; start nothing"
        )
        add_driver_options(parser)
        add_display_options(parser)

    def run(self, options: argparse.Namespace) -> CommandResult:
        check_display_options(options)
        wanted: dict[str, Any] = {
            "backend": options.backend,
            "strategy": strategy_of(options),
            "executor": options.executor,
            "pool": options.pool,
            "name": options.name or _name_of(options.workflow),
            "workdir": options.workdir,
            "orphan_grace": options.orphan_grace or ("10m" if options.driver else "60s"),
            "output_limit": options.output_limit,
            "reuse": options.reuse or bool(options.reuse_from),
            "reuse_from": options.reuse_from,
            "notify": options.notify,
            "keep_going": options.keep_going,
            "learn_requests": options.learn_requests,
            **_queue_terms(options),
        }
        if options.dry_run:
            return _previewed(workflow_of(options), **wanted)
        remove_by_policy()
        if options.detach:
            return detached(prepare(workflow_of(options), **wanted), options)
        if options.driver:
            run = prepare(workflow_of(options), **wanted)
            try:
                return in_job(run, options)
            except InvalidInput:  # nothing was submitted
                shutil.rmtree(run.path)
                raise
        workflow = workflow_of(options)
        with redirect_stdout(sys.stderr):  # what tasks print that run in this process, in virtual time
            begun = submit(workflow, **wanted)
            handed_over = _shown(begun, options)
        return handed_over or outcome_of(begun, options)


class QuoteCommand:
    """Say when a workflow would be done, and what it would be charged; nothing is submitted."""

    help = "say when a workflow would be done, and what it would be charged, before anything is submitted"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_workflow_options(parser)
        parser.add_argument(
            "--backend", action="append", metavar="SPEC", help="where jobs go (local); repeatable, to compare queues"
        )
        add_strategy_options(parser)
        _add_queue_options(parser)
        parser.add_argument("--pool", default="shared", help="shared, per-stage or shared:NAME (shared)")
        parser.add_argument("--name", help="name of the run, by which its history is found")
        _add_request_option(parser)
        parser.add_argument("--only", action="store_true", help="compare with no other strategies and widths")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.workflows.graph import make_graph
        from asa.workflows.quote import quote_ways
        from asa.workflows.settings import make_settings, state_path

        workflow, backends = workflow_of(options), options.backend or ["local"]
        name = options.name or _name_of(options.workflow)
        rows: list[dict[str, Any]] = []
        lines: list[str] = []
        for place, backend in enumerate(backends):
            settings = make_settings(
                workflow,
                name,
                backend=backend,
                strategy=strategy_of(options),
                pool=options.pool,
                learn_requests=options.learn_requests,
                **_queue_terms(options),
            )
            found = quote_ways(make_graph(workflow), settings, state_path(None), others=not (options.only or place))
            rows += [{"backend": backend, **quote.to_json()} for quote in found]
            lines += _quoted(found, f" --backend {backend}" if place else "")
        return CommandResult({"rows": rows}, fitted("\n".join(lines)))


def _add_request_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--learn-requests",
        action="store_true",
        help="ask for memory and wall time of each stage by what its tasks used in earlier runs",
    )


def _add_queue_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands for workflows whose stages may go to several queues; see `_queue_terms`."""
    for name, what in (
        ("price", "price of a core-hour in each queue that a stage may go to"),
        ("preempted", "preemptions an hour in these queues (learned)"),
    ):
        parser.add_argument(f"--{name}", metavar="QUEUE=NUMBER,...", type=_numbers, help=what)
    parser.add_argument("--ask-once", action="store_true", help="do not submit to the second best of these queues, too")


def _queue_terms(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say of queues, as `make_settings` takes it."""
    return {"price": options.price, "preempted": options.preempted, "ask_twice": not options.ask_once}


def _quoted(quotes: list[Quote], where: str) -> list[str]:
    """Quotes as lines, the first of them as that of the way which was asked for."""
    first = quotes[0]
    lines = []
    for quote in quotes:
        way = [where] if where else []
        way += [f" --strategy {quote.strategy}"] * (quote.strategy != first.strategy)
        way += [f" allocations {quote.scale:g} times as wide"] * (quote.scale != 1.0)
        said = expected(quote.event(), virtual=quote.virtual)
        lines.append(f"with{''.join(way)}: {said}" if way else f"now: done {said}")
    return [*lines, *(f"({note})" for note in first.notes)]


def _previewed(workflow: Any, **wanted: Any) -> CommandResult:
    """What a run would submit, and what it would be charged at most."""
    from asa.workflows.assemble import preview
    from asa.workflows.graph import make_graph
    from asa.workflows.settings import make_settings, state_path

    jobs = preview(make_graph(workflow), make_settings(workflow, **wanted), state_path(None))
    rows = [to_json(job) | {"core_hours": job.cores * job.walltime_s / 3600} for job in jobs]
    total, lines, spare = sum(row["core_hours"] for row in rows), list[str](), ""
    for (stages, at_once, cores, walltime_s), row in groupby(
        jobs, key=lambda job: (job.stages, job.at_once, job.cores, job.walltime_s)
    ):  # a stage with checkpoints asks for one after the other
        first, *others = row
        words = f"{', '.join(stages)}: {'at once' if at_once else 'later'}, "
        if others:
            words, spare = f"{words}up to {len(others) + 1} jobs in a row, each with ", "up to "
        size = f"{counted(cores, 'core')} for {brief(walltime_s)}, at most {cores * walltime_s / 3600:.3g} core-hours"
        lines += [fitted(words + size), *(f"  {command}" for command in first.commands)]
    most = f"at most {total:.3g} core-hours if each runs once"
    lines.append(fitted(f"{spare}{counted(len(jobs), 'job')}, {most}; nothing was submitted"))
    return CommandResult({"rows": rows, "core_hours": total}, "\n".join(lines))


def add_workflow_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that take a workflow; see `workflow_of`."""
    parser.add_argument("workflow", metavar="FILE[:NAME]", help="Python file, and the workflow in it (workflow)")
    add_set_option(parser)


def add_strategy_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that need a strategy; see `strategy_of`."""
    parser.add_argument(
        "--strategy", help=f"when jobs are asked for: {', '.join(STRATEGIES)} (auto; big-job on this machine)"
    )
    parser.add_argument(
        "--patience", type=float, metavar="CORE_HOURS", help="core-hours an hour sooner is worth (strategy auto)"
    )
    parser.add_argument("--max-overhead", metavar="SHARE", help="core-hours coming early may lose, such as 3%%")


def workflow_of(options: argparse.Namespace) -> Any:
    """The workflow that the options name."""
    from asa.workflows.settings import assignment, load_workflow

    return load_workflow(options.workflow, dict(map(assignment, options.set)))


def add_display_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that wait for a run."""
    parser.add_argument(
        "--report", metavar="PATH", help="write a report when it is over: .html, .png, .pdf, .svg or .json"
    )
    parser.add_argument("--quiet", action="store_true", help="print the result, or what went wrong, and nothing else")


def check_display_options(options: argparse.Namespace) -> None:
    """Refuse a report that cannot be written: better said before than after what may take days."""
    from asa.report.write import check_report

    if options.report:
        check_report(options.report)


def add_notify_option(parser: argparse.ArgumentParser) -> None:
    """The option of commands that drive a run, or have it driven, to its end."""
    parser.add_argument("--notify", metavar="COMMAND", help="command to run, or address to mail, at the end")


def add_driver_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that start a driver: where it is to be."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--detach",
        action="store_true",
        help="run the driver apart from this terminal; asa attach shows the run, asa cancel ends it",
    )
    where.add_argument(
        "--driver",
        metavar="job[:OPTIONS]",
        help="drive it in a batch job of one core, followed by another before its wall time ends, and return; options "
        "are walltime (12h) and those of the backend, such as partition and account",
    )


def in_job(run: RunDirectory, options: argparse.Namespace) -> CommandResult:
    """Submit a job to drive a run, and say how to look at it."""
    words = [f"--report={Path(options.report).absolute()}"] if options.report else []
    words += ["--quiet"] * options.quiet
    with closing(DriverJobs(run, options.driver)) as jobs:
        job = jobs.begin(words).job_id
    if not options.quiet:
        how = f"asa attach {run.name} shows how it gets on, asa cancel {run.name} ends it"
        notify(f"job {job} drives it once it starts: {how}")
    return CommandResult({"run": run.name, "driver": f"job {job}"}, run.name)


def drive_in_job(turn: Turn, options: argparse.Namespace) -> CommandResult:
    """In a job, drive the run for as long as it is this job's.

    SIGTERM, with which batch systems end jobs, ends this process as SIGKILL would: the next driver takes the run over.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    words = [f"--report={options.report}"] if options.report else []
    words += ["--quiet"] * options.quiet
    with closing(DriverJobs.here(options.run, options.driver)) as jobs:
        run = take_turn(jobs, turn, words)
        if run is None:
            return CommandResult(None, f"run {options.run} is over, or has another driver: this job has nothing to do")
        with succeeded_by_job(run, jobs, turn, words):
            return show_to_end(run, options)


def detached(run: RunDirectory, options: argparse.Namespace) -> CommandResult:
    """Have a process of its own drive a run, and say how to look at it."""
    words = [f"--report={options.report}"] if options.report else []
    words += ["--quiet"] * options.quiet
    pid = detach(run, words + ([f"--log-level={options.log_level}"] if options.log_level else []))
    if not options.quiet:
        notify(f"process {pid} drives it: asa attach {run.name} shows how it gets on, asa cancel {run.name} ends it")
    return CommandResult({"run": run.name, "driver": f"process {pid} on {os.uname().nodename}"}, run.name)


class AttachCommand:
    """Show a run's progress as if it had been started here; Ctrl-C detaches, and the run goes on."""

    help = "show the progress of a run as if it had been started here; Ctrl-C detaches"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "run", metavar="RUN", nargs="?", default="@last", help="name of the run, or a beginning of it (@last)"
        )
        add_display_options(parser)

    def run(self, options: argparse.Namespace) -> CommandResult:
        check_display_options(options)
        run = open_run(options.run)
        quiet = options.quiet or options.json == "-"
        try:
            run.attach(awaits_driver(run.directory))
            if not quiet and (jobs := next_drivers(run.directory)) and not run.directory.is_driven():
                notify(f"job {next(iter(jobs.values())).job_id} drives the run once it starts")
            if not quiet:
                print(f"run {run.name}", file=sys.stderr)
                show_progress(run)
            run.decided.wait()
            if options.report:
                run.report(options.report)
            return outcome_of(run, options)
        except KeyboardInterrupt as interrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not cut the words off
            if interrupt.args:  # another signal, which the command line names
                raise
            words = f"detached; run {run.name} goes on: asa attach {run.name}, asa cancel {run.name}"
            return CommandResult({"run": run.name, "state": run.status.value}, f"asa: {words}", INTERRUPTED)


FAILED, EXITS = 1, {RunState.SUCCEEDED: 0, RunState.PARTIAL: 3}
"""Exit codes of commands that wait for a run, by its outcome."""

_PATIENCE_S = 0.3
"""How long the command waits for jobs to end whose numbers were not asked for [s]."""


def show_to_end(run: WorkflowRun, options: argparse.Namespace) -> CommandResult:
    """Show a run's progress until it is over, and what came of it."""
    return _shown(run, options) or outcome_of(run, options)


def _shown(run: WorkflowRun, options: argparse.Namespace) -> CommandResult | None:
    """Show a run's progress until it is over; what to say where it goes on with another driver."""
    quiet = options.quiet or options.json == "-"
    if not quiet:
        print(f"run {run.name}", file=sys.stderr)
    try:
        finish(run, None if quiet or run.decided.is_set() else show_progress)
    except KeyboardInterrupt:
        try:
            run.shown_result()
        except RunFailed as error:  # which says how to go on
            notify(str(error))
        raise
    finally:
        if options.report and not run.handed_over:
            run.report(options.report)
    if run.handed_over:
        run.wait()
        return CommandResult(None, f"run {run.name} goes on, with another driver: asa attach {run.name}")
    return None


def outcome_of(run: WorkflowRun, options: argparse.Namespace) -> CommandResult:
    """What came of a run whose outcome is known, or whose driver is gone."""
    message, patience = "", math.inf if options.json or options.report else _PATIENCE_S
    try:
        run.check()
    except RunFailed as error:
        message = str(error)
    status = run.status
    if message and status is not RunState.PARTIAL:
        summary = run.summarise(patience)
    else:
        if options.json != "-":
            print(run.shown_result(), flush=True)
        summary = run.summarise(patience)
        if not options.quiet:
            so_far = f", {energy}" if (energy := summary.energy) else ""
            so_far += "" if run.wait(0.0) else " so far: jobs are still ending"
            print(
                f"makespan {brief(summary.makespan_s)}, waited {brief(summary.total_perceived_wait_s)}, "
                f"{summary.core_hours_charged:.3g} core-hours charged, {summary.core_hours_used:.3g} used{so_far}",
                file=sys.stderr,
            )
    return CommandResult(summary.to_json(), message, EXITS.get(status, FAILED))


def strategy_of(options: argparse.Namespace) -> str | None:
    """The strategy with its options; the one that knows them all where only these are given."""
    given: str | None = options.strategy
    if options.patience is None and options.max_overhead is None:
        return given
    return with_options(given or "auto", patience=options.patience, max_overhead=options.max_overhead)


def _numbers(text: str) -> dict[str, Any]:
    return {name.strip(): convert(value) for name, _, value in (part.partition("=") for part in text.split(","))}


def _name_of(target: str) -> str:
    """What to call a run: its file, or the file's folder where the file is just called workflow."""
    path = Path(target.partition(":")[0]).resolve()
    return path.parent.name if path.stem == "workflow" else path.stem


class ResumeCommand:
    """Go on with a run; what is done is not done again."""

    help = "continue a run whose driver died, that failed, or that was cancelled"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="name of the run, a beginning of it, or @last")
        parser.add_argument(
            "--code",
            dest="workflow",
            metavar="FILE[:NAME]",
            help="use this workflow, in a new run: only what has changed runs, and what follows from it",
        )
        add_set_option(parser)
        add_notify_option(parser)
        add_driver_options(parser)
        add_display_options(parser)

    def run(self, options: argparse.Namespace) -> CommandResult:
        check_display_options(options)
        waited_for, turn = pipe_to_starter(), Turn.taken()
        if turn is not None:
            return drive_in_job(turn, options)
        code = workflow_of(options) if options.workflow else None
        if options.detach:
            return detached(prepare_resume(options.run, code=code, notify=options.notify), options)
        if options.driver:
            return in_job(prepare_resume(options.run, code=code, notify=options.notify, driven=True), options)
        run = resume(options.run, code=code, notify=options.notify)
        say_started(run, waited_for)
        return show_to_end(run, options)


class WhyCommand:
    """Say why a task of a run ran, or did not run, although an earlier run had done its stage."""

    help = "show what changed since an earlier run, and so made a task run again"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", metavar="RUN", help="name of the run, or a beginning of it")
        parser.add_argument("stage", metavar="STAGE[INDEX]", help="stage, and which of its tasks, counted from 0 (0)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.workflows.reuse import why

        found = re.fullmatch(r"(.+?)(?:\[(\d+)\])?", options.stage)
        assert found is not None, "it is not empty"
        directory = RunDirectory.open(state_directory(), options.run)
        lines = why(directory, found[1], int(found[2] or 0))
        return CommandResult({"run": directory.name, "stage": options.stage, "why": lines}, fitted("\n".join(lines)))


class GraphCommand:
    """Print and check a workflow."""

    help = "print and check a workflow without running it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_workflow_options(parser)
        parser.add_argument("--backend", help="also check that every stage can run there")
        parser.add_argument("--dot", action="store_true", help="print it in Graphviz's language")

    def run(self, options: argparse.Namespace) -> CommandResult:
        from asa.workflows.graph import make_graph

        graph = make_graph(workflow_of(options))
        site = Capabilities(site="")
        if options.backend:
            backend = BACKENDS.create(options.backend)
            site = backend.capabilities()
            backend.close()
        graph.check(site)
        return CommandResult(
            {"rows": to_json(graph.specs(site))}, graph.to_dot() if options.dot else fitted(graph.described(site))
        )
