"""``python -m tests.lab.simulator.compiled``: compile the simulator, so that no test is timed while it does.

With a folder behind it: compile what commands use most, for any processor of this machine's architecture, into that
folder, for a wheel (``make wheel``).
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
from numba.core.serialize import dumps

from asa.lab.core.cluster import Cluster, Partition
from asa.lab.core.compiled import PORTABLE
from asa.lab.core.workload import Moldable, Workload
from asa.lab.simulator.run import simulate
from asa.lab.traces.lublin import lublin
from asa.lab.traces.site import UPPMAX
from asa.lab.traces.swf import log_of, write_swf

INSTANCE = {
    "cap": [[4, 8], [4, 8]],
    "running": [{"rn": 2, "req": [2, 1], "end": 30, "alloc": [[0, 1], [1, 1]]}],
    "queue": [{"rn": 1, "req": [4, 2], "d": 60, "q": -5}, {"rn": 3, "req": [1, 0], "d": 10, "q": 0}],
}
WINDOWS = {
    "leafsize": 2, "podsize": 4, "w": [1, 3, 5], "c": 10, "instances": [{"idle": [0, 1, 5, 6, 7, 9], "sizes": [2, 3]}],
}  # fmt: skip
COMMANDS = (
    "simulate log.swf --quiet --dispatcher easy,fcfs,conservative,easy:order=sjf,random",
    "simulate log.swf --quiet --site site.json",
    "simulate log.swf --quiet --moldable 30%",
    "simulate log.swf --quiet --malleable 30%",
    "dispatch instance.json",
    "place windows.json",
    "replay-waits log.swf --jobs 60 --warmup 10 --seeds 1 --quiet",
    "compare statistics --seeds 1 --cores 28 --quiet --processes 1",
)
"""What compiles what most users use."""


def compile_simulator() -> None:
    """Run one job through each of its loops. What numba has compiled stays on disk, for all processes."""
    jobs = Workload.of(submit=[0], run=[1], cores=[1], walltime=[1])
    machine = Cluster.of(nodes=2)
    simulate(jobs, machine, "easy")
    simulate(jobs, replace(machine, partitions={"all": Partition((0, 1))}), "easy")
    simulate(replace(jobs, moldable=Moldable([1], [2], [1.0])), machine, "easy:width=fair")
    malleable = replace(jobs, moldable=Moldable([1], [2], [1.0], [True]))
    for dispatcher in ("easy:resize=both", "easy:width=fair,resize=both"):
        simulate(malleable, machine, dispatcher)


def compile_ahead(folder: Path) -> None:
    """Into that folder, in the place of what was in it before."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        machine = Cluster.of(nodes=64)
        write_swf(log_of(simulate(lublin(600, machine.cores, seed=0), machine, "easy")), work / "log.swf")
        partitions = {"all": {"nodes": f"n[0-{UPPMAX.nodes - 1}]"}}
        (work / "site.json").write_text(json.dumps(UPPMAX.to_dict() | {"partitions": partitions}))
        (work / "instance.json").write_text(json.dumps(INSTANCE))
        (work / "windows.json").write_text(json.dumps(WINDOWS))
        kept = os.environ.get("NUMBA_CACHE_DIR", str(work / "kept"))
        environment = os.environ | {"NUMBA_CPU_NAME": PORTABLE, "NUMBA_CACHE_DIR": kept}
        for command in COMMANDS:
            print(f"asa {command}", file=sys.stderr, flush=True)
            words = [sys.executable, "-m", "asa", *command.split()]
            subprocess.run(words, cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
        for version in Path(kept).glob("asa-numba-*"):
            shutil.copytree(version, folder / version.name.removeprefix("asa-numba-"))
        for path in folder.glob("*/*"):
            path.write_bytes(without_bitcode(path.read_bytes()))


CHECK_BYTES = hashlib.sha256().digest_size


def without_bitcode(data: bytes) -> bytes:
    """A file of compiled code, as `asa.lab.core.compiled` keeps it, without what is only for inlining and for people.

    That is LLVM's bitcode, two thirds of the file, and the types as text. A function that is compiled later calls this
    one where it was loaded. What numba looks up by name must be defined in the bitcode that is left: the pointers to
    environments, and the function that Python calls, whose body is in the machine code.
    """
    (name, kind, (code, bitcode)), function, *rest = pickle.loads(zlib.decompress(data[CHECK_BYTES:]))
    rest[4] = ""  # the types
    module = llvm.parse_bitcode(bitcode)
    own = [each for each in module.global_variables if each.name.startswith("_ZN08NumbaEnv")]
    lines = [f'target triple = "{module.triple}"', f'target datalayout = "{module.data_layout}"']
    lines += [str(each) for each in own if not each.is_declaration]
    lines.append(f'define linkonce_odr void @"{function.llvm_cpython_wrapper_name}"() {{ ret void }}')
    left = llvm.parse_assembly("\n".join(lines)).as_bitcode()
    smaller = zlib.compress(dumps(((name, kind, (code, left)), function, *rest)), 9)
    return hashlib.sha256(smaller).digest() + smaller


if __name__ == "__main__":
    if sys.argv[1:]:
        compile_ahead(Path(sys.argv[1]))
    else:
        compile_simulator()
