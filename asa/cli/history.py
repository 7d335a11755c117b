"""``asa history``: what tasks and stages took in earlier runs; imported from elsewhere, exported, frozen."""

from __future__ import annotations

import argparse
import csv
import datetime
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from asa.core.command import CommandResult, duration, fitted, memory, table
from asa.core.errors import InvalidInput, UnknownName
from asa.core.history import Frozen, StageUsage, Usage, quantile
from asa.core.registry import HISTORIES
from asa.core.units import brief, size
from asa.log.history import HISTORY, HistoryKey, UsageHistory
from asa.log.rundir import state_directory
from asa.report.outputs import check_outputs
from asa.report.words import counted
from asa.workflows.learned import catch_up

_WORDS = {"import": 2, "freeze": 1, "unfreeze": 1, "forget": 1}
"""What may stand in the place of a stage, and how many words follow."""
_FACTOR = 4.0
_RUNS_SHOWN = 10


class HistoryCommand:
    """Show what stages took, import that, and freeze what is asked for them."""

    help = "show what stages took in earlier runs: memory, time, threads"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        words = "show this stage in detail; or import FORMAT FILE, freeze STAGE, unfreeze STAGE, forget STAGE"
        what: Any = parser.add_argument("what", metavar="STAGE", nargs="?", help=words)
        what.offered = tuple(_WORDS)
        more = f"what follows on these words; formats are {', '.join(HISTORIES)}"
        parser.add_argument("rest", metavar="FILE", nargs="*", help=more)
        parser.add_argument("--csv", metavar="OUT", help="write all rows to this file, one for each task that was kept")
        machine = "only of this machine (all); import: where the tasks ran (imported)"
        parser.add_argument("--machine", metavar="NAME", help=machine)
        parser.add_argument("--code", metavar="CODE", help="only of code whose number begins with this (all)")
        parser.add_argument("--memory", type=memory, metavar="SIZE", help="freeze: memory of a task (as asked last)")
        parser.add_argument("--walltime", type=duration, metavar="TIME", help="freeze: its wall time (as asked last)")

    def run(self, options: argparse.Namespace) -> CommandResult:
        what, rest = options.what, options.rest
        if options.csv:
            check_outputs(options, "csv")
        if what in _WORDS and len(rest) != _WORDS[what]:
            raise InvalidInput(f"asa history {what} takes {'FORMAT FILE' if what == 'import' else 'STAGE'} after it")
        if rest and what not in _WORDS:
            raise InvalidInput(f"asa history takes one stage, not {what!r} and {rest[0]!r}: see asa history --help")
        with UsageHistory(state_directory() / HISTORY) as history:
            catch_up(state_directory(), history)
            if what == "import":
                return _imported(history, rest[0], Path(rest[1]), options.machine or "imported")
            if what in _WORDS:
                return _settled(history, what, rest[0], options)
            kept = [each for each in history.stages() if _is_meant(each, options)]
            if what is not None:
                kept = [each for each in kept if each.stage == what]
                if not kept:
                    raise _unknown(history, what)
            if options.csv:
                _write_csv(Path(options.csv), (row for each in kept for row in history.of(*each)))
            return _listed(history, kept) if what is None else _detailed(history, what, kept)


def _is_meant(kept: HistoryKey, options: argparse.Namespace) -> bool:
    return options.machine in (None, kept.machine) and kept.code.startswith(options.code or "")


def _unknown(history: UsageHistory, stage: str) -> InvalidInput:
    """Says that nothing is kept of a stage, or where, if it is known on another machine or with other code."""
    found = [f"machine {each.machine}, code {each.code}" for each in history.stages() if each.stage == stage]
    if found:
        return InvalidInput(
            f"nothing is kept of stage {stage!r} for that --machine or --code; it is for {'; '.join(found)}"
        )
    return UnknownName("stage of the history", stage, sorted({each.stage for each in history.stages()}))


# ---------------------------------------------------------------- what it does


def _imported(history: UsageHistory, name: str, path: Path, machine: str) -> CommandResult:
    rows: list[Usage] = [replace(row, machine=machine) for row in HISTORIES.load(name)(path)]
    if not rows:
        raise InvalidInput(f"{path}: none of its tasks says what it took, so there is nothing to import")
    history.add(rows)
    stages = sorted({row.stage for row in rows})
    said = f"{counted(len(rows), 'task')} of {counted(len(stages), 'stage')}, as of machine {machine}"
    known = sum(row.memory is not None for row in rows)
    return CommandResult(
        {"tasks": len(rows), "stages": stages, "machine": machine, "with_memory": known},
        f"imported {said}; memory is known of {known}",
    )


def _settled(history: UsageHistory, what: str, stage: str, options: argparse.Namespace) -> CommandResult:
    """Freeze, unfreeze or forget a stage on each machine where something is kept of it."""
    kept = [each for each in history.stages() if each.stage == stage and _is_meant(each, options)]
    if not kept:
        raise _unknown(history, stage)
    if what == "forget":
        for each in kept:
            history.forget(*each)
        return CommandResult({"forgotten": len(kept)}, f"what is known of {stage} is forgotten")
    rows: list[dict[str, Any]] = []
    for machine in dict.fromkeys(each.machine for each in kept):
        asked = _asked(history, stage, machine, options) if what == "freeze" else None
        history.freeze(stage, machine, asked)
        row: dict[str, Any] = {"stage": stage, "machine": machine}
        rows.append(row | ({} if asked is None else {"memory": asked.memory, "walltime_s": asked.walltime_s}))
    if what == "unfreeze":
        return CommandResult({"rows": rows}, f"{stage}: what is learned counts again")
    shown = [row | {"memory": _bytes(row["memory"]), "walltime_s": _time(row["walltime_s"])} for row in rows]
    return CommandResult({"rows": rows}, table(shown, "") + "\nis asked for from now on, whatever is learned")


def _asked(history: UsageHistory, stage: str, machine: str, options: argparse.Namespace) -> Frozen:
    """What was asked for last, unless the command says otherwise."""
    rows = history.of(stage, machine=machine)
    last_memory = next((row.asked_memory for row in reversed(rows) if row.asked_memory is not None), None)
    last_s = next((row.asked_s for row in reversed(rows) if row.asked_s is not None), None)
    asked = Frozen(options.memory or last_memory, options.walltime or last_s, time.time())
    if asked.memory is None and asked.walltime_s is None:
        raise InvalidInput(f"nothing was asked for {stage} on {machine} so far: say --memory, --walltime, or both")
    return asked


def _write_csv(path: Path, rows: Iterator[Usage]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Usage)])
        writer.writerows(asdict(row).values() for row in rows)


# ---------------------------------------------------------------- what it shows


def _listed(history: UsageHistory, kept: Sequence[HistoryKey]) -> CommandResult:
    rows: list[dict[str, Any]] = []
    for each in kept:
        some, runs = history.of(*each), history.runs(*each)
        frozen = history.frozen(each.stage, each.machine)
        row = {"stage": each.stage, "machine": each.machine, "code": each.code, "runs": len(runs)}
        rows.append(row | _quantiles(some) | {"frozen": frozen is not None})
    shown = [
        {
            **{name: row[name] for name in ("stage", "machine")},
            "code": row["code"][:8],
            **{name: row[name] for name in ("runs", "tasks", "failed")},
            **_shown(row),
            "frozen": "yes" if row["frozen"] else "",
        }
        for row in rows
    ]
    damaged = [line for line in history.problems() if "damaged" in line]
    empty = (
        "nothing is known yet: run a workflow (stages of less than 0.2 s do not count), or import what another measured"
    )
    text = "\n".join([table(shown, empty), *damaged])
    return CommandResult({"rows": rows, "damaged": damaged}, text)


def _detailed(history: UsageHistory, stage: str, kept: Sequence[HistoryKey]) -> CommandResult:
    parts, data = [], []
    for each in kept:
        rows, runs = history.of(*each), history.runs(*each)
        sizes = [{"input_from": least, "input_to": most, **_quantiles(some)} for least, most, some in _by_input(rows)]
        frozen = history.frozen(stage, each.machine)
        sources = sorted({row.source for row in rows} - {""})
        data.append(
            {
                "machine": each.machine,
                "code": each.code,
                "sources": sources,
                "rows": sizes,
                "runs": [asdict(run) for run in runs],
                "frozen": None if frozen is None else asdict(frozen),
            }
        )
        shown = [
            {"input": _span(row["input_from"], row["input_to"]), "tasks": row["tasks"], "failed": row["failed"]}
            | _shown(row)
            for row in sizes
        ]
        head = f"{stage} on {each.machine}, code {each.code[:8] or 'unknown'}, measured by {', '.join(sources) or '?'}"
        parts += [fitted(head), table(shown, "no task of it was kept")]
        if frozen is not None:
            asked = filter(None, (_bytes(frozen.memory), _time(frozen.walltime_s)))
            parts.append(f"frozen: {' and '.join(asked)} asked for")
        if runs:
            parts += ["", "as a whole, the last runs:", table([_whole(run) for run in runs[-_RUNS_SHOWN:]], "")]
        parts.append("")
    return CommandResult({"stage": stage, "parts": data}, "\n".join(parts).rstrip())


def _by_input(rows: Sequence[Usage]) -> list[tuple[int | None, int | None, list[Usage]]]:
    """Rows of about as much input together, the smallest first; those of which it is not known last."""
    known = sorted((row for row in rows if row.input is not None), key=lambda row: row.input or 0)
    groups: list[list[Usage]] = []
    for row in known:
        if groups and (row.input or 0) <= _FACTOR * max(groups[-1][0].input or 0, 1024):
            groups[-1].append(row)
        else:
            groups.append([row])
    found: list[tuple[int | None, int | None, list[Usage]]] = [(each[0].input, each[-1].input, each) for each in groups]
    unknown = [row for row in rows if row.input is None]
    return [*found, *([(None, None, unknown)] if unknown else [])]


def _quantiles(rows: Sequence[Usage]) -> dict[str, Any]:
    """Of tasks that returned: memory [bytes], run time [s] and threads at most as much as half of them, and as all."""
    done = [row for row in rows if row.outcome == "ok"]
    found: dict[str, Any] = {"tasks": sum(row.tasks for row in rows)}
    found["failed"] = sum(row.tasks for row in rows if row.outcome != "ok")
    found["out_of_memory"] = sum(row.tasks for row in rows if row.outcome == "memory")
    found["out_of_time"] = sum(row.tasks for row in rows if row.outcome == "time")
    for name in ("memory", "run_time_s", "threads"):
        pairs = [(value, row.tasks) for row in done if (value := getattr(row, name)) is not None]
        values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
        for label, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
            found[f"{name}_{label}"] = quantile(values, share, weights) if values else None
    last = rows[-1] if rows else None
    found |= {"asked_memory": last and last.asked_memory, "asked_s": last and last.asked_s}
    found["last"] = last and datetime.datetime.fromtimestamp(last.ended).isoformat(" ", "seconds")
    return found


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Quantiles for people."""
    return {
        "memory p50": _bytes(row["memory_p50"]),
        "p95": _bytes(row["memory_p95"]),
        "max": _bytes(row["memory_max"]),
        "asked": _bytes(row["asked_memory"]),
        "time p50": _time(row["run_time_s_p50"]),
        "time max": _time(row["run_time_s_max"]),
        "asked time": _time(row["asked_s"]),
        "threads": row["threads_p50"] if row["threads_p50"] is None else f"{row['threads_p50']:.1f}",
    }


def _whole(run: StageUsage) -> dict[str, Any]:
    return {
        "run": run.run.partition("@")[0],
        "tasks": run.tasks,
        "width": run.width,
        "took": brief(run.run_time_s),
        "queue wait": _time(run.wait_s),
        "core-hours": run.core_hours,
        "failures": run.failures,
    }


def _bytes(count: float | None) -> str | None:
    return None if count is None else size(int(count))


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else brief(seconds)


def _span(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "unknown"
    return size(least) if least == most else f"{size(least)} to {size(most)}"
