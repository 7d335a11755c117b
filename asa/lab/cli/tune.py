"""``asa tune``, ``asa bench``: a dispatcher fitted to a log, and any compared on what nothing was fitted to."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asa.core.command import CommandResult, table
from asa.core.errors import AsaError, InvalidInput
from asa.core.registry import DISPATCHERS
from asa.lab.cli.simulate import add_energy_options, with_energy
from asa.lab.core.registry import PREDICTORS
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs, progress_bar

if TYPE_CHECKING:
    from asa.lab.tuning import Trial


class Tune:
    """Fit order, threshold, reservation depth and predictor to logs, and report on jobs that were not looked at."""

    help = "fit a dispatcher to a log: on its first 60 %, chosen by the next 20 %, compared to others on the last 20 %"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        _add_logs(parser, "--beside")
        add("--evaluations", type=int, default=60, metavar="N", help="rules that are tried, 1 or more (60)")
        add("--objective", default="both", metavar="WHAT", help="what is to be small: wait, slowdown or both (both)")
        add("--longest", type=float, default=1.1, metavar="X", help="longest wait at most, in shares of EASY's (1.1)")
        names = f"of {', '.join(PREDICTORS)}; '' for none (alike; none with --predictor)"
        add("--predictors", metavar="NAMES", help=names)

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        if options.evaluations < 1:
            raise InvalidInput(f"--evaluations {options.evaluations}: 1 or more expected; asa bench only compares")
        if options.predictors and options.predictor != "user":
            raise InvalidInput(f"--predictors {options.predictors}: all plan with --predictor {options.predictor}")
        words = "alike" if options.predictors is None and options.predictor == "user" else options.predictors
        predictors = PREDICTORS.split([words]) if words else []
        if "oracle" in predictors:
            raise InvalidInput("--predictors oracle: knows what no site does; take it as --predictor, for all rules")
        for name in predictors:
            PREDICTORS.create(name)
        from asa.lab.tuning import check_aims

        check_aims(options.objective, options.longest)

        def best(trial: Trial) -> str:
            return trial.tune(options.evaluations, predictors=predictors, seed=options.seed)

        return _compared(options, options.beside, best)


class BenchDispatchers:
    """Compare dispatchers on the jobs of logs that `Tune` does not look at."""

    help = "compare dispatchers on the last 20 % of logs, with intervals: the part to which asa tune fits nothing"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what", choices=["dispatchers"], help="what is compared")
        _add_logs(parser, "--dispatchers")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        return _compared(options, options.dispatchers)


def _add_logs(parser: argparse.ArgumentParser, compared: str) -> None:
    """What both commands take; `compared` is the option for the dispatchers that are compared."""
    add = parser.add_argument
    add("trace", nargs="+", metavar="LOG", help="log of jobs, as asa simulate takes it; each by itself")
    names = "dispatchers to compare to EASY, repeated or with commas (sjf after 60 h, wfp3, easy++)"
    add(compared, action="append", metavar="NAMES", help=names)
    add("--predictor", default="user", metavar="NAME", help="what all take for run times (user: request)")
    add_energy_options(parser)
    add("--seed", type=int, default=0, metavar="S", help="seed of what is drawn (0)")
    add("--quiet", action="store_true", help="show no progress")


def _compared(
    options: argparse.Namespace, beside: Sequence[str] | None, tune: Callable[[Trial], str] | None = None
) -> CommandResult:
    """Rows of each log that can be read, and what is printed."""
    check_outputs(options)
    if options.seed < 0:
        raise InvalidInput(f"--seed {options.seed}: 0 or more expected")
    from asa.lab.tuning import BESIDE

    own = options.predictor == "user"  # whether those with a predictor of their own can be compared
    usual = [name for name in BESIDE if own or getattr(DISPATCHERS.create(name), "predictor", None) is None]
    names = DISPATCHERS.split(beside or usual)
    for name in names:
        DISPATCHERS.create(name)
    if options.predictor != "oracle":  # which is made of what is simulated
        PREDICTORS.create(options.predictor)
    rows: list[dict[str, Any]] = []
    texts, refused = [], []
    for path in options.trace:
        try:
            found, text = _compared_on(path, options, names, tune)
        except AsaError as error:  # of one log, after others are done
            if len(options.trace) == 1:
                raise
            refused.append(f"{Path(path).name}: {error}")
            continue
        rows += found
        texts.append(text)
    if not rows:
        raise InvalidInput("no log can be used:\n" + "\n".join(refused))
    return CommandResult({"rows": rows, "refused": refused}, "\n\n".join(texts + refused), 1 if refused else 0)


def _compared_on(
    path: str, options: argparse.Namespace, beside: list[str], tune: Callable[[Trial], str] | None
) -> tuple[list[dict[str, Any]], str]:
    """Rows of one log, and what is printed."""
    from asa.lab.traces.load import load_trace
    from asa.lab.tuning import Trial

    trace, name = load_trace(path), Path(path).name
    aims = {} if tune is None else {"objective": options.objective, "longest": options.longest}
    began, cpu = time.perf_counter(), time.process_time()
    with progress_bar(name, quiet=options.quiet, counts=True) as bar:
        progress = None if bar is None else lambda done, most, _: bar(done, most)
        machine = with_energy(trace.machine(), options, trace.epoch)
        trial = Trial(trace.workload, machine, predictor=options.predictor, progress=progress, **aims)
        best = tune(trial) if tune else ""
        rows, refused = trial.report([*filter(None, [best]), *beside], seed=options.seed)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    lines = [line_of(row) for row in rows]
    for row in rows:
        row |= {"trace": name, "tuned": row["dispatcher"] == best, "seconds": seconds, "cpu_s": cpu}
        row["of_easy"] = {key: value.to_json() for key, value in row["of_easy"].items()}
    first = f"{name}: --dispatcher {best}" if best else name
    first += f" --predictor {options.predictor}" if options.predictor != "user" else ""
    last = f"{trial.simulated} simulations in {seconds:.0f} s, {cpu:.0f} s of processor time"
    return rows, "\n".join([first, table(lines, "nothing"), *refused, last])


def line_of(row: dict[str, Any]) -> dict[str, Any]:
    """What is printed of a row of `asa.lab.tuning.Trial.report`."""
    of_easy = {key: str(value) for key, value in row["of_easy"].items()}
    drawn = {name: round(row[name]) for name in ("energy_kwh", "co2_kg") if name in row}
    waits = {"mean wait [s]": round(row["mean_wait_s"])}
    return {"of EASY's, on the last 20 %": row["dispatcher"], **of_easy, **waits, **drawn}
