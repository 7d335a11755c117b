"""Apptainer itself: functions and programs in an image that is made on the spot (`make test-apptainer`).

As root and as an ordinary user. In a virtual machine root may lack a capability that Apptainer asks for.
"""

from __future__ import annotations

import ast
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.cluster import host, layout
from tests.cluster.accounting import make_users
from tests.cluster.cluster import Cluster, running
from tests.cluster.config import ORDINARY_USERS
from tests.cluster.processes import wait_until
from tests.integrations.snakemakes import needs_snakemake, snakemake

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("apptainer") is None, reason="no Apptainer here: make test-apptainer has Debian's"),
]

FLOWS = Path(__file__).with_name("apptainer_flows.py")
ASA = Path(sys.executable).with_name("asa")
PROGRAMS = ("sh", "bash", "cat", "id", "printenv", "sleep")
DEFINITION = """\
Bootstrap: localimage
From: {root}
%files
    {cloudpickle} /usr/lib/python3/dist-packages/cloudpickle
%environment
    export INSIDE=image
"""


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """A directory with an image that has Python and some programs, as ``image.sif`` and as the directory ``image``."""
    where = Path(tempfile.mkdtemp(prefix="asa-images-"))
    where.chmod(0o755)
    fill(where / "root")
    package = Path(cloudpickle.__file__).parent
    (where / "image.def").write_text(DEFINITION.format(root=where / "root", cloudpickle=package))
    build("--sandbox", where / "image", where / "image.def")
    build("--mksquashfs-args", "-noI -noD -noF -noX", where / "image.sif", where / "image")
    yield where
    shutil.rmtree(where)


def fill(root: Path) -> None:
    """Copy this Python, some programs and the libraries of both."""
    for name in ("bin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("dev", "etc", "proc", "sys", "tmp", "var/tmp"):
        (root / name).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, root / library.relative_to("/"), ignore=shutil.ignore_patterns("__pycache__", "*.a"))
    python = Path(os.path.realpath(sys.executable))
    files = [*(Path(shutil.which(name) or name) for name in PROGRAMS), python]
    modules = library.glob("lib-dynload/*.so")
    said = subprocess.run(["ldd", *files, *modules], stdout=subprocess.PIPE, text=True, check=False).stdout
    for path in {*files, *(Path(word) for word in said.split() if word.startswith("/") and word[-1] != ":")}:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    (root / "usr/bin/python3").symlink_to(python.name)


def build(*words: str | Path) -> None:
    done = subprocess.run(["apptainer", "build", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who runs workflows in a folder of their own, and the options that Apptainer wants from them."""

    uid: int
    gid: int
    folder: Path
    options: str
    variables: dict[str, str]

    @contextmanager
    def begun(
        self, flow: str, image: Path, backend: str = "local:cores=2", **sizes: object
    ) -> Iterator[subprocess.Popen[str]]:
        """A workflow that goes on; it is cancelled when left."""
        own = {"ASA_STATE_DIR": str(self.folder / "state"), "HOME": str(self.folder), "GIVEN": "outside"}
        given = {"image": image, "options": self.options} | sizes
        words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        process = subprocess.Popen(
            [ASA, "run", f"{FLOWS}:{flow}", "--backend", backend, *words],
            cwd=self.folder,
            env=os.environ | own | self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
        )
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)

    def run(self, flow: str, image: Path, backend: str = "local:cores=2", **sizes: object) -> Any:
        """The value of a workflow."""
        code, out, err = self.outcome(flow, image, backend, **sizes)
        assert code == 0, err
        return ast.literal_eval(out.strip().splitlines()[-1])

    def outcome(self, flow: str, image: Path, backend: str = "local:cores=2", **sizes: object) -> tuple[int, str, str]:
        """Exit code of a workflow, and what was printed."""
        with self.begun(flow, image, backend, **sizes) as process:
            out, err = process.communicate(timeout=100)
        return process.returncode, out, err


@pytest.fixture(scope="module", params=["root", "ordinary user"])
def person(request: pytest.FixtureRequest) -> pwd.struct_passwd:
    """Who runs workflows; skips where there can be no such."""
    if request.param == "root":
        if os.geteuid():
            pytest.skip("needs root")
        return pwd.getpwuid(0)
    if os.geteuid():
        return pwd.getpwuid(os.geteuid())
    make_users(ORDINARY_USERS[:1])
    found = pwd.getpwnam(ORDINARY_USERS[0])
    as_found = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": [], "cwd": "/"}
    for words, why in (
        (["unshare", "--user", "true"], "the kernel lets ordinary users make no user namespaces"),
        ([sys.executable, "-c", "import asa"], f"an ordinary user cannot read {FLOWS.parents[2]}"),
    ):
        if subprocess.run(words, check=False, **as_found).returncode:
            pytest.skip(why)
    return found


@pytest.fixture
def user(person: pwd.struct_passwd) -> Iterator[User]:
    folder = Path(tempfile.mkdtemp(prefix="asa-apptainer-"))
    os.chown(folder, person.pw_uid, person.pw_gid)
    yield User(person.pw_uid, person.pw_gid, folder, "" if person.pw_uid else "--drop-caps CAP_SYS_RESOURCE", {})
    shutil.rmtree(folder)


@pytest.fixture(params=["image", "image.sif"])
def image(request: pytest.FixtureRequest, images: Path) -> Path:
    return images / str(request.param)


def test_a_function_sees_the_image_and_who_runs_it(user: User, image: Path) -> None:
    found = user.run("inside", image, paths=f"{user.folder} /etc/debian_version")
    assert found["who"] == (user.uid, user.gid)
    assert found["where"] == str(user.folder)
    assert (found["INSIDE"], found["GIVEN"], found["asa"]) == ("image", "outside", False)
    assert found["python"] == "/usr/bin/python3"
    assert found[str(user.folder)] and not found["/etc/debian_version"]
    assert found["OMP_NUM_THREADS"] == "1"


def test_files_go_through_programs_and_functions(user: User, image: Path) -> None:
    (user.folder / "input.txt").write_text("spam\n")
    said = user.run("files", image)
    assert said == f"SPAM\n{str(user.folder).upper()}\n{user.uid}\nimage\noutside\nof the stage\n"
    for name in ("first.txt", "second.txt"):
        assert (user.folder / name).stat().st_uid == user.uid


def test_directories_of_the_node_are_seen_where_they_are_bound(user: User, images: Path) -> None:
    (user.folder / "data").mkdir(exist_ok=True)
    bind = f"{user.folder}/data:/data {FLOWS.parent}"
    found = user.run("inside", images / "image", bind=bind, paths=f"/data {FLOWS}")
    assert found["/data"] and found[str(FLOWS)]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "LookupError: no such galaxy"),
        ("exit", "apptainer ended with exit code 7"),
        ("kill", "apptainer was killed by signal 9 (Killed)"),
    ],
)
def test_how_a_function_ended_is_said(user: User, images: Path, how: str, said: str) -> None:
    code, _, err = user.outcome("ends", images / "image", how=how)
    assert code == 1 and said in err, err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sh -c 'exit 7'", "ended with exit code 7"),
        ("sh -c 'kill -15 $$'", "was killed by signal 15 (Terminated)"),
        ("no-such-program", "ended with exit code 255"),
    ],
)
def test_how_a_program_ended_is_said(user: User, images: Path, line: str, said: str) -> None:
    code, _, err = user.outcome("runs", images / "image", line=line)
    assert code == 1 and said in err, err
    assert line != "no-such-program" or '"no-such-program": executable file not found in $PATH' in err


def test_an_image_that_is_not_there(user: User, images: Path) -> None:
    for flow, more in (("inside", {}), ("runs", {"line": "cat"})):
        code, _, err = user.outcome(flow, images / "none.sif", **more)
        assert code == 1 and f"could not open image {images}/none.sif" in err


def test_gpus_are_those_of_the_task(user: User, images: Path) -> None:
    """The libraries that ``--nv`` brings in are not here; what it is given is."""
    with_gpus = replace(user, options=f"{user.options} --nv", variables={"CUDA_VISIBLE_DEVICES": "3,5"})
    found = with_gpus.run("spread", images / "image", backend="local:cores=2,gpus=2", count=2)
    assert {each["CUDA_VISIBLE_DEVICES"] for each in found} <= {"3", "5"}
    found = with_gpus.run("inside", images / "image", backend="local:cores=2,gpus=2", gpus=2)
    assert found["CUDA_VISIBLE_DEVICES"] == "3,5"


@pytest.mark.parametrize(("what", "number"), [("function", signal.SIGINT), ("program", signal.SIGTERM)])
def test_nothing_is_left_of_a_run_that_is_cancelled(user: User, image: Path, what: str, number: int) -> None:
    path = user.folder / "process"
    with user.begun("lingers", image, what=what, path=path) as process:
        assert wait_until(lambda: path.exists() and bool(path.read_text()), 60)
        there = Path("/proc", path.read_text().strip())
        assert there.exists()
        process.send_signal(number)
        process.communicate(timeout=60)
    assert wait_until(lambda: not there.exists(), 10)


def test_nothing_is_left_of_a_program_that_reached_its_wall_time(user: User, images: Path) -> None:
    path = user.folder / "process"
    code, _, err = user.outcome("lingers", images / "image", what="program", path=path, walltime="3s")
    assert code == 1 and "wall time" in err, err
    there = Path("/proc", path.read_text().strip())
    assert wait_until(lambda: not there.exists(), 10)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes, which an ordinary user may use, too."""
    if (why := host.obstacle()) is not None:
        pytest.skip(why)
    config = host.configure(None, nodes=2, users=ORDINARY_USERS[:1])
    try:
        with running(config) as cluster:
            yield cluster
    finally:
        layout.remove(config)


@pytest.mark.slurm
def test_stages_in_an_image_run_in_jobs_of_slurm(user: User, image: Path, cluster: Cluster) -> None:
    there = replace(user, variables={"SLURM_CONF": str(cluster.config.slurm_conf)})
    found = there.run("inside", image, backend="slurm:poll_s=1")
    assert found["who"] == (user.uid, user.gid) and found["where"] == str(user.folder) and found["INSIDE"] == "image"
    assert cluster.job(found["SLURM_JOB_ID"])["UserId"].endswith(f"({user.uid})")
    said = there.run("ranks", image, backend="slurm:poll_s=1")
    assert sorted(said.splitlines()) == [f"{rank} {cluster.nodes[rank // 2]} image" for rank in range(4)]


@pytest.mark.slurm
def test_nothing_is_left_of_a_job_that_is_cancelled(user: User, images: Path, cluster: Cluster) -> None:
    there = replace(user, variables={"SLURM_CONF": str(cluster.config.slurm_conf)})
    path = user.folder / "process"
    with there.begun("lingers", images / "image", "slurm:poll_s=1", what="program", path=path):
        assert wait_until(lambda: path.exists() and bool(path.read_text()), 60)
        process = Path("/proc", path.read_text().strip())
        cluster.run("scancel", f"--user={user.uid}")
        assert wait_until(lambda: not process.exists(), 30)


@needs_snakemake
def test_a_rule_of_snakemakes_runs_in_its_container(images: Path, tmp_path: Path) -> None:
    """Snakemake starts the image itself, in a task of ASA's: docs/howto/snakemake.md."""
    if os.geteuid():
        pytest.skip("needs root")
    (tmp_path / "Snakefile").write_text(
        f"""
rule inside:
    output: "inside.txt"
    container: "{images / "image.sif"}"
    shell: "echo $INSIDE > {{output}}"
"""
    )
    options = ("--executor", "asa", "--asa-backend", "local:cores=2", "--jobs", 4, "--sdm", "apptainer")
    done = snakemake(tmp_path, *options, "--apptainer-args", "--drop-caps CAP_SYS_RESOURCE", state=tmp_path / "state")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "inside.txt").read_text() == "image\n"
