"""A trace tells what happened to a conversation, for a time, in so many rows, and never what was said."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from tests.conftest import migrated_database
from tests.shop import Shop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pybroker.embedded import EmbeddedServer


@pytest.fixture
def shop(any_server: EmbeddedServer) -> Iterator[Shop]:
    database = migrated_database(any_server, f"trace_{uuid.uuid4().hex[:8]}", with_shop=True)
    shop = Shop(database, is_defined=True)
    try:
        yield shop
    finally:
        shop.close()
        with psycopg.connect(any_server.url("postgres"), autocommit=True) as session:
            session.execute(f'drop database "{database.name}" with (force)'.encode())


def events(shop: Shop, *, user: str = "postgres") -> list[tuple[str, bool]]:
    """What happened, and whether to the initiator's side."""
    with shop.database.connect(user=user) as session:
        return session.execute("select event_subclass, is_initiator from broker.trace order by id").fetchall()


def triggers(shop: Shop) -> int:
    found: int = shop.psql.value("select count(*) from pg_trigger where tgname like 'trace%%'")
    return found


def test_row_167_the_life_of_a_conversation_is_told_after_it_is_over(shop: Shop) -> None:
    assert triggers(shop) == 0
    shop.psql.rows("select broker.start_trace()")
    dialog = shop.psql.dialog()
    for _ in range(2):
        shop.psql.send(dialog, "order", b"nobody's business")
    far = shop.psql.handle_of(dialog)
    while shop.psql.receive():
        pass
    shop.psql.end(far, 50001, "out of stock")
    shop.psql.receive("shop")
    shop.psql.end(dialog)
    assert shop.psql.value("select broker.stop_trace()") == 1
    assert triggers(shop) == 0, "a trace that is off leaves nothing behind"
    sending = [
        ("SEND Message", True),
        ("Local", True),
        ("Received Sequenced Message", False),
    ]
    told = events(shop)
    assert told[0] == ("BEGIN DIALOG", True)
    assert [one for one in told[:8] if one in sending] == sending * 2
    assert ("Dialog Created", False) in told[:8]
    assert told[8:] == [
        ("RECEIVE", False),
        ("RECEIVE", False),
        ("Received END CONVERSATION WITH ERROR", True),
        ("END CONVERSATION WITH ERROR", False),
        ("Terminate Dialog", False),
        ("RECEIVE", True),
        ("END CONVERSATION", True),
        ("Terminate Dialog", True),
    ]
    assert b"nobody" not in repr(shop.psql.rows("select v::text from broker.trace v")).encode()
    shop.psql.send(shop.psql.dialog())
    assert len(events(shop)) == len(told), "nothing is written after the end"


def test_a_trace_of_one_conversation_or_one_service_leaves_out_the_others(shop: Shop) -> None:
    shop.psql.rows("select broker.create_service('//annex', 'shop', '{ordering}')")
    wanted, other = shop.psql.dialog(), shop.psql.dialog()
    shop.psql.rows("select broker.start_trace(%s)", wanted)
    shop.psql.send(wanted)
    shop.psql.send(other)
    assert shop.psql.rows("select distinct conversation_id from broker.trace") == shop.psql.rows(
        "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", wanted
    )
    shop.psql.rows("select broker.start_trace(service => '//annex')")
    shop.psql.send(other)
    assert events(shop) == [], "a new trace replaces the last one"
    shop.psql.send(
        shop.psql.value("select broker.begin_dialog('//shop', '//annex', 'ordering', encryption => false)")
    )
    assert len(events(shop)) == 5
    shop.psql.rows("select broker.stop_trace()")


def test_a_trace_ends_when_its_rows_or_its_time_are_over(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    shop.psql.rows("select broker.start_trace(max_rows => 4)")
    for _ in range(5):
        shop.psql.send(dialog)
    assert len(events(shop)) == 4
    shop.psql.rows("select broker.start_trace(duration => '1 min')")
    shop.psql.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        " begin atomic select pg_catalog.clock_timestamp() + interval '2 min'; end"
    )
    shop.psql.send(dialog)
    assert events(shop) == []
    assert shop.psql.value("select broker_private.settle_trace()")
    assert triggers(shop) == 0


def test_row_167_a_role_traces_what_it_may_receive_and_nothing_else(shop: Shop) -> None:
    role = shop.database.role()
    shop.psql.rows(f"select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{role}')")
    dialog = shop.psql.dialog()
    with shop.database.connect(user=role) as session:
        session.execute("select broker.start_trace()")
        for arguments, given in (("%s", dialog), ("service => %s", "//shop")):
            with pytest.raises(psycopg.Error) as caught:
                session.execute(f"select broker.start_trace({arguments})".encode(), (given,))
            assert caught.value.sqlstate in {"S8426", "S0229"}
    assert shop.psql.value("select broker_private.settle_trace()")
    assert triggers(shop) == 0, "a small right makes no sender pay"
    shop.psql.send(dialog)
    assert events(shop, user=role) == []
    shop.psql.rows("select broker.start_trace()")
    shop.psql.send(dialog)
    assert {initiator for _, initiator in events(shop, user=role)} == {False}
    assert {initiator for _, initiator in events(shop)} == {True, False}
    shop.psql.rows(f"select broker.revoke('RECEIVE', 'QUEUE', 'warehouse', '{role}')")
    assert events(shop, user=role) == []
    shop.psql.rows("select broker.stop_trace()")


def test_a_sender_that_does_not_commit_keeps_a_trace_from_beginning_and_loses_nothing(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    writer = shop.session(autocommit=False)
    writer.send(dialog)
    assert shop.psql.refused("select broker.start_trace()") == "S1222"
    assert triggers(shop) == 0
    writer.connection.commit()
    shop.psql.rows("select broker.start_trace()")
    writer.send(dialog)
    assert shop.psql.value("select broker.stop_trace()") == 1
    assert triggers(shop) > 0, "it waits for no sender"
    writer.connection.commit()
    assert shop.psql.value("select broker_private.settle_trace()")
    assert triggers(shop) == 0
    assert len(shop.psql.receive()) == 2


def test_row_167_a_quarantine_is_told_and_a_rollback_is_not(shop: Shop) -> None:
    shop.psql.rows("select broker.alter_queue('warehouse', poison_action => 'QUARANTINE')")
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    shop.psql.rows("select broker.start_trace()")
    for _ in range(5):
        reader = shop.session(autocommit=False)
        reader.receive()
        reader.connection.rollback()
    assert shop.psql.receive() == []
    shop.psql.rows("select broker.redrive(%s)", shop.psql.handle_of(dialog))
    assert len(shop.psql.receive()) == 1
    shop.psql.rows("select broker.stop_trace()")
    assert [name for name, _ in events(shop)] == ["Quarantined", "Left Quarantine", "RECEIVE"]


def test_a_message_that_waits_is_delayed_and_then_received(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    shop.psql.rows("select broker.alter_queue('warehouse', status => false)")
    shop.psql.rows("select broker.start_trace(%s)", dialog)
    shop.psql.send(dialog)
    shop.psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert len(shop.psql.receive()) == 1
    shop.psql.rows("select broker.stop_trace()")
    told = [name for name, _ in events(shop)]
    assert "Delayed" in told, told
    assert told.index("Delayed") < told.index("Received Sequenced Message") < told.index("RECEIVE")
    assert "Waits" in told


def journey(shop: Shop, given: object, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        application, ["diagnose", "--journey", str(given), "--database-url", shop.database.url, *arguments]
    )
    return result.exit_code, result.output


def test_a_journey_without_a_trace_says_where_the_message_is_and_what_is_gone(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    message = shop.psql.value("select message_id from broker.queue_messages")
    for given in (dialog, shop.psql.handle_of(dialog), message):
        code, told = journey(shop, given)
        assert code == 0
        assert "information 415" in told
        assert "target //warehouse: is CONVERSING" in told
        assert "select broker.start_trace(service => '//shop')" in told
    assert journey(shop, uuid.uuid4())[0] == 1


def test_a_journey_of_a_conversation_that_is_over_is_told_from_its_trace(shop: Shop) -> None:
    shop.psql.rows("select broker.start_trace()")
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    shop.psql.receive()
    shop.psql.end(shop.psql.handle_of(dialog))
    shop.psql.end(dialog)
    shop.psql.rows("select broker.stop_trace()")
    code, told = journey(shop, dialog, "--json")
    assert code == 0
    found = json.loads(told)["journey"]
    events = [step["event"] for step in found["steps"] if step["is_initiator"]]
    assert events[:2] == ["BEGIN DIALOG", "SEND Message"]
    assert found["gone"] == []
    assert "RECEIVE" in [step["event"] for step in found["steps"] if not step["is_initiator"]]


def test_a_role_without_rights_is_told_that_it_sees_nothing(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    stranger = shop.database.server.url(shop.database.name, user=shop.database.role())
    result = CliRunner().invoke(
        application, ["diagnose", "--journey", str(dialog), "--database-url", stranger]
    )
    assert result.exit_code == 1
    assert "the role may not see it" in result.output


def test_a_role_that_does_not_commit_its_trace_keeps_no_sender_waiting(shop: Shop) -> None:
    role = shop.database.role()
    shop.psql.rows(f"select broker.grant('RECEIVE', 'QUEUE', 'warehouse', '{role}')")
    dialog = shop.psql.dialog()
    with (
        shop.database.connect(user=role) as session,
        shop.database.connect(user=role, autocommit=False) as forgetful,
    ):
        session.execute("select broker.start_trace()")
        assert shop.psql.value("select broker_private.settle_trace()")
        forgetful.execute("select broker.start_trace()")
        shop.psql.rows("set statement_timeout = '20 s'")
        shop.psql.send(dialog)
        assert len(shop.psql.receive()) == 1
        assert shop.psql.value("select broker.stop_trace()") == 0, "it waits for nobody"
        forgetful.rollback()
        assert shop.psql.value("select broker.stop_trace()") == 1


def test_a_trace_of_a_batch_larger_than_it_tells_loses_no_message(shop: Shop) -> None:
    dialog = shop.psql.dialog()
    shop.psql.send(dialog)
    shop.psql.rows("select broker.start_trace(max_rows => 1000000)")
    shop.psql.rows("select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[12000]))", dialog)
    shop.psql.rows("select broker.stop_trace()")
    assert (
        shop.psql.value("select count(*) from broker.trace where event_subclass = 'SEND Message'") == 10_000
    )
    assert shop.psql.value("select count(*) from broker.queue_messages") == 12_001
