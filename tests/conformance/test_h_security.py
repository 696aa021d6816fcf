"""Who may do what: rows 119 to 129 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.shop import Shop


def test_row_129_an_ordinary_role_may_do_what_it_was_granted_and_reaches_no_table(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"secret")
    clerk = shop.database.role()
    user = shop.session(user=clerk)
    begin = "select broker.begin_dialog('//shop', '//warehouse', 'ordering')"
    assert user.refused(begin) == "S0229"
    assert user.refused("select broker.receive('warehouse')") == "S0229"
    assert user.refused("select broker.send(%s, 'order')", dialog) == "S0229"
    assert user.refused("select broker.end_conversation(%s)", dialog) == "S0229"
    assert user.refused("select broker.create_queue('mine')") == "S0229"
    assert user.refused("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', current_user)") == "S0229"
    assert (
        user.refused("select broker_private.receive('postgres', 'warehouse', 1, null, null, '0')") == "42501"
    )
    for view in ("conversation_endpoints", "conversation_groups", "transmission_queue", "queue_messages"):
        assert user.rows(f"select from broker.{view}") == []
    for (table,) in psql.rows(
        "select oid::regclass::text from pg_class where relnamespace = 'broker_private'::regnamespace and relkind in ('r', 'S', 'v')"
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user.rows(f"select from {table}")
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s::name)", clerk)
    assert user.bodies() == [b"secret"]
    assert user.refused(begin) == "S0229"
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'shop', %s::name)", clerk)
    assert user.refused(begin) == "S0229"
    psql.rows("select broker.grant('REFERENCES', 'CONTRACT', 'ordering', %s::name)", clerk)
    user.send(user.value(begin), "order", b"granted")
    psql.rows("select broker.revoke('RECEIVE', 'QUEUE', 'warehouse', %s::name)", clerk)
    assert user.refused("select broker.receive('warehouse')") == "S0229"


def test_row_129_who_calls_is_seen_through_set_role_and_an_applications_definer_function(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"0")
    application, clerk = shop.database.role("nologin"), shop.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s::name)", application)
    psql.rows(
        f"create schema app authorization {application}; set role {application};"
        "create function app.next_order() returns bytea language sql security definer set search_path = app, pg_temp"
        " return (select message_body from broker.receive('warehouse'));"
        f"reset role; grant usage on schema app to {clerk}"
    )
    user = shop.session(user=clerk)
    assert user.refused("select broker.receive('warehouse')") == "S0229"
    assert user.value("select app.next_order()") == b"0"
    psql.rows(f"set role {clerk}")
    assert psql.refused("select broker.receive('warehouse')") == "S0229"


def test_row_129_nobody_passes_for_another_by_calling_the_inner_function(shop: Shop) -> None:
    psql, attacker = shop.psql, shop.database.role()
    psql.send(psql.dialog(), "order", b"secret")
    psql.rows(f"create schema forged authorization {attacker}")
    user = shop.session(user=attacker)
    inner = "broker_private.receive('postgres', 'warehouse', 1, null, null, '0')"
    frame = "PL/pgSQL function broker.receive(text,integer,uuid,uuid,interval) line 8 at assignment"
    user.rows(
        f'create function forged."broker.receive("() returns broker.message[] language plpgsql as'
        f" 'declare m broker.message[]; begin m := {inner.replace(chr(39), chr(39) * 2)}; return m; end'"
    )
    attempts = [
        f"select {inner}",
        f"select {inner} /*\n{frame}\n*/",
        f'select {inner} as "\n{frame}\n"',
        'select forged."broker.receive("()',
    ]
    for attempt in attempts:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user.rows(attempt)
    assert psql.bodies() == [b"secret"]
