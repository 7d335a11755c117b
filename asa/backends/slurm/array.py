"""Requests as the elements of one job array. Pure.

A job array is submitted at the size of its first element; the others are given their own names and sizes one by one
before the array's begin time. Slurm starts one element at a time, in order, until the throttle is raised, and the age
of those that wait grows. Slurm goes on to the next element however the one before it ended. The job script does not:
each element leaves a mark, a file, while it runs, and takes it away when it ends well.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterator, Sequence

from asa.backends.slurm import words
from asa.backends.slurm.words import SlurmOptions
from asa.core.job import JobChanges, JobRequest, Resources

LEAD_S = 4.0
"""How long after its submission an array may start [s].

Slurm sets the time since when elements age from their begin time, and a throttled element has none: where the first
element starts at once, the others may never age. With a begin time in the future all of them do (six of six measured).
"""

EDIT_S = 0.25
"""How much later for each element [s]: they are edited before they may start, and a busy controller takes its time."""

NOT_RUN = 75
"""Exit code of an element that was not run because an earlier one did not end well."""

_SHELL = re.compile(r"#!.*\b(sh|bash|dash|ash|ksh|zsh)\b")
_MEMORY = frozenset({"mem", "mem-per-cpu", "mem-per-gpu"})
_GPUS = frozenset({"gres", "gpus", "G", "gpus-per-node", "gpus-per-task", "gpus-per-socket"})
_SHAPE = frozenset(
    {
        "cpus-per-task", "c", "ntasks-per-node", "ntasks-per-core", "ntasks-per-socket", "mincpus", "hint",
        "threads-per-core",
    }
)  # fmt: skip

_GUARD = r"""at=0
for mark; do
    [ "$at" -lt "$SLURM_ARRAY_TASK_ID" ] || break
    if how=$(cat "$mark" 2>/dev/null); then
        case "$(scontrol --oneliner show job "${SLURM_ARRAY_JOB_ID}_$at" 2>&1)" in
            *JobState=CANCELLED*) how= ;;
            *JobState=TIMEOUT* | *JobState=*_FAIL* | *JobState=OUT_OF_MEMORY* | *JobState=PREEMPTED* \
                | *JobState=FAILED* | *JobState=DEADLINE* | *"nvalid job id"*) how=${how:-killed} ;;
        esac
        if [ -n "$how" ]; then
            echo "not run: element $at of this job array did not end well ($how), see $mark" >&2
            exit %d
        fi
    fi
    at=$((at + 1))
done
tasks=$(scontrol --oneliner show job "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" 2>/dev/null \
    | sed -n 's/.* NumTasks=\([0-9]*\).*/\1/p')
(umask 077 && : >"$mark")
trap 'exit 143' TERM
(
trap - TERM
case "$SLURM_ARRAY_TASK_ID" in
%s
esac
)
code=$?
if [ "$code" -eq 0 ]; then rm -f "$mark"; else echo "exit code $code" >"$mark"; fi
exit "$code"
"""
"""Elements that were cancelled keep no other back: that was done on purpose. One that was killed leaves its mark
empty, and Slurm is asked whether it still runs: a wider throttle may have let it and the next one go together."""


def problem(requests: Sequence[JobRequest], options: SlurmOptions) -> str | None:
    """Why these cannot be the elements of one array, or None."""
    first, given = requests[0], options.flags.keys()
    shebang = job_shell(options)
    sizes = {request.resources for request in requests}
    checks = {
        "wait for the same jobs": len({request.dependencies for request in requests}) == 1,
        "have the same begin time": len({request.begin for request in requests}) == 1,
        "start in the same directory": len({request.workdir for request in requests}) == 1,
        "have different outputs": len(set(marks(requests))) == len(requests),
        "ask for the same GPUs": given & _GPUS or len({_gpus(request.resources) for request in requests}) == 1,
        "all ask for memory, or none of them": given & _MEMORY
        or len({request.resources.memory is None for request in requests}) == 1,
        f"be of one size with the option {', '.join(sorted(given & _SHAPE))}": not given & _SHAPE or len(sizes) == 1,
        f"have a shell's job script, and the template starts with {shebang!r}": _SHELL.match(shebang),
        "do without signal=B:...: it would reach the array's script, not the program": not str(
            options.flags.get("signal", "")
        ).startswith("B"),
    }
    wrong = next((rule for rule, kept in checks.items() if not kept), None)
    return None if wrong is None else f"the elements of job array {first.array!r} must {wrong}"


def job_shell(options: SlurmOptions) -> str:
    """First line of the job script."""
    return "#!/bin/sh" if options.template is None else options.template.partition("\n")[0]


def submission(requests: Sequence[JobRequest], options: SlurmOptions, now: float) -> tuple[list[str], str]:
    """Options and job script of the array, at the time `now` [s since the epoch]; see `problem`."""
    first = requests[0]
    later = first.begin is not None and first.begin >= now + LEAD_S / 2
    timed = first if later else dataclasses.replace(first, begin=now + LEAD_S + EDIT_S * len(requests))
    given = [_editable(option) for option in words.sbatch_options(timed, options)]
    return [*given, f"--array=0-{len(requests) - 1}%1"], script(requests, options)


def script(requests: Sequence[JobRequest], options: SlurmOptions) -> str:
    """The job script of an array: the whole script of each element, one of which is run.

    It looks at how many nodes and tasks it got: elements may be resized while they wait.
    """
    first = words.job_script(requests[0], options).splitlines()
    head = [_editable(line) for line in itertools.takewhile(_comment, first)]
    branches: list[str] = []
    for number, request in enumerate(requests):
        open_ = dataclasses.replace(request, resources=dataclasses.replace(request.resources, nodes=None))
        lines = words.job_script(open_, options).splitlines()
        branches += [f"{number})", *_environment(request), *itertools.dropwhile(_comment, lines), ";;"]
    files = f"set -- {shlex.join(marks(requests))}"
    return "\n".join([*head, files, _GUARD % (NOT_RUN, "\n".join(branches))])


def _editable(option: str) -> str:
    """An option of sbatch, such that what it fixes can be changed for each element.

    Only operators may change tasks per node, but every user their CPUs, which come to the same where cores are counted.
    """
    return option.replace("--ntasks-per-node=", "--mincpus=")


def _comment(line: str) -> bool:
    return not line.strip() or line.startswith("#")


def marks(requests: Sequence[JobRequest]) -> list[str]:
    """The file that each element leaves while it runs, and keeps when it does not end well: beside its output."""
    return [
        f".{request.token}.unfinished" if request.output is None else f"{request.output}.unfinished"
        for request in requests
    ]


def _environment(request: JobRequest) -> list[str]:
    """The job's variables for an element: Slurm sets those of the first in all of them."""
    tasks = f'"${{tasks:-{request.resources.cores // (request.resources.unit or 1)}}}"'
    lines = [f"export SLURM_JOB_NAME={shlex.quote(request.token)} SLURM_NTASKS={tasks} SLURM_NPROCS={tasks}"]
    if request.resources.nodes is None:
        return [*lines, "unset SLURM_NTASKS_PER_NODE"]
    return [*lines, "export SLURM_NTASKS_PER_NODE=$((SLURM_NTASKS / ${SLURM_JOB_NUM_NODES:-1}))"]


def edits(requests: Sequence[JobRequest], options: SlurmOptions) -> Iterator[tuple[int, list[str]]]:
    """What makes each element its own, as scontrol's settings, in the order in which they are to be said.

    An edit gives an element a record of its own at the end of Slurm's list. With the first element's record at the head
    of that list, the second element started before it once in about 130 arrays; probably the begin time came while
    Slurm walked through the list. So the first element is the last to get a record. What is left of the array is the
    last element's: Slurm 22.05 starts it in the order of its index, Slurm 26.05 after all that have records.
    """
    first = requests[0]
    last = len(requests) - 1
    order = [*range(1, last), 0, last] if last else []
    for number, request in ((number, requests[number]) for number in order):
        changes = JobChanges(
            walltime_s=None if request.walltime_s == first.walltime_s else request.walltime_s,
            resources=None if request.resources == first.resources else _changed(request.resources, options),
        )
        named = [f"JobName={request.token}"] + ([f"StdOut={words.output_file(request)}"] if number else [])
        unbound = first.resources.nodes is not None and request.resources.nodes is request.resources.unit is None
        several = [f"NumNodes=1-{request.resources.cores}", "MinCPUsNode=1"] if unbound else []
        yield number, [*named, *allowed(words.scontrol_settings(changes, 0.0)), *several]


def allowed(settings: Sequence[str]) -> list[str]:
    """What an ordinary user may change of an element, of scontrol's settings; see `_editable`."""
    return [item for item in settings if not item.startswith("TasksPerNode=")]


def _changed(size: Resources, options: SlurmOptions) -> Resources:
    """What is to be said of an element's size: GPUs are the first element's, and memory is the user's if given."""
    memory = None if options.flags.keys() & _MEMORY else size.memory
    return dataclasses.replace(size, gpus=0, memory=memory)


def _gpus(size: Resources) -> tuple[int, int | None]:
    """GPUs as Slurm keeps them: for each node, or for the job."""
    return (size.gpus, 0) if size.nodes is None or not size.gpus else (-(-size.gpus // size.nodes), None)
