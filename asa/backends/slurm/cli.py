"""The transport that runs Slurm's commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from asa.backends.asking import Asking, by_subprocess
from asa.backends.command import CommandError
from asa.backends.slurm import commands, failures, parse
from asa.backends.slurm.record import JobRecord, NodeGroup, VisibleJob


class Commands:
    """Slurm through sbatch, squeue, sacct, scontrol, scancel and sinfo; a `Transport`.

    Parameters
    ----------
    cluster
        Another cluster of a multi-cluster site, or None for the one that the commands speak to by themselves.
    timeout_s
        How long one command may take [s]. While a controller is down a command gives up by itself after about 10 s.
    environment
        Environment of the caller.
    """

    arrays = True

    def __init__(self, cluster: str | None, timeout_s: float, environment: Mapping[str, str]) -> None:
        self._cluster = cluster
        submitting, asking = commands.submission_environment(environment), commands.query_environment(environment)
        self._submission = Asking(by_subprocess(timeout_s, submitting), failures.MESSAGES)
        self._question = Asking(by_subprocess(timeout_s, asking), failures.MESSAGES)
        self._user = str(os.geteuid())

    def name(self) -> str:
        return "its commands" + (f", cluster {self._cluster}" if self._cluster else "")

    def version(self) -> tuple[int, ...]:
        return parse.version(self._ask(commands.version()))

    def submit(self, options: Sequence[str], script: str) -> str:
        return parse.job_id(self._submission(commands.on_cluster(commands.submit(options), self._cluster), script))

    def queue(self, keys: Sequence[str]) -> list[JobRecord]:
        return self._jobs(commands.queue(self._user, keys=keys)) if keys else []

    def queue_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return self._jobs(commands.queue(self._user, names=names)) if names else []

    def accounting(self, keys: Sequence[str]) -> list[JobRecord]:
        return self._accounts(keys, lambda some: commands.accounting(self._user, keys=some))

    def accounting_by_name(self, names: Sequence[str]) -> list[JobRecord]:
        return self._accounts(names, lambda some: commands.accounting(self._user, names=some))

    def everyone(self, partitions: Sequence[str]) -> list[VisibleJob]:
        return parse.everyone(self._ask(commands.everyone(partitions)))

    def update(self, key: str, settings: Sequence[str]) -> None:
        self._ask(commands.update(key, settings))

    def cancel(self, keys: Sequence[str]) -> None:
        for some in commands.portions(keys):
            self._ask(commands.cancel(some), unless=failures.MESSAGES.only_ended)

    def configuration(self) -> dict[str, str]:
        return parse.configuration(self._ask(commands.configuration()))

    def partitions(self) -> list[dict[str, str]]:
        return parse.oneliners(self._ask(commands.partitions()))

    def nodes(self, partition: str) -> list[NodeGroup]:
        return parse.nodes(self._ask(commands.nodes(partition)))

    def _jobs(self, argv: list[str]) -> list[JobRecord]:
        return parse.queue(self._ask(argv, unless=failures.unknown_job))

    def _accounts(self, items: Sequence[str], question: Callable[[Sequence[str]], list[str]]) -> list[JobRecord]:
        return [
            record
            for some in commands.portions(items)
            for record in parse.accounting(self._ask(question(some), unless=failures.no_accounting))
        ]

    def _ask(self, argv: list[str], *, unless: Callable[[CommandError], bool] | None = None) -> str:
        return self._question(commands.on_cluster(argv, self._cluster), unless=unless)
