"""Containers, with a program in the place of Apptainer that enters none but keeps to its command line."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asa
from asa.core.errors import CommandFailed, InvalidInput
from asa.core.launch import Program
from asa.integrations import inside
from asa.integrations.call import RemoteTraceback
from asa.integrations.container import container
from asa.log.values import dump

# exec, its options (each with a value), the image, the program: what is inside sees IMAGE, and no ASA
APPTAINER = f"""#!/bin/sh
echo "$@" | head -1 >>"$SAID"
[ "$1" = exec ] || exit 64
shift
while [ "${{1#--}}" != "$1" ]; do case "$1" in --nv) shift;; *) shift 2;; esac; done
export IMAGE="$1"
[ -e "$1" ] || {{ echo "FATAL: could not open image $1" >&2; exit 255; }}
shift
[ "$1" = python3 ] && {{ shift; exec {sys.executable} "$@"; }}
exec "$@"
"""


@pytest.fixture(autouse=True)
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bin" / "apptainer"
    path.parent.mkdir()
    path.write_text(APPTAINER)
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    (tmp_path / "image.sif").touch()
    return tmp_path / "image.sif"


def die(code: int) -> None:
    os._exit(code)


def where(prefix: str, *, times: int = 1) -> str:
    return prefix + os.path.basename(os.environ["IMAGE"]) * times


def fail(number: int) -> None:
    raise KeyError(number)


def test_a_function_runs_inside(image: Path, tmp_path: Path) -> None:
    function = container(image, bind=["/data"], options=["--nv"])(where)
    assert function("in ", times=2) == "in image.sifimage.sif"
    said = (tmp_path / "said").read_text()
    assert said.startswith("exec --bind /data --nv --bind ") and f"--pwd {os.getcwd()} {image} python3 -c" in said
    assert function.__name__ == "where"


def test_what_it_raises_is_raised_here(image: Path) -> None:
    with pytest.raises(KeyError, match="7") as caught:
        container(image)(fail)(7)
    assert isinstance(caught.value.__cause__, RemoteTraceback) and "raise KeyError(number)" in str(
        caught.value.__cause__
    )


def test_functions_of_ones_own_file_travel(image: Path) -> None:
    number = 3
    assert container(image)(lambda more: number + more)(4) == 7


def test_a_program_runs_inside(image: Path, tmp_path: Path) -> None:
    plain = asa.command("sh -c 'echo $IMAGE >$0' {out}", outputs={"out": str(tmp_path / "out")}, cores=2, name="where")
    stage = container(image)(plain)
    assert (stage.name, stage.needs) == (plain.name, plain.needs)
    assert isinstance(stage.function, Program)
    assert stage.function().read_text() == f"{image}\n"
    assert stage.function.launched(["env", "RANK=1"], os.environ)().read_text() == f"{image}\n"


@pytest.mark.slow
def test_stages_in_containers_make_a_workflow(image: Path, tmp_path: Path) -> None:
    @asa.stage(cores=2)
    @container(image)
    def name(number: int) -> str:
        return f"{os.environ['IMAGE']} {number}"

    show = container(image)(asa.command("printenv IMAGE"))
    run = asa.run([name.map([1, 2]), show()], backend="local:cores=2", state=tmp_path / "state")
    assert run.result() == [[f"{image} 1", f"{image} 2"], f"{image}\n"]
    run.wait(60)


def test_errors_name_their_cause(tmp_path: Path, image: Path) -> None:
    with pytest.raises(CommandFailed, match="could not open image /no/such"):
        container("/no/such.sif")(where)("x")
    with pytest.raises(CommandFailed, match="is Apptainer installed"):
        container(image, program="no-such-program")(where)("x")
    with pytest.raises(CommandFailed, match="exit code 3"):
        container(image)(die)(3)
    for wrong, said in (("", "needs an image"), ("  ", "needs an image")):
        with pytest.raises(InvalidInput, match=said):
            container(wrong)
    with pytest.raises(InvalidInput, match="for functions and stages"):
        container(image)(7)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (len, (True, 3, "")),
        (lambda text: lambda: text, (True, "abc", "")),  # what comes of it is pickled by cloudpickle
        (lambda text: text.nothing, (False, AttributeError, "text.nothing")),
    ],
)
def test_the_outcome_of_a_call_is_written(tmp_path: Path, function: Callable[[str], Any], expected: Any) -> None:
    """As in the container, which measures no coverage."""
    (tmp_path / "call").write_bytes(pickle.dumps(([*sys.path, "/more"], dump((function, ("abc",), {})))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        inside.main(str(tmp_path / "call"), str(tmp_path / "answer"))
        assert sys.path[-1] == "/more"
    well, found, trace = pickle.loads((tmp_path / "answer").read_bytes())
    if not well:
        assert "in <lambda>" in trace
        found, trace = type(found), expected[2]
    assert (well, found() if callable(found) and well else found, trace) == expected


def test_a_container_that_ends_without_an_answer_is_an_error(image: Path) -> None:
    (image.parent / "bin" / "apptainer").write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(CommandFailed, match=r"image\.sif ended with exit code 0 without an answer; see its output"):
        container(image)(where)("x")


def test_what_runs_inside_needs_the_standard_library_only() -> None:
    text = Path(inside.__file__).read_text()
    assert "asa" not in [
        line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("import", "from"))
    ]


def test_a_stage_names_its_image(image: Path, tmp_path: Path) -> None:
    state, here = tmp_path / "state", asa.stage(container=image, cores=2)(where)
    assert (here.name, here.needs.resources.cores) == ("where", 2)
    assert asa.run(here("in "), state=state).result() == "in image.sif"
    said = asa.command("sh -c 'echo $IMAGE'", container=str(image), name="said")
    assert asa.run(said(), state=state).result() == f"{image}\n"
    with pytest.raises(InvalidInput, match="needs an image"):
        asa.stage(where, container="")
