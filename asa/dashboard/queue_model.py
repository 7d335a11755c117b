"""A queue of jobs that share cores as the page shows it: a fold of the entries of its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asa.dashboard.document import Document, plain

Entry = Mapping[str, Any]
"""``at`` [s], and either an ``event`` of a job or a ``decision`` about one."""

_DECIDED = ("Start", "StartGuest", "SetShare", "Evict", "Keep")


class QueueModel:
    """A queue so far; `on` folds one more entry in. Times count from the queue's start [s]."""

    def __init__(self) -> None:
        self.last = 0.0
        self._jobs: dict[str, dict[str, Any]] = {}
        self._decisions: dict[str, dict[str, Any]] = {}

    over = False
    """Never known: a queue is resumed under the same log."""
    bars = 0

    def on(self, entry: Entry) -> None:
        """Fold an entry; what it does not know of changes nothing."""
        at = float(entry["at"])
        self.last = max(self.last, at)
        if (decision := entry.get("decision")) in _DECIDED:
            self._decisions[str(len(self._decisions))] = _decision(entry)
            self._decided(decision, entry, at)
        elif job := entry.get("job"):
            self._happened(entry, str(job), at)

    def document(self, now: float, *, past: bool = False) -> Document:
        """The queue's tables: all that is shown of one is in its log."""
        states = [job["state"] for job in self._jobs.values()]
        counts = {state: states.count(state) for state in ("running", "ended", "failed", "waiting")}
        return {"queue": counts, "queued": dict(self._jobs), "decisions": dict(self._decisions)}

    def bars_from(self, first: int) -> list[list[float]]:
        """None: jobs are what is drawn of a queue."""
        return []

    def _decided(self, decision: str, entry: Entry, at: float) -> None:
        match decision:
            case "Start":
                self._enter(str(entry["job"]), at, None, 1.0)
            case "StartGuest":
                self._enter(str(entry["job"]), at, str(entry["host"]), entry.get("share"))
            case "SetShare":
                host = self._host(str(entry["guest"]))
                self._enter(str(entry["guest"]), at, host, entry.get("share"))
            case "Evict":
                self._leave(str(entry["guest"]), at, "waiting")

    def _host(self, name: str) -> str | None:
        stays = self._job(name)["stays"]
        host: str | None = stays[-1]["host"] if stays else None
        return host

    def _happened(self, entry: Entry, name: str, at: float) -> None:
        match entry.get("event"):
            case "started":
                self._jobs[name] = self._job(name) | {"nodes": list(entry.get("nodes", ()))}
            case "requeued":
                self._leave(name, at, "waiting")
            case "ended":
                problem = str(entry.get("problem") or "")
                self._leave(name, at, "failed" if problem else "ended")
                found = {name: plain(entry.get(name)) for name in ("run_time_s", "alone_s", "slowdown")}
                loss = {name: plain(value) for name, value in (entry.get("loss") or {}).items()}
                self._jobs[name] = self._job(name) | found | {"problem": problem, "loss": loss}

    def _job(self, name: str) -> dict[str, Any]:
        return self._jobs.get(name, {"state": "waiting", "stays": [], "nodes": []})

    def _enter(self, name: str, at: float, host: str | None, share: float | None) -> None:
        """It has these cores from now on. Rows are made anew, never changed: somebody may have been shown the old."""
        stays = [*self._left(name, at), {"since": plain(at), "until": None, "host": host, "share": plain(share)}]
        self._jobs[name] = self._job(name) | {"state": "running", "stays": stays}

    def _leave(self, name: str, at: float, state: str) -> None:
        self._jobs[name] = self._job(name) | {"state": state, "stays": self._left(name, at)}

    def _left(self, name: str, at: float) -> list[dict[str, Any]]:
        stays: list[dict[str, Any]] = self._job(name)["stays"]
        return [stay if stay["until"] is not None else stay | {"until": plain(at)} for stay in stays]


def _decision(entry: Entry) -> dict[str, Any]:
    """A row of the table of decisions; `happiness` is that of the job whose cores it was about, None where infinite."""
    why = entry.get("why") or {}
    state = why.get("state") or {}
    return {
        "at": plain(entry["at"]),
        "decision": entry["decision"],
        "job": entry.get("job") or entry.get("guest"),
        "host": entry.get("host"),
        "share": plain(entry.get("share")),
        "hard": bool(entry.get("hard")),
        "measured": "happiness" in state,
        "happiness": plain(state.get("happiness")),
        "why": dict(why),
    }
