"""GPUs: found, named, and shown to those that they were given to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.log.gpus import doctor_rows, found, usable, visible


def test_devices_of_a_machine_are_found(tmp_path: Path) -> None:
    assert found({}, str(tmp_path)) == ()
    for node, number in ("0", "0"), ("1", "4711"), ("2", "4712"):
        topology = tmp_path / "sys/class/kfd/kfd/topology/nodes" / node
        topology.mkdir(parents=True)
        (topology / "gpu_id").write_text(f"{number}\n")
    assert found({}, str(tmp_path)) == ("0", "1"), "AMD's; the first is the processor"
    (tmp_path / "dev").mkdir()
    for name in "nvidia0", "nvidia3", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null":
        (tmp_path / "dev" / name).touch()
    assert found({}, str(tmp_path)) == ("0", "1", "2"), "CUDA counts those that are there"
    assert found({"CUDA_VISIBLE_DEVICES": "GPU-5f,GPU-7e"}, str(tmp_path)) == ("GPU-5f", "GPU-7e")
    assert found({"CUDA_VISIBLE_DEVICES": ""}, str(tmp_path)) == (), "none may be used"


def test_what_comes_after_no_device_is_not_seen() -> None:
    assert [usable(4, {"CUDA_VISIBLE_DEVICES": names}) for names in ("", "NoDevFiles", "2,-1,3", "1, 2")] == [
        (), (), ("2",), ("1", "2"),
    ]  # fmt: skip


GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
ABOVE_ROCR = ("HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


@given(kinds=st.sets(st.sampled_from(GPUS + ABOVE_ROCR), min_size=1), counts=st.lists(st.integers(1, 4), min_size=1))
def test_every_variable_names_the_devices_of_a_task_alone(kinds: set[str], counts: list[int]) -> None:
    """Those that count what another shows begin at 0; and what a task starts finds the same."""
    total = sum(counts)
    environ = {kind: ",".join(f"{kind[:2]}{number}" for number in range(total)) for kind in kinds}
    left, seen = list(usable(total, environ)), []
    for count in counts:
        mine, left = left[:count], left[count:]
        seen.append(visible(mine, environ))
        assert usable(total, environ | seen[-1]) == tuple(mine) or not kinds & set(GPUS)
        assert len(usable(total, environ | seen[-1])) == count
    for kind in kinds:
        if kind in ABOVE_ROCR and "ROCR_VISIBLE_DEVICES" in kinds:
            assert [each[kind] for each in seen] == [",".join(map(str, range(count))) for count in counts]
        else:
            assert ",".join(each[kind] for each in seen) == environ[kind]
    assert usable(total, environ | visible([], environ)) == ()


def test_on_amd_alone_cuda_counts_what_rocm_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "0,1,2")
    there = {"/dev/kfd"}
    monkeypatch.setattr(os.path, "exists", there.__contains__)
    assert visible(["2"], environ) == {"CUDA_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "2"}
    there.add("/dev/nvidiactl")
    assert visible(["2"], environ) == {"CUDA_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "2"}


def test_doctor_says_which_gpus_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in GPUS + ABOVE_ROCR:
        monkeypatch.delenv(kind, raising=False)
    assert len(list(doctor_rows())) == bool(found({}))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,3")
    (row,) = doctor_rows()
    assert row["found"].endswith("by ROCR_VISIBLE_DEVICES=0,3")
