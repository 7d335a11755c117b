"""Values of the core: resources, tasks, host lists, sizes, units, errors, JSON, clocks."""

from __future__ import annotations

import argparse
import json
import math
import pickle
import threading
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asa.cli.main import main
from asa.core.clock import ManualClock
from asa.core.command import duration as command_duration
from asa.core.command import port, positive
from asa.core.context import WALLTIME_CLASSES, Geometry, geometry_of
from asa.core.errors import AsaError, BackendError, IllegalDecision, InvalidInput, UnknownName
from asa.core.hostlist import MOST, InvalidHostList, expand
from asa.core.job import JobState, Reason, Resources, explained
from asa.core.launch import Launch, launcher
from asa.core.serial import from_json, to_json
from asa.core.stage import StageSpec
from asa.core.task import Input, last_words, substitute
from asa.core.units import brief, duration, share, size
from tests.strategies.views import allocation, stage, view

# Resources and stages.


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (Resources(1), "1 core"),
        (Resources(8, 2), "8 cores on 2 nodes"),
        (Resources(4, 1, 3 * 2**29, 1), "4 cores on 1 node with 1.5 GiB and 1 GPU"),
        (Resources(4, gpus=2), "4 cores and 2 GPUs"),
    ],
)
def test_resources_in_words(resources: Resources, words: str) -> None:
    assert str(resources) == words


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cores": 0}, "cores must be a whole number of at least 1, not 0"),
        ({"cores": 1.0}, "cores must be a whole number of at least 1, not 1.0"),
        ({"nodes": 0}, "nodes must be a whole number of at least 1, not 0"),
        ({"memory": 0}, "memory must be a whole number of at least 1, not 0"),
        ({"gpus": -1}, "gpus must be a whole number of at least 0, not -1"),
        ({"cores": 5, "nodes": 2}, "5 cores do not divide over 2 nodes: ask for a multiple of 2 cores"),
    ],
)
def test_resources_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Resources(**wrong)


@pytest.mark.parametrize("task", [Resources(3), Resources(1, gpus=1), Resources(1, memory=2**31)])
def test_a_task_larger_than_its_stage_is_refused(task: Resources) -> None:
    room = Resources(2, memory=2**30)
    StageSpec("add", room, Resources(2), 60.0, 30.0)
    with pytest.raises(InvalidInput) as caught:
        StageSpec("add", room, task, 60.0, 30.0)
    assert f"stage 'add': one task needs {task}, more than the stage's 2 cores with 1 GiB: lower" in str(caught.value)


def test_stages_go_by_their_names() -> None:
    stages = view(stage("a"), stage("b", "a"))
    assert stages["b"].spec.predecessors == ("a",)
    with pytest.raises(KeyError, match="c"):
        stages["c"]


def test_an_allocation_of_two_stages_is_one() -> None:
    both, later = allocation("x", "a", "b", submitted=5.0), allocation("y", "b", submitted=9.0)
    stages = view(stage("a", allocations=(both,)), stage("b", "a", allocations=(later, both)))
    assert stages.allocations == (both, later)


# Reasons.


@pytest.mark.parametrize("reason", list(Reason)[:8])
def test_every_reason_of_a_job_that_waits_has_a_meaning(reason: Reason) -> None:
    assert explained(reason).startswith(f"{reason.value}: ")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("AssocGrpCPUMinutesLimit", "its account has"),
        ("AssocMaxJobsLimit", "its user has"),
        ("QOSGrpNodeLimit", "its QOS has as many nodes"),
        ("QOSMaxCpuPerUserLimit", "its user has as many CPUs in use as the QOS allows"),
        ("AssocMaxWallDurationPerJobLimit", "will not start"),
        ("QOSMaxCpuPerJobLimit", "it asks for more CPUs than its QOS allows a job"),
        ("PartitionTimeLimit", "more than its partition allows"),
        ("ReqNodeNotAvail, Reserved for maintenance", "down, drained or reserved"),
        ("DependencyNeverSatisfied", "never start"),
    ],
)
def test_slurms_families_of_reasons_are_recognised_by_their_beginning(reason: str, said: str) -> None:
    assert said in explained(reason) and explained(reason).startswith(f"{reason}: ")


@pytest.mark.parametrize("reason", ["", "NonZeroExitCode", "no such job"])
def test_others_stay_as_they_are(reason: str) -> None:
    assert explained(reason) == reason


# Launchers.


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
def test_a_launcher_that_is_no_command_line_is_refused(text: object) -> None:
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


# Tasks.


class Halves(NamedTuple):
    left: Any
    right: Any


class Labels(dict[str, Any]):
    """A user's own dict, with an attribute."""

    unit = ""


class Row(list[Any]):
    pass


class Names(set[Any]):
    pass


class Version(tuple[Any, ...]):
    """No named tuple: it is not known what it is made of."""

    def __new__(cls, first: Any, second: Any) -> Version:
        return super().__new__(cls, (first, second))


class Frozen(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError("it is frozen")


def filled(value: Any) -> Any:
    return substitute(value, Input, lambda place: 10 + place.first)


ONE = Input(1)
STRUCTURES = [
    (ONE, 11),
    ([ONE, 5], [11, 5]),
    ((ONE, 5), (11, 5)),
    ({ONE, 5}, {11, 5}),
    (frozenset({ONE}), frozenset({11})),
    ({"a": ONE, "b": 5}, {"a": 11, "b": 5}),
    ({ONE: "a", (ONE, 1): "b"}, {11: "a", (11, 1): "b"}),
    (Halves(ONE, 5), Halves(11, 5)),
    (OrderedDict(b=5, a=ONE), OrderedDict(b=5, a=11)),
    (defaultdict(list, a=ONE), defaultdict(list, a=11)),
    (Counter({ONE: 3}), Counter({11: 3})),
    (Labels(a=ONE), Labels(a=11)),
    (Row([ONE, 5]), Row([11, 5])),
    (Names({ONE, 5}), Names({11, 5})),
    ([{"deep": [Halves((5, [ONE]), 5)]}], [{"deep": [Halves((5, [11]), 5)]}]),
]


@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"x": value}])
@pytest.mark.parametrize(("given", "expected"), STRUCTURES)
def test_inputs_are_replaced_in_every_structure(given: Any, expected: Any, wrap: Any) -> None:
    made = filled(wrap(given))
    assert made == wrap(expected)
    assert type(made) is type(wrap(expected))


@pytest.mark.parametrize("expected", [expected for _, expected in STRUCTURES])
def test_a_structure_without_it_stays_the_same_object(expected: Any) -> None:
    assert filled(expected) is expected
    (kept, new) = filled([expected, ONE])
    assert kept is expected and new == 11


def test_attributes_of_a_structure_are_kept() -> None:
    labels = Labels(a=ONE)
    labels.unit = "K"
    assert filled(labels).unit == "K"
    assert filled(defaultdict(list, a=ONE))["b"] == []
    assert list(filled(OrderedDict(b=ONE, a=5))) == ["b", "a"]
    assert labels == {"a": ONE}, "the caller's own is left alone"


@pytest.mark.parametrize("given", [Version(ONE, 2), [Version(ONE, 2)], Frozen(a=ONE)])
def test_a_structure_that_cannot_be_rebuilt_is_refused(given: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"a (Version|Frozen) cannot be made anew .*: pass a plain list, tuple or dict"
    ):
        filled(given)


def test_an_unhashable_value_in_a_set_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match=r"a set cannot be made anew .*unhashable type: 'list'"):
        substitute({ONE}, Input, lambda place: [])


def test_last_words() -> None:
    assert last_words(ValueError("first\nsecond"))[0] == "ValueError: first"
    assert last_words(KeyError())[0] == "KeyError"
    line, trace = last_words(ValueError("x" * 10_000))
    assert len(line) == 500 and len(trace) == 4096


# Host lists.


RANGES = st.tuples(
    st.sampled_from(["n", "node-", "rack1-n", "gpu", "7", "0x"]),
    st.integers(1, 4),
    st.integers(0, 300),
    st.integers(0, 40),
)


@given(st.lists(RANGES, min_size=1))
def test_a_list_is_its_parts_one_after_the_other(parts: list[tuple[str, int, int, int]]) -> None:
    text = ",".join(f"{prefix}[{first:0{width}}-{first + more}]" for prefix, width, first, more in parts)
    names = [
        f"{prefix}{str(number).zfill(width)}"
        for prefix, width, first, more in parts
        for number in range(first, first + more + 1)
    ]
    assert list(expand(text)) == names


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 4))
def test_a_range_is_its_numbers_one_by_one_at_the_width_of_the_first(first: int, more: int, width: int) -> None:
    names = tuple(f"cn{number:0{width}}" for number in range(first, first + more + 1))
    assert expand(",".join(names)) == names
    assert expand(f"cn[{first:0{width}}-{first + more}]") == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("c21554n[1-4]", ("c21554n1", "c21554n2", "c21554n3", "c21554n4")),  # recorded
        ("n[1-2,7],m2,k[08-10]", ("n1", "n2", "n7", "m2", "k08", "k09", "k10")),
        ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
        ("a[1-2]b[08,10]c,d", ("a1b08c", "a1b10c", "a2b08c", "a2b10c", "d")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("gpu-[a,b]", ("gpu-a", "gpu-b")),
    ],
)
def test_forms(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        (",n1", "a name is missing"),
        ("a[1-2", "brackets do not match"),
        ("a1-2]", "brackets do not match"),
        ("n]1[", "brackets do not match"),
        ("a[[1]]", "brackets do not match"),
        ("a[]", "in brackets"),
        ("a[1,]", "in brackets"),
        ("n[a-b]", "'a-b' in brackets"),
        ("a[1-2-3]", "in brackets"),
        ("a[5-3]", "the range 5-3 falls"),
        (f"a[0-{MOST}]", "too many names"),
        ("n[1-3000000]", "too many names"),
        ("a[1-2000][1-2000]", "too many names"),
        ("a[1-1000000],b[1-1000000]", "too many names"),
    ],
)
def test_a_text_that_is_no_host_list_is_refused_with_an_example(text: str, words: str) -> None:
    with pytest.raises(InvalidHostList, match=f"^host list .*{words}.*: expected something like 'n") as found:
        expand(text)
    assert repr(text) in str(found.value)


# Geometries.


@pytest.mark.parametrize(
    ("walltime_s", "expected"),
    [
        (1, "15m"), (900, "15m"), (900.5, "1h"), (3600, "1h"), (3601, "4h"), (14400, "4h"), (43200, "12h"),
        (86400, "1d"), (86401, "3d"), (259200, "3d"), (259201, "longer"), (1e9, "longer"),
    ],
)  # fmt: skip
def test_classes_reach_up_to_and_including_their_bound(walltime_s, expected):
    assert geometry_of("s", "p", 1, walltime_s).walltime_class == expected


@pytest.mark.parametrize("walltime_s", [0, -1.0, math.nan])
def test_wall_times_that_are_none(walltime_s):
    with pytest.raises(InvalidInput, match="wall time"):
        geometry_of("s", "p", 1, walltime_s)


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.text(alphabet="/% :ab"),
    st.integers(1, 10**9),
    st.sampled_from(list(WALLTIME_CLASSES)),
)
def test_text_and_back(site, partition, cores, walltime_class):
    geometry = Geometry(site, partition, cores, walltime_class)
    assert Geometry.parse(str(geometry)) == geometry


def test_text_is_plain_where_names_are():
    assert str(Geometry("hpc2n", "", 112, "1h")) == "hpc2n//112/1h"


@pytest.mark.parametrize(
    "text", ["", "a/b/1", "a/b/c/1h", "a/b/1/2h", "a/b/0/1h", "a/b/-1/1h", "a/b/1/1h/x", "a/b/²/1h"]
)
def test_texts_that_are_no_geometry(text):
    with pytest.raises(InvalidInput):
        Geometry.parse(text)


# Units and arguments.


@pytest.mark.parametrize(("value", "most", "found"), [("100%", 1.0, 1.0), (0, 1.0, 0.0), ("150 %", math.inf, 1.5)])
def test_a_share_within_its_bounds(value: float | str, most: float, found: float) -> None:
    assert share(value, most=most) == found


@pytest.mark.parametrize(
    ("value", "most", "message"),
    [
        (50, 1.0, "memory 50 is not a share from 0 to 1: write one like '3%' or 0.03"),
        ("101%", 1.0, "memory '101%' is not a share from 0 to 1"),
        (-0.1, math.inf, "memory -0.1 is not a share of at least 0"),
        ("inf", math.inf, "memory 'inf' is not a share of at least 0"),
        ("half", 1.0, "memory 'half' is not a share from 0 to 1"),
    ],
)
def test_a_value_that_is_no_share_is_refused_with_an_example(value: float | str, most: float, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        share(value, what="memory", most=most)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", [None, True, [5], 0, -1, math.nan, math.inf, "90", "", "5 parsecs", "1h-"])
def test_a_value_that_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"runs for .* is not a positive duration: write '90s'") as caught:
        duration(value, what="runs for")  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (-90, "-90 s"), (59.4, "59.4 s"), (60, "1 min"), (3599.6, "1 h"), (86399, "23 h 59 min"),
     (86400, "1 d"), (864000 + 3601, "10 d 1 h")],
)  # fmt: skip
def test_a_duration_as_people_say_it(seconds: float, words: str) -> None:
    assert brief(seconds) == words


@given(st.floats(0, 1e9))
def test_a_short_duration_never_counts_as_many_of_a_unit_as_make_the_next_one(seconds: float) -> None:
    most = {"s": 60, "min": 60, "h": 24}
    parts = brief(seconds).split()
    for number, unit in zip(parts[::2], parts[1::2], strict=True):
        assert float(number) < most.get(unit, math.inf)


@given(st.integers(0, 2**50))
def test_a_size_never_counts_1024_of_a_unit_but_the_largest(count: int) -> None:
    number, unit = size(count).split()
    assert unit == "TiB" or float(number) < 1024


def test_numbers() -> None:
    assert positive("3") == 3 and command_duration("250ms") == 0.25
    for text in ("0", "-1", "1.5", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number above 0"):
            positive(text)


def test_ports() -> None:
    assert [port(text) for text in ("0", "65535")] == [0, 65535]
    for text in ("65536", "-1", "x", "1.5"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a port from 0 to 65535"):
            port(text)


def test_a_wrong_duration_is_reported_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["dispatch", "queue.json", "--time-limit", "1x"])
    said = capsys.readouterr().err
    assert "usage: asa dispatch" in said
    assert "argument --time-limit: duration '1x' is not a positive duration: write '90s'" in said


# Errors.


MADE = [
    AsaError("of the root"),
    UnknownName("strategy", "bigjob", ["big-job", "asa"]),
    BackendError("busy", transient=True),
    IllegalDecision("capacity", "job 1 has started already"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_errors_travel_to_other_processes_as_they_are(error: AsaError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))


def test_the_nearest_name_is_found_in_whatever_case() -> None:
    assert "did you mean 'pcp20'?" in str(UnknownName("dispatcher", "PCP20", ["easy", "pcp20"]))


def test_nothing_known_is_said_so() -> None:
    assert str(UnknownName("option of strategy 'big-job':", "patience", [])).endswith("Known: none")


# JSON.


@dataclass(frozen=True)
class Pair:
    left: Pair | None = None
    state: JobState = JobState.PENDING
    sizes: tuple[int, ...] = ()
    span: tuple[float, str] | None = None


WHOLE = Pair(Pair(sizes=(1, 2)), JobState.LOST, (), (1.5, "s"))


def test_json_is_read_as_it_was_written() -> None:
    text = json.dumps(to_json(WHOLE))
    assert text == '{"left": {"sizes": [1, 2]}, "state": "lost", "span": [1.5, "s"]}'
    assert from_json(Pair, json.loads(text)) == WHOLE


def test_fields_of_newer_versions_are_ignored() -> None:
    assert from_json(Pair, {"sizes": [3], "colour": "blue"}) == Pair(sizes=(3,))


def test_numbers_of_numpy_are_numbers() -> None:
    """Predictions are often such, and events are written with them."""
    assert json.dumps(to_json((np.float64(1.5), None))) == "[1.5, null]"


# Clocks.


def test_a_wait_that_would_never_end_is_refused() -> None:
    clock, signal = ManualClock(), threading.Event()
    clock.call_at(5.0, lambda: None)
    with pytest.raises(RuntimeError, match="no event left to wait for"):
        clock.wait(signal)
    assert clock.now() == 5.0
    assert clock.wait(signal, until=9.0) is False
    assert clock.now() == 9.0
