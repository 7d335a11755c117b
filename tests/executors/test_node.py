import os
from pathlib import Path

from executors import node


def test_slurm_says_what_is_ours_and_the_machine_says_it_elsewhere() -> None:
    of_job = {"SLURM_CPUS_ON_NODE": "3", "SLURM_MEM_PER_NODE": "64", "SLURMD_NODENAME": "n3"}
    assert (node.cores(None, of_job), node.memory(None, of_job), node.name(of_job)) == (3, 64 << 20, "n3")
    assert node.cores(None, {}) == len(os.sched_getaffinity(0)) and node.name({})
    assert node.memory(None, {"SLURM_MEM_PER_NODE": "0"}) == node.memory(None, {}) > 1 << 27
    assert (node.cores(2, of_job), node.memory(5, of_job)) == (2, 5)


def test_what_comes_after_no_device_is_not_seen() -> None:
    assert [node.gpus(4, {"CUDA_VISIBLE_DEVICES": names}) for names in ("", "NoDevFiles", "2,-1,3", "1, 2")] == [
        (), (), ("2",), ("1", "2"),
    ]  # fmt: skip


def test_files_go_where_they_may(tmp_path: Path) -> None:
    slurms, users = tmp_path / "slurm", tmp_path / "user"
    environ = {"SLURM_TMPDIR": str(slurms), "TMPDIR": str(users)}
    assert node.scratch(environ) == "/tmp"
    users.mkdir()
    assert node.scratch(environ) == str(users)
    slurms.touch()
    assert node.scratch(environ) == str(users), "a file is no directory"
    slurms.unlink()
    slurms.mkdir()
    assert node.scratch(environ) == str(slurms)
