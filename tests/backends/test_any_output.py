"""Whatever a batch system prints is read, or refused as a `BackendError`, in little time and memory."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asa.backends import flux, pbs
from asa.backends.batch import host_names
from asa.backends.slurm import backend, commands, limits, rest, rest_parse, words
from asa.core.errors import BackendError
from asa.core.job import JobHandle
from tests.backends.slurm import test_commands as recorded
from tests.backends.test_flux_pbs import FLUX_JOB, QUEUED, STARTED
from tests.mutation import changed, garbled, refused_or_read

Read = Callable[[str], object]

SLURM = Path(__file__).parent / "slurm"
NODES = "main|3|8|4096|(null)|idle\ngpu|2|64|512000+|gpu:a100:4(S:0-1),nvme:1|mix*\n"
HANDLE = JobHandle("1", "asa-1", 1795255600.0)
RESOURCES = "     STATE NNODES NCORES NGPUS NODELIST\n      free      2      8     1 n[1-2]\n allocated 1 4 0 n3\n"
LIMITS = "bio|cpu=4,mem=2G,gres/gpu=1|1-00:00:00|7"


def _statuses(records: Iterable[words.JobRecord]) -> list[object]:
    return [words.job_status(words.handle_of(record), record, record, 1795255600.0) for record in records]


def _limits(text: str) -> object:
    row = dict(zip(("Account", "MaxTRES", "MaxWall", "MaxSubmit"), text.split("|"), strict=False))
    found = limits.in_force(row, limits.JobAccount("", "", "", ""), [], [], "ann")
    return limits.most_jobs(found), limits.bounded(None, None, found)


def _partitions(text: str) -> object:
    found = [item for item in commands.parse_oneliners(text) if "PartitionName" in item]
    nodes = commands.parse_nodes(NODES)
    return backend.site_capabilities({}, found, nodes, version=(22, 5), partition="main", poll_s=5.0)


def _flux(text: str) -> object:
    return [(flux.parse_status(HANDLE, job), flux.submit_time(job)) for job in flux.parse_jobs(text).values()]


def _pbs(text: str) -> object:
    return [(pbs.parse_status(HANDLE, job), pbs.submit_time(job)) for job in pbs.document(text, "Jobs").values()]


def _pbs_site(text: str) -> object:
    nodes = pbs.document(text, "nodes")
    return pbs.site_capabilities(*pbs.parse_server(text)[:1], "", {}, {}, nodes.values(), poll_s=1.0)


def _answer(parse: Callable[[Any], object]) -> Read:
    return lambda text: parse(rest_parse.content(200, text, "GET jobs"))


PBS_JOBS = json.loads(QUEUED)
PBS_JOBS["Jobs"]["2.vbox"] = (
    PBS_JOBS["Jobs"]["1.vbox"] | STARTED | {"job_state": "F", "Exit_status": 271, "substate": 91}
)
PBS_SITE = {
    "Server": {"vbox": {"pbs_version": "14.1"}},
    "nodes": {"n1": {"state": "free", "resources_available": {"ncpus": 8, "mem": "32gb", "ngpus": 1}}},
}
PARSERS: dict[str, tuple[Read, str]] = {
    "squeue": (lambda text: _statuses(commands.parse_queue(text)), recorded.SQUEUE),
    "squeue of all": (commands.parse_visible, recorded.VISIBLE),
    "sacct": (lambda text: _statuses(commands.parse_accounting(text)), recorded.SACCT),
    "sinfo": (commands.parse_nodes, NODES),
    "scontrol show partition": (_partitions, recorded.PARTITIONS),
    "scontrol show config": (
        lambda text: backend.poll_interval(commands.parse_configuration(text), 5.0),
        recorded.CONFIGURATION + "MinJobAge = 300 sec\n",
    ),
    "sacctmgr": (_limits, LIMITS),
    "sbatch": (commands.parse_job_id, "A notice of the site\n464;asa\n"),
    "sbatch --version": (commands.parse_version, "slurm-wlm 22.05.8\n"),
    "a time limit": (lambda text: (commands.parse_limit(text), commands.parse_wall_time(text)), "1-00:00:00"),
    "an exit status": (commands.parse_exit_status, "0:15"),
    "array elements": (commands.parse_elements, "0,2-3,10-14:2%4"),
    "a host list": (host_names, "cn[001-003,7],gpu-[1-2]-[a,b],login"),
    "a token": (rest.expiry, "eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3MDAwMDAwMDB9.c2lnbmF0dXJl"),
    "flux jobs": (_flux, json.dumps({"jobs": [FLUX_JOB]})),
    "flux resource list": (lambda text: flux.parse_capabilities(text, site="s", queue="", poll_s=1.0), RESOURCES),
    "flux submit": (flux.parse_job_id, "ƒ2oLuiaM\n"),
    "qstat": (_pbs, json.dumps(PBS_JOBS)),
    "pbsnodes": (_pbs_site, json.dumps(PBS_SITE)),
    "qsub": (pbs.parse_job_id, "a notice\n1.vbox\n"),
}
for _version in ("rest-22.05", "rest-26.05"):
    for _name, _parse in (
        ("jobs", lambda answer: (_statuses(rest_parse.queue(answer, "root")), rest_parse.visible_jobs(answer))),
        ("slurmdb-jobs", lambda answer: _statuses(rest_parse.accounting(answer, "root"))),
        ("nodes", lambda answer: rest_parse.nodes(answer, ["main"])),
        ("partitions", rest_parse.partitions),
        ("ping", lambda answer: (rest_parse.version(answer), rest_parse.hosts(answer), rest_parse.warnings(answer))),
    ):
        PARSERS[f"{_version} {_name}"] = (_answer(_parse), (SLURM / _version / f"{_name}.json").read_text())
PARSERS["rest-26.05 cancel"] = (_answer(rest_parse.warnings), (SLURM / "rest-26.05" / "cancel.json").read_text())

every_parser = pytest.mark.parametrize("name", PARSERS)


def damaged(text: str, rng: random.Random) -> str:
    if text[:1] != "{" or rng.random() < 0.4:
        return garbled(text, rng)
    return json.dumps(changed(json.loads(text), rng))


def attempt(name: str, rng: random.Random, count: int) -> None:
    read, text = PARSERS[name]
    for _ in range(count):
        refused_or_read(read, damaged(text, rng), BackendError)


@every_parser
def test_what_was_recorded_is_read(name: str) -> None:
    read, text = PARSERS[name]
    assert refused_or_read(read, text, BackendError) is (name != "rest-26.05 cancel"), "which says that there is no job"


@every_parser
@settings(max_examples=200)
@given(st.randoms(use_true_random=True))
def test_what_was_damaged_is_read_or_refused(name: str, rng: random.Random) -> None:
    attempt(name, rng, 10)


@pytest.mark.slow
@every_parser
def test_what_was_damaged_a_hundred_thousand_times(name: str) -> None:
    deadline, seed = time.monotonic() + 12.0, 0
    while seed < 10_000 and time.monotonic() < deadline:
        attempt(name, random.Random(seed), 10)
        seed += 1
    assert seed, "this machine is too slow to say anything"
