"""Two databases on two servers, each with a worker process of its own, and mutual TLS between them.

A dialog between them goes clear: it is begun with `encryption => false`, and public may SEND.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg

from pybroker.demo.broker import free_ports
from pybroker.embedded import EmbeddedServer
from tests import forked, sql_calls
from tests.conftest import migrated_database
from tests.patience import PATIENCE
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.proxy import Proxy

INITIATOR_DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_message_type('ack');
select broker.create_message_type('invoice', validation => 'WELL_FORMED_XML');
select broker.create_contract('ordering', sent_by_initiator => '{order,invoice}', sent_by_target => '{ack}');
select broker.create_queue('shop');
select broker.create_service('//shop', 'shop');
"""
TARGET_DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_message_type('ack');
select broker.create_message_type('invoice', validation => 'WELL_FORMED_XML');
select broker.create_contract('ordering', sent_by_initiator => '{order,invoice}', sent_by_target => '{ack}');
select broker.create_queue('warehouse');
select broker.create_service('//warehouse', 'warehouse', '{ordering}');
select broker.grant('SEND', 'SERVICE', '//warehouse', 'public');
"""


# Seconds that a worker waits before it tries again; with its own a test would take minutes.
_KNOBS = {"resend_after": 0.2, "reconnect_after": 0.2, "retry_connect_after": 0.3}

_KEYS: dict[str, dict[str, bytes]] = {}


class Site:
    """A server with one database, and the worker beside it.

    Attributes:
        host: Where the worker listens.
        prefix: What its command begins with, if it has to be started somewhere else.
    """

    host = "127.0.0.1"
    prefix: tuple[str, ...] = ()

    def __init__(self, name: str, server: EmbeddedServer, directory: Path) -> None:
        self.name = name
        self.server = server
        self.keys = directory / name
        self.port = free_port()
        self.worker: forked.Process | None = None
        self.log = directory / f"{name}.log"
        migrated_database(server, name)
        self.url = server.tcp_url(name)
        self.psql = self.session()

    def session(self, *, autocommit: bool = True) -> Session:
        return Session(psycopg.connect(self.server.url(self.name), autocommit=autocommit))

    def reconnect(self) -> None:
        self.psql.connection.close()
        self.psql = self.session()

    def certificate(self) -> str:
        """Make this site's key and certificate; a process makes one of each name, and copies it for its next tests."""
        if self.name not in _KEYS:
            run = [sys.executable, "-m", "pybroker", "certificate", "create", self.name]
            subprocess.run([*run, "--key-directory", self.keys], check=True, capture_output=True)
            _KEYS[self.name] = {file.name: file.read_bytes() for file in self.keys.iterdir()}
        self.keys.mkdir(mode=0o700, exist_ok=True)
        for name, content in _KEYS[self.name].items():
            file = self.keys / name
            file.touch(mode=0o600)
            file.write_bytes(content)
        return (self.keys / f"{self.name}.pem").read_text()

    def trust(self, name: str, pem: str) -> None:
        self.psql.rows("select broker.create_certificate(%s, %s, %s::name)", name, pem, f"{name}_user")
        self.psql.rows("select broker.grant('CONNECT', 'ENDPOINT', 'endpoint', %s::name)", f"{name}_user")

    def listen(self, pem: str) -> None:
        self.psql.rows("select broker.create_certificate(%s, %s, current_user)", self.name, pem)
        self.create_endpoint()

    def create_endpoint(self) -> None:
        self.psql.rows(
            "select broker.create_endpoint('endpoint', %s, state => 'STARTED', listener_ip => %s, certificate => %s)",
            self.port,
            self.host,
            self.name,
        )

    def route(self, service: str, to: Site | Proxy) -> None:
        self.psql.rows(
            "select broker.create_route(%s, %s, service_name => %s)",
            service,
            f"tcp://{to.host}:{to.port}",
            service,
        )

    def start_worker(self, **knobs: float) -> None:
        """Start the worker; what it waits for is short, unless `knobs` say otherwise: resend_after=4."""
        given = [f"--{name.replace('_', '-')}={seconds}" for name, seconds in {**_KNOBS, **knobs}.items()]
        arguments = ["worker", "--database-url", self.url, "--key-directory", str(self.keys), *given]
        with self.log.open("a") as log:
            if self.prefix:
                typed = [*self.prefix, sys.executable, "-m", "pybroker", *arguments]
                self.worker = subprocess.Popen(typed, stderr=log, stdout=log, text=True)
            else:
                self.worker = forked.start(arguments, stderr=log, stdout=log)

    def kill_worker(self) -> None:
        assert self.worker is not None
        self.worker.send_signal(signal.SIGKILL)
        self.worker.wait()

    def stop_worker(self) -> int:
        assert self.worker is not None
        self.worker.terminate()
        return self.worker.wait(timeout=PATIENCE)

    def close(self) -> None:
        if self.worker is not None and self.worker.poll() is None:
            self.kill_worker()
        self.psql.connection.close()

    def drop_database(self) -> None:
        sql_calls.note(self.server.url(self.name))
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as session:
            session.execute(f'drop database "{self.name}" with (force)'.encode())


@contextmanager
def two_sites(
    directory: Path,
    *,
    versions: tuple[int, int] = (18, 18),
    server_for: Callable[[str, int], EmbeddedServer] | None = None,
) -> Iterator[tuple[Site, Site]]:
    """Yield the initiator's and the target's site: routed, trusting each other, their workers not yet started.

    Without `server_for` each has a server of its own, which a test may kill.
    """
    with ExitStack() as stack:
        sites = []
        for name, version in zip(("shop", "warehouse"), versions, strict=True):
            if server_for is None:
                server = stack.enter_context(EmbeddedServer(version=version, listen=True))
                site = Site(name, server, directory)
            else:
                server = server_for(name, version)
                site = Site(name, server, directory)
                stack.callback(site.drop_database)
            stack.callback(site.close)
            sites.append(site)
        initiator, target = sites
        introduce(initiator, target)
        initiator.psql.rows(INITIATOR_DEFINITIONS)
        target.psql.rows(TARGET_DEFINITIONS)
        initiator.route("//warehouse", target)
        target.route("//shop", initiator)
        yield initiator, target


def introduce(one: Site, other: Site) -> None:
    """Give both an endpoint, and trust in the other's certificate."""
    certificates = {site.name: site.certificate() for site in (one, other)}
    for site, far in ((one, other), (other, one)):
        site.listen(certificates[site.name])
        site.trust(far.name, certificates[far.name])


def free_port() -> int:
    (port,) = free_ports(1)
    return port
