"""A job request as options of sbatch and as a job script. Pure."""

from __future__ import annotations

import difflib
import math
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from asa.backends.slurm.identity import key
from asa.core.errors import InvalidInput, UnknownName
from asa.core.job import Dependency, DependencyKind, JobChanges, JobRequest, Resources
from asa.core.units import MIB

Flag = str | int | float | bool | None

_TOKEN = re.compile(r"[A-Za-z0-9_.+:@=-]+")
_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")

_EXCLUDE_EACH_OTHER = (
    {"mem", "mem-per-cpu", "mem-per-gpu"},
    {"gres", "gpus", "G", "gpus-per-node", "gpus-per-task", "gpus-per-socket"},
)
_ELSEWHERE = {
    "time": "give the stage a walltime",
    "t": "give the stage a walltime",
    "nodes": "give the stage nodes",
    "N": "give the stage nodes",
    "ntasks": "give the stage cores",
    "n": "give the stage cores",
    "job-name": "jobs are found again by the names that ASA gives them",
    "J": "jobs are found again by the names that ASA gives them",
    "output": "ASA collects the output in the run's directory",
    "o": "ASA collects the output in the run's directory",
    "chdir": "start the run in that directory",
    "D": "start the run in that directory",
    "dependency": "the strategy decides about dependencies",
    "d": "the strategy decides about dependencies",
    "begin": "the strategy decides when to submit",
    "b": "the strategy decides when to submit",
    "requeue": "use the option requeue=True or False",
    "no-requeue": "use the option requeue=True or False",
    "array": "use stage.map(...)",
    "a": "use stage.map(...)",
    "wrap": "use a stage or asa.command(...)",
    "parsable": "ASA needs it and always gives it",
    "test-only": "it would submit nothing",
    "wait": "ASA waits by itself",
    "W": "ASA waits by itself",
    "hold": "nothing would release the job",
    "H": "nothing would release the job",
    "p": "write partition=...",
    "A": "write account=...",
    "M": "write clusters=...",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a user wants of every job.

    Parameters
    ----------
    flags
        sbatch options by their long names (underscores or dashes) or single letters. True stands for an option without
        a value; None or False leaves out an option that ASA would give (``mem=False``).
    setup
        Shell lines before the program.
    template
        Text of a whole job script with ``{{placeholders}}``, or None for ASA's own.
    requeue
        Whether Slurm may start a job again whose node failed. ASA submits a new one by itself if it may not.

    Raises
    ------
    InvalidInput
        When a flag cannot be passed through, or the template has no ``{{program}}`` or an unknown placeholder.
    """

    flags: Mapping[str, Flag] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    template: str | None = None
    requeue: bool = False

    def __post_init__(self) -> None:
        flags = {name.replace("_", "-"): value for name, value in self.flags.items()}
        for name, value in flags.items():
            if name in _ELSEWHERE:
                raise InvalidInput(f"Slurm option {name!r} cannot be passed through: {_ELSEWHERE[name]}")
            if "\n" in f"{name}{value}":
                raise InvalidInput(f"Slurm option {name!r}: {value!r} has more than one line")
        object.__setattr__(self, "flags", flags)
        if self.template is not None:
            _check_template(self.template)


def sbatch_options(request: JobRequest, options: Options) -> list[str]:
    """Options of the submission; flags of the user win over those that follow from the resources.

    Raises
    ------
    InvalidInput
        When the token has letters that cannot be in a job name.
    """
    if not _TOKEN.fullmatch(request.token):
        raise InvalidInput(f"token {request.token!r}: expected letters, digits and _ . + : @ = - only")
    flags: dict[str, Flag] = {
        "job-name": request.token,
        **_size(request.resources),
        "time": minutes(request.walltime_s),
        "chdir": request.workdir,
        "output": output(request),
        "open-mode": "append",  # a requeued job keeps its first life's last words
        "requeue" if options.requeue else "no-requeue": True,
    }
    if request.dependencies:
        flags["dependency"] = dependency_list(request.dependencies)
        if any(item.kind is DependencyKind.AFTER_OK for item in request.dependencies):
            flags["kill-on-invalid-dep"] = "yes"  # or it would wait for ever once its predecessor has failed
    if request.begin is not None:
        flags["begin"] = local_time(request.begin)
    if request.deadline is not None:
        flags["deadline"] = local_time(request.deadline)
    for group in _EXCLUDE_EACH_OTHER:
        if group & options.flags.keys():
            flags = {name: value for name, value in flags.items() if name not in group}
    flags |= options.flags
    return [_option(name, value) for name, value in flags.items() if value is not None and value is not False]


def output(request: JobRequest) -> str:
    """Slurm's word for the file that has a job's output."""
    return "/dev/null" if request.output is None else request.output.replace("%", "%%")


def job_script(request: JobRequest, options: Options) -> str:
    """The job script; it can also be submitted by hand, because it repeats the options as ``#SBATCH`` lines."""
    program = "\n".join(_program(request))
    header = "\n".join(f"#SBATCH {shlex.quote(option)}" for option in sbatch_options(request, options))
    values = {
        "directives": header,
        "setup": "\n".join(options.setup),
        "program": program,
        "token": request.token,
        "cores": str(request.resources.cores),
        "nodes": str(request.resources.nodes or ""),
        "minutes": str(minutes(request.walltime_s)),
        "workdir": request.workdir,
    }
    template = options.template
    if template is None:
        template = "#!/bin/sh\n{{directives}}\n" + ("{{setup}}\n" if options.setup else "") + "{{program}}\n"
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


PLACEHOLDERS = ("directives", "setup", "program", "token", "cores", "nodes", "minutes", "workdir")
"""What a template may contain, in double braces; ``program`` it must."""


def _check_template(template: str) -> None:
    used = _PLACEHOLDER.findall(template)
    for name in used:
        if name not in PLACEHOLDERS:
            raise UnknownName("placeholder in the job script template", name, PLACEHOLDERS)
    if "program" not in used:
        near = difflib.get_close_matches("{{program}}", template.split(), n=1)
        hint = f" (is {near[0]!r} meant?)" if near else ""
        raise InvalidInput(f"the job script template has no {{{{program}}}}, so the job would do nothing{hint}")
    if not template.startswith("#!"):
        first = template.partition("\n")[0]
        raise InvalidInput(f"the job script template starts with {first!r}: expected a line like '#!/bin/sh'")


def _program(request: JobRequest) -> list[str]:
    """Shell lines that run the program once on each node, with all the cores that the job has there."""
    program = shlex.join(request.argv)
    nodes = request.resources.nodes
    if nodes == 1:
        return [f"exec {program}"]
    # One process a node, none bound to a part of the cores; later steps may share the cores with it.
    srun = "exec srun --ntasks-per-node=1 --cpu-bind=none --overlap --kill-on-bad-exit=0 --wait=0 --export=ALL"
    if nodes is not None:
        return [f"{srun} --nodes={nodes} --ntasks={nodes} {program}"]
    return [
        'if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then',
        f'    {srun} --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" {program}',
        "fi",
        f"exec {program}",
    ]


def _size(resources: Resources) -> dict[str, Flag]:
    """Cores as tasks of one core: scontrol can change their number while the job waits, that of CPUs per task not."""
    flags: dict[str, Flag] = {"ntasks": resources.cores}
    nodes = resources.nodes
    if nodes is not None:
        flags |= {"nodes": nodes, "ntasks-per-node": resources.cores // nodes}
    if resources.memory is not None:
        flags["mem" if nodes else "mem-per-cpu"] = f"{_mib_each(resources)}M"
    if resources.gpus:
        whole = nodes is not None and resources.gpus % nodes == 0
        flags |= {"gres": f"gpu:{resources.gpus // (nodes or 1)}"} if whole else {"gpus": resources.gpus}
    return flags


def _mib_each(resources: Resources) -> int:
    """Memory of each node, or of each core where the number of nodes is left open [MiB], rounded up."""
    return -(-(resources.memory or 0) // ((resources.nodes or resources.cores) * MIB))


def settings(changes: JobChanges, now: float) -> list[str]:
    """scontrol's settings for changes of a waiting job.

    Raises
    ------
    InvalidInput
        When GPUs are asked for: Slurm has no dependable way to change them.
    """
    found = [] if changes.resources is None else _size_settings(changes.resources)
    if changes.walltime_s is not None:
        found.append(f"TimeLimit={minutes(changes.walltime_s)}")
    if changes.dependencies is not None:
        found.append(f"Dependency={dependency_list(changes.dependencies)}")
    if changes.begin is not None:
        found.append(f"StartTime={local_time(changes.begin) if changes.begin > now else 'now'}")
    return found


def parking(parked: bool, nodes: str, options: Options) -> str:
    """scontrol's setting that parks a waiting job, or lets it go.

    Parameters
    ----------
    nodes
        All nodes of its partition.
    """
    own = options.flags.get("exclude", options.flags.get("x")) or ""
    return f"ExcNodeList={nodes if parked else own}"


def _size_settings(resources: Resources) -> list[str]:
    if resources.gpus:
        raise InvalidInput("the GPUs of a waiting job cannot be changed: cancel it and submit another")
    found = [f"NumTasks={resources.cores}", f"NumCPUs={resources.cores}"]
    if resources.nodes is not None:
        nodes = resources.nodes
        each = resources.cores // nodes  # said twice, or Slurm would go on asking for as many CPUs a node as before
        found = [f"NumNodes={nodes}-{nodes}", *found, f"TasksPerNode={each}", f"MinCPUsNode={each}"]
    if resources.memory is not None:
        found.append(f"MinMemory{'Node' if resources.nodes else 'CPU'}={_mib_each(resources)}")
    return found


def dependency_list(dependencies: Sequence[Dependency]) -> str:
    """Slurm's words for dependencies that must all be fulfilled."""
    return ",".join(f"{item.kind.value}:{key(item.on)}" for item in dependencies)


def minutes(seconds: float) -> int:
    """Slurm's time limits are whole minutes; rounded up, at least one."""
    return max(1, math.ceil(seconds / 60))


def local_time(at: float) -> str:
    """A time [s since the epoch] as Slurm reads it: in this machine's time zone, whole seconds, rounded up."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(math.ceil(at)))


def _option(name: str, value: Flag) -> str:
    dashes = "-" if len(name) == 1 else "--"
    if value is True:
        return f"{dashes}{name}"
    return f"{dashes}{name}{'' if len(name) == 1 else '='}{value}"
