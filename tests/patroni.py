"""A cluster of two Patroni nodes with Debian's PostgreSQL 15 and synchronous replication, beside an etcd of its own."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import yaml

from pybroker.demo.broker import free_ports
from tests.patience import NotStartedError, until

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 15
BINARIES = Path(f"/usr/lib/postgresql/{VERSION}/bin")
NODES = ("one", "two")
# The shortest that Patroni takes, in seconds.
_PACE = {"ttl": 20, "loop_wait": 1, "retry_timeout": 3}


class Cluster:
    """The two nodes; one of them leads."""

    def __init__(self, ports: dict[str, int], interfaces: dict[str, int]) -> None:
        self._ports = ports
        self._interfaces = interfaces

    def url(self, database: str) -> str:
        """Return a URL that leads to whichever node takes writes."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def leader(self) -> str | None:
        """Return who leads and has a synchronous standby; None if nobody does."""
        query = b"select inet_server_port() from pg_stat_replication where sync_state = 'sync'"
        try:
            with psycopg.connect(self.url("postgres"), connect_timeout=5) as session:
                row = session.execute(query).fetchone()
        except psycopg.OperationalError:
            return None
        return next((name for name, port in self._ports.items() if row == (port,)), None)

    def write_through(self) -> None:
        """Have both nodes write all that they know, as they do by themselves every few minutes.

        Without it the standby has only zeros where unlogged sequences begin: PostgreSQL 15 replays those into
        memory, and a promotion reads the file.
        """
        with psycopg.connect(self.url("postgres"), autocommit=True) as session:
            session.execute("checkpoint")
            reached = session.execute(
                "select pg_current_wal_insert_lsn()::text, inet_server_port()"
            ).fetchone()
        assert reached is not None
        (standby,) = (port for port in self._ports.values() if port != reached[1])
        with psycopg.connect(
            f"postgresql://postgres@127.0.0.1:{standby}/postgres", autocommit=True
        ) as session:
            query = b"select pg_last_wal_replay_lsn() >= %s::pg_lsn"
            until(lambda: session.execute(query, (reached[0],)).fetchone() == (True,))
            session.execute("checkpoint")

    def switch_over(self) -> None:
        """Have the standby lead, and wait until the one that led follows it, synchronously."""
        old = until(self.leader)
        (new,) = set(NODES) - {old}
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self._interfaces[old]}/switchover",
            json.dumps({"leader": old, "candidate": new}).encode(),
            {"Content-Type": "application/json"},
        )
        until(lambda: _is_done(asked))
        until(lambda: self.leader() == new)


def _is_done(asked: urllib.request.Request) -> bool:
    """Ask Patroni; it refuses while it has not noted that the candidate follows synchronously."""
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.PRECONDITION_FAILED:
            raise
        return False


@contextmanager
def patroni() -> Iterator[Cluster]:
    """Start it; what its programs say is in the log beside their data."""
    peer, client, *ports = free_ports(2 + 2 * len(NODES))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pybroker-patroni-")))
        folder.chmod(0o755)
        as_server = _account(folder)
        log = folder / "log"
        cluster = Cluster(
            dict(zip(NODES, ports, strict=False)), dict(zip(NODES, ports[len(NODES) :], strict=True))
        )
        said = stack.enter_context(log.open("w"))

        running = []

        def start(*command: str) -> None:
            process = subprocess.Popen([*as_server, *command], stdout=said, stderr=said, cwd=folder)
            running.append(process)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)

        ours, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        start(
            *("etcd", "--data-dir", str(folder / "etcd"), "--listen-client-urls", ours),
            *("--advertise-client-urls", ours, "--listen-peer-urls", peers),
            *("--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"),
        )
        for place, name in enumerate(NODES):
            settings = folder / f"{name}.yml"
            settings.write_text(
                yaml.safe_dump(_settings(folder, name, client, ports[place], ports[len(NODES) + place]))
            )
            start("patroni", str(settings))
        until(
            lambda: cluster.leader() or any(process.poll() is not None for process in running),
            error=NotStartedError,
        )
        assert all(process.poll() is None for process in running), log.read_text()[-3000:]
        yield cluster


def _account(folder: Path) -> list[str]:
    """Return how to run a command as somebody whom PostgreSQL accepts; the folder is theirs."""
    if os.getuid() != 0:
        return []
    account = pwd.getpwnam("postgres")
    shutil.chown(folder, account.pw_uid, account.pw_gid)
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


def _settings(folder: Path, name: str, etcd: int, port: int, interface: int) -> dict[str, object]:
    return {
        "scope": "pybroker",
        "name": name,
        "restapi": {"listen": f"127.0.0.1:{interface}", "connect_address": f"127.0.0.1:{interface}"},
        "etcd3": {"hosts": [f"127.0.0.1:{etcd}"]},
        "bootstrap": {
            "dcs": {**_PACE, "synchronous_mode": True, "synchronous_mode_strict": True},
            "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}],
            "pg_hba": [
                "local all all trust",
                "host all all 127.0.0.1/32 trust",
                "host replication all 127.0.0.1/32 trust",
            ],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{port}",
            "connect_address": f"127.0.0.1:{port}",
            "data_dir": str(folder / name),
            "bin_dir": str(BINARIES),
            "pgpass": str(folder / f"{name}.pgpass"),
            "authentication": {
                "superuser": {"username": "postgres"},
                "replication": {"username": "replicator"},
            },
            "parameters": {"unix_socket_directories": str(folder), "fsync": "off", "max_connections": 100},
        },
    }
