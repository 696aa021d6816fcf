"""A look at a queue's next messages: page by page, whatever the planner knows, and taking nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.shop import Session, Shop

PEEK = "select priority, queuing_order, body_size, body_start from broker.peek"


def page(session: Session, last: tuple[Any, ...] | None, top: int) -> list[tuple[Any, ...]]:
    priority, order = (None, None) if last is None else last[:2]
    return session.rows(f"{PEEK}('warehouse', %s::int, %s::int, %s::bigint)", top, priority, order)


def test_pages_hold_every_message_once_in_the_order_of_receive(shop: Shop) -> None:
    psql = shop.psql
    psql.rows(
        "select broker.create_broker_priority('high', remote_service_name => '//shop', priority_level => 9)"
    )
    urgent = [psql.dialog() for _ in range(3)]
    for handle in urgent:
        psql.send(handle, "order", b"first")
    psql.rows("select broker.drop_broker_priority('high')")
    for handle in [psql.dialog(), *urgent, psql.dialog()]:
        for number in range(4):
            psql.send(handle, "order", b"x" * number)
    seen: list[tuple[Any, ...]] = []
    for _ in range(9):
        found = page(psql, seen[-1] if seen else None, 3)
        assert len(found) <= 3
        seen += found
    rows = psql.rows("select priority, queuing_order from warehouse order by priority desc, queuing_order")
    assert [row[:2] for row in seen] == rows
    assert len({row[0] for row in seen}) == 2, "two priorities"
    taken = psql.rows("select queuing_order from broker.receive('warehouse', top => 1)")
    assert taken == [seen[0][1:2]]
    assert len(rows) == 23, "it took none"


def test_of_a_body_the_start_is_returned_and_the_whole_size(shop: Shop) -> None:
    psql = shop.psql
    one, other = psql.dialog(), psql.dialog()
    psql.send(one, "order", b"abcdef")
    psql.rows("select broker.send_all(%s, 'order', %s)", [one, other], b"y" * 20_000)
    psql.rows("select broker.send(%s, 'nudge')", one)
    assert psql.rows(f"{PEEK}('warehouse', body_bytes => 3) order by queuing_order")[0][2:] == (6, b"abc")
    assert [row[2:] for row in psql.rows(f"{PEEK}('warehouse', body_bytes => 3)")][1:] == [
        (20_000, b"yyy"),
        (20_000, b"yyy"),
        (None, None),
    ]
    assert {row[3] for row in psql.rows(f"{PEEK}('warehouse')")} == {None}


@pytest.mark.parametrize("known", [False, True])
def test_a_page_reads_no_more_than_it_shows(shop: Shop, known: bool) -> None:
    """Where nobody has analyzed the tables, a page of a view over them reads the whole queue."""
    psql = shop.psql
    for _ in range(20):
        psql.rows("select broker.send_batch(%s, 'order', array_fill(''::bytea, '{500}'))", psql.dialog())
    if known:
        psql.rows("analyze")
    before = read(psql)
    assert len(page(psql, None, 50)) == 50
    assert len(page(psql, (5, 5_000), 50)) == 50
    assert read(psql) - before < 1_000


def read(session: Session) -> int:
    """Return how many rows and index entries of messages and endpoints were read."""
    session.rows("select pg_stat_force_next_flush()")
    read = session.value(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) from pg_stat_user_tables"
        " where relname in ('messages', 'endpoints')"
    )
    return int(read)


def test_what_a_conversation_that_ended_left_is_not_shown(shop: Shop) -> None:
    psql = shop.psql
    gone, here = psql.dialog(), psql.dialog()
    for handle in (gone, here):
        psql.send(handle, "order", b"x")
    psql.end(psql.handle_of(gone))
    rows = psql.rows("select conversation_handle from broker.peek('warehouse')")
    assert rows == [(psql.handle_of(here),)]
