"""Receiving and locking: edge cases 1 to 22."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.shop import DIALOG_TIMER, END_DIALOG, ERROR, FIRE, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.shop import Session, Shop


def in_groups(psql: Session, *sizes: int) -> list[list[UUID]]:
    """Begin dialogs at the shop, so many in each group, and let the warehouse send one message on each to the shop."""
    groups = []
    for size in sizes:
        group = psql.value("select gen_random_uuid()")
        dialogs = [psql.dialog(related_conversation_group=group) for _ in range(size)]
        for dialog in dialogs:
            psql.send(dialog)
            psql.send(psql.handle_of(dialog), "ack", str(dialog).encode())
        groups.append(dialogs)
    return groups


def group_of(psql: Session, handle: UUID) -> UUID:
    query = "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s"
    group: UUID = psql.value(query, handle)
    return group


def bodies_of(dialogs: list[UUID]) -> list[bytes]:
    return sorted(str(dialog).encode() for dialog in dialogs)


def test_edges_001_002_003_two_readers_get_whole_groups_of_their_own_and_the_third_stays_free(
    shop: Shop,
) -> None:
    psql = shop.psql
    groups = in_groups(psql, 3, 2, 1)
    expected = [bodies_of(dialogs) for dialogs in groups]
    one, two = shop.sessions(2)
    one.rows("set lock_timeout = '1 s'")
    two.rows("set lock_timeout = '1 s'")
    assert sorted(one.bodies("shop", top=10)) == expected[0]
    assert sorted(two.bodies("shop")) == expected[1]
    assert psql.bodies("shop") == expected[2]
    assert psql.bodies("shop") == []


def test_edge_004_what_arrives_for_a_held_group_is_its_holder_s_and_nobody_else_s(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    holder, other = shop.sessions(2)
    assert holder.bodies() == [b"0"]
    psql.rows("set lock_timeout = '1 s'")
    psql.send(dialog, "order", b"1")
    psql.send(dialog, "order", b"2")
    assert other.bodies() == []
    assert holder.receive() == [("order", 1, b"1"), ("order", 2, b"2")]
    holder.connection.commit()
    assert other.bodies() == []


def test_edge_005_a_reader_of_a_held_group_wakes_at_the_holder_s_commit_and_at_its_rollback(
    shop: Shop,
) -> None:
    psql, waiter = shop.psql, shop.session()
    dialog = psql.dialog()
    for body in (b"0", b"1"):
        psql.send(dialog, "order", body)
    (holder,) = shop.sessions(1)
    assert holder.bodies(top=1) == [b"0"]
    assert psql.bodies() == []
    waiting = in_background(lambda: waiter.bodies(timeout=None))
    until(lambda: waits(psql, waiter))
    holder.connection.commit()
    assert waiting.result(200) == [b"1"]
    psql.send(dialog, "order", b"2")
    assert holder.bodies() == [b"2"]
    waiting = in_background(lambda: waiter.bodies(timeout=None))
    until(lambda: waits(psql, waiter))
    holder.connection.rollback()
    assert waiting.result(200) == [b"2"]


def test_edge_008_the_numbers_of_a_rolled_back_send_are_used_again(shop: Shop) -> None:
    sender, dialog = shop.session(autocommit=False), shop.psql.dialog()
    shop.psql.send(dialog, "order", b"0")
    sender.send(dialog, "order", b"lost")
    sender.connection.rollback()
    sender.send(dialog, "order", b"1")
    sender.connection.commit()
    assert shop.psql.receive() == [("order", 0, b"0"), ("order", 1, b"1")]


def test_edges_009_010_senders_on_one_conversation_take_turns_and_are_numbered_by_commit(shop: Shop) -> None:
    psql, second = shop.psql, shop.session()
    shared, other = psql.dialog(), psql.dialog()
    (first,) = shop.sessions(1)
    first.send(shared, "order", b"first to commit")
    psql.rows("set lock_timeout = '1 s'")
    psql.send(other, "order", b"not held up")
    waiting = in_background(lambda: second.send(shared, "order", b"second to commit"))
    until(lambda: waits(psql, second, "Lock"))
    assert psql.value("select pg_blocking_pids(%s)", second.connection.info.backend_pid) == [
        first.connection.info.backend_pid
    ]
    first.send(shared, "order", b"still the first")
    first.connection.commit()
    waiting.result(200)
    received = [psql.receive(), psql.receive()]
    assert sorted(received, key=len) == [
        [("order", 0, b"not held up")],
        [
            ("order", 0, b"first to commit"),
            ("order", 1, b"still the first"),
            ("order", 2, b"second to commit"),
        ],
    ]


def test_row_064_edge_011_received_columns_go_where_a_query_s_go_and_into_takes_all_rows(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    for body in (b"10", b"20", b"30"):
        psql.send(dialog, "order", body)
    psql.rows("create table booked (amount integer, kind text)")
    insert = (
        "insert into booked select convert_from(message_body, 'UTF8')::integer as amount, message_type_name as kind"
        " from broker.receive('warehouse', top => 1)"
    )
    psql.rows(insert)
    assert psql.rows("select amount, kind from booked") == [(10, "order")]
    # A variable holds one row; the others of the group are consumed as well, so a program says top => 1.
    psql.rows(
        "do $$ declare body bytea; begin select message_body into body from broker.receive('warehouse');"
        " insert into booked values (convert_from(body, 'UTF8')::integer); end $$"
    )
    assert psql.value("select array_agg(amount) from booked") == [10, 20]
    assert psql.bodies() == []


def test_row_017_edges_012_013_timer_and_error_come_first_and_end_dialog_last(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    dialog = psql.dialog(lifetime="1 h")
    psql.send(dialog)
    psql.rows("select broker.begin_conversation_timer(%s, '30 min')", dialog)
    target = psql.handle_of(dialog)
    for body in (b"0", b"1"):
        psql.send(target, "ack", body)
    psql.end(target)
    clock("45 min")
    assert psql.value(FIRE) >= 1
    clock("2 h")
    assert psql.value(FIRE) >= 1
    assert psql.state(dialog) == "ER"
    kinds = [kind for kind, _, _ in psql.receive("shop")]
    assert kinds == [DIALOG_TIMER, ERROR, "ack", "ack", END_DIALOG]


def test_edges_014_015_a_group_is_as_urgent_as_what_waits_in_it_unless_it_is_named(shop: Shop) -> None:
    psql = shop.psql
    for name, level in (("urgent", 8), ("calm", 2), ("usual", 5)):
        psql.rows("select broker.create_service(%s, 'warehouse', '{ordering}')", f"//{name}")
        psql.rows(
            "select broker.create_broker_priority(%s, local_service_name => '//shop',"
            " remote_service_name => %s, priority_level => %s)",
            name,
            f"//{name}",
            level,
        )
    begin = "select broker.begin_dialog('//shop', %s, 'ordering', related_conversation_group => %s)"
    mixed, other = psql.rows("select gen_random_uuid(), gen_random_uuid()")[0]
    dialogs = {
        name: psql.value(begin, f"//{name}", group)
        for name, group in (("calm", mixed), ("urgent", mixed), ("usual", other))
    }
    for dialog in dialogs.values():
        psql.send(dialog)
    for _ in range(2):
        for name in ("calm", "usual", "urgent"):
            psql.send(psql.handle_of(dialogs[name]), "ack", name.encode())
    assert psql.bodies("shop", conversation_handle=dialogs["calm"], top=1) == [b"calm"]
    assert psql.bodies("shop", top=2) == [b"urgent", b"urgent"]
    assert psql.bodies("shop") == [b"usual", b"usual"]
    psql.send(psql.handle_of(dialogs["usual"]), "ack", b"usual")
    assert psql.bodies("shop", conversation_group_id=mixed) == [b"calm"]
    assert psql.bodies("shop") == [b"usual"]


def test_edge_018_who_looks_during_a_receive_takes_nothing(shop: Shop) -> None:
    psql = shop.psql
    psql.send(psql.dialog(), "order", b"looked at")
    (reader,) = shop.sessions(1)
    assert reader.bodies() == [b"looked at"]
    psql.rows("set lock_timeout = '1 s'")
    assert psql.rows("select message_body from warehouse") == [(b"looked at",)]
    reader.connection.rollback()
    assert psql.bodies() == [b"looked at"]


def test_edge_019_each_waiting_reader_gets_a_message_whoever_is_first(shop: Shop) -> None:
    psql, readers = shop.psql, [shop.session() for _ in range(2)]
    waiting = []
    for reader in readers:
        waiting.append(in_background(lambda reader=reader: reader.bodies(timeout=None)))
        until(lambda reader=reader: waits(psql, reader))
    for body in (b"a", b"b"):
        psql.send(psql.dialog(), "order", body)
    assert sorted(future.result(200)[0] for future in waiting) == [b"a", b"b"]


def test_edges_020_021_groups_stay_locked_until_the_transaction_ends_whatever_is_done_in_them(
    shop: Shop,
) -> None:
    psql = shop.psql
    groups = in_groups(psql, 2, 1)
    holder, other = shop.sessions(2)
    get = "select broker.get_conversation_group('shop')"
    assert holder.value(get) is not None
    for dialog in groups[0]:
        holder.end(dialog)
        assert other.value(get) is not None
        other.connection.rollback()
    holder.connection.rollback()
    first, second = holder.value(get), holder.value(get)
    assert len({first, second, None}) == 3
    assert holder.value(get) is None
    assert holder.value(get[:-1] + ", timeout => '10 ms')") is None
    assert other.value(get) is None
    holder.connection.rollback()
    assert other.value(get) is not None


def test_edge_020_a_group_is_returned_again_once_its_lock_is_gone_or_if_it_is_held_otherwise(
    shop: Shop,
) -> None:
    psql = shop.psql
    in_groups(psql, 2, 1)
    (holder,) = shop.sessions(1)
    get = "select broker.get_conversation_group('shop')"
    sides = "select conversation_group_id, conversation_handle from broker.conversation_endpoints where is_initiator"
    handles = dict(psql.rows(sides))
    first = holder.value(get)
    holder.rows("savepoint attempt")
    second = holder.value(get)
    holder.rows("rollback to attempt")
    assert holder.value(get) == second
    holder.connection.rollback()
    # Another transaction remembers nothing of it.
    assert holder.value(get) == first
    holder.connection.commit()
    for handle in handles.values():
        holder.send(handle)
    assert [holder.value(get) for _ in range(3)] == [first, second, None]


@pytest.mark.parametrize("by", ["conversation_handle", "conversation_group_id"])
@pytest.mark.parametrize("timeout", ["5 min", None])
def test_row_060_061_who_waits_by_handle_or_group_keeps_nobody_from_it(
    shop: Shop, by: str, timeout: str | None
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    side = psql.handle_of(dialog)
    assert len(psql.bodies()) == 1
    names = {"conversation_handle": side, "conversation_group_id": group_of(psql, side)}
    psql.rows("set lock_timeout = '10 s'")
    (waiter,) = shop.sessions(1)
    received = in_background(lambda: waiter.bodies(timeout=timeout, **{by: names[by]}))
    until(lambda: waits(psql, waiter))
    (other,) = shop.sessions(1)
    other.rows("set lock_timeout = '10 s'")
    other.send(side, "ack")
    other.rows("select broker.begin_conversation_timer(%s, '1 h')", side)
    second = other.dialog()
    other.send(second)
    far = other.handle_of(second)
    other.rows("select broker.move_conversation(%s, %s)", far, group_of(other, side))
    assert other.bodies(conversation_group_id=group_of(other, side)) == [None]
    other.end(far)
    other.connection.commit()
    assert not received.done()
    psql.send(dialog, "order", b"awaited")
    assert received.result(200) == [b"awaited"]
    # What it received it holds.
    holds = "select from broker_private.groups where conversation_group_id = %s for update skip locked"
    assert psql.rows(holds, names["conversation_group_id"]) == []


@pytest.mark.parametrize("is_locked_before", [False, True])
def test_row_060_061_a_waiter_that_came_too_late_gives_its_lock_back_and_keeps_what_it_had(
    shop: Shop, is_locked_before: bool
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    side = psql.handle_of(dialog)
    group = group_of(psql, side)
    quicker, waiter = shop.sessions(2)
    if is_locked_before:
        assert len(waiter.bodies()) == 1
    else:
        assert len(quicker.bodies()) == 1
    received = in_background(lambda: waiter.bodies(timeout=None, conversation_handle=side))
    if not is_locked_before:
        until(lambda: waits(psql, waiter, "Lock"))
        quicker.connection.commit()
    until(lambda: waits(psql, waiter))
    lock = "select from broker_private.groups where conversation_group_id = %s for update skip locked"
    until(lambda: len(psql.rows(lock, group)) == (0 if is_locked_before else 1))
    assert not received.done()
    psql.send(dialog, "order", b"awaited")
    assert received.result(200) == [b"awaited"]


@pytest.mark.parametrize("by", ["conversation_handle", "conversation_group_id"])
@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("select broker.end_conversation(%s, cleanup => true)", {"S8426", "S8436"}),
        (
            "select broker.alter_service('//warehouse', queue => 'annex') where %s::uuid is not null",
            {"S8468"},
        ),
        ("select broker.drop_service('//warehouse') where %s::uuid is not null", {"S8468"}),
    ],
    ids=["end", "alter service", "drop service"],
)
def test_rows_034_063_edge_016_who_waits_by_handle_or_group_learns_that_it_is_gone(
    shop: Shop, by: str, change: str, state: set[str]
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_queue('annex')")
    dialog = psql.dialog()
    psql.send(dialog)
    side = psql.handle_of(dialog)
    assert len(psql.bodies()) == 1
    names = {"conversation_handle": side, "conversation_group_id": group_of(psql, side)}
    psql.rows("set lock_timeout = '10 s'")
    waiter = shop.session()
    received = in_background(lambda: waiter.bodies(timeout=None, **{by: names[by]}))
    until(lambda: waits(psql, waiter))
    psql.rows(change, side)
    with pytest.raises(psycopg.Error) as caught:
        received.result(200)
    assert caught.value.sqlstate in state


def test_row_156_edge_022_a_group_locked_before_a_savepoint_stays_locked_over_its_rollback(
    shop: Shop,
) -> None:
    shop.psql.send(shop.psql.dialog(), "order", b"kept")
    reader, other = shop.sessions(2)
    reader.rows("select broker.get_conversation_group('warehouse')")
    reader.rows("savepoint attempt")
    assert reader.bodies() == [b"kept"]
    reader.rows("rollback to attempt")
    assert other.bodies() == []
    assert reader.bodies() == [b"kept"]
