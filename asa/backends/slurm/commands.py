"""Questions to Slurm as command lines. Nothing is run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

QUEUE_FIELDS = (
    "ArrayJobID", "ArrayTaskID", "State", "Reason", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "exit_code",
    "RestartCnt", "NodeList", "AccrueTime", "Name",
)  # fmt: skip
VISIBLE_FIELDS = (
    "ArrayJobID", "ArrayTaskID", "UserName", "Partition", "State", "Reason", "PriorityLong", "NumCPUs", "NumNodes",
    "TimeLimit", "SubmitTime", "EndTime", "NodeList", "Name",
)  # fmt: skip
ACCOUNTING_FIELDS = ("JobID", "State", "Submit", "Eligible", "Start", "End", "ExitCode", "NodeList", "JobName")
NODE_FORMAT = "%R|%D|%c|%m|%G|%t"
DELIMITER = "|"  # only names may contain it, and they come last

KEYS_AT_ONCE = 1000
"""Jobs named in one command line; Linux takes no argument longer than 128 KiB."""

ANY_STATE = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"  # without it jobs never eligible to start are left out
HORIZON = "now-30days"  # without a start, accounting looks for names in today's jobs only
_KEPT_IN_JOB = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


def submission_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment for sbatch, which hands it on to the job.

    When the caller itself runs in a Slurm job, that job's ``SLURM_*`` variables are left out: they would tell an srun
    in the new job about the wrong allocation. ``SBATCH_*``, the defaults of the site or the user, stay.
    """
    in_job = "SLURM_JOB_ID" in inherited
    return {
        name: value
        for name, value in inherited.items()
        if not (in_job and name.startswith("SLURM") and name not in _KEPT_IN_JOB)
    }


def query_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment for everything but sbatch, without a person's display settings.

    Times are asked for as seconds since the epoch: they know no time zone and no summer time.
    """
    display = ("SQUEUE_", "SACCT_", "SINFO_", "SCONTROL_", "SCANCEL_")
    kept = {name: value for name, value in inherited.items() if not name.startswith(display)}
    return kept | {"SLURM_TIME_FORMAT": "%s"}


def submit(options: Sequence[str]) -> list[str]:
    """Submit the script on standard input."""
    return ["sbatch", "--parsable", *options]


def queue(user: str, *, keys: Sequence[str] = (), names: Sequence[str] = ()) -> list[str]:
    """All jobs of a user that the controller knows, ended ones included; only those named when the list is short."""
    what = [f"--user={user}", _format(QUEUE_FIELDS)]
    argv = ["squeue", "--noheader", "--all", "--array", "--states=all", *what]
    if 0 < len(keys) <= KEYS_AT_ONCE:
        argv.append(f"--jobs={','.join(keys)}")
    if 0 < len(names) <= KEYS_AT_ONCE:
        argv.append(f"--name={','.join(names)}")
    return argv


def everyone(partitions: Sequence[str]) -> list[str]:
    """All users' jobs in these partitions that wait or hold nodes."""
    where = f"--partition={','.join(partitions)}"
    return ["squeue", "--noheader", "--all", "--array", where, _format(VISIBLE_FIELDS)]


def _format(fields: Sequence[str]) -> str:
    return "--Format=" + ",".join(f"{field}:{DELIMITER}" for field in fields)


def accounting(user: str, *, keys: Sequence[str] = (), names: Sequence[str] = ()) -> list[str]:
    """Jobs in the accounting by id, or a user's jobs by name, with all that ever had the same id."""
    fields = ",".join(ACCOUNTING_FIELDS)
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--format={fields}"]
    if keys:
        return [*argv, f"--jobs={','.join(keys)}"]
    when = [f"--starttime={HORIZON}", "--endtime=now", f"--state={ANY_STATE}"]
    return [*argv, f"--user={user}", *when, f"--name={','.join(names)}"]


def portions(items: Sequence[str], most: int = KEYS_AT_ONCE) -> list[Sequence[str]]:
    """These, so many at a time."""
    return [items[at : at + most] for at in range(0, len(items), most)]


def update(key: str, settings: Sequence[str]) -> list[str]:
    """Change a job."""
    return ["scontrol", "update", f"JobId={key}", *settings]


def cancel(keys: Sequence[str]) -> list[str]:
    """End jobs; those that have ended, or that nobody knows, are passed over in silence."""
    return ["scancel", "--quiet", *keys]


def version() -> list[str]:
    """Which version the commands are."""
    return ["sbatch", "--version"]


def configuration() -> list[str]:
    """The controller's configuration."""
    return ["scontrol", "show", "config"]


def partitions() -> list[str]:
    """All partitions, hidden ones included, one a line."""
    return ["scontrol", "--all", "--oneliner", "show", "partition"]


def nodes(partition: str) -> list[str]:
    """Nodes of partitions, like ones together."""
    return ["sinfo", "--noheader", "--exact", f"--partition={partition}", f"--format={NODE_FORMAT}"]


def on_cluster(argv: list[str], cluster: str | None) -> list[str]:
    """The same question to another cluster of a multi-cluster site."""
    return argv if cluster is None else [argv[0], f"--clusters={cluster}", *argv[1:]]
