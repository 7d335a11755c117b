"""GPUs of a real Slurm whose devices are not: each task has its own, and no two tasks the same."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import host
from tests.cluster.cluster import Cluster, running
from tests.executors.mpi import needs_mpirun
from tests.integration.shell import Outcome, Shell

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(200)]

FLOWS = Path(__file__).with_name("gpu_flows.py")
GPUS = ("a100:2", "a100:2", "3")
"""Of the first nodes; the last has none."""
CUDA = "CUDA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes of four cores."""
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    with running(host.configure(tmp_path_factory.mktemp("gpus"), cores_per_node=4, gpus=GPUS, lanes=True)) as cluster:
        yield cluster


def run(shell: Shell, flow: str, *sizes: str, executor: str = "mesos", **options: str) -> Outcome:
    words = [word for size in (f"folder={shell.folder}", *sizes) for word in ("--set", size)]
    words += [word for name, value in options.items() for word in (f"--{name}", value)]
    outcome = shell.asa("run", f"{FLOWS}:{flow}", "--backend", "slurm:poll_s=1", "--executor", executor, *words)
    assert outcome.code == 0, outcome.err
    return outcome


def value(outcome: Outcome) -> object:
    return ast.literal_eval(outcome.out.strip().splitlines()[-1])


@pytest.mark.parametrize("executor", ["mesos", "local", "dask"])
def test_all_devices_of_two_nodes_are_used_at_once_each_by_one_task(shell: Shell, executor: str) -> None:
    found = value(run(shell, "tasks", "nodes=2", "together=4", executor=executor))
    assert isinstance(found, list)
    assert [len(each) for each in found] == [1, 1, 1, 1]
    seen = Counter(device.split()[0] for each in found for device in each)
    assert sorted(seen.values()) == [2, 2] and len({device for (device,) in found}) == 4


@pytest.mark.parametrize("executor", ["mesos", "local", "dask"])
def test_more_tasks_than_devices_take_turns(shell: Shell, executor: str) -> None:
    """Four cores, two devices: two tasks at a time, none with a device that another holds."""
    found = value(run(shell, "tasks", "count=9", "gpus=2", "together=2", executor=executor))
    assert isinstance(found, list)
    assert {len(each) for each in found} == {1}
    assert len({device for (device,) in found}) == 2


def test_a_task_has_whole_devices_and_one_without_gpus_sees_none(shell: Shell) -> None:
    outcome = run(shell, "tasks", "count=3", "cores=1", "gpus=3")
    found = value(outcome)
    assert isinstance(found, list)
    node = found[0][0].split()[0]
    assert found == [[f"{node} {device}" for device in "012"]] * 3, "the only node with three"
    assert node == shell.cluster.nodes[2]


def test_a_stage_without_gpus_sees_none_of_those_beside_it(shell: Shell) -> None:
    outcome = run(shell, "beside", strategy="big-job")
    assert value(outcome)[1] == [1, 0]
    assert len(outcome.data["jobs"]) == 1


def test_devices_that_do_not_divide_over_the_nodes(shell: Shell) -> None:
    """Two on each are asked for, because Slurm does not give all of the others to steps; three tasks run at a time."""
    outcome = run(shell, "tasks", "nodes=2", "count=3", "gpus=3", "together=3")
    found = value(outcome)
    assert isinstance(found, list)
    assert len({device for (device,) in found}) == 3 and len({device.split()[0] for (device,) in found}) == 2
    (job,) = outcome.data["jobs"]
    said = shell.cluster.job(job["job_id"])
    assert "gpu:2" in said["TresPerNode"]


def test_more_devices_than_a_node_has_are_on_several(shell: Shell) -> None:
    found = value(run(shell, "tasks", "count=4", "cores=4", "gpus=4", "together=4"))
    assert isinstance(found, list)
    assert len({device for (device,) in found}) == 4


def test_two_allocations_on_a_node_hold_other_devices(shell: Shell) -> None:
    run(shell, "two", "together=2")


@pytest.mark.parametrize("flow", ["ranks", "program"])
def test_ranks_see_the_devices_of_their_node(shell: Shell, flow: str) -> None:
    outcome = shell.asa("run", f"{FLOWS}:{flow}", "--backend", "slurm:poll_s=1")
    assert outcome.code == 0, outcome.err
    assert "0,1" in outcome.out and "0,1," not in outcome.out, outcome.out


@pytest.mark.parametrize("launcher", ["srun", pytest.param("mpirun --mca btl tcp,self", marks=needs_mpirun)])
def test_two_tasks_with_launchers_never_see_the_same_devices(shell: Shell, launcher: str) -> None:
    outcome = run(shell, "side_by_side", f"launcher={launcher}", strategy="big-job")
    found = value(outcome)
    assert isinstance(found, list)
    assert len(outcome.data["jobs"]) == 1
    assert [[device.split()[1] for device in each] for each in found] == [["0", "1"]] * 2, "rank 0's node"


def test_a_task_that_needs_more_than_a_node_has_is_refused(shell: Shell) -> None:
    outcome = shell.asa("run", f"{FLOWS}:tasks", "--backend", "slurm", "--set", "cores=1")
    assert outcome.code == 1
    assert "a task of stage 'use' needs 4 GPUs on one node, and nodes of asa have 3 at most" in outcome.err


KINDS = ("mi300:2", "max:2", "2")
"""Of AMD, of Intel, and of a type that Slurm does not know."""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each with GPUs of another kind."""
    reason = host.obstacle()
    if reason is not None:
        pytest.skip(reason)
    with running(host.configure(tmp_path_factory.mktemp("kinds"), nodes=3, gpus=KINDS, lanes=True)) as cluster:
        yield cluster


AMD, INTEL, OPENCL = "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL"
SEEN = (
    ({AMD: "{}"}, {AMD: ""}),
    ({INTEL: "{}"}, {INTEL: "-1"}),
    ({CUDA: "{}", AMD: "{}", INTEL: "{}", OPENCL: "0"}, {CUDA: "-1", AMD: "", INTEL: "-1", OPENCL: "-1"}),
)
"""By node: what tasks with a device find, and tasks without one."""


@pytest.mark.parametrize(("node", "executor"), [(0, "mesos"), (1, "mesos"), (2, "mesos"), (2, "local"), (2, "dask")])
def test_tasks_learn_their_devices_from_the_variables_that_slurm_sets(
    kinds: Cluster, tmp_path: Path, node: int, executor: str
) -> None:
    seen, none = SEEN[node]
    shell = Shell(kinds, tmp_path)
    options = ["--backend", f"slurm:poll_s=1,partition={kinds.config.lane(node)}", "--executor", executor]
    outcome = shell.asa("run", f"{FLOWS}:kinds", "--set", f"folder={tmp_path}", "--strategy", "big-job", *options)
    assert outcome.code == 0, outcome.err
    first, second = value(outcome)
    device = sorted(first, key=str)
    assert device == [{name: text.format(number) for name, text in seen.items()} for number in (0, 1)]
    assert second == none


def test_doctor_says_what_there_is(shell: Shell) -> None:
    said = shell.asa("doctor", "--backend", "slurm").out
    assert "2 x 4 cores, 4096 MiB, 2 GPUs (2 a100); 1 x 4 cores, 4096 MiB, 3 GPUs; 1 x 4 cores" in said
    cpus = shell.cluster.config.lane(3)
    said = shell.asa("doctor", "--backend", f"slurm:partition={cpus}").out
    assert f"nodes of {cpus}, idle" in said and "2 GPUs (2 a100)" in said, "where there are GPUs is said all the same"
