"""A directory that looks like a hierarchy of groups to who reads and writes it: for what needs no kernel."""

from __future__ import annotations

import os
from pathlib import Path

V1_FILES = {
    "cpu": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us", "cpu.stat", "tasks", "cgroup.procs"),
    "memory": (
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.soft_limit_in_bytes",
        "memory.stat",
        "cgroup.procs",
    ),
}
V2_FILES = (
    "cgroup.procs",
    "cgroup.threads",
    "cgroup.subtree_control",
    "cpu.max",
    "cpu.pressure",
    "cpu.weight",
    "cpu.stat",
    "memory.high",
    "memory.max",
    "memory.pressure",
    "memory.stat",
)


def fill(directory: Path, names: tuple[str, ...], **texts: str) -> Path:
    """The kernel's files of a group."""
    os.makedirs(directory, exist_ok=True)
    for name in names:
        (directory / name).write_text(texts.get(name.replace(".", "_"), ""))
    return directory


def said(directory: Path, name: str) -> str:
    """What was written to a file last."""
    return (directory / name).read_text()
