"""Tasks longer than their wall time, on this machine: they go on from what they have saved, whatever is killed."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import asa
from asa.core.errors import InvalidInput, RunFailed
from asa.core.event import AllocationStarted, TaskDone, TaskFailed, TaskPaused
from asa.core.run import FoldedRun
from asa.log.events import EventLog
from asa.log.running import Checkpoint, progress
from asa.workflows.run import open_run

RUN = {"backend": "local:cores=2", "strategy": "auto", "executor": "local"}


def count(most: int, step_s: float = 0.05, every: int = 2) -> list[int]:
    """Count; from which number on, each time that it was begun."""
    saved = asa.checkpoint()
    at, begun = pickle.loads((saved.last / "state").read_bytes()) if saved.last else (0, [])
    begun.append(at)
    while at < most:
        time.sleep(step_s)
        at += 1
        if every and at % every == 0:
            with saved.save() as folder:
                (folder / "state").write_bytes(pickle.dumps((at, begun)))
    return begun


def _events(run: asa.Run, *kinds: type) -> list:
    with EventLog(run.directory.events) as log:
        return [event for _, event in log.read() if isinstance(event, kinds)]


def test_a_task_goes_on_as_the_same_in_one_allocation_after_the_other(tmp_path: Path) -> None:
    run = asa.run(asa.stage(count, checkpoint=True, walltime=6)(220), state=tmp_path, **RUN)
    begun = run.result()
    pauses, (done,) = _events(run, TaskPaused), _events(run, TaskDone)
    assert len(begun) == len(pauses) + 1 >= 3 and begun == sorted(begun) and begun[1] > 0
    assert not _events(run, TaskFailed), "no retry is used up: it has none"
    assert len(_events(run, AllocationStarted)) == len(begun)
    folded = FoldedRun()
    with EventLog(run.directory.events) as log:
        for _, event in log.packed():
            folded.on(event)
    stage, ran_s = folded.stages["count"], sum(each.at - each.started for each in [*pauses, done])
    assert stage.longest_s == pytest.approx(ran_s, abs=0.01), "its time adds up"
    assert not folded.illegal and stage.failures == {}
    assert not list((run.directory.path / "checkpoints").iterdir()), "nothing is left once it is done"


def test_a_task_that_saves_nothing_new_in_a_whole_allocation_fails(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"saved nothing, so it would never end: save more often, or raise walltime="):
        asa.run(asa.stage(count, checkpoint=True, walltime=2)(900, every=0), state=tmp_path, **RUN).result()


def test_a_task_may_pause_by_itself_and_its_time_is_said(tmp_path: Path) -> None:
    def twice() -> tuple[int, float]:
        saved, left = asa.checkpoint(), asa.time_left()
        if saved.last is None:
            with saved.save() as folder:
                (folder / "left").write_text(str(left))
            asa.pause()
        return int(saved.last.name), float((saved.last / "left").read_text())

    version, left = asa.run(asa.stage(twice, checkpoint=True, walltime=60)(), state=tmp_path, **RUN).result()
    assert version == 1 and 50 < left <= 57


def test_a_program_is_told_before_its_allocation_ends(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import signal, sys, time, pathlib\n"
        "state, out = map(pathlib.Path, sys.argv[1:])\n"
        "told = []\n"
        "signal.signal(signal.SIGUSR2, lambda *_: told.append(1))\n"
        "at = int(state.read_text()) if state.exists() else 0\n"
        "while at < 60 and not told:\n"
        "    time.sleep(.1)\n"
        "    at += 1\n"
        "new = state.with_suffix('.new')\n"
        "new.write_text(str(at)); new.replace(state)\n"
        "print('at', at, flush=True)\n"
        "if at == 60:\n"
        "    out.write_text(str(at))\n"
        "sys.exit(0 if at == 60 else 3)\n"
    )
    program = asa.command(
        f"{sys.executable} {script} {{checkpoint}}/state {{out}}",
        outputs={"out": str(tmp_path / "out")}, checkpoint=True, signal="USR2", signal_before=0.5, walltime=3,
        name="program",
    )  # fmt: skip
    run = asa.run(program(), state=tmp_path / "state", **RUN)
    assert run.result().read_text() == "60"
    assert len(_events(run, TaskPaused)) >= 2 and not _events(run, TaskFailed)


@pytest.mark.slow
def test_a_shell_line_is_told_with_all_it_has_started(tmp_path: Path) -> None:
    line = (
        "n=$(cat {checkpoint}/n 2>/dev/null || echo 0); trap 'echo $n > $ASA_CHECKPOINT/n; exit 9' USR1; "
        "while [ $n -lt 40 ]; do sleep .1 || true; n=$((n+1)); done; echo $n > {out}"
    )
    told = asa.command(
        line, shell=True, outputs={"out": str(tmp_path / "out")}, checkpoint=True, walltime=3, name="line"
    )
    run = asa.run(told(), state=tmp_path / "state", **RUN)
    assert run.result().read_text() == "40\n"
    assert _events(run, TaskPaused)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"checkpoint": 1}, "checkpoint must be True or False"),
        ({"signal": "USR1"}, "say checkpoint=True"),
        ({"signal_before": 5}, "say checkpoint=True"),
        ({"checkpoint": True, "signal": "KILL"}, "that a program can handle"),
        ({"checkpoint": True, "signal": "NO"}, "that a program can handle"),
    ],
)
def test_what_cannot_be_is_refused(needs: dict, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        asa.stage(count, **needs)


def test_outside_of_such_a_task_there_is_no_checkpoint() -> None:
    with pytest.raises(InvalidInput, match="checkpoint=True"):
        asa.checkpoint()
    assert asa.time_left() == float("inf")


def test_threads_cannot_be_ended_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="processes"):
        asa.run(asa.stage(count, checkpoint=True)(1), state=tmp_path, **RUN | {"executor": "local:workers=threads"})


def test_versions_are_whole_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    saved = Checkpoint(tmp_path / "c")
    assert saved.last is None and progress(str(saved.path)) == ""
    for number in range(5):
        with saved.save() as folder:
            (folder / "n").write_text(str(number))
    with suppress(ZeroDivisionError), saved.save() as folder:
        (folder / "n").write_text("torn")
        raise ZeroDivisionError
    with pytest.raises(InvalidInput, match="nothing was saved"), saved.save():
        pass
    assert (saved.last / "n").read_text() == "4" and len(list(saved.path.iterdir())) == 2
    before = progress(str(saved.path))
    (saved.path / "of-a-program").write_text("x")
    assert progress(str(saved.path)) != before


CRASH = """
import os, sys, time
from pathlib import Path
from asa.log.running import Checkpoint
saved = Checkpoint(Path(sys.argv[1]))
number = int((saved.last / "0").read_text()) if saved.last else 0
while True:
    number += 1
    with saved.save() as folder:
        for part in range(4):
            (folder / str(part)).write_text(str(number))
"""


def test_the_last_good_version_can_be_read_whenever_its_writer_was_killed(tmp_path: Path) -> None:
    rng, last = random.Random(27), 0
    for _ in range(12):
        with subprocess.Popen([sys.executable, "-c", CRASH, str(tmp_path / "c")]) as writer:
            before = progress(str(tmp_path / "c"))
            while progress(str(tmp_path / "c")) == before:
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.05))
            writer.kill()
        found = Checkpoint(tmp_path / "c").last
        parts = {(found / str(part)).read_text() for part in range(4)}
        assert len(parts) == 1, "all of one version"
        assert int(*parts) > last, "and none that was there goes back"
        last = int(*parts)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_driver_worker_and_supervisor_are_killed_at_random_and_the_task_goes_on(tmp_path: Path) -> None:
    """Whatever is killed, what was saved is there, and the task begins where it was."""
    rng, state = random.Random(9), tmp_path / "state"
    flow = tmp_path / "flow.py"
    flow.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "import asa\nfrom tests.workflows.test_checkpoint import count\n"
        "def flow(): return asa.stage(count, checkpoint=True, walltime=8, retries=50)(400)\n"
    )
    asa_run = [sys.executable, "-m", "asa"]
    environment = os.environ | {"ASA_STATE_DIR": str(state)}
    options = ["--quiet", "--backend", "local:cores=2", "--strategy", "auto", "--executor", "local"]
    command = [*asa_run, "run", f"{flow}:flow", *options, "--name", "crash"]
    killed, last, before = [], 0, ""
    for _ in range(6):
        with subprocess.Popen(command, env=environment, cwd=tmp_path) as driver:
            while driver.poll() is None and (now := _saved(state)) in ("", before):
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.5))
            if driver.poll() is not None:
                break
            before, folder = now, next((state / "runs").glob("*"))
            what = rng.choice(["driver", "supervisor", "worker"])
            victims = {"driver": [driver.pid]} | _processes(folder)
            for pid in victims[what]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(what)
            driver.kill()
        for kept in (folder / "checkpoints").glob("*"):
            if found := Checkpoint(kept).last:
                at, _ = pickle.loads((found / "state").read_bytes())
                assert at >= last, "what was saved stays"
                last = at
        command = [*asa_run, "resume", folder.name, "--quiet"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    run = open_run(next((state / "runs").glob("*")).name, state=state)
    begun = run.result()
    assert done.returncode == 0, done.stderr
    assert begun == sorted(begun) and len(killed) >= 3 and last > 0


def _saved(state: Path) -> str:
    """What stands for all that the tasks of all runs have saved."""
    return "".join(progress(str(path)) for path in sorted(state.glob("runs/*/checkpoints/*")))


def _processes(folder: Path) -> dict[str, list[int]]:
    """Supervisors of a run, and their workers."""
    found: dict[str, list[int]] = {"supervisor": [], "worker": []}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"executors.supervisor" in words and str(folder).encode() in words:
                inner = b"executors.supervisor" in Path(f"/proc/{parent}/cmdline").read_bytes()
                found["worker" if inner else "supervisor"].append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.skipif(shutil.which("gmx") is None, reason="GROMACS (gmx) is not installed: make packages")
def test_gromacs_goes_on_from_its_own_checkpoints(tmp_path: Path) -> None:
    steps = 100_000
    system = argon(tmp_path, steps)
    mdrun = asa.command(
        "gmx mdrun -s {system} -deffnm {checkpoint}/md -cpi {checkpoint}/md.cpt -cpt 0.02 -c {out} -nt 1 -nb cpu",
        outputs={"out": str(tmp_path / "final.gro")},
        env={"GMX_MAXBACKUP": "-1"}, checkpoint=True, signal="TERM", walltime=6, name="mdrun",
    )  # fmt: skip
    run = asa.run(mdrun(system), state=tmp_path / "state", **RUN)
    final = run.result()
    pauses = _events(run, TaskPaused)
    assert len(pauses) >= 2 and not _events(run, TaskFailed), "one allocation was not enough"
    assert len({pause.saved for pause in pauses}) == len(pauses), "each has got on"
    atoms, begun = final.read_text().splitlines(), (tmp_path / "argon.gro").read_text().splitlines()
    assert len(atoms) == len(begun) and atoms[2:-1] != begun[2:-1], "all atoms, and they have moved"


def argon(folder: Path, steps: int) -> Path:
    """A box of argon, ready to run for so many steps."""
    side, spacing = 10, 0.4
    atoms = [(x * spacing, y * spacing, z * spacing) for x in range(side) for y in range(side) for z in range(side)]
    lines = [f"{i % 99999 + 1:5d}AR      AR{i + 1:5d}{x:8.3f}{y:8.3f}{z:8.3f}" for i, (x, y, z) in enumerate(atoms)]
    box = side * spacing
    (folder / "argon.gro").write_text(
        "\n".join(["argon", str(len(atoms)), *lines, f"{box:10.5f}{box:10.5f}{box:10.5f}", ""])
    )
    (folder / "argon.top").write_text(
        "[ defaults ]\n1 2 no 1.0 1.0\n[ atomtypes ]\nAR 39.948 0.0 A 0.3405 0.996\n[ moleculetype ]\nAR 1\n"
        f"[ atoms ]\n1 AR 1 AR AR 1 0.0 39.948\n[ system ]\nargon\n[ molecules ]\nAR {len(atoms)}\n"
    )
    (folder / "argon.mdp").write_text(
        f"integrator = md\ndt = 0.002\nnsteps = {steps}\ncutoff-scheme = Verlet\nrvdw = 0.9\nrcoulomb = 0.9\n"
        "gen-vel = yes\ngen-temp = 90\ngen-seed = 1\nnstlog = 5000\nnstenergy = 5000\n"
    )
    words = ["gmx", "-quiet", "grompp", "-f", "argon.mdp", "-c", "argon.gro", "-p", "argon.top", "-o", "argon.tpr"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder / "argon.tpr"
