"""What tasks print on the nodes of a real cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from asa.core.event import TaskFailed, TasksLaunched
from tests.cluster.processes import wait_until
from tests.integration.shell import Shell

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]

FLOWS = Path(__file__).with_name("log_flows.py")
OPTIONS = ("--quiet", "--backend", "slurm:poll_s=1", "--strategy", "per-stage")


@pytest.mark.parametrize("executor", ["mesos", "local"])
def test_what_nodes_print_is_shown_by_task(shell: Shell, executor: str) -> None:
    done = shell.asa("run", f"{FLOWS}:speaking", *OPTIONS, "--executor", executor)
    assert done.code == 0, done.err
    rows = shell.asa("logs", shell.run).data["rows"]
    said: dict[tuple[str, int], list[str]] = {(row["stage"], row["index"]): [] for row in rows}
    for row in rows:
        said[row["stage"], row["index"]].append(row["text"])
    nodes = {row["index"]: row["node"] for row in rows if row["stage"] == "speak"}
    assert len(set(nodes.values())) == 2, "one on each node"
    assert said == {
        **{("speak", i): [f"number {i} on {node}", "and standard error"] for i, node in nodes.items()},
        **{("make", i): [f"made {i}"] for i in (0, 1)},
    }


def test_ranks_that_srun_starts_are_heard(shell: Shell) -> None:
    done = shell.asa("run", f"{FLOWS}:ranks", *OPTIONS)
    assert done.code == 0, done.err
    rows = shell.asa("logs", shell.run, "rank[0]").data["rows"]
    assert sorted(row["text"].split(" on ")[0] for row in rows) == ["rank 0", "rank 1"]
    assert len({row["text"].split(" on ")[1] for row in rows}) == 2


def test_the_output_of_a_killed_node_ends_where_it_ends_and_says_so(shell: Shell) -> None:
    def supervisors() -> list[int]:
        found = [(each.pid, " ".join(each.info["cmdline"] or ())) for each in psutil.process_iter(["cmdline"])]
        return [pid for pid, words in found if "executors.supervisor" in words and str(shell.state) in words]

    with shell.started("run", f"{FLOWS}:waiting", *OPTIONS, "--executor", "local") as driver:
        shell.await_events(TasksLaunched)
        assert wait_until(lambda: (shell.folder / "tries").exists(), 60)
        assert wait_until(lambda: shell.beside("logs", shell.run).data["rows"] != [], 30), "while it runs"
        for pid in supervisors():
            os.kill(pid, signal.SIGKILL)
        done = shell.ended(driver)
    assert done.code == 0, done.err
    (failure,) = shell.events(TaskFailed)
    rows = shell.asa("logs", shell.run).data["rows"]
    assert [(row["attempt"], row["text"]) for row in rows] == [
        (1, "waiting 0"), (1, f"[its output ends here: {failure.error}]"), (2, "waiting 0"), (2, "waited 0"),
    ]  # fmt: skip
