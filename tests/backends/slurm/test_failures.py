"""Messages are recorded from Slurm 22.05.8 unless marked otherwise."""

from __future__ import annotations

import pytest

from asa.backends.batch import CommandError
from asa.backends.slurm import words
from asa.backends.slurm.words import ERRORS as MESSAGES
from asa.backends.slurm.words import SiteRefusal


def failed(stderr: str, returncode: int = 1) -> CommandError:
    return CommandError(["sbatch"], f"ended with exit code {returncode}", returncode=returncode, stderr=stderr)


@pytest.mark.parametrize(
    "stderr",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:127.0.0.1:"
        "20398: Connection refused\nsacct: error: Sending PersistInit msg: Connection refused\n",
        "sbatch: error: Batch job submission failed: Resource temporarily unavailable\n",  # by hand
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n",  # by hand
        "squeue: error: RPC rate limit exceeded 20 times, sleeping and retrying\n",  # by hand, 23.02 and later
        "slurm_load_jobs error: Zero Bytes were transmitted or received\n",  # by hand
        "scontrol: error: slurm_receive_msg: Slurm backup controller in standby mode\n",  # by hand
    ],
)
def test_no_answer_may_be_tried_again(stderr: str) -> None:
    assert MESSAGES.meaning(failed(stderr)).transient


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            "sbatch: error: invalid partition specified: nosuch\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            "invalid partition specified: nosuch\nBatch job submission failed: Invalid partition name specified",
        ),
        (
            "sbatch: unrecognized option '--nosuchflag'\nTry \"sbatch --help\" for more information\n",
            "unrecognized option '--nosuchflag'\nTry \"sbatch --help\" for more information",
        ),
        (
            "sbatch: error: Invalid generic resource (gres) specification\n",
            "Invalid generic resource (gres) specification",
        ),
        (
            "sbatch: error: Rejected by the job_submit plugin: choose a project\n",  # by hand
            "Rejected by the job_submit plugin: choose a project",
        ),
    ],
)
def test_a_refusal_has_the_sites_words(stderr: str, reason: str) -> None:
    refusal = MESSAGES.meaning(failed(stderr))
    assert isinstance(refusal, SiteRefusal)
    assert refusal.reason == reason
    assert not refusal.transient


@pytest.mark.parametrize(
    "stderr",
    [
        "",
        "sbatch: error: _establish_config_source: failed to fetch config\n"
        "sbatch: fatal: Could not establish a configuration source\n",
        "squeue: error: ClusterName needs to be specified\nsqueue: fatal: Unable to process configuration file\n",
    ],
)
def test_a_broken_installation_is_neither(stderr: str) -> None:
    error = failed(stderr)
    assert MESSAGES.meaning(error) is error
    assert not error.transient


def test_a_command_that_never_ended_stays_as_it_is() -> None:
    late = CommandError(["sbatch"], "no answer within 60 s", transient=True)
    missing = CommandError(["sbatch"], "no program 'sbatch'")
    assert MESSAGES.meaning(late) is late
    assert MESSAGES.meaning(missing) is missing


def test_failures_that_are_none() -> None:
    assert words.is_unknown_job(failed("slurm_load_jobs error: Invalid job id specified\n"))
    assert words.is_no_accounting(failed("Slurm accounting storage is disabled\n"))
    assert MESSAGES.only_ended(
        failed("scancel: error: Kill job error on job id 7: Invalid job id specified\n")
    )  # by hand
    assert MESSAGES.only_ended(failed("Job has already finished for job 24\n"))
    assert not MESSAGES.only_ended(failed(""))
    assert not MESSAGES.only_ended(failed("scancel: error: Kill job error on job id 7: Access/permission denied\n"))
