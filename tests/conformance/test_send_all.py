"""Multi-conversation SEND: rows 49 and edge 85."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

import pybroker
from tests.shop import until

if TYPE_CHECKING:
    from tests.shop import Session, Shop

BODIES = "select count(*) from broker_private.shared_bodies"
POSITION = "select pg_current_wal_insert_lsn() - '0/0'"


def _fan(psql: Session, count: int, to_service: str = "//warehouse") -> list[uuid.UUID]:
    """Begin dialogs that have sent, and whose first message was received."""
    begin = "select broker.begin_dialog('//shop', %s, 'ordering') from generate_series(1, %s)"
    handles = [handle for (handle,) in psql.rows(begin, to_service, count)]
    psql.rows("select broker.send(h, 'order') from unnest(%s::uuid[]) h", handles)
    return handles


def _drain(psql: Session) -> list[bytes | None]:
    received: list[bytes | None] = []
    while bodies := psql.bodies():
        received += bodies
    return received


def test_row_049_one_message_reaches_every_conversation_of_the_list(shop: Shop) -> None:
    psql = shop.psql
    handles = [psql.dialog() for _ in range(3)]
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"to new ones")
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"x" * 4000)
    psql.rows("select broker.send_all(%s, 'order')", handles)
    psql.rows("""select broker.send_all(%s, 'order', '{"a": 1}'::jsonb)""", handles)
    psql.rows("select broker.send_all(%s, 'order', 'grün')", handles)
    expected = [b"to new ones", b"x" * 4000, None, b'{"a": 1}', "grün".encode()]
    shown = psql.rows("select message_body from warehouse order by queuing_order")
    assert sorted(str(body) for (body,) in shown) == sorted(str(body) for body in expected * 3)
    for handle in handles:
        far = psql.handle_of(handle)
        received = psql.receive(conversation_handle=far)
        assert received == [("order", number, body) for number, body in enumerate(expected)]
    psql.rows("select broker.send_all(array[%s]::uuid[], 'order', 'one')", handles[0])
    assert psql.bodies() == [b"one"]


def test_row_049_received_one_by_one_and_rolled_back_a_shared_body_is_whole(shop: Shop) -> None:
    psql, reader = shop.psql, shop.session(autocommit=False)
    handles = _fan(psql, 2)
    _drain(psql)
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"y" * 3000)
    assert reader.bodies(top=1) == [b"y" * 3000]
    reader.connection.rollback()
    psql.rows("select broker_private.sweep()")
    assert [psql.bodies(top=1), psql.bodies(top=1)] == [[b"y" * 3000]] * 2


def test_row_049_a_list_that_is_wrong_is_refused_with_the_place(shop: Shop) -> None:
    psql = shop.psql
    send = "select broker.send_all(%s::uuid[], %s, %s::bytea)"
    good, other, ended = psql.dialog(), psql.dialog(), psql.dialog()
    unknown = uuid.uuid4()
    psql.send(ended)
    psql.end(psql.handle_of(ended))
    cases: list[tuple[object, str, bytes | None, str, str]] = [
        ([], "order", b"x", "S8441", "list"),
        (None, "order", b"x", "S8441", "list"),
        ([[good], [other]], "order", b"x", "S8441", "list"),
        ([good, None], "order", b"x", "S8441", "position 2"),
        ([good, other, good], "order", b"x", "S8451", "position 3"),
        ([good, unknown], "order", b"x", "S8435", "position 2"),
        ([good, other, ended], "order", b"x", "S8429", "position 3"),
        ([good, other], "nothing", b"x", "S8428", "position 1"),
        ([good, other], "ack", b"x", "S8432", "position 1"),
        ([good, other], "nudge", b"x", "S8430", "position 1"),
        ([good, other], "order", None, "S8433", "position 1"),
    ]
    before = psql.rows("select conversation_handle, state from broker.conversation_endpoints order by 1")
    for handles, kind, body, sqlstate, words in cases:
        with pytest.raises(Exception, match=words) as caught:
            psql.rows(send, handles, kind, body)
        assert (caught.value.sqlstate, bool(caught.value.diag.message_hint)) == (sqlstate, True)  # type: ignore[attr-defined]
    assert (
        psql.rows("select conversation_handle, state from broker.conversation_endpoints order by 1") == before
    )
    assert psql.value(BODIES) == 0


def test_edge_085_one_conversation_that_the_far_side_ended_keeps_all_from_being_sent(shop: Shop) -> None:
    psql = shop.psql
    handles = _fan(psql, 3)
    _drain(psql)
    psql.end(psql.handle_of(handles[2]))
    assert psql.state(handles[2]) == "DI"
    assert psql.refused("select broker.send_all(%s, 'order', %s::bytea)", handles, b"z" * 500) == "S8429"
    assert psql.rows("select from warehouse") == []
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles[:2], b"z" * 500)
    assert _drain(psql) == [b"z" * 500] * 2


def test_row_049_what_must_wait_waits_and_comes_with_its_body(shop: Shop) -> None:
    psql = shop.psql
    handles = _fan(psql, 2)
    _drain(psql)
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"later" * 100)
    waiting = psql.rows("select message_body from broker.transmission_queue")
    assert waiting == [(b"later" * 100,)] * 2
    psql.rows("select broker_private.sweep()")
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    psql.rows("select broker_private.sweep()")
    assert _drain(psql) == [b"later" * 100] * 2


@pytest.mark.parametrize("is_local", [True, False])
def test_row_049_a_megabyte_on_1000_conversations_is_written_once(shop: Shop, is_local: bool) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    handles = _fan(psql, 1000, "//warehouse" if is_local else "//far")
    _drain(psql)
    before = psql.value(POSITION)
    psql.rows("select broker.send_all(%s, 'order', convert_to(repeat('x', 1048576), 'UTF8'))", handles)
    written = psql.value(POSITION) - before
    assert 2**20 < written < 4 * 2**20
    queue = "warehouse" if is_local else "broker.transmission_queue"
    whole = f"select count(*) from {queue} where octet_length(message_body) = 1048576"
    assert psql.value(whole) == 1000
    if is_local:
        sizes = "select octet_length(message_body) from broker.receive('warehouse', top => 3)"
        assert psql.rows(sizes) == [(2**20,)]


def test_row_049_a_body_goes_with_the_last_message_that_has_it(shop: Shop) -> None:
    psql = shop.psql
    handles = _fan(psql, 3)
    _drain(psql)
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"b" * 200)
    for left in (2, 1):
        assert psql.bodies(top=1) == [b"b" * 200]
        psql.rows("select broker_private.sweep()")
        assert (psql.value(BODIES), len(psql.rows("select from warehouse"))) == (1, left)
    psql.end(psql.value("select conversation_handle from warehouse"))
    psql.rows("select broker_private.sweep()")
    assert psql.value(BODIES) == 0
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles[:1], b"alone" * 100)
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles[:2], b"short")
    assert psql.value(BODIES) == 0


def test_row_049_a_senders_queue_with_retention_keeps_copies_of_the_one_body(shop: Shop) -> None:
    psql = shop.psql
    handles = _fan(psql, 2)
    _drain(psql)
    psql.rows("select broker.alter_queue('shop', retention => true)")
    psql.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"kept" * 100)
    assert _drain(psql) == [b"kept" * 100] * 2
    psql.rows("select broker_private.sweep()")
    kept = "select status, message_sequence_number, message_body from shop"
    assert psql.rows(kept) == [(3, 1, b"kept" * 100)] * 2
    for handle in handles:
        psql.end(handle)
    psql.rows("select broker_private.sweep()")
    assert psql.value(BODIES) == 0


def test_row_049_two_lists_that_cross_do_not_block_each_other(shop: Shop) -> None:
    handles = _fan(shop.psql, 20)
    failures: list[BaseException] = []

    def send(mine: list[uuid.UUID]) -> None:
        session = shop.session()
        try:
            for _ in range(20):
                session.rows("select broker.send_all(%s, 'order', %s::bytea)", mine, b"c" * 200)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=send, args=(mine,)) for mine in (handles, handles[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len([body for body in _drain(shop.psql) if body]) == 800


def test_row_049_a_list_waits_for_who_holds_one_of_its_conversations(shop: Shop) -> None:
    psql, holder, sender = shop.psql, shop.session(autocommit=False), shop.session(autocommit=False)
    handles = _fan(psql, 2)
    _drain(psql)
    holder.send(handles[1], "order", b"first")
    done = threading.Event()

    def send() -> None:
        sender.rows("select broker.send_all(%s, 'order', %s::bytea)", handles, b"second")
        sender.connection.commit()
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    pid = sender.connection.info.backend_pid
    until(lambda: psql.value("select cardinality(pg_blocking_pids(%s)) > 0", pid))
    assert not done.is_set()
    holder.connection.commit()
    thread.join()
    assert psql.bodies(conversation_handle=psql.handle_of(handles[1])) == [b"first", b"second"]


def test_an_ordinary_role_sends_on_its_own_conversations_only(shop: Shop) -> None:
    psql = shop.psql
    handles = _fan(psql, 2)
    clerk = shop.session(user=shop.database.role())
    with pytest.raises(Exception, match="position 1") as caught:
        clerk.rows("select broker.send_all(%s, 'order', 'x')", handles)
    assert caught.value.sqlstate == "S0229"  # type: ignore[attr-defined]


def test_the_client_sends_to_many(shop: Shop) -> None:
    with pybroker.connect(shop.database.url) as broker:
        dialogs = [broker.begin_dialog("//shop", "//warehouse", "ordering") for _ in range(2)]
        broker.send_all([dialogs[0], dialogs[1].handle], "order", {"sale": "50 %" * 50})
        with pytest.raises(pybroker.BrokerError) as twice:
            broker.send_all([dialogs[0], dialogs[0]], "order", b"")
        assert twice.value.number == 8451
    expected = {"sale": "50 %" * 50}
    assert [json.loads(body or b"") for body in _drain(shop.psql)] == [expected] * 2


def test_the_async_client_sends_to_many(shop: Shop) -> None:
    async def send() -> None:
        async with await pybroker.connect_async(shop.database.url) as broker:
            dialogs = [await broker.begin_dialog("//shop", "//warehouse", "ordering") for _ in range(2)]
            await broker.send_all(dialogs, "order", "async" * 50)

    asyncio.run(send())
    assert _drain(shop.psql) == [b"async" * 50] * 2
