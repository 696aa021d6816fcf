"""Logical replication of what an application has goes on beside the broker, and stops nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer
from tests.conftest import NEWEST, SETTINGS, migrated_database
from tests.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

FINDING = "select number, object, mend from broker.diagnose() where number = 114"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer(version=NEWEST, settings={**SETTINGS, "wal_level": "logical"}) as server:
        yield server


@pytest.fixture
def shop(server: EmbeddedServer) -> Iterator[Shop]:
    shop = Shop(migrated_database(server, "published", with_shop=True), is_defined=True)
    shop.psql.rows("create table public.orders (number integer primary key)")
    yield shop
    shop.close()
    with psycopg.connect(server.url("postgres"), autocommit=True) as session:
        session.execute("drop database published with (force)")


def converse(shop: Shop, body: bytes) -> None:
    """Hold a conversation with its end, and let all that a worker does now and then be done."""
    dialog = shop.psql.dialog()
    for _ in range(2):
        shop.psql.send(dialog, "order", body)
    assert shop.psql.bodies() == [body, body]
    shop.psql.rows("select broker.begin_conversation_timer(%s, '1 h')", dialog)
    shop.psql.end(shop.psql.handle_of(dialog))
    shop.psql.receive("shop")
    shop.psql.end(dialog)
    shop.psql.rows("select broker_private.sweep()")


def test_a_publication_for_all_tables_stops_no_conversation_and_is_told_with_another_one(shop: Shop) -> None:
    shop.psql.rows("create publication everything for all tables")
    converse(shop, b"an order")
    ((_, name, mend),) = shop.psql.rows(FINDING)
    assert name == "everything"
    shop.psql.rows(mend)
    assert shop.psql.rows(FINDING) == []
    assert shop.psql.rows("select schemaname, tablename from pg_publication_tables") == [("public", "orders")]


@pytest.mark.parametrize("held", ["tables in schema broker_private", "table broker_private.messages"])
def test_a_publication_that_names_the_broker_s_tables_lets_them_go(shop: Shop, held: str) -> None:
    shop.psql.rows(f"create publication chosen for table public.orders, {held}")
    converse(shop, b"an order")
    ((_, _, mend),) = shop.psql.rows(FINDING)
    shop.psql.rows(mend)
    assert shop.psql.rows(FINDING) == []
    assert shop.psql.rows("select tablename from pg_publication_tables") == [("orders",)]


def test_each_table_that_is_published_has_a_replica_identity(shop: Shop) -> None:
    assert (
        shop.psql.rows(
            "select c.relname from pg_class c where c.relnamespace = 'broker_private'::regnamespace"
            " and c.relkind = 'r' and c.relpersistence = 'p' and c.relreplident = 'd'"
            " and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)"
        )
        == []
    )


def test_what_follows_the_application_s_changes_sees_them_and_nothing_of_the_broker_s(shop: Shop) -> None:
    shop.psql.rows("create publication orders for tables in schema public")
    shop.psql.rows("select pg_create_logical_replication_slot('orders', 'pgoutput')")
    with shop.psql.connection.transaction():
        shop.psql.rows("insert into public.orders values (4711)")
        converse(shop, b"a secret of the broker")
    changes = b"".join(
        change
        for (change,) in shop.psql.rows(
            "select data from pg_logical_slot_get_binary_changes('orders', null, null,"
            " 'proto_version', '1', 'publication_names', 'orders')"
        )
    )
    shop.psql.rows("select pg_drop_replication_slot('orders')")
    assert b"4711" in changes
    assert b"secret" not in changes
