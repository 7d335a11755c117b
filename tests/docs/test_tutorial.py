"""The tutorial, done: on this machine here, and its last part on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.docs.blocks import Step, follow, read, steps

pytest_plugins = ("tests.cluster.fixtures",)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HERE, CLUSTER = read("tutorial.md").split("## 6. ")
CLUSTER = CLUSTER.split("## Where to go")[0]


def test_its_first_five_parts_do_what_they_say(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert follow(HERE, tmp_path) == 24
    assert "<svg" in (tmp_path / "first.html").read_text()


@pytest.mark.slurm
@pytest.mark.root
def test_its_last_part_does_on_a_cluster(slurm_cluster: Cluster, tmp_path: Path) -> None:
    files = [step for step in steps(HERE) if step.file]
    for step in files:
        (tmp_path / step.file).write_text(step.text)
    assert follow(CLUSTER, tmp_path, {"SLURM_CONF": str(slurm_cluster.config.slurm_conf)}) == 4
    assert "<svg" in (tmp_path / "cluster.html").read_text()


def test_what_is_not_done_is_the_installation_only() -> None:
    assert [step.language for step in steps(HERE + CLUSTER) if step.language not in ("python", "console")] == ["sh"]
    assert Step("sh", steps(HERE)[0].text) == steps(HERE)[0]
