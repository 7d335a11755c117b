import pytest

from asa.core.errors import InvalidInput, UnknownName
from asa.core.launch import Launch, launcher


@pytest.mark.parametrize(
    ("text", "words", "kind"),
    [
        ("srun", ("srun",), "srun"),
        ("srun --mpi=pmix", ("srun", "--mpi=pmix"), "srun"),
        ("mpirun --mca btl 'tcp,self'", ("mpirun", "--mca", "btl", "tcp,self"), "mpirun"),
        ("/opt/mpich/bin/mpiexec -iface ib0", ("/opt/mpich/bin/mpiexec", "-iface", "ib0"), "mpiexec"),
    ],
)
def test_a_launcher_is_a_program_and_its_options(text: str, words: tuple[str, ...], kind: str) -> None:
    assert launcher(text) == words
    assert Launch(words, 1, 1).kind == kind


def test_other_programs_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match=r"unknown launcher 'mprun': did you mean 'mpirun'\?"):
        launcher("mprun -x")


@pytest.mark.parametrize("text", ["", "  ", 3, None, "srun 'open"])
def test_what_is_no_command_line_is_refused(text: object) -> None:
    with pytest.raises(InvalidInput, match="launcher"):
        launcher(text)


@pytest.mark.parametrize(
    "option",
    ["-n", "-n4", "-np", "--np=4", "-N2", "--ntasks=8", "--nodes", "-c2", "--cpus-per-task=2", "--host", "--hosts=h"],
)
def test_how_many_ranks_and_where_is_not_the_launchers_to_say(option: str) -> None:
    with pytest.raises(InvalidInput, match="follows from the stage"):
        launcher(f"srun {option}")


@pytest.mark.parametrize("option", ["--network=ib", "--cpu-bind=none", "--map-by", "-x", "--nice", "-v"])
def test_other_options_pass(option: str) -> None:
    assert launcher(f"srun {option}")[1:] == (option,)
