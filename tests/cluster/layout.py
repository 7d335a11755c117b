"""The directory of a cluster: what lies where, and who may see it."""

import dataclasses
import json
import os
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from tests.cluster.config import LOOPBACK, ClusterConfig, Ports, cgroup_conf, gres_conf, slurm_conf, task_prolog

_NULL = os.makedev(1, 3)  # Slurm names no device to a job that is none
_DESCRIPTION = "cluster.json"
_DIRECTORIES = ("etc", "log", "munge", "run", "spool", "state", "mariadb", "mariadb-tmp", "gpus", "tmp")


def make(config: ClusterConfig) -> None:
    """Make the directories, configuration files and keys of a cluster.

    Raises
    ------
    FileExistsError
        If the base directory holds something already.
    PermissionError
        If it belongs to somebody else.
    """
    base = Path(config.base)
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.stat().st_uid != os.geteuid():
        raise PermissionError(f"{base} belongs to another user: take another directory")
    if any(base.iterdir()):
        raise FileExistsError(f"{base} is not empty: take another, or end the cluster in it with `down`")
    # Other users (REST_USER is one) read slurm.conf, reach munged, and run scripts in the spool directory.
    shared = bool(config.users) or config.rest
    base.chmod(0o711 if shared else 0o700)
    for name in _DIRECTORIES:
        directory = base / name
        directory.mkdir(mode=0o700)
        directory.chmod(0o711 if shared and name in ("etc", "munge", "spool", "tmp") else 0o700)
    (base / _DESCRIPTION).write_text(json.dumps(dataclasses.asdict(config), default=str, indent=1) + "\n")
    texts = {"cgroup.conf": cgroup_conf(config), "slurm.conf": slurm_conf(config), "gres.conf": gres_conf(config)}
    if config.named:
        names = "".join(f"{LOOPBACK} {node}\n" for node in config.nodes)
        texts["hosts"] = Path("/etc/hosts").read_text() + "\n" + names
    for name, text in texts.items():
        (base / "etc" / name).write_text(text)
        (base / "etc" / name).chmod(0o644)
    prolog = base / "etc" / "task-prolog"
    prolog.write_text(task_prolog(config))
    prolog.chmod(0o755)
    for node in config.nodes:
        (base / "tmp" / node).mkdir()
        (base / "tmp" / node).chmod(0o1777)
    for device in (Path(device) for node in config.nodes for device in config.devices(node)):
        device.parent.mkdir(exist_ok=True)
        os.mknod(device, 0o666 | stat.S_IFCHR, _NULL)
    keys = [Path(config.munge_socket.parent, "key"), Path(config.jwt_key)]
    for key in keys if config.rest else keys[:1]:
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(64))


def read(base: Path) -> ClusterConfig:
    """The configuration of the cluster that was started in a directory.

    Raises
    ------
    FileNotFoundError
        If none was.
    """
    path = base.absolute() / _DESCRIPTION
    if not path.exists():
        raise FileNotFoundError(f"no test cluster was started in {base}: {path} does not exist")
    fields: dict[str, Any] = json.loads(path.read_text())
    fields["base"] = PurePosixPath(fields["base"])
    fields["ports"] = Ports(**fields["ports"] | {"slurmd": tuple(fields["ports"]["slurmd"])})
    fields |= {name: tuple(fields[name]) for name in ("users", "gpus", "gres", "features")}
    fields["settings"] = tuple(map(tuple, fields["settings"]))
    return ClusterConfig(**fields)


def remove(config: ClusterConfig) -> None:
    """Delete what `make` made, and the base directory unless something else is in it."""
    for name in _DIRECTORIES:
        shutil.rmtree(Path(config.base, name), ignore_errors=True)
    Path(config.base, _DESCRIPTION).unlink(missing_ok=True)
    with suppress(OSError):
        Path(config.base).rmdir()
