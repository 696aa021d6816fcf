"""broker.receive_groups: several conversation groups in one call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.shop import until, waits
from tests.sql.test_hot_paths import pages_of_one

if TYPE_CHECKING:
    from uuid import UUID

    from tests.shop import Session, Shop


def filled(shop: Shop, groups: int, messages: int = 2) -> list[UUID]:
    dialogs = [shop.psql.dialog() for _ in range(groups)]
    for number in range(messages):
        for place, dialog in enumerate(dialogs):
            shop.psql.send(dialog, "order", f"{place}.{number}".encode())
    return dialogs


def take(session: Session, max_groups: int, options: str = "") -> list[bytes]:
    return [
        body
        for (body,) in session.rows(
            f"select message_body from broker.receive_groups('warehouse', %s{options})", max_groups
        )
    ]


def test_one_call_takes_several_groups_each_whole_and_in_order(shop: Shop) -> None:
    filled(shop, 3)
    assert take(shop.psql, 2) == [b"0.0", b"0.1", b"1.0", b"1.1"]
    assert take(shop.psql, 5) == [b"2.0", b"2.1"]
    assert take(shop.psql, 5) == []


def test_top_counts_for_each_group_and_no_group_comes_twice(shop: Shop) -> None:
    filled(shop, 2, 3)
    assert take(shop.psql, 9, ", top => 2") == [b"0.0", b"0.1", b"1.0", b"1.1"]
    assert take(shop.psql, 9, ", top => 1") == [b"0.2", b"1.2"]
    assert take(shop.psql, 9, ", top => 0") == []


def test_each_group_stays_locked_and_those_of_others_are_skipped(shop: Shop) -> None:
    filled(shop, 3)
    one, two = shop.sessions(2)
    assert one.bodies(top=1) == [b"0.0"]
    assert take(two, 9, ", top => 1") == [b"1.0", b"2.0"]
    assert shop.psql.bodies() == []
    two.connection.rollback()
    assert take(shop.psql, 9) == [b"1.0", b"1.1", b"2.0", b"2.1"]


def test_it_waits_for_the_first_message_only(shop: Shop) -> None:
    reader = shop.session()
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.extend(take(reader, 9, ", timeout => null")))
    thread.start()
    until(lambda: waits(shop.psql, reader))
    filled(shop, 1, 1)
    thread.join(timeout=60)
    assert received == [b"0.0"]
    assert take(reader, 9, ", timeout => '10 ms'") == []


def test_more_messages_than_one_array_holds_come_all(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(2):
        psql.rows(
            "select broker.send_batch(%s, 'order', array_agg(n::text::bytea order by n)) from generate_series(1, 1500) n",
            psql.dialog(),
        )
    assert take(psql, 2) == 2 * [str(number).encode() for number in range(1, 1501)]


def test_many_groups_cost_each_as_much_as_few(shop: Shop) -> None:
    psql = shop.psql
    for _ in range(2):
        psql.rows(
            "select broker.send(broker.begin_dialog('//shop', '//warehouse', contract => 'ordering'), 'order', 'x')"
            " from generate_series(1, 240)"
        )
    call = "select count(*) from broker.receive_groups('warehouse', {}, top => 1)"
    pages_of_one(psql, call.format(20))
    few, many = (pages_of_one(psql, call.format(groups)) / groups for groups in (20, 400))
    assert many < 1.5 * few, (few, many)


def group_of(session: Session, queue: str) -> UUID | None:
    group: UUID | None = session.value("select broker.get_conversation_group(%s)", queue)
    return group


def filled_group(session: Session, service: str = "//warehouse") -> UUID:
    """Return the group of a new conversation with a message for that service."""
    handle = session.value("select broker.begin_dialog('//shop', %s, contract => 'ordering')", service)
    session.send(handle)
    group: UUID = session.value(
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
        session.handle_of(handle),
    )
    return group


def test_what_is_more_urgent_comes_next_and_what_was_held_comes_at_last(shop: Shop) -> None:
    groups = [filled_group(shop.psql) for _ in range(4)]
    reader, other, sender = shop.sessions(3)
    assert group_of(reader, "warehouse") == groups[0]
    assert len(other.bodies(top=1)) == 1
    assert group_of(reader, "warehouse") == groups[2]
    other.connection.rollback()
    assert [group_of(reader, "warehouse") for _ in range(3)] == [groups[3], groups[1], None]
    reader.connection.rollback()
    shop.psql.rows(
        "select broker.create_broker_priority('urgent', local_service_name => '//warehouse', priority_level => 9)"
    )
    # It has its place in the queue before what the reader meets, and is there for others later.
    urgent = filled_group(sender)
    assert [group_of(reader, "warehouse") for _ in range(3)] == groups[:3]
    sender.connection.commit()
    assert [group_of(reader, "warehouse") for _ in range(3)] == [urgent, groups[3], None]


def test_one_transaction_walks_over_each_queue_by_itself(shop: Shop) -> None:
    shop.psql.rows("select broker.create_queue('second')")
    shop.psql.rows("select broker.create_service('//second', 'second', '{ordering}')")
    groups = {
        queue: [filled_group(shop.psql, service) for _ in range(3)]
        for queue, service in (("second", "//second"), ("warehouse", "//warehouse"))
    }
    (reader,) = shop.sessions(1)
    found: dict[str, list[UUID | None]] = {"second": [], "warehouse": []}
    for queue in ("warehouse", "warehouse", "second", "second", "warehouse", "second", "second"):
        found[queue].append(group_of(reader, queue))
    assert found == {"second": [*groups["second"], None], "warehouse": groups["warehouse"]}


def test_what_makes_no_sense_is_refused(shop: Shop) -> None:
    call = "select broker.receive_groups(%s)"
    for arguments, number in (
        ("'warehouse', 0", "S0153"),
        ("'warehouse', null", "S0153"),
        ("'warehouse', 1, -1", "S0153"),
        ("'warehouse', 1, timeout => '-1 s'", "S0153"),
        ("'nothing', 1", "S0208"),
    ):
        assert shop.psql.refused(call.replace("%s", arguments)) == number
    stranger = shop.session(user=shop.database.role())
    assert stranger.refused("select broker.receive_groups('warehouse', 1)") == "S0229"
