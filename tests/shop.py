"""A shop and a warehouse in one database: the smallest application that has a conversation."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from tests.conftest import Database

END_DIALOG = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog"
ERROR = "http://schemas.microsoft.com/SQL/ServiceBroker/Error"
DIALOG_TIMER = "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer"
FIRE = "select broker_private.fire_timers()"

DEFINITIONS = """
select broker.create_message_type('order');
select broker.create_message_type('ack');
select broker.create_message_type('nudge', validation => 'EMPTY');
select broker.create_message_type('invoice', validation => 'WELL_FORMED_XML');
select broker.create_contract('ordering',
  sent_by_initiator => '{order,invoice}', sent_by_target => '{ack}', sent_by_any => '{nudge}');
select broker.create_queue('shop');
select broker.create_queue('warehouse');
select broker.create_service('//shop', 'shop');
select broker.create_service('//warehouse', 'warehouse', '{ordering,DEFAULT}');
"""


class Session:
    """One session of a user, with the verbs of a conversation."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def rows(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(query.encode(), arguments or None)
        return cursor.fetchall() if cursor.description is not None else []

    def value(self, query: str, *arguments: object) -> Any:
        return self.rows(query, *arguments)[0][0]

    def refused(self, query: str, *arguments: object) -> str:
        """Run what must be refused, and return the SQLSTATE; the refusal must say what to do."""
        with pytest.raises(psycopg.Error) as caught:
            self.rows(query, *arguments)
        assert caught.value.diag.message_hint, "a refusal says what to do"
        return str(caught.value.sqlstate)

    def dialog(self, **options: object) -> UUID:
        extra = "".join(f", {name} => %s" for name in options)
        query = f"select broker.begin_dialog('//shop', '//warehouse', contract => 'ordering'{extra})"
        handle: UUID = self.value(query, *options.values())
        return handle

    def send(self, handle: UUID, kind: str = "order", body: bytes = b"") -> None:
        self.rows("select broker.send(%s, %s, %s::bytea)", handle, kind, body)

    def receive(self, queue: str = "warehouse", **options: object) -> list[tuple[str, int, bytes | None]]:
        """Return type, number and body of each message."""
        extra = "".join(f", {name} => %s" for name in options)
        query = (
            f"select message_type_name, message_sequence_number, message_body from broker.receive(%s{extra})"
        )
        return self.rows(query, queue, *options.values())

    def received(self, count: int, queue: str = "warehouse") -> list[tuple[str, int, bytes | None]]:
        """Receive until so many messages came: one RECEIVE passes a group by while a worker delivers to it again."""
        messages: list[tuple[str, int, bytes | None]] = []

        def are_all_there() -> bool:
            messages.extend(self.receive(queue))
            return len(messages) >= count

        until(are_all_there)
        return messages

    def bodies(self, queue: str = "warehouse", **options: object) -> list[bytes | None]:
        return [body for _, _, body in self.receive(queue, **options)]

    def handle_of(self, handle: UUID) -> UUID:
        """Return the handle of the far side, which is in the same database."""
        far: UUID = self.value(
            "select f.conversation_handle from broker.conversation_endpoints e"
            " join broker.conversation_endpoints f using (conversation_id)"
            " where e.conversation_handle = %s and f.is_initiator <> e.is_initiator",
            handle,
        )
        return far

    def state(self, handle: UUID) -> str | None:
        found = self.rows(
            "select state from broker.conversation_endpoints where conversation_handle = %s", handle
        )
        return found[0][0] if found else None

    def end(self, handle: UUID, *error: object) -> None:
        self.rows(f"select broker.end_conversation(%s{', %s' * len(error)})", handle, *error)


def waits(observer: Session, session: Session, kind: str = "Timeout") -> bool:
    """Tell whether PostgreSQL reports this session as waiting for a lock, or in a pause of RECEIVE."""
    query = "select wait_event_type = %s from pg_stat_activity where pid = %s"
    return bool(observer.value(query, kind, session.connection.info.backend_pid))


def in_background(work: Callable[[], Any]) -> Future[Any]:
    """Begin work that may have to wait for another session; its result, or its error, comes with `result(timeout)`."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class Shop:
    """The shop's database, and its sessions."""

    def __init__(self, database: Database, *, is_defined: bool = False) -> None:
        self.database = database
        self._sessions: list[psycopg.Connection[Any]] = []
        self.psql = self.session()
        if not is_defined:
            self.psql.rows(DEFINITIONS)

    @property
    def has_xml_parser(self) -> bool:
        return self.database.has_xml_parser

    def session(self, *, autocommit: bool = True, user: str = "postgres") -> Session:
        connection = self.database.connect(autocommit=autocommit, user=user)
        self._sessions.append(connection)
        return Session(connection)

    def sessions(self, count: int) -> Sequence[Session]:
        return [self.session(autocommit=False) for _ in range(count)]

    def close(self) -> None:
        for connection in self._sessions:
            connection.close()
