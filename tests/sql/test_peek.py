"""A look at a queue's next messages: page by page, whatever the planner knows, and taking nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import until

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


def test_a_page_does_not_walk_past_what_was_received(shop: Shop) -> None:
    """While a session keeps an old snapshot, what was received stays in the indexes."""
    psql, old = shop.psql, shop.session()
    old.rows("begin isolation level repeatable read")
    old.rows("select count(*) from warehouse")
    for _ in range(4):
        psql.rows("select broker.send_batch(%s, 'order', array_fill(''::bytea, '{2500}'))", psql.dialog())
    while psql.rows("select from broker.receive('warehouse', top => 500)"):
        pass

    def walked() -> int:
        # Not each RECEIVE that walks past them raises the floors.
        psql.send(psql.dialog(), "order", b"one more")
        assert len(psql.receive()) == 1
        before = entries(psql)
        assert psql.rows(f"{PEEK}('warehouse')") == []
        return entries(psql) - before

    until(lambda: walked() < 1_000, seconds=60)


def entries(session: Session) -> int:
    """Return how many index entries of messages were walked past, those of deleted ones too."""
    session.rows("select pg_stat_force_next_flush()")
    return int(
        session.value(
            "select sum(idx_tup_read) from pg_stat_user_indexes where indexrelname = 'messages_head'"
        )
    )


def test_groups_are_in_the_order_of_receive_and_who_holds_one_is_named(shop: Shop) -> None:
    psql, reader = shop.psql, shop.session()
    first, other = psql.dialog(), psql.dialog()
    for handle in (first, other, first):
        psql.send(handle, "order", b"x")
    groups = "select messages, pid, role_name, state, query, held_since <= now() from broker.queue_groups('warehouse')"
    free = (None, None, None, None, None)
    assert psql.rows(groups) == [(2, *free), (1, *free)]
    reader.rows("begin")
    reader.rows("select from broker.receive('warehouse', top => 1)")
    pid = reader.value("select pg_backend_pid()")
    held, waits = psql.rows(groups)
    assert held[:2] == (2, pid)
    assert held[3] == "idle in transaction"
    assert "pg_backend_pid" in held[4]
    assert held[5]
    assert waits == (1, *free)
    reader.rows("rollback")
    assert psql.rows(groups) == [(2, *free), (1, *free)]


def test_what_a_holder_runs_is_told_to_the_owner_only(shop: Shop) -> None:
    psql, holder = shop.psql, shop.session()
    psql.send(psql.dialog(), "order", b"x")
    name = shop.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", name)
    role = shop.session(user=name)
    holder.rows("begin")
    holder.rows("select from broker.receive('warehouse', top => 1)")
    ((pid, query),) = role.rows("select pid, query from broker.queue_groups('warehouse')")
    assert pid == holder.value("select pg_backend_pid()")
    assert query is None
