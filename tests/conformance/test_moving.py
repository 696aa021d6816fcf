"""MOVE CONVERSATION and ALTER SERVICE ON QUEUE: rows 34, 70 and 80 of the checklist, edge cases 45 and 92.

What makes them hard is a message that is being sent while its conversation moves: it lands in the old place, and must neither be
lost nor be overtaken.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.shop import in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.shop import Session, Shop


def group_of(session: Session, handle: UUID) -> UUID:
    group: UUID = session.value(
        "select conversation_group_id from broker.conversation_endpoints where conversation_handle = %s",
        handle,
    )
    return group


def move(session: Session, handle: UUID, group: UUID) -> None:
    session.rows("select broker.move_conversation(%s, %s)", handle, group)


def stay(session: Session, groups: list[UUID]) -> None:
    """Begin a dialog in each group that stays there, so that the group does."""
    for group in groups:
        session.rows(
            "select broker.begin_dialog('//warehouse', '//shop', related_conversation_group => %s)", group
        )


def targets(shop: Shop, count: int = 2) -> tuple[list[UUID], list[UUID], list[UUID]]:
    """Begin dialogs with one message each, its place; return the initiators' handles, the targets' and their groups."""
    psql = shop.psql
    dialogs = [psql.dialog() for _ in range(count)]
    for place, dialog in enumerate(dialogs):
        psql.send(dialog, "order", str(place).encode())
    sides = [psql.handle_of(dialog) for dialog in dialogs]
    return dialogs, sides, [group_of(psql, side) for side in sides]


def test_row_070_a_conversation_joins_another_group_with_its_messages(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    move(psql, sides[0], groups[1])
    psql.send(dialogs[0], "order", b"after")
    assert psql.value("select count(distinct conversation_group_id) from warehouse") == 1
    assert psql.bodies() == [b"0", b"after", b"1"]
    assert group_of(psql, sides[0]) == groups[1]
    psql.send(sides[0], "ack", b"it still talks")
    assert psql.bodies("shop") == [b"it still talks"]
    move(psql, sides[0], groups[1])


def test_row_080_a_group_whose_last_conversation_moved_away_is_gone(shop: Shop) -> None:
    psql = shop.psql
    _, sides, groups = targets(shop)
    move(psql, sides[0], groups[1])
    listed = psql.rows("select conversation_group_id from broker.conversation_groups")
    assert (groups[0],) not in listed
    assert (groups[1],) in listed
    assert psql.refused("select broker.move_conversation(%s, %s)", sides[1], groups[0]) == "S8436"
    receive = "select broker.receive('warehouse', conversation_group_id => %s)"
    assert psql.refused(receive, groups[0]) == "S8436"


def test_row_070_what_can_not_be_moved_is_refused(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    call = "select broker.move_conversation(%s, %s)"
    unknown = psql.value("select gen_random_uuid()")
    assert psql.refused(call, unknown, groups[0]) == "S8426"
    assert psql.refused(call, None, groups[0]) == "S8426"
    assert psql.refused(call, sides[0], None) == "S8420"
    assert psql.refused(call, sides[0], unknown) == "S8436"
    assert psql.refused(call, sides[0], group_of(psql, dialogs[0])) == "S8439"
    psql.end(sides[0])
    assert psql.refused(call, sides[0], groups[1]) == "S8438"
    psql.end(dialogs[0])
    assert psql.refused(call, dialogs[0], group_of(psql, dialogs[1])) == "S8426"


def test_edge_092_only_the_owner_of_a_conversation_or_of_its_service_moves_it(shop: Shop) -> None:
    psql = shop.psql
    _, sides, groups = targets(shop)
    reader, owner = shop.database.role(), shop.database.role()
    psql.rows("select broker.grant('RECEIVE', 'QUEUE', 'warehouse', %s)", reader)
    stranger = shop.session(user=reader)
    assert stranger.refused("select broker.move_conversation(%s, %s)", sides[0], groups[1]) == "S0229"
    psql.rows("select broker.alter_authorization('SERVICE', '//warehouse', %s)", owner)
    move(shop.session(user=owner), sides[0], groups[1])
    assert group_of(psql, sides[0]) == groups[1]


def test_row_070_both_groups_stay_locked_until_the_transaction_ends(shop: Shop) -> None:
    _, sides, groups = targets(shop, 3)
    mover, reader = shop.sessions(2)
    move(mover, sides[0], groups[1])
    assert reader.bodies() == [b"2"]
    assert reader.bodies() == []
    mover.connection.rollback()
    reader.connection.rollback()
    assert [shop.psql.bodies() for _ in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_row_070_two_crossing_moves_wait_for_each_other_and_do_not_deadlock(shop: Shop) -> None:
    psql = shop.psql
    _, sides, groups = targets(shop)
    stay(psql, groups)
    one, two = shop.sessions(2)
    move(one, sides[0], groups[1])
    thread = threading.Thread(target=lambda: (move(two, sides[1], groups[0]), two.connection.commit()))
    thread.start()
    until(lambda: waits(psql, two, "Lock"))
    one.connection.commit()
    thread.join(timeout=60)
    assert (group_of(psql, sides[0]), group_of(psql, sides[1])) == (groups[1], groups[0])
    assert sorted(filter(None, psql.bodies() + psql.bodies())) == [b"0", b"1"]


def test_row_070_a_move_that_waited_for_another_takes_along_what_came_in_between(shop: Shop) -> None:
    """Else it would leave from the group that it saw before it waited, and the message would stay where nobody looks."""
    psql = shop.psql
    dialogs, sides, groups = targets(shop, 3)
    assert [psql.bodies(), psql.bodies(), psql.bodies()] == [[b"0"], [b"1"], [b"2"]]
    stay(psql, groups)
    one, two = shop.sessions(2)
    move(one, sides[0], groups[1])
    one.send(dialogs[0], "order", b"in between")
    second = in_background(lambda: (move(two, sides[0], groups[2]), two.connection.commit()))
    until(lambda: waits(psql, two, "Lock"))
    one.connection.commit()
    second.result(200)
    assert psql.bodies(conversation_group_id=groups[2]) == [b"in between"]


@pytest.mark.parametrize(
    "how", ["", ", top => 1", ", conversation_handle => '{0}'", ", conversation_group_id => '{1}'"]
)
def test_row_070_what_was_being_sent_while_the_conversation_moved_keeps_its_place(
    shop: Shop, how: str
) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    assert [psql.bodies(), psql.bodies()] == [[b"0"], [b"1"]]
    (slow,) = shop.sessions(1)
    slow.send(dialogs[0], "order", b"sent before the move")
    move(psql, sides[0], groups[1])
    slow.connection.commit()
    psql.send(dialogs[0], "order", b"sent after it")
    query = f"select message_body, conversation_group_id from broker.receive('warehouse'{how.format(sides[0], groups[1])})"
    received = psql.rows(query)
    received += psql.rows(query)
    assert received == [(b"sent before the move", groups[1]), (b"sent after it", groups[1])]


def test_row_070_a_late_message_is_received_under_the_lock_of_the_new_group_only(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop, 3)
    move(psql, sides[2], groups[0])
    (slow,) = shop.sessions(1)
    slow.send(dialogs[0], "order", b"late")
    move(psql, sides[0], groups[1])
    slow.connection.commit()
    holder, reader = shop.sessions(2)
    assert holder.bodies(conversation_group_id=groups[1], top=1) == [b"0"]
    assert reader.bodies() == [b"2"]
    assert reader.bodies() == []
    assert reader.value("select broker.get_conversation_group('warehouse')") is None
    reader.connection.commit()
    assert holder.bodies() == [b"late", b"1"]
    holder.connection.commit()


def test_row_070_who_holds_the_old_group_does_not_hide_a_late_message(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop, 3)
    move(psql, sides[2], groups[0])
    while psql.bodies():
        pass
    psql.send(dialogs[2], "order", b"the holder's")
    slow, holder = shop.sessions(2)
    slow.send(dialogs[0], "order", b"late")
    move(psql, sides[0], groups[1])
    slow.connection.commit()
    holder.send(sides[2], "ack")
    assert psql.bodies() == [b"late"]
    assert psql.bodies() == []
    assert holder.bodies() == [b"the holder's"]
    holder.connection.commit()


def test_row_070_a_late_message_alone_is_found_and_the_worker_brings_it_home(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    stay(psql, groups)
    assert [psql.bodies(), psql.bodies()] == [[b"0"], [b"1"]]
    for place, settle in ((1, ""), (0, "select broker_private.settle_moved()")):
        (slow,) = shop.sessions(1)
        slow.send(dialogs[0], "order", b"late")
        move(psql, sides[0], groups[place])
        slow.connection.commit()
        if settle:
            assert psql.value(settle) == 1
        assert psql.value("select broker.get_conversation_group('warehouse')") == groups[place]
        assert psql.bodies() == [b"late"]
        assert psql.bodies() == []


def test_row_070_a_late_message_of_a_conversation_that_ended_is_removed(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    (slow,) = shop.sessions(1)
    slow.send(dialogs[0], "order", b"late")
    move(psql, sides[0], groups[1])
    psql.end(sides[0])
    slow.connection.commit()
    assert psql.bodies() == [b"1"]
    assert psql.bodies() == []
    assert psql.value("select broker.get_conversation_group('warehouse')") is None


def test_row_070_moving_there_and_back_loses_nothing(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop, 3)
    stay(psql, groups)
    slow = shop.sessions(3)
    for place, session in enumerate(slow):
        session.send(dialogs[place], "order", b"late")
        move(psql, sides[place], groups[(place + 1) % 3])
        move(psql, sides[place], groups[place])
        session.connection.commit()
    assert [psql.bodies() for _ in range(4)] == [[b"0", b"late"], [b"1", b"late"], [b"2", b"late"], []]


def test_row_070_senders_movers_and_readers_at_once_lose_nothing_and_keep_every_order(shop: Shop) -> None:
    psql = shop.psql
    count, messages = 6, 40
    dialogs, sides, groups = targets(shop, count)
    stay(psql, groups)
    while psql.bodies():
        pass
    received: dict[UUID, list[int]] = defaultdict(list)
    lock = threading.Lock()
    done = threading.Event()
    failures: list[BaseException] = []
    held: set[UUID] = set()

    def send(session: Session, mine: list[UUID]) -> None:
        for number in range(messages):
            for dialog in mine:
                session.send(dialog, "order", str(number).encode())
            session.connection.commit()

    def shuffle(session: Session, offset: int) -> None:
        step = offset
        while not done.is_set():
            step += 1
            move(session, sides[step % count], groups[(step * 5 + offset) % count])
            session.connection.commit()

    def read(session: Session, top: int | None) -> None:
        while not done.is_set():
            rows = session.rows(
                "select conversation_group_id, conversation_handle, convert_from(message_body, 'UTF8')::integer"
                " from broker.receive('warehouse', top => %s)",
                top,
            )
            with lock:
                here = {group for group, _, _ in rows}
                assert not here & held, "two sessions work on one group"
                held.update(here)
            for _, handle, number in rows:
                with lock:
                    received[handle].append(number)
            with lock:
                held.difference_update(here)
            session.connection.commit()

    def guarded(work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as failure:
            failures.append(failure)

    sessions = shop.sessions(7)
    work: list[tuple[Any, ...]] = [
        (send, sessions[0], dialogs[:3]),
        (send, sessions[1], dialogs[3:]),
        (shuffle, sessions[2], 0),
        (shuffle, sessions[3], 3),
        (read, sessions[4], None),
        (read, sessions[5], 1),
        (read, sessions[6], 3),
    ]
    threads = [threading.Thread(target=guarded, args=arguments) for arguments in work]
    for thread in threads:
        thread.start()
    until(lambda: failures or sum(map(len, received.values())) >= count * messages)
    done.set()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert received == {side: list(range(messages)) for side in sides}
    assert psql.bodies() == []


def test_row_034_edge_045_a_service_takes_its_messages_to_another_queue_in_their_order(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    psql.send(dialogs[0], "order", b"more")
    psql.rows(
        "select broker.create_queue('annex'), broker.create_service('//other', 'warehouse', '{ordering}')"
    )
    staying = psql.value("select broker.begin_dialog('//shop', '//other', 'ordering')")
    psql.send(staying, "order", b"stays")
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    psql.send(dialogs[1], "order", b"last")
    assert psql.bodies() == [b"stays"]
    assert psql.refused("select broker.receive('warehouse', conversation_handle => %s)", sides[0]) == "S8468"
    assert psql.refused("select broker.receive('shop', conversation_handle => %s)", sides[0]) == "S8426"
    assert [psql.bodies("annex"), psql.bodies("annex")] == [[b"0", b"more"], [b"1", b"last"]]
    psql.send(sides[0], "ack", b"answer")
    assert psql.bodies("shop") == [b"answer"]
    assert [group_of(psql, side) for side in sides] == groups
    psql.send(psql.dialog(), "order", b"a new dialog")
    assert psql.bodies("annex") == [b"a new dialog"]


def test_edge_045_a_service_that_changes_queues_all_the_time_loses_nothing_and_keeps_every_order(
    shop: Shop,
) -> None:
    psql = shop.psql
    count, messages = 4, 30
    psql.rows("select broker.create_queue('annex')")
    dialogs, sides, _ = targets(shop, count)
    while psql.bodies():
        pass
    later: list[UUID] = []
    received: dict[UUID, list[int]] = defaultdict(list)
    lock = threading.Lock()
    done = threading.Event()
    failures: list[BaseException] = []

    def send(session: Session, mine: list[UUID]) -> None:
        for number in range(messages):
            for dialog in mine:
                session.send(dialog, "order", str(number).encode())
            session.connection.commit()
            if number % 10 == 0:
                later.append(session.dialog())
                session.send(later[-1], "order", b"0")
                session.connection.commit()

    def change(session: Session) -> None:
        while not done.is_set():
            for queue in ("annex", "warehouse"):
                session.rows("select broker.alter_service('//warehouse', queue => %s)", queue)
                session.connection.commit()

    def read(session: Session, queue: str) -> None:
        while not done.is_set():
            rows = session.rows(
                "select conversation_handle, convert_from(message_body, 'UTF8')::integer from broker.receive(%s)",
                queue,
            )
            with lock:
                for handle, number in rows:
                    received[handle].append(number)
            session.connection.commit()

    def settle(session: Session) -> None:
        while not done.is_set():
            session.rows("select broker_private.settle_moved()")
            session.connection.commit()
            done.wait(0.02)

    def guarded(work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as failure:
            failures.append(failure)

    sessions = shop.sessions(6)
    threads = [
        threading.Thread(target=guarded, args=arguments)
        for arguments in (
            (send, sessions[0], dialogs[:2]),
            (send, sessions[1], dialogs[2:]),
            (change, sessions[2]),
            (read, sessions[3], "warehouse"),
            (read, sessions[4], "annex"),
            (settle, sessions[5]),
        )
    ]
    for thread in threads:
        thread.start()
    until(lambda: failures or sum(map(len, received.values())) >= count * messages + 6)
    done.set()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    assert {side: received[side] for side in sides} == {side: list(range(messages)) for side in sides}
    assert sorted(received) == sorted([*sides, *(psql.handle_of(dialog) for dialog in later)])


def test_row_034_what_a_service_can_not_do(shop: Shop) -> None:
    psql = shop.psql
    assert psql.refused("select broker.alter_service('//warehouse', queue => 'nothing')") == "S0208"
    assert psql.refused("select broker.alter_service('//warehouse', queue => 'warehouse')") == "S8493"
    assert psql.refused("select broker.alter_service('//warehouse')") == "S8493"
    owner = shop.database.role()
    psql.rows(
        "select broker.create_queue('annex'), broker.alter_authorization('SERVICE', '//warehouse', %s)", owner
    )
    session = shop.session(user=owner)
    assert session.refused("select broker.alter_service('//warehouse', queue => 'annex')") == "S0229"


@pytest.mark.parametrize("settled_by", ["the reader", "the worker", "what follows"])
def test_edge_045_what_was_being_sent_while_the_service_moved_follows_it(shop: Shop, settled_by: str) -> None:
    psql = shop.psql
    dialogs, _, _ = targets(shop, 1)
    psql.rows("select broker.create_queue('annex')")
    slow, stranger = shop.sessions(2)
    slow.send(dialogs[0], "order", b"late")
    stranger.rows("select broker.begin_dialog('//shop', '//warehouse', 'ordering')")
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    assert psql.bodies("annex") == [b"0"]
    slow.connection.commit()
    assert psql.bodies("annex") == []
    if settled_by == "the reader":
        assert psql.bodies("warehouse") == []
        assert psql.bodies("annex") == [b"late"]
    elif settled_by == "the worker":
        assert psql.value("select broker_private.settle_moved()") == 1
        assert psql.bodies("annex") == [b"late"]
    else:
        psql.send(dialogs[0], "order", b"after")
        assert psql.bodies("annex") == [b"late", b"after"]
    assert psql.rows("select from broker.queue_messages") == []


def test_row_034_a_move_waits_for_whoever_works_on_the_service_and_retention_follows(shop: Shop) -> None:
    psql = shop.psql
    targets(shop, 1)
    psql.rows("select broker.create_queue('annex'), broker.alter_queue('warehouse', retention => true)")
    reader, mover = shop.sessions(2)
    assert reader.bodies() == [b"0"]
    call = "select broker.alter_service('//warehouse', queue => 'annex')"
    thread = threading.Thread(target=lambda: (mover.rows(call), mover.connection.commit()))
    thread.start()
    until(lambda: waits(psql, mover, "Lock"))
    reader.connection.commit()
    thread.join(timeout=60)
    assert psql.rows("select status, message_body from annex") == [(0, b"0")]
    assert psql.rows("select from warehouse") == []
    psql.rows("select broker.drop_queue('warehouse')")


def test_row_034_what_waited_for_a_queue_that_is_off_goes_to_the_new_one(shop: Shop) -> None:
    psql = shop.psql
    dialogs, _, _ = targets(shop, 1)
    psql.rows("select broker.create_queue('annex'), broker.alter_queue('warehouse', status => false)")
    psql.send(dialogs[0], "order", b"waited")
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    assert psql.bodies("annex") == [b"0", b"waited"]


def test_row_080_moves_leave_nothing_behind(shop: Shop, clock: Callable[[str], None]) -> None:
    psql = shop.psql
    _, sides, groups = targets(shop)
    psql.rows("select broker.create_queue('annex')")
    move(psql, sides[0], groups[1])
    psql.rows("select broker.alter_service('//warehouse', queue => 'annex')")
    groups_left = "select count(*) from broker_private.groups where conversation_group_id = any(%s)"
    psql.rows("select broker_private.settle_moved()")
    assert psql.value(groups_left, groups) == 2
    clock("31 min")
    psql.rows("select broker_private.settle_moved()")
    assert psql.value(groups_left, groups) == 1
    assert psql.value("select count(*) from broker_private.moved_services") == 0
    assert psql.bodies("annex") == [b"0", b"1"]


def test_row_070_an_old_snapshot_can_not_move_or_send_past_a_move(shop: Shop) -> None:
    psql = shop.psql
    dialogs, sides, groups = targets(shop)
    old, older = shop.sessions(2)
    for session in (old, older):
        session.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.rows("select 1")
    move(psql, sides[0], groups[1])
    with pytest.raises(psycopg.errors.SerializationFailure):
        move(old, sides[0], groups[0])
    with pytest.raises(psycopg.errors.SerializationFailure):
        older.send(sides[0], "ack")
    assert psql.bodies() == [b"0", b"1"]
    assert dialogs
