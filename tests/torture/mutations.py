"""Does `asa torture` see it when a safeguard is gone? ``python -m tests.torture.mutations [NAME ...]`` finds out.

Each mutation drops one safeguard of a copy of the product. It counts as found when a schedule fails within `--time`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Mutation:
    """What is dropped, and how: in this file, this text becomes another."""

    name: str
    path: str
    old: str
    new: str
    site: str = "runs"


WATCH, RUNNER, RUN = "asa/allocations/watch.py", "asa/workflows/runner.py", "asa/core/run.py"
HUB, SUPERVISOR, POOL, WIRE = (f"executors/{name}.py" for name in ("hub", "supervisor", "worker_pool", "wire"))
EVENTS, ASSIGNMENT, DATABASE = "asa/log/events.py", "executors/assignment.py", "asa/log/database.py"
PLACES, PLAN, RUNNING = "asa/strategies/places.py", "asa/workflows/plan.py", "asa/log/running.py"

MUTATIONS = (
    Mutation(
        "a task with checkpoints begins where it began before",
        RUNNING,
        "return self._version(max(numbers)) if numbers else None",
        "return self._version(min(numbers)) if numbers else None",
    ),
    Mutation(
        "a task that saves nothing goes on for ever",
        RUN,
        "if paused.stalled_s >= STALLED_SHARE * stage.spec.walltime_s or paused.stalls >= STALLED_MOST:",
        "if False:",
    ),
    Mutation(
        "the time of a task that is lost with its node is not counted",
        RUNNER,
        "if began >= event.at and held is not None",
        "if False and held is not None",
    ),
    Mutation(
        "a submission without an answer is sent again unasked",
        WATCH,
        "unsure = [request.token for request in requests if request.token in self._doubtful]",
        "unsure = []",
    ),
    Mutation("jobs in doubt are not looked for at a resume", WATCH, "self._to_find.update(unsure)", "pass"),
    Mutation("jobs that are found count as never submitted", WATCH, "if token in found:", "if False:"),
    Mutation(
        "a requeued job goes unnoticed",
        WATCH,
        "if job.state is JobState.RUNNING and status.state is JobState.PENDING:",
        "if False:",
    ),
    Mutation(
        "a job that the controller has forgotten is waited for",
        WATCH,
        "        if status.state.final:\n",
        "        if status.state.final and status.state is not JobState.LOST:\n",
    ),
    Mutation(
        "an error of the batch system ends the watch",
        WATCH,
        "            except Exception as error:  # of whatever backend",
        "            except KeyError as error:  # of whatever backend",
    ),
    Mutation(
        "a cancellation counts as made before it is",
        WATCH,
        "            handles = list(self._to_cancel)\n",
        "            handles, self._to_cancel = list(self._to_cancel), []\n",
    ),
    Mutation("any number of calls may be made", WATCH, "        if self._budget is None:\n", "        if True:\n"),
    Mutation(
        "what is done is logged afterwards",
        RUNNER,
        "        self._record(events)\n        if requests :=",
        "        for _, effect in steps:\n            effect()\n        steps = []\n"
        "        self._record(events)\n        if requests :=",
    ),
    Mutation(
        "jobs are submitted before it is logged",
        RUNNER,
        "        self._record(events)\n        if requests := [event.request for event in events "
        "if isinstance(event, Submitting)]:\n            self.watch.submit(requests)"
        "  # together: elements of a job array are submitted as one\n",
        "        if requests := [event.request for event in events if isinstance(event, Submitting)]:\n"
        "            self.watch.submit(requests)\n"
        "            self.clock.wait(threading.Event(), self.clock.now() + 1.0)\n"
        "        self._record(events)\n",
    ),
    Mutation(
        "ends are acknowledged before they are logged",
        RUNNER,
        "            self._record(self._with_kept(events))\n            if self._leaving:\n                return\n"
        "            for call in logged:\n                call()\n",
        "            for call in logged:\n                call()\n"
        "            self.clock.wait(threading.Event(), self.clock.now() + 0.5)\n"
        "            self._record(self._with_kept(events))\n",
    ),
    Mutation(
        "a cancellation of an earlier driver is not repeated",
        RUNNER,
        "            if item.cancelled is not None and item.handle is not None:\n",
        "            if False:\n",
    ),
    Mutation(
        "outcomes that were kept without a driver are not read",
        HUB,
        "in recovered(context.directory, allocation):",
        "in ():",
    ),
    Mutation(
        "tasks of an earlier driver are not taken over",
        RUNNER,
        "self.executor.adopt(tasks, allocation, held.away)",
        "self.executor.adopt([], allocation, held.away)",
    ),
    Mutation(
        "a node that joins too late stays",
        RUNNER,
        "        if held is None or held.released is not None:\n            self._release(allocation)\n",
        "        if held is None or held.released is not None:\n            pass\n",
    ),
    Mutation(
        "a cancellation that was not taken is not waited for",
        RUNNER,
        "(LATEST_S - CLOSING_S if self.watch.busy else 0.0)",
        "0.0",
    ),
    Mutation(
        "tasks of a lost node are not reported",
        HUB,
        "            self._events.append(lost_event(gone, peer.allocation, node.name, peer.reason, now))\n",
        "",
    ),
    Mutation(
        "tickets of all drivers are the same",
        HUB,
        "itertools.count(int(host.time() * 1e9))",
        "itertools.count(1)",
    ),
    Mutation(
        "a supervisor does not learn what is wanted of an earlier driver's orders",
        HUB,
        "            self._send(peer, KeepOrders(wanted))\n",
        "            pass\n",
    ),
    Mutation("silent nodes are never given up", HUB, "if now - peer.heard > peer.patience:", "if False:"),
    Mutation(
        "a supervisor waits for a driver for ever",
        SUPERVISOR,
        "            if now >= self._served + self._grace:\n",
        "            if False:\n",
    ),
    Mutation(
        "outcomes are forgotten when they are sent",
        SUPERVISOR,
        "            self._send(TaskReport(outcomes, returned))\n        elif",
        "            self._send(TaskReport(outcomes, returned))\n            self._owed.move([item.ticket for item in "
        'outcomes], "logged")\n        elif',
    ),
    Mutation(
        "tasks end with their driver",
        SUPERVISOR,
        "        if self._pool and not self._keeps:\n            self._pool.close()\n"
        "            self._pool = None\n\n    def _signalled",
        "        if self._pool:\n            self._pool.close()\n            self._pool = None\n\n    def _signalled",
    ),
    Mutation(
        "the death of a worker is not reported",
        POOL,
        "                    self._outcomes.append(died)\n",
        "                    pass\n",
    ),
    Mutation(
        "orders behind a dead worker's are lost",
        POOL,
        "            self._queue.extendleft(reversed(left))\n            self._free(slot)\n        self._idle =",
        "            self._free(slot)\n        self._idle =",
    ),
    Mutation(
        "what was sent in part is not sent on",
        WIRE,
        "                self._out[0] = head[sent:]",
        "                self._out.popleft()",
    ),
    Mutation("what came in part is dropped", WIRE, "        del self._in[:at]\n", "        self._in.clear()\n"),
    Mutation(
        "a flipped bit of a result is not seen",
        EVENTS,
        "if value is None or (self._checked and _result_crc(stage, index, data, path) != crc):",
        "if value is None:",
    ),
    Mutation(
        "two drivers write one log",
        EVENTS,
        "if self._known is not None and last != self._known:",
        "if False:",
    ),
    Mutation(
        "a job may be submitted before the disk has it",
        EVENTS,
        "transaction(lasting=lasting)",
        "transaction()",
    ),
    Mutation(
        "an order is claimed whatever its input was",
        ASSIGNMENT,
        "if order is None or order.identity != item.identity:",
        "if order is None:",
    ),
    Mutation(
        "a failure of the nodes is the task's own",
        HUB,
        "node, now, error, infrastructure=True)",
        "node, now, error, infrastructure=False)",
    ),
    Mutation(
        "a lesson that fails ends the run",
        "asa/workflows/learned.py",
        "    except Exception as error:  # an estimator may raise anything\n",
        "    except KeyError as error:\n",
    ),
    Mutation(
        "what was learned is locked while a lesson is made up, or imported for",
        DATABASE,
        "for _ in range(TRIES):",
        "for _ in range(0):",
    ),
    Mutation(
        "what others have learned meanwhile is overwritten",
        DATABASE,
        "if connection.execute(_READ, (key,)).fetchone() == before:",
        "if True:",
    ),
    Mutation(
        "elements of an array start out of order",
        PLACES,
        "            if front is not None:\n                largest",
        "            if False:\n                largest",
    ),
    Mutation(
        "an allocation ends well without a driver, and its dependants start early",
        SUPERVISOR,
        "            return NO_DRIVER\n",
        "            return 0\n",
    ),
    Mutation(
        "an allocation is released under tasks of other stages",
        PLAN,
        '        if any(not self.stages[name].state.final for name, _ in held.running):\n            return ""\n'
        "        if self._is_beaten(held):",
        "        if self._is_beaten(held):",
    ),
    Mutation(
        "the clock of a driver goes back",
        "asa/core/clock.py",
        "self._offset = max(self._offset, self._wall() - steady)",
        "self._offset = self._wall() - steady",
    ),
    *(
        Mutation(name, f"executors/mesos/{path}", old, new, "mesos")
        for name, path, old, new in (
            (
                "what is sent does not wait for the journal",
                "commit.py",
                "        if self._holding or self._held:\n",
                "        if False:\n",
            ),
            (
                "offers are not taken back when their agent is gone",
                "master/agents.py",
                "    agent.stream = None\n    for offer in list(agent.offers.values()):\n"
                "        offers.rescind(core, offer)\n\n\ndef watch",
                "    agent.stream = None\n\n\ndef watch",
            ),
            (
                "an ACCEPT of void offers is not answered",
                "master/launch.py",
                '            _refuse(core, framework, info, state, "REASON_INVALID_OFFERS", text=text)\n',
                "            pass\n",
            ),
            (
                "more is launched than was offered",
                "master/launch.py",
                "            if not rest.covers(launch.takes):\n",
                "            if False:\n",
            ),
            (
                "reconciliation answers nothing",
                "master/tasks.py",
                "    for task_id, agent_id in dict.fromkeys(asked):\n",
                "    for task_id, agent_id in dict.fromkeys(asked[:0]):\n",
            ),
            (
                "an ACCEPT lost with its stream is not answered: reconciliation leaves out what is not known",
                "master/tasks.py",
                "    _answer(core, framework, task_id, agent_id, state_for(framework, state), text=text)\n",
                "",
            ),
            (
                "calls of an earlier stream are taken",
                "master/machine.py",
                "        if stream != framework.stream:\n",
                "        if False:\n",
            ),
            (
                "tasks of an agent that is out of reach are not reported",
                "master/agents.py",
                "        tasks.send_status(core, framework, task, status)\n    else:\n",
                "        pass\n    else:\n",
            ),
            (
                "an end that was not acknowledged is forgotten with its agent",
                "master/agents.py",
                "    else:\n        tasks.resend_end(core, framework, task)\n    keep_task",
                "    keep_task",
            ),
            (
                "tasks that an agent does not have are waited for",
                "master/agents.py",
                "            _drop_missing(core, agent, task)\n",
                "            pass\n",
            ),
            (
                "a task that has ended comes back to life",
                "master/tasks.py",
                "    if state not in TRANSITIONS[task.state]:\n        return\n",
                "",
            ),
            (
                "updates are not sent to a scheduler that comes back",
                "master/frameworks.py",
                "        if task.pending is not None:\n",
                "        if False:\n",
            ),
            (
                "offers that are refused for no time come back at once",
                "master/offers.py",
                "refusal(call) or core.state.options.allocate_s",
                "refusal(call)",
            ),
            (
                "silent agents are never given up",
                "master/agents.py",
                "    if agent.unanswered >= core.state.options.pings:\n",
                "    if False:\n",
            ),
            (
                "a framework's time goes on while there is no master",
                "master/core.py",
                "        framework.disconnected = state.started\n",
                "        framework.disconnected = framework.disconnected or state.started\n",
            ),
            (
                "an end that is on its way is answered as running",
                "master/tasks.py",
                "core.state.agents and not is_ending(task):",
                "core.state.agents:",
            ),
            (
                "what a removed framework's tasks take is free at once",
                "master/frameworks.py",
                "            if agent is not None:\n                tasks.hold_orphan",
                "            if False:\n                tasks.hold_orphan",
            ),
            (
                "a framework that does not come back is kept",
                "master/frameworks.py",
                '        remove(core, framework, "Framework did not come back within its failover timeout")\n',
                "        pass\n",
            ),
            (
                "an agent sends no update twice",
                "agent/tasks.py",
                "                send_update(core, task)\n\n\ndef retry_update",
                "                pass\n\n\ndef retry_update",
            ),
            (
                "an agent launches again what it is sent again",
                "agent/tasks.py",
                "        unknown.pop(id, None)\n",
                "        pass\n",
            ),
            (
                "an agent that starts again does not look after its containers",
                "agent/machine.py",
                "        return list(self._ran)\n",
                "        return []\n",
            ),
            (
                "what was starting when its agent died goes on",
                "agent/containers.py",
                "                self._node.kill_sessions({pid})\n",
                "                pass\n",
            ),
            (
                "containers that ended first are forgotten before what was starting is looked for",
                "agent/containers.py",
                "        await asyncio.to_thread(self._sweep)\n",
                "        asyncio.get_running_loop().call_later(3.0, self._sweep)\n",
            ),
            (
                "each of several containers starts a shim",
                "agent/containers.py",
                "        async with self._opening:  # of several containers, one has a new shim started\n",
                "        if True:\n",
            ),
            (
                "a container whose shim died before it could say so goes on",
                "agent/containers.py",
                "        if not running.pid:  # its shim",
                "        if False:  # its shim",
            ),
            (
                "containers outlive their agent's grace",
                "agent/shim.py",
                "        self.node_kill(set(self._containers))\n",
                "        pass\n",
            ),
            (
                "who does not heed SIGTERM goes on",
                "agent/containers.py",
                "                await asyncio.to_thread(self._kill, running)\n\n",
                "                pass\n\n",
            ),
            (
                "a driver does not acknowledge",
                "driver.py",
                "            self.acknowledgeStatusUpdate(found.arguments[0])\n",
                "            pass\n",
            ),
            (
                "a task out of reach is to end, over and over",
                "framework.py",
                '            return [] if state in _OVER or state == "TASK_UNREACHABLE" else [Kill(task, agent)]\n',
                "            return [] if state in _OVER else [Kill(task, agent)]\n",
            ),
            (
                "a gang takes each piece of an agent by itself",
                "framework.py",
                "first_fit(attempt.gang, together(self._held.values()), now)",
                "first_fit(attempt.gang, list(self._held.values()), now)",
            ),
            (
                "a gang of which a member does not start goes on",
                "framework.py",
                "        if bad and attempt.phase is GangPhase.LAUNCHING:\n",
                "        if False:\n",
            ),
        )
    ),
)


def main(words: list[str]) -> int:
    """Try all mutations, or those whose names contain one of these words; a line each."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="NAME", help="only mutations whose names contain this")
    parser.add_argument("--time", default="5m", metavar="T", help="for each (5m)")
    parser.add_argument("--seed", default="1", metavar="N", help="of the first schedule (1)")
    options = parser.parse_args(words)
    chosen = [one for one in MUTATIONS if not options.words or any(word in one.name for word in options.words)]
    found = 0
    for mutation in chosen:
        began, why = time.monotonic(), failure(mutation, options.time, options.seed)
        found += bool(why)
        print(
            f"{'found' if why else 'NOT FOUND':9} {time.monotonic() - began:4.0f} s  {mutation.name}: {why}", flush=True
        )
    print(f"{found} of {len(chosen)} found")
    return 0 if found == len(chosen) else 1


def failure(mutation: Mutation, seconds: str, seed: str) -> str:
    """What the first schedule that fails says; "" when none does within this time."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for package in ("asa", "executors", "coscheduler"):
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        text = (copy / mutation.path).read_text()
        if text.count(mutation.old) != 1:
            raise SystemExit(f"{mutation.name}: {mutation.path} does not have this text once: {mutation.old!r}")
        (copy / mutation.path).write_text(text.replace(mutation.old, mutation.new))
        words = ["--site", mutation.site, "--until-failure", "--time", seconds, "--seed", seed]
        command = [sys.executable, "-m", "asa", "torture", *words]
        outcome = copy / "outcome.json"
        done = subprocess.run(
            [*command, "--json", str(outcome)],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or not outcome.exists():
            raise SystemExit(f"{mutation.name}: torture itself fails: {done.stderr[-300:]}")
        failed = json.loads(outcome.read_text())["failed"]
        return f"seed {failed[0]['seed']}: {failed[0]['violations'][0][:120]}" if failed else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
