"""What most conversations do, begin, send, receive and end, takes few statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pybroker.embedded import EmbeddedServer, available_versions
from pybroker.migrations import migrate
from tests.conftest import SETTINGS, Database
from tests.shop import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

# The oldest is Debian's, which has pg_stat_statements; the wheel's have not.
OLDEST = 15
COUNT_ALL = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "all",
    "pg_stat_statements.max": "10000",
}
# docs/performance.md says what they were. Who needs more here finds it elsewhere.
MOST = {"begin and send": 15, "the target receives and ends": 12, "the initiator receives and ends": 11}


@pytest.fixture
def session() -> Iterator[Session]:
    if OLDEST not in available_versions():
        pytest.skip(f"PostgreSQL {OLDEST} is not installed here")
    with EmbeddedServer(version=OLDEST, settings={**SETTINGS, **COUNT_ALL}) as server:
        server.create_database("counted")
        migrate(server.url("counted"))
        with Database(server, "counted").connect() as connection:
            session = Session(connection)
            session.rows(
                "create extension pg_stat_statements;"
                " select broker.create_queue('shop'), broker.create_queue('warehouse');"
                " select broker.create_service('//shop', 'shop'),"
                " broker.create_service('//warehouse', 'warehouse', '{DEFAULT}');"
                # Now and then RECEIVE looks whether floors are needed: with this seed not while it is counted.
                " select setseed(0.5)"
            )
            yield session


def begin_and_send(session: Session) -> None:
    session.rows("select broker.send(broker.begin_dialog('//shop', '//warehouse'), 'DEFAULT', 'order')")


def receive_and_end(session: Session, queue: str) -> None:
    with session.connection.transaction():
        handle: UUID = session.value("select conversation_handle from broker.receive(%s, top => 1)", queue)
        session.end(handle)


def counted(session: Session) -> int:
    statements: int = session.value(
        "select sum(calls) from pg_stat_statements"
        " where query !~ 'pg_stat_statements' and query !~* '^(begin|commit)'"
    )
    session.rows("select pg_stat_statements_reset()")
    return statements


def test_a_conversation_of_one_message_takes_few_statements(session: Session) -> None:
    taken = {}
    # The first ones plan, and fill caches.
    for _ in range(10):
        counted(session)
        begin_and_send(session)
        taken["begin and send"] = counted(session)
        receive_and_end(session, "warehouse")
        taken["the target receives and ends"] = counted(session)
        receive_and_end(session, "shop")
        taken["the initiator receives and ends"] = counted(session)
    assert all(taken[step] <= most for step, most in MOST.items()), taken
