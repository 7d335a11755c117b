"""Damaged files: each reader gives what it can, or one clear error; never a hang, a traceback or a plan of nonsense."""

from __future__ import annotations

import copy
import gzip
import json
import math
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from asa.core.errors import AsaError, AsaWarning
from asa.lab.core.cluster import Cluster
from asa.lab.core.workload import Workload
from asa.lab.dispatchers.listplan import ListPlan
from asa.lab.dispatchers.planning.instance import read_instance
from asa.lab.dispatchers.planning.verify import violations
from asa.lab.placement.tjap.files import read_windows
from asa.lab.placement.tjap.free import Free
from asa.lab.placement.tjap.instance import cost
from asa.lab.placement.tjap.instance import violations as misplaced
from asa.lab.simulator.run import simulate
from asa.lab.traces.accounting import load_pbs, load_sacct
from asa.lab.traces.load import load_trace
from asa.lab.traces.records import Trace
from asa.lab.traces.site import UPPMAX, SiteModel
from asa.lab.traces.slurm import ASSOCIATION, read_slurm
from asa.lab.traces.swf import load_swf
from asa.lab.traces.wfformat import read_workflow
from asa.metrics.intensity import read_intensity

INPUTS = int(os.environ.get("ASA_FUZZ", "10000"))
"""How many damaged files are read, by all readers together; `make nightly` asks for more."""
WARM = 50  # cases at which what was read is used, too: it costs more than reading

ODD = (
    "nan", "inf", "-inf", "NaN", "Infinity", "-1", "0", "-0", "1e30", "1e308", "1e-320", "1e999", "9" * 30, "9" * 5000,
    "2.5", "true", "null", '""', "[]", "{}", "[[", "{{", '"', "\\", "\0", "\n", "\r", "|", ";", ",", ":", "=", "\x1f",
    "UNLIMITED", "9999999-00:00:00", "0000-00-00T00:00:00", "0001-01-01T00:00:00", "٣", "²", "\ud7ff", "A" * 200_000,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, -0.0, 1e-320, 1e30, 10**30, 2**53, 2**62, 2**63, 2**31, math.nan, math.inf,
    -math.inf, "", "x", "nan", [], [[]], {}, [1], {"a": 1}, [None], [0.5, 1],
)  # fmt: skip

JOBS = "".join(
    f"{k} {10 * k} {k} {100 + k} {1 + k % 4} -1 64 {1 + k % 4} {200 + k} -1 1 {k % 3} 1 {k % 2} 1 1 -1 -1\n"
    for k in range(1, 9)
)
SWF = f"; Version: 2.2\n; MaxNodes: 4\n; MaxProcs: 8\n; Partition: 1 batch\n{JOBS}"
SACCT = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Timelimit|ReqTRES|"
    "AllocTRES|Constraints\n"
    + "".join(
        f"{k}|{k}|run|u{k % 2}|bio|batch|normal|COMPLETED|2024-01-01T00:00:0{k}|2024-01-01T00:00:0{k}|"
        f"2024-01-01T00:01:00|2024-01-01T00:02:00|60|{'UNLIMITED' if k == 3 else '01:00:00'}|"
        "cpu=4,mem=8G,node=1,gres/gpu=2,gres/gpu:a100=2,gres/nvme=1|cpu=4,mem=8G,node=1,gres/gpu:a100=2|"
        f"{'a100|ib' if k % 2 else 'a100&ib'}\n"
        for k in range(1, 8)
    )
)
PBS = "".join(
    f"03/01/2024 12:0{k}:00;E;{k}.srv;user=u group=g jobname=j queue=q ctime=1709294400 qtime=1709294400 "
    f"etime=1709294400 start=170929446{k} exec_host=n/0 Resource_List.select=2:ncpus=8:mem=16gb "
    f"Resource_List.walltime=01:00:00 end=170929500{k} Exit_status=0 resources_used.walltime=00:09:00\n"
    for k in range(7)
)
WORKFLOW = json.dumps(
    {
        "name": "w",
        "workflow": {
            "specification": {
                "tasks": [
                    {"name": "a", "id": "a", "parents": [], "children": ["b"]},
                    {"name": "b", "id": "b", "parents": ["a"], "children": []},
                ]
            },
            "execution": {
                "makespanInSeconds": 9,
                "tasks": [
                    {"id": "a", "runtimeInSeconds": 3, "coreCount": 1, "memoryInBytes": 1024},
                    {"id": "b", "runtimeInSeconds": 4.5, "command": {"program": "/bin/b"}},
                ],
            },
        },
    }
)
SITE = json.dumps(
    {
        **UPPMAX.to_dict(),
        "classes": [
            *UPPMAX.to_dict()["classes"],
            {"share": 0.01, "cores": [16], "walltime_s": [3600], "unit": 16, "gpus": 1, "constraint": "a100&ib"},
            {"share": 0.01, "cores": [4], "walltime_s": [3600], "unit": 4, "gres": "gpu:a100:1,nvme:2"},
        ],
        "partitions": {"all": {"nodes": "n[0-485]", "max_time_s": 864000}},
        "windows": [
            {"start": 60, "end": 600, "nodes": "n[0-3,7]", "name": "pumps", "users": ["ann"]},
            {"start": "2026-11-27T08:00", "end": "2026-11-27T10:00+01:00"},
        ],
        "qos": {
            "normal": {
                "max_jobs_per_user": 9,
                "grp_cores": 900,
                "grp_memory": "64G",
                "max_nodes": 40,
                "max_time_s": 1e6,
                "grp_core_minutes": 10**10,
                "decays": False,
                "priority": 1,
                "preempt_mode": "requeue",
            },
            "high": {"preempts": ["normal"], "exempt_s": 60},
        },
        "requeue_delay_s": 121,
        "safe_limits": False,
        "accounts": {
            "a": {
                "shares": 3,
                "users": {"ann": 2},
                "grp_jobs": 90,
                "user_limits": {"ann": {"max_jobs": 5, "max_gpus": 0}},
            },
            "b": {"parent": "a", "grp_cores": 900, "grp_submit_jobs": 99, "max_submit_jobs": 9, "max_nodes": 60},
            "a:ann": {"parent": "a", "partition": "all", "users": {"ann": 1}, "grp_jobs": 3},
            "root": {"users": {"root": 1}},
        },
        "kinds": [
            {"nodes": "n[0-9]", "cores": UPPMAX.cores_per_node, "gpus": 4, "features": ["a100", "ib"]},
            {"nodes": "n[10-11]", "cores": 20, "gres": "gpu:a100:2,gpu:t4:4,nvme:8", "weight": 9},
        ],
        "power": {"idle_w": 90, "busy_w": 350.5, "off_w": 9, "off_after_s": 60},
        "intensity": 312,
    }
)
INTENSITY = "time,g_per_kwh\n# of the grid\n2026-11-27T08:00,312\n2026-11-27T10:00+01:00,287.5\n2026-11-28,1e2\n"
INSTANCE = json.dumps(
    {
        "resources": ["cores", "memory"],
        "cap": [[4, 8], [4, 8]],
        "shared": {"power": 100},
        "running": [{"rn": 2, "req": [2, 1], "end": 30, "alloc": [[0, 1], [1, 1]], "id": "r"}],
        "queue": [
            {"rn": 1, "req": [4, 2], "d": 60, "q": -5, "id": "a", "shared": {"power": 3}},
            {"rn": 3, "req": [1, 0], "d": 10, "q": 0},
        ],
    }
)
WINDOWS = json.dumps(
    {
        "leafsize": 2, "podsize": 4, "w": [1, 3, 5], "c": 10,
        "instances": [{"idle": [0, 1, 5, 6, 7, 9], "sizes": [2, 3]}],
    }
)  # fmt: skip
SLURM = (Path(__file__).parents[2] / "fixtures" / "slurm" / "22.05.txt").read_text() + (
    f"{'|'.join(ASSOCIATION)}|\nasa|root|||1|||||||||||||\n"
    "asa|bio|root||3|20|100|cpu=12,node=3,mem=64G,gres/gpu=2|5|50|cpu=8|cpu=9|"
    "cpu=99,gres/gpu=3|1-00:00:00|cpu=60|2-00:00:00||\n"
    "asa|bio||ann|parent|||cpu=4,mem=1.50G|0|||||||||\nasa|bio||ann|2|1|||||||||||fast|\n"
    "NodeName=c5 CPUTot=8 RealMemory=4096 Gres=gpu:a100:2(S:0-1),gpu:t4:1,nvme:2K,x:no_consume:1 Weight=7 State=IDLE\n"
)


def simulated(trace: Trace) -> None:
    """What a log gives can be simulated."""
    schedule = simulate(trace.workload, trace.machine(4, 8), "easy", predictor="oracle", keep_nodes=False)
    assert len(schedule.start) == len(trace.workload)


def planned(path: Path) -> Callable[[], None]:
    found = read_instance(path)

    def use() -> None:
        plan = ListPlan().solve(found, 0.0).plan
        assert plan is not None
        assert violations(found, plan) == []
        assert np.isfinite(plan.objective(found))

    return use


def put(path: Path) -> Callable[[], None]:
    windows = read_windows(path)

    def use() -> None:
        for window in windows:
            found = Free().place(window)
            assert misplaced(window, found) == []
            assert np.isfinite(cost(window, found))

    return use


def drawn(path: Path) -> Callable[[], object]:
    site = SiteModel.read(path)
    return lambda: site.workload(3600.0, 0)


def integrated(path: Path) -> Callable[[], object]:
    grid = read_intensity(path, 0.0)
    return lambda: grid.integral(grid.times) + grid.at(grid.times)


def run_as_slurm(path: Path) -> Callable[[], object]:
    found = read_slurm(path)
    jobs = Workload.of(submit=[0, 0, 1], run=[9, 9, 9], cores=[1, 1, 1], walltime=[9, 9, 9])
    return lambda: simulate(jobs, found.cluster, found.dispatcher, priority=found.priority)


def with_amounts(path: Path) -> Callable[[], object]:
    """Its jobs ask for memory, GPUs and features, too."""
    jobs = load_trace(path, "sacct", amounts=True).workload
    resources = ("cores", "memory", "gpus", "gpus:a100", "gres/nvme")
    machine = Cluster(np.tile([8, 2**36, 4, 2, 4], (4, 1)), resources, features={"a100": (0, 1), "ib": (1, 2)})
    return lambda: simulate(jobs, machine, "easy", predictor="oracle", keep_nodes=False)


def staged(path: Path) -> Callable[[], object]:
    return read_workflow(path).stages


def trace_of(load: Callable[[Path], Trace]) -> Callable[[Path], Callable[[], None]]:
    def read(path: Path) -> Callable[[], None]:
        found = load(path)
        return lambda: simulated(found)

    return read


class Reader(NamedTuple):
    text: str
    read: Callable[[Path], Callable[[], object]]
    """Reads a file, and returns what uses what was read."""


READERS = {
    "swf": Reader(SWF, trace_of(load_swf)),
    "sacct": Reader(SACCT, trace_of(load_sacct)),
    "sacct-amounts": Reader(SACCT, with_amounts),
    "pbs": Reader(PBS, trace_of(load_pbs)),
    "wfformat": Reader(WORKFLOW, staged),
    "site": Reader(SITE, drawn),
    "intensity": Reader(INTENSITY, integrated),
    "instance": Reader(INSTANCE, planned),
    "windows": Reader(WINDOWS, put),
    "slurm": Reader(SLURM, run_as_slurm),
}


def damaged(text: str, chance: random.Random) -> bytes:
    """The text with some bytes gone, doubled, changed or added; in JSON, perhaps with other values instead."""
    if text[0] == "{" and chance.random() < 0.6:
        document = json.loads(text)
        for _ in range(chance.choice((1, 1, 2, 3))):
            document = changed(document, chance)
        text = json.dumps(document)
        if chance.random() < 0.7:
            return text.encode(errors="surrogatepass")
    data = bytearray(text.encode())
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        at = chance.randrange(len(data) + 1)
        until = min(len(data), at + chance.choice((1, 1, 2, 5, 40)))
        match chance.randrange(6):
            case 0:
                del data[at:until]
            case 1:
                data[at:at] = data[at:until]
            case 2:
                data[at:until] = chance.choice(ODD).encode(errors="surrogatepass")
            case 3:
                data[at:at] = chance.choice(ODD).encode(errors="surrogatepass")
            case 4:
                data[at:until] = chance.randbytes(until - at)
            case _:
                words = bytes(data).replace(b"|", b" ").replace(b",", b" ").split() or [b"0"]
                word = chance.choice(words)
                where = data.find(word)
                data[where : where + len(word)] = chance.choice(ODD).encode(errors="surrogatepass")
    if chance.random() < 0.05:
        del data[chance.randrange(len(data) + 1) :]
    packed = gzip.compress(bytes(data), 1) if chance.random() < 0.05 else bytes(data)
    return packed[: chance.randrange(len(packed) + 1)] if packed[:1] == b"\x1f" and chance.random() < 0.5 else packed


def changed(document: Any, chance: random.Random) -> Any:
    """The same with one value, anywhere in it, replaced, missing, doubled, or under another key."""
    places = [(document, key) for key in document] if isinstance(document, dict) else []
    for holder, key in places:  # which grows
        child = holder[key]
        if isinstance(child, dict | list):
            places += [(child, each) for each in (child if isinstance(child, dict) else range(len(child)))]
    if not places:
        return copy.deepcopy(chance.choice(VALUES))
    holder, key = chance.choice(places)
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.append(holder[key])
        case 1 if isinstance(holder, dict):
            holder[key + chance.choice("xyz")] = holder.pop(key)
        case 2 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = holder[key] * chance.choice((-1, 0.5, 2, 1000, 2**40, 2**52))
        case _:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
    return document


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_words(name: str, tmp_path: Path) -> None:
    reader, path, used = READERS[name], tmp_path / f"{name}.txt", 0
    path.write_text(reader.text)
    reader.read(path)()  # as it is, it can be used
    share = INPUTS // len(READERS)
    for seed in range(share):
        data = damaged(reader.text, random.Random(f"{name} {seed}"))
        path.write_bytes(data)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", AsaWarning)  # of a number in a header that is passed over
                use = reader.read(path)
                if used < share // WARM or name in ("instance", "windows"):
                    used += 1
                    use()
        except AsaError as error:
            words = str(error)
            assert words.strip() and len(words) < 2000, f"seed {seed}"
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}: {data[:600]!r}") from error
    assert used >= share // WARM, "too few of the damaged files can still be read"
