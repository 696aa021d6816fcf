"""The acceptance application on servers that were there before: those of PYBROKER_TEST_DATABASE_URL, else one started for it.

The URLs, separated by spaces, are of a role with CREATEDB and CREATEROLE, no superuser. Only databases and roles that a run has made
itself, under a random prefix, are touched, and they are dropped at its end.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pybroker.demo.broker import free_ports
from pybroker.embedded import EmbeddedServer
from pybroker.migrations import migrate
from tests.ledgers import TARGET_SERVICE, Load, define, service_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("first", "second", "third", "target")
_EAGER = ("--resend-after", "0.5", "--reconnect-after", "0.3", "--retry-connect-after", "0.3")


class OwnSite:
    """A database of an ordinary role, and a worker process beside it."""

    def __init__(self, name: str, prefix: str, server_url: str, port: int, directory: Path) -> None:
        self.name = name
        self.role = f"{prefix}_{name}"
        self.port = port
        self._server_url = server_url
        self._password = secrets.token_hex(16)
        self.url = make_conninfo(server_url, user=self.role, password=self._password, dbname=self.role)
        self._keys = directory / name
        self._log = directory / f"{name}.log"
        self.worker: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        role = sql.Identifier(self.role)
        with psycopg.connect(self._server_url, autocommit=True) as session:
            session.execute(sql.SQL("create role {} login password {}").format(role, self._password))
            # From PostgreSQL 16 on, who creates a role is not yet a member of it.
            session.execute(sql.SQL("grant {} to current_user").format(role))
            session.execute(sql.SQL("create database {} owner {}").format(role, role))
        migrate(self.url)

    def drop(self) -> None:
        role = sql.Identifier(self.role)
        with psycopg.connect(self._server_url, autocommit=True) as session:
            session.execute(sql.SQL("drop database if exists {} with (force)").format(role))
            session.execute(sql.SQL("drop role if exists {}").format(role))

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url)

    def log(self) -> str:
        return self._log.read_text()[-4000:]

    def execute(self, query: str, *arguments: object) -> None:
        with self.connect() as session:
            session.execute(query.encode(), arguments)

    def certificate(self) -> str:
        create = (sys.executable, "-m", "pybroker", "certificate", "create", self.name)
        subprocess.run([*create, "--key-directory", self._keys], check=True, capture_output=True)
        return (self._keys / f"{self.name}.pem").read_text()

    def start_worker(self) -> None:
        command = (sys.executable, "-m", "pybroker", "worker", *_EAGER, "--database-url", self.url)
        with self._log.open("ab") as log:
            self.worker = subprocess.Popen([*command, "--key-directory", str(self._keys)], stderr=log)

    def end_worker(self, number: int = signal.SIGTERM) -> None:
        if self.worker is not None:
            self.worker.send_signal(number)
            self.worker.wait(60)


@pytest.fixture
def server_urls() -> Iterator[list[str]]:
    if given := os.environ.get("PYBROKER_TEST_DATABASE_URL"):
        yield given.split()
        return
    with EmbeddedServer(listen=True) as server:
        with psycopg.connect(server.url(), autocommit=True) as session:
            session.execute("create role tester login createdb createrole password 'a password'")
        yield [server.tcp_url("postgres", user="tester", password="a password")]


@contextmanager
def own_sites(prefix: str, server_urls: list[str], directory: Path) -> Iterator[list[OwnSite]]:
    """Yield the three initiators and the target, with workers that know each other; drop them at the end."""
    ports = free_ports(len(NAMES))
    sites = [
        OwnSite(name, prefix, server_urls[number % len(server_urls)], ports[number], directory)
        for number, name in enumerate(NAMES)
    ]
    with ExitStack() as stack:
        for site in sites:
            stack.callback(site.drop)
            site.create()
        *initiators, target = sites
        define(initiators, target)
        certificates = {site.name: site.certificate() for site in sites}
        for site in sites:
            far = initiators if site is target else [target]
            for other in (site, *far):
                site.execute(
                    "select broker.create_certificate(%s, %s, %s)",
                    other.name,
                    certificates[other.name],
                    other.name,
                )
            site.execute(
                "select broker.create_endpoint('endpoint', %s, 'STARTED', '127.0.0.1', %s)",
                site.port,
                site.name,
            )
            for other in far:
                service = TARGET_SERVICE if other is target else service_of(other)
                site.execute("select broker.grant('CONNECT', 'ENDPOINT', 'endpoint', %s)", other.name)
                site.execute(
                    "select broker.create_route(%s, %s, service_name => %s)",
                    service,
                    f"tcp://127.0.0.1:{other.port}",
                    service,
                )
            stack.callback(site.end_worker)
            site.start_worker()
        yield sites


def _objects(url: str) -> set[str]:
    with psycopg.connect(url) as session:
        rows = session.execute(
            "select datname from pg_database union all select rolname from pg_roles"
        ).fetchall()
    return {name for (name,) in rows}


# At each landing the same application runs in containers, with ordinary roles, and each is killed in turn.
@pytest.mark.nightly
def test_the_acceptance_application_runs_on_the_user_s_servers_and_leaves_nothing_there(
    server_urls: list[str], tmp_path: Path
) -> None:
    prefix = f"pybroker_test_{secrets.token_hex(4)}"
    with own_sites(prefix, server_urls, tmp_path) as sites:
        *initiators, target = sites
        with Load(initiators, target) as load:
            for site in (initiators[0], target):
                load.go_on()
                site.end_worker(signal.SIGKILL)
                site.start_worker()
            load.go_on()
    for url in server_urls:
        assert [name for name in _objects(url) if name.startswith(prefix)] == []
