"""Slurm's accounting on a MariaDB of the cluster's own; without it all ages and shares count the same."""

import fcntl
import pwd
import secrets
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.cluster import daemons
from tests.cluster.config import (
    ACCOUNT,
    CLUSTER_NAME,
    DATABASE_NAME,
    DATABASE_USER,
    LOOPBACK,
    ClusterConfig,
    slurmdbd_conf,
)


def start(config: ClusterConfig) -> None:
    """Make and start the database and slurmdbd, and register the cluster, one account and the users."""
    _start_mariadbd(config)
    daemons.spawn(config, "slurmdbd", [daemons.program("slurmdbd"), "-D"])
    daemons.await_ready(config, "slurmdbd", lambda: daemons.listening(config.ports.slurmdbd), timeout=60)
    _sacctmgr(config, "add", "cluster", CLUSTER_NAME)
    _sacctmgr(config, "add", "account", ACCOUNT, f"Cluster={CLUSTER_NAME}")
    for user in config.users:
        _sacctmgr(config, "add", "user", user, f"Account={ACCOUNT}", f"Cluster={CLUSTER_NAME}")


def make_users(names: Iterable[str]) -> None:
    """Make those system users that do not exist yet, without home or password."""
    options = ["--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh"]
    with Path("/run/lock/asa-test-users").open("w") as lock:  # several clusters may start at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in set(names) - {entry.pw_name for entry in pwd.getpwall()}:
            subprocess.run([daemons.program("useradd"), *options, name], check=True, timeout=30)


def _start_mariadbd(config: ClusterConfig) -> None:
    data, log = Path(config.base, "mariadb"), Path(config.base, "log")
    own = Path(config.base, "mariadb-tmp")  # a server that starts removes all temporary tables there, others' too
    with (log / "mariadb-install-db.out").open("wb") as output:
        subprocess.run(
            [
                daemons.program("mariadb-install-db"),
                "--no-defaults",
                f"--datadir={data}",
                "--user=root",
                "--skip-test-db",
                "--skip-name-resolve",
                "--auth-root-authentication-method=socket",
            ],
            check=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=daemons.environment(config) | {"TMPDIR": str(own)},
            timeout=120,
        )
    password = secrets.token_hex(16)
    slurmdbd = Path(config.base, "etc", "slurmdbd.conf")
    slurmdbd.touch(mode=0o600)
    slurmdbd.write_text(slurmdbd_conf(config, password))
    grants = data / "grants.sql"
    grants.touch(mode=0o600)
    who = f"'{DATABASE_USER}'@'{LOOPBACK}'"
    grants.write_text(  # one statement a line, or mariadbd stops reading
        f"CREATE DATABASE IF NOT EXISTS {DATABASE_NAME};\n"
        f"CREATE USER IF NOT EXISTS {who} IDENTIFIED BY '{password}';\n"
        f"GRANT ALL ON {DATABASE_NAME}.* TO {who};\n"
    )
    options = {
        "datadir": data,
        "tmpdir": own,
        "socket": Path(config.base, "run", "mariadb.sock"),
        "pid-file": Path(config.base, "run", "mariadbd.pid"),
        "log-error": log / "mariadbd.log",
        "init-file": grants,
        "bind-address": LOOPBACK,
        "port": config.ports.mariadb,
        "user": "root",
        "innodb-buffer-pool-size": "32M",
        "loose-innodb-snapshot-isolation": "OFF",  # slurmdbd needs this of MariaDB 11.8; older ones do not know it
        "innodb-flush-log-at-trx-commit": "0",  # nothing here has to survive a power cut
    }
    argv = [daemons.program("mariadbd"), "--no-defaults", "--skip-name-resolve", "--skip-log-bin"]
    daemons.spawn(config, "mariadbd", argv + [f"--{key}={value}" for key, value in options.items()])
    daemons.await_ready(config, "mariadbd", lambda: daemons.listening(config.ports.mariadb), timeout=60)


def _sacctmgr(config: ClusterConfig, *arguments: str) -> None:
    done = subprocess.run(
        [daemons.program("sacctmgr"), "--immediate", "--quiet", *arguments],
        env=daemons.environment(config),
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        words = daemons.last_words(config, "slurmdbd")
        raise daemons.DaemonError(f"sacctmgr {' '.join(arguments)}: {done.stdout}{done.stderr}\n{words}")
