"""The whitepaper's objects in the databases of a test, and what lets these reach each other."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from pybroker.migrations import migrate
from pybroker.throughput.failures import ThroughputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

SERVICE = "//MySSB.com/Lab/S_Test"
QUEUE = "MySSBLabTestQueue"


class Peer(Protocol):
    """A database with a worker of its own, which listens."""

    @property
    def name(self) -> str:
        """The name of the database, of its certificate, and of its user at the others."""

    @property
    def url(self) -> str:
        """The database's URL, as its owner."""

    @property
    def address(self) -> str:
        """Where the others reach its worker."""

    @property
    def port(self) -> int:
        """Where its worker listens."""

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a session in which each statement commits by itself."""


def introduce(
    initiators: Sequence[Peer],
    target: Peer,
    certificates: dict[str, str],
    *,
    guids: dict[str, str],
    endpoint: str,
    listener_ip: str,
) -> None:
    """Make endpoints, certificates, routes with the brokers' guids, and each initiator's binding."""
    for peer in (*initiators, target):
        with peer.connect() as connection:
            _listen(connection, peer, certificates[peer.name], endpoint=endpoint, listener_ip=listener_ip)
    for peer in initiators:
        for own, far in ((peer, target), (target, peer)):
            with own.connect() as connection:
                _trust(connection, far.name, certificates[far.name])
                _route(connection, far.name, guids[far.name], far.address)
        _bind(peer, target)


def define(url: str, *, is_target: bool) -> str:
    """Make the objects, and return the broker's guid."""
    migrate(url)
    with psycopg.connect(url) as connection:
        found = connection.execute(
            """
            select name from broker.services where name = %s
            union all select nspname from pg_catalog.pg_namespace where nspname = 'lab'
            """,
            [SERVICE],
        ).fetchone()
        if found is not None:
            raise ThroughputError(
                f"{connection.info.dbname} has {found[0]!r} already: give databases that are empty."
            )
        _run_script(connection, "common.sql")
        _run_script(connection, "target.sql" if is_target else "initiator.sql")
        connection.execute(
            """
            select broker.alter_queue(
              %s, activation_procedure => %s, execute_as => 'SELF', max_queue_readers => 1
            )
            """,
            [QUEUE, "lab.test_queue" if is_target else "lab.end_dialogs"],
        )
        row = connection.execute("select service_broker_guid::text from broker.databases").fetchone()
        assert row is not None  # noqa: S101
        return str(row[0])


def undefine(url: str) -> None:
    """Drop the objects with their conversations, and leave those of other services alone.

    Type and contract stay, as conversations that have ended need them for a while.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        end_conversations(connection)
        connection.execute("select broker.drop_service(%s)", [SERVICE])
        connection.execute("select broker.drop_queue(%s)", [QUEUE])
        connection.execute("drop schema lab cascade")


def end_conversations(
    connection: psycopg.Connection[Any], conversations: list[UUID] | None = None
) -> list[UUID]:
    """End the test's sides of these conversations, or of all, and tell the far side nothing; return which."""
    rows = connection.execute(
        """
        select e.conversation_id, broker.end_conversation(e.conversation_handle, cleanup => true)
        from broker.conversation_endpoints e
        join broker.services s on s.service_id = e.service_id
        where s.name = %(service)s
          and (%(conversations)s::uuid[] is null or e.conversation_id = any(%(conversations)s::uuid[]))
        """,
        {"service": SERVICE, "conversations": conversations},
    )
    return [conversation for conversation, _ in rows]


def _listen(
    connection: psycopg.Connection[Any], peer: Peer, pem: str, *, endpoint: str, listener_ip: str
) -> None:
    connection.execute("select broker.create_certificate(%s, %s, current_user)", [peer.name, pem])
    connection.execute(
        """
        select broker.create_endpoint(
          'Endpoint_SRPerf_1', %s, state => 'STARTED', listener_ip => %s, certificate => %s,
          encryption => %s
        )
        """,
        [peer.port, listener_ip, peer.name, endpoint],
    )


def _trust(connection: psycopg.Connection[Any], name: str, pem: str) -> None:
    connection.execute("select broker.create_certificate(%s, %s, %s)", [name, pem, name])
    connection.execute("select broker.grant('CONNECT', 'ENDPOINT', 'Endpoint_SRPerf_1', %s)", [name])


def _route(connection: psycopg.Connection[Any], name: str, guid: str, address: str) -> None:
    connection.execute(
        "select broker.create_route(%s, %s, service_name => %s, broker_instance => %s)",
        [f"Test_{name}", address, SERVICE, guid],
    )


def _bind(initiator: Peer, target: Peer) -> None:
    """Let dialogs with ENCRYPTION = ON go out as full security wants it, and others as everybody's."""
    with initiator.connect() as connection:
        connection.execute(
            "select broker.create_remote_service_binding(%s, %s, %s)",
            [f"Test_{target.name}", SERVICE, target.name],
        )
    with target.connect() as connection:
        for sender in (initiator.name, "public"):
            connection.execute("select broker.grant('SEND', 'SERVICE', %s, %s)", [SERVICE, sender])


def _run_script(connection: psycopg.Connection[Any], name: str) -> None:
    """Run a .sql file of this package."""
    connection.execute(resources.files("pybroker.throughput").joinpath(name).read_bytes())
