"""What an agent is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from executors.mesos.codec import Message
from executors.mesos.resources import Resources


@dataclass(frozen=True)
class Options:
    """What an agent is started with; the durations are Mesos' defaults.

    Parameters
    ----------
    hostname, port
        Where operators reach it; told in ``AgentInfo``.
    ip, tls
        The address of that host, if it is known, and whether operators reach it over TLS only: offers tell.
    resources
        All it has: ``scalars(cpus=64, mem=262144)``, and perhaps ``ports`` and ``gpus``.
    attributes
        Mesos' Attributes, such as the batch job's id: frameworks read them in offers.
    directory
        Sandboxes are below it.
    environment
        What every container inherits, without any secret of the agent.
    endpoint
        ``IP:PORT``, where executors on this node connect to.
    gpus
        What its GPUs are called in ``CUDA_VISIBLE_DEVICES``: each container sees those that it asks for. Empty where
        they are not told apart.
    ends
        When its allocation ends [s since the epoch]; None for never.
    margin_s
        How long before that everything is stopped [s]; None to leave it to the batch system. By default as long as
        executors have by default, and 10 s in which the end of everything is told.
    registration_s
        A custom executor that has not subscribed so long after its launch is ended [s].
    grace_s
        How long an executor that was told to end may take [s].
    recovery_s
        How long an executor whose connection broke, by an agent's restart perhaps, has to subscribe again [s].
    quotas
        Whether a container gets no more CPU than its tasks have asked for; else only what their ``limits`` say counts.
    user
        The only user whose tasks are taken; None for any name. All run as the agent's user, whatever they say.
    """

    hostname: str
    port: int
    resources: Resources
    directory: str
    endpoint: str
    attributes: list[Message] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    ends: float | None = None
    margin_s: float | None = 15.0
    registration_s: float = 60.0
    grace_s: float = 5.0
    recovery_s: float = 900.0
    quotas: bool = True
    user: str | None = None
    ip: str | None = None
    tls: bool = False
