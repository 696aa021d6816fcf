"""The life of an endpoint: edge cases 23 to 46."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.shop import DIALOG_TIMER, END_DIALOG, ERROR, FIRE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shop import Shop

SWEEP = "select broker_private.sweep()"


def test_edge_038_both_sides_may_end_at_once(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    one, two = shop.sessions(2)
    one.end(dialog)
    two.end(target)
    one.connection.commit()
    two.connection.commit()
    assert psql.bodies() == psql.bodies("shop") == []
    assert (psql.state(dialog), psql.state(target)) == (None, "CD")


def test_edges_042_043_a_timer_waits_for_a_queue_that_is_off(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.rows("select broker.begin_conversation_timer(%s, '1 s')", dialog)
    psql.rows("select broker.alter_queue('shop', status => false)")
    clock("1 min")
    assert psql.value(FIRE) == 0
    psql.rows("select broker.alter_queue('shop', status => true)")
    assert psql.value(FIRE) == 1
    assert [kind for kind, _, _ in psql.receive("shop")] == [DIALOG_TIMER]
    psql.rows("select broker.begin_conversation_timer(%s, '1 s')", dialog)
    psql.end(dialog)
    clock("1 h")
    assert psql.value(FIRE) == 0


def test_edge_028_a_side_whose_far_side_ended_stays_until_the_application_ends_it(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.end(dialog)
    assert [kind for kind, _, _ in psql.receive()] == ["order", END_DIALOG]
    clock("60 years")
    psql.rows(FIRE)
    psql.rows(SWEEP)
    assert psql.state(target) == "DI"
    psql.end(target)
    assert psql.state(target) == "CD"


def test_rows_078_079_edges_030_031_a_closed_target_is_kept_for_half_an_hour(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    polite, forgotten = psql.dialog(), psql.dialog()
    psql.send(polite)
    polite_target = psql.handle_of(polite)
    psql.end(polite_target)
    assert psql.state(polite) == "DI"
    psql.end(polite)
    psql.rows(
        "do $$ declare dialog uuid; begin dialog := broker.begin_dialog('//shop', '//warehouse', 'ordering');"
        " perform broker.send(dialog, 'order', 'sent and forgotten'), broker.end_conversation(dialog); end $$"
    )
    psql.end(forgotten)
    assert psql.rows("select from broker.conversation_endpoints where is_initiator") == []
    handle = psql.value("select conversation_handle from warehouse limit 1")
    assert psql.receive() == [("order", 0, b"sent and forgotten"), (END_DIALOG, 1, None)]
    psql.end(handle)
    for target in (polite_target, handle):
        assert psql.state(target) == "CD"
    clock("25 min")
    psql.rows(SWEEP)
    assert [psql.state(target) for target in (polite_target, handle)] == ["CD", "CD"]
    clock("31 min")
    psql.rows(SWEEP)
    assert [psql.state(target) for target in (polite_target, handle)] == [None, None]
    assert psql.rows("select from broker.conversation_groups") == []


def test_row_080_a_group_is_there_while_it_has_conversations(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    first = psql.dialog()
    second = psql.dialog(related_conversation=first)
    groups = "select conversation_group_id, service_id from broker.conversation_groups"
    (group,) = psql.rows(groups)
    psql.end(first)
    assert psql.rows(groups) == [group]
    psql.end(second)
    assert psql.rows(groups) == []
    assert psql.refused("select broker.receive('shop', conversation_group_id => %s)", group[0]) == "S8436"
    again = psql.dialog(related_conversation_group=group[0])
    assert psql.rows(groups) == [group]
    clock("31 min")
    psql.rows(SWEEP)
    assert psql.rows(groups) == [group]
    psql.send(again, "order", b"in the group that came back")
    assert psql.bodies() == [b"in the group that came back"]


def test_edge_032_a_first_message_that_comes_again_makes_no_second_endpoint(shop: Shop) -> None:
    psql = shop.psql
    deliver = (
        "select next_numbers, fault_codes from broker_private.deliver(gen_random_uuid(), array[%s::uuid], '{true}', '{//far}',"
        " '{//warehouse}', array[null::uuid], '{ordering}', array[now() + interval '1 day'], '{true}', '{order}', '{1}', '{1}',"
        " '{0}', 'M', array['once']::bytea[], '{L}', '{null}', '{null}')"
    )
    conversation = psql.value("select gen_random_uuid()")
    assert psql.rows(deliver, conversation) == [([1], [None])]
    assert psql.bodies() == [b"once"]
    target = psql.value("select conversation_handle from broker.conversation_endpoints")
    psql.rows("select broker.end_conversation(%s)", target)
    assert psql.state(target) == "DO"
    assert psql.rows(deliver, conversation) == [([1], [None])]
    psql.rows(
        "select broker_private.acknowledge(gen_random_uuid(), array(select endpoint_no from broker_private.endpoints), '{1}',"
        " array(select id from broker_private.transmission_messages))"
    )
    assert psql.state(target) == "CD"
    assert psql.rows(deliver, conversation) == [([1], [None])]
    assert psql.bodies() == []
    assert psql.value("select count(*) from broker.conversation_endpoints") == 1


def test_edges_034_035_an_error_drops_what_waits_and_is_not_sent_to_who_has_ended(shop: Shop) -> None:
    psql = shop.psql
    plain, failed, late = psql.dialog(), psql.dialog(), psql.dialog()
    psql.send(late)
    psql.end(psql.handle_of(late))
    psql.bodies()
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    for dialog in (plain, failed):
        for body in (b"0", b"1"):
            psql.send(dialog, "order", body)
    psql.end(plain)
    psql.end(failed, 7, "changed our mind")
    waiting = (
        "select message_body is not null, is_end_of_dialog, is_conversation_error from broker.transmission_queue"
        " where conversation_handle = %s order by message_sequence_number"
    )
    assert psql.rows(waiting, plain) == [(True, False, False), (True, False, False), (False, True, False)]
    assert psql.rows(waiting, failed) == [(True, False, True)]
    assert (psql.state(plain), psql.state(failed)) == ("DO", "DO")
    psql.end(late, 8, "nobody hears this")
    assert psql.state(late) is None
    assert psql.rows(waiting, late) == []
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    received = [psql.receive() for _ in range(2)]
    assert sorted([kind for kind, _, _ in rows] for rows in received) == sorted(
        [[ERROR], ["order", "order", END_DIALOG]]
    )
    assert psql.bodies() == []


def test_edge_037_what_waits_when_the_far_side_ended_goes_with_the_local_end(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    psql.rows("select broker.alter_queue('warehouse', status => false)")
    psql.send(dialog, "order", b"held")
    psql.end(target)
    assert psql.state(dialog) == "DI"
    assert psql.rows("select message_body from broker.transmission_queue") == [(b"held",)]
    psql.end(dialog)
    assert psql.rows("select from broker.transmission_queue") == []
    psql.rows("select broker.alter_queue('warehouse', status => true)")
    assert psql.bodies() == []
    assert psql.state(dialog) is None
