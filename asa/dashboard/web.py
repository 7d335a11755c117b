"""The parts of the project's HTTP server (`executors.mesos.web`) that serve the page. They are reached by name, as all
that belongs to executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asa.core.registry import Registry

if TYPE_CHECKING:
    from executors.mesos.effects import Refused
    from executors.mesos.hosts import host_of, is_loopback
    from executors.mesos.loop_thread import LoopThread
    from executors.mesos.web.door import Door, listening_socket
    from executors.mesos.web.http import Admission, Opened, Request, Response
    from executors.mesos.web.limits import Failures
    from executors.mesos.web.request import check_method, told
    from executors.mesos.web.streams import Stream
else:
    _HOMES = {
        "executors.mesos.effects": ("Refused",),
        "executors.mesos.hosts": ("host_of", "is_loopback"),
        "executors.mesos.loop_thread": ("LoopThread",),
        "executors.mesos.web.door": ("Door", "listening_socket"),
        "executors.mesos.web.http": ("Admission", "Opened", "Request", "Response"),
        "executors.mesos.web.limits": ("Failures",),
        "executors.mesos.web.request": ("check_method", "told"),
        "executors.mesos.web.streams": ("Stream",),
    }
    _PARTS = Registry(
        "part of the HTTP server", {name: f"{home}:{name}" for home, names in _HOMES.items() for name in names}
    )
    for _name in _PARTS.names():
        globals()[_name] = _PARTS.load(_name)

__all__ = [
    "Admission",
    "Door",
    "Failures",
    "LoopThread",
    "Opened",
    "Refused",
    "Request",
    "Response",
    "Stream",
    "check_method",
    "host_of",
    "is_loopback",
    "listening_socket",
    "told",
]
