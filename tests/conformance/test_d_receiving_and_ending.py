"""Receiving, groups and ending: rows 56 to 82 of the checklist."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import psycopg
import pytest

from tests.shop import END_DIALOG, ERROR, in_background, until, waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shop import Shop


def test_rows_056_057_058_059_one_receive_gives_one_group_in_order(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    for number in range(3):
        for name, dialog in ((b"a", first), (b"b", second)):
            psql.send(dialog, "order", name + str(number).encode())
    assert psql.bodies(top=2) == [b"a0", b"a1"]
    assert psql.receive() == [("order", 0, b"b0"), ("order", 1, b"b1"), ("order", 2, b"b2")]
    assert psql.receive() == [("order", 2, b"a2")]
    assert psql.bodies(top=0) == []
    assert psql.refused("select broker.receive('warehouse', top => -1)") == "S0153"


def test_row_056_a_group_of_thousands_of_messages_is_received_whole_and_in_order(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    query = (
        "select broker.send_batch(%s, 'order', array(select i::text::bytea from generate_series(0, 3499) i))"
    )
    psql.rows(query, dialog)
    assert psql.value("select max(message_sequence_number) from warehouse") == 3499
    assert [number for _, number, _ in psql.receive(top=1234)] == list(range(1234))
    rest = psql.receive()
    assert [number for _, number, _ in rest] == list(range(1234, 3500))
    assert [body for _, _, body in rest] == [str(number).encode() for number in range(1234, 3500)]


def test_row_060_a_receive_by_handle_or_group_takes_only_that(shop: Shop) -> None:
    psql = shop.psql
    group = psql.value("select gen_random_uuid()")
    dialogs = [psql.dialog(related_conversation_group=group) for _ in range(2)]
    for dialog in dialogs:
        psql.send(dialog)
        psql.send(psql.handle_of(dialog), "ack", str(dialog).encode())
    first, second = dialogs
    assert psql.bodies("shop", conversation_handle=second) == [str(second).encode()]
    assert psql.bodies("shop", conversation_group_id=group) == [str(first).encode()]
    unknown = "00000000-0000-0000-0000-000000000000"
    receive = "select broker.receive('shop', conversation_handle => %s)"
    assert psql.refused(receive, unknown) == "S8426"
    assert psql.refused(receive, psql.handle_of(first)) == "S8426"
    assert psql.refused("select broker.receive('shop', conversation_group_id => %s)", unknown) == "S8436"
    both = "select broker.receive('shop', conversation_handle => %s, conversation_group_id => %s)"
    assert psql.refused(both, first, group) == "S0153"
    assert psql.refused("select broker.receive('nothing')") == "S0208"
    # It may have been there when the wait began.
    with pytest.raises(psycopg.Error, match="was dropped while this session waited"):
        psql.rows("select broker.receive('nothing', timeout => '1 s')")


def test_rows_061_062_edge_017_a_waiting_receive_wakes_on_arrival_and_gives_up_in_time(shop: Shop) -> None:
    psql, waiter = shop.psql, shop.session()
    assert psql.bodies(timeout="20 ms") == []
    assert psql.refused("select broker.receive('warehouse', timeout => '-1 s')") == "S0153"
    strict = shop.session(autocommit=False)
    strict.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    assert strict.refused("select broker.receive('warehouse', timeout => '1 s')") == "S0153"
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.extend(waiter.bodies(timeout=None)))
    thread.start()
    until(lambda: waits(psql, waiter))
    psql.send(psql.dialog(), "order", b"awaited")
    thread.join(timeout=60)
    assert received == [b"awaited"]


def test_row_065_edge_007_a_rolled_back_receive_gives_the_messages_back_unchanged(shop: Shop) -> None:
    psql, reader = shop.psql, shop.session(autocommit=False)
    dialog = psql.dialog()
    for body in (b"0", b"1", b"2"):
        psql.send(dialog, "order", body)
    look = "select queuing_order, message_sequence_number, message_body from broker.receive('warehouse')"
    first = reader.rows(look)
    reader.connection.rollback()
    assert reader.rows(look) == first
    assert [body for _, _, body in first] == [b"0", b"1", b"2"]


def test_rows_066_067_068_a_reader_skips_what_another_holds_and_arrivals_do_not_wait(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    psql.send(first, "order", b"a")
    psql.send(second, "order", b"b")
    one, two, three = shop.sessions(3)
    assert one.bodies() == [b"a"]
    psql.rows("set lock_timeout = '1 s'")
    psql.send(first, "order", b"a, while its group is held")
    assert two.bodies() == [b"b"]
    assert three.bodies() == []
    assert one.bodies() == [b"a, while its group is held"]
    one.connection.rollback()
    assert three.bodies() == [b"a", b"a, while its group is held"]


def test_row_068_edge_006_a_statement_that_names_a_held_group_waits(shop: Shop) -> None:
    psql, other = shop.psql, shop.session()
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    (holder,) = shop.sessions(1)
    assert holder.bodies() == [b"0"]
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.extend(other.bodies(conversation_handle=target)))
    thread.start()
    until(lambda: waits(psql, other, "Lock"))
    assert received == []
    holder.connection.rollback()
    thread.join(timeout=60)
    assert received == [b"0"]


def test_row_069_get_conversation_group_locks_and_takes_nothing(shop: Shop) -> None:
    psql = shop.psql
    first, second = psql.dialog(), psql.dialog()
    psql.send(first, "order", b"a")
    psql.send(second, "order", b"b")
    one, two = shop.sessions(2)
    group = one.value("select broker.get_conversation_group('warehouse')")
    other_group = two.value("select broker.get_conversation_group('warehouse')")
    assert group != other_group
    assert shop.session().value("select broker.get_conversation_group('warehouse')") is None
    assert two.bodies(conversation_group_id=other_group) == [b"b"]
    assert one.bodies(conversation_group_id=group) == [b"a"]
    assert one.value("select broker.get_conversation_group('warehouse', timeout => '10 ms')") is None


def test_rows_071_073_077_edge_036_end_comes_after_everything_sent_and_the_rest_can_be_received(
    shop: Shop,
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    psql.send(target, "ack", b"unread")
    psql.end(dialog)
    assert psql.rows("select from shop") == []
    assert psql.state(dialog) is None
    assert psql.state(target) == "DI"
    assert psql.receive(top=1) == [("order", 0, b"0")]
    assert psql.receive() == [(END_DIALOG, 1, None)]
    psql.end(target)
    assert psql.state(target) == "CD"
    assert psql.refused("select broker.end_conversation(%s)", target) == "S8427"
    assert psql.rows("select from broker.transmission_queue") == []


def test_rows_074_077_086_087_edges_013_041_an_error_overtakes_what_is_unread(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    psql.send(dialog, "order", b"1")
    target = psql.handle_of(dialog)
    end = "select broker.end_conversation(%s, "
    assert psql.refused(end + "0, 'zero')", dialog) == "S8419"
    assert psql.refused(end + "-1, 'negative')", dialog) == "S8419"
    assert psql.refused(end + "1)", dialog) == "S8422"
    assert psql.refused(end + "error_description => 'text')", dialog) == "S8424"
    psql.end(dialog, 31472, "no <stock> & no hope")
    assert psql.state(target) == "ER"
    received = psql.receive()
    assert [(kind, number) for kind, number, _ in received] == [(ERROR, 2), ("order", 0), ("order", 1)]
    error = ET.fromstring(received[0][2] or b"")
    namespace = "{http://schemas.microsoft.com/SQL/ServiceBroker/Error}"
    assert error.tag == namespace + "Error"
    assert error.findtext(namespace + "Code") == "31472"
    assert error.findtext(namespace + "Description") == "no <stock> & no hope"
    assert psql.refused("select broker.send(%s, 'ack')", target) == "S8429"
    psql.end(target)
    assert psql.state(target) == "CD"


def test_row_075_cleanup_takes_everything_here_and_tells_nobody(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.rows("select broker.end_conversation(%s, cleanup => true)", target)
    assert psql.state(target) is None
    assert psql.bodies() == psql.bodies("shop") == []
    assert psql.refused("select broker.end_conversation(%s)", target) == "S8426"


@pytest.mark.parametrize("state", ["SO", "CO", "DI", "DO", "ER", "CD"])
def test_row_075_cleanup_removes_a_side_in_every_state_with_all_of_its_messages(
    shop: Shop, state: str
) -> None:
    psql = shop.psql
    psql.rows("select broker.alter_queue('shop', retention => true)")
    side = other = psql.dialog()
    if state != "SO":
        psql.send(side, "order", b"retained")
        other = psql.handle_of(side)
        psql.send(other, "ack", b"unread")
        psql.rows("select broker.alter_queue('warehouse', status => false)")
        psql.send(side, "order", b"unsent")
    if state in ("DI", "ER"):
        psql.end(other, *((7, "failed") if state == "ER" else ()))
    elif state == "DO":
        psql.end(side)
    elif state == "CD":
        psql.rows("select broker.alter_queue('warehouse', status => true)")
        psql.end(side)
        side = other
        psql.end(side)
    assert psql.state(side) == state
    psql.rows("select broker.end_conversation(%s, cleanup => true)", side)
    assert psql.state(side) is None
    for view in ("shop", "broker.transmission_queue"):
        assert psql.rows(f"select from {view}") == []


@pytest.mark.parametrize("is_swept", [False, True])
def test_row_075_who_sends_to_a_side_that_was_cleaned_up_is_told_and_may_end(
    shop: Shop, clock: Callable[[str], None], is_swept: bool
) -> None:
    psql = shop.psql
    sends, ends = psql.dialog(), psql.dialog()
    for dialog in (sends, ends):
        psql.send(dialog)
        psql.rows("select broker.end_conversation(%s, cleanup => true)", psql.handle_of(dialog))
    if is_swept:
        clock("2 h")
        psql.rows("select broker_private.sweep()")
        assert psql.value("select count(*) from broker_private.endpoints") == 2
    psql.send(sends)
    ((kind, _, body),) = psql.receive("shop", conversation_handle=sends)
    assert kind == ERROR
    assert b"-8462" in (body or b"")
    for dialog in (sends, ends):
        psql.end(dialog)
        assert psql.state(dialog) is None


def test_row_076_what_is_sent_while_the_far_side_ends_is_dropped(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    late = shop.session(autocommit=False)
    late.send(dialog, "order", b"late")
    psql.end(target)
    late.connection.commit()
    assert psql.bodies() == []
    assert psql.rows("select from warehouse") == []
    assert psql.value("select ready from broker.queue_depths where queue_name = 'warehouse'") == 0
    assert psql.receive("shop") == [(END_DIALOG, 0, None)]


def test_row_082_transmission_status_is_empty_when_all_is_well_or_unknown(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    status = "select broker.get_transmission_status(%s)"
    assert psql.value(status, dialog) == ""
    assert psql.value(status, "00000000-0000-0000-0000-000000000000") == ""
    assert psql.refused(status, None) == "S8418"


def test_row_082_transmission_status_says_why_each_dialog_waits_and_stops_when_it_does_not(
    shop: Shop,
) -> None:
    psql = shop.psql
    goes, waits, unsent = psql.dialog(), psql.dialog(), psql.dialog()
    psql.send(goes)
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    psql.send(waits)
    lost = psql.value("select broker.begin_dialog('//shop', '//nobody', 'ordering')")
    psql.send(lost)
    status = "select broker.get_transmission_status(%s)"
    told = [psql.value(status, dialog) for dialog in (goes, waits, unsent, lost)]
    assert [text[:5] for text in told] == ["", "9749:", "", "9793:"]
    assert '"warehouse"' in told[1]
    assert '"//nobody"' in told[3]
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert psql.value(status, waits) == ""
    assert psql.value(status, lost) == told[3]
    clerk = shop.session(user=shop.database.role())
    assert clerk.refused(status, lost) == "S0229", "why a message waits is its sender's to know"


def test_a_disk_that_is_full_leaves_the_message_where_it_was(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"safe")
    psql.rows("create table booked (body bytea)")
    psql.rows(
        "create function full_disk() returns trigger language plpgsql as"
        " 'begin raise disk_full; end'; create trigger full_disk before insert on booked"
        " for each row execute function full_disk()"
    )
    with pytest.raises(psycopg.errors.DiskFull):
        psql.rows("insert into booked select message_body from broker.receive('warehouse')")
    assert psql.bodies() == [b"safe"]


def test_row_068_each_statement_that_names_a_conversation_waits_for_whoever_holds_its_group(
    shop: Shop,
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    group = psql.value("select conversation_group_id from broker.conversation_endpoints where is_initiator")
    holder, other = shop.sessions(2)
    statements = [
        ("select broker.send(%s, 'order')", dialog),
        ("select broker.send_batch(%s, 'order', '{}')", dialog),
        ("select broker.end_conversation(%s)", dialog),
        ("select broker.end_conversation(%s, cleanup => true)", dialog),
        ("select broker.begin_conversation_timer(%s, '1 h')", dialog),
        ("select broker.receive('shop', conversation_handle => %s)", dialog),
        ("select broker.receive('shop', conversation_group_id => %s)", group),
        ("select broker.begin_dialog('//shop', '//warehouse', related_conversation => %s)", dialog),
        ("select broker.begin_dialog('//shop', '//warehouse', related_conversation_group => %s)", group),
    ]
    for statement, name in statements:
        # Whatever took the group's lock, END included, it is held until the transaction ends.
        holder.rows(statement, name)
        waiting = in_background(lambda: other.rows(*statements[0]))
        until(lambda: waits(psql, other, "Lock"))
        holder.connection.rollback()
        waiting.result(200)
        other.connection.rollback()
        holder.rows(*statements[0])
        waiting = in_background(lambda statement=statement, name=name: other.rows(statement, name))
        until(lambda: waits(psql, other, "Lock"))
        holder.connection.rollback()
        waiting.result(200)
        other.connection.rollback()


def test_row_068_the_two_sides_of_a_dialog_do_not_hold_each_other_up(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    (holder,) = shop.sessions(1)
    holder.send(dialog, "order", b"its group is held")
    psql.rows("set lock_timeout = '1 s'")
    psql.send(target, "ack", b"not held up")
    psql.end(target)
    holder.connection.rollback()
    assert psql.bodies("shop") == [b"not held up", None]
