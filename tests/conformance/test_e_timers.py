"""Timers, lifetimes and system messages: rows 83 to 90 of the checklist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.shop import DIALOG_TIMER, ERROR, FIRE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shop import Shop


def test_rows_083_084_086_a_timer_fires_once_on_this_side_before_all_else(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog, "order", b"0")
    target = psql.handle_of(dialog)
    timer = "select broker.begin_conversation_timer(%s, %s::interval)"
    psql.rows(timer, target, "10 s")
    psql.rows(timer, target, "1 min")
    clock("20 s")
    assert psql.value(FIRE) == 0
    clock("2 min")
    assert psql.value(FIRE) == 1
    assert psql.value(FIRE) == 0
    assert [kind for kind, _, _ in psql.receive()] == [DIALOG_TIMER, "order"]
    assert psql.state(target) == "CO"
    assert psql.receive("shop") == []


def test_a_timer_is_over_at_its_moment(shop: Shop) -> None:
    """Else a worker that wakes at just that moment finds nothing to fire."""
    psql = shop.psql
    dialog = psql.dialog()
    for seconds, fired in ((0, 0), (9.999999, 0), (10, 1)):
        psql.rows(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select '2030-01-01'::timestamptz + interval '{seconds} s'; end"
        )
        if seconds == 0:
            psql.rows("select broker.begin_conversation_timer(%s, '10 s')", dialog)
        assert psql.value(FIRE) == fired


def test_a_timer_of_a_queue_that_is_off_waits_until_it_is_on(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    psql.rows("select broker.begin_conversation_timer(%s, '10 s')", psql.dialog())
    psql.rows("select broker.alter_queue('shop', status => false)")
    clock("20 s")
    assert psql.value(FIRE) == 0
    psql.rows("select broker.alter_queue('shop', status => true)")
    assert psql.value(FIRE) == 1
    assert [kind for kind, _, _ in psql.receive("shop")] == [DIALOG_TIMER]


def test_row_085_a_timer_ends_before_the_dialog_does(shop: Shop) -> None:
    psql = shop.psql
    dialog = psql.dialog(lifetime="1 h")
    timer = "select broker.begin_conversation_timer(%s, %s::interval)"
    assert psql.refused(timer, dialog, "2 h") == "S8410"
    assert psql.refused(timer, dialog, "0") == "S0153"
    assert psql.refused(timer, dialog, None) == "S0153"
    assert psql.refused(timer, "00000000-0000-0000-0000-000000000000", "1 s") == "S8426"
    psql.send(dialog)
    target = psql.handle_of(dialog)
    psql.end(target)
    assert psql.refused(timer, target, "1 s") == "S8458"


def test_rows_041_088_089_090_edge_040_when_the_lifetime_is_over_both_sides_get_an_error(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    for lifetime in ("0", "-1 s", "2147483648 s", "infinity"):
        begin = f"select broker.begin_dialog('//shop', '//warehouse', lifetime => '{lifetime}')"
        if lifetime != "infinity" or shop.database.server.version >= 17:
            assert psql.refused(begin) == "S8411", lifetime
    longest = psql.value("select broker.begin_dialog('//shop', '//warehouse')")
    ends = "select lifetime - now() > interval '2147480000 s' from broker.conversation_endpoints where conversation_handle = %s"
    assert psql.value(ends, longest) is True
    psql.end(longest)
    dialog = psql.dialog(lifetime="1 min")
    psql.send(dialog, "order", b"in time")
    target = psql.handle_of(dialog)
    clock("2 min")
    assert psql.value(FIRE) == 2
    assert psql.value(FIRE) == 0
    for handle, queue in ((dialog, "shop"), (target, "warehouse")):
        assert psql.state(handle) == "ER"
        (kind, _, body), *rest = psql.receive(queue)
        assert kind == ERROR
        assert b"<Code>-8489</Code>" in (body or b"")
        assert [kind for kind, _, _ in rest] == (["order"] if queue == "warehouse" else [])
    assert psql.refused("select broker.send(%s, 'order')", dialog) == "S8429"
    psql.end(dialog)
    psql.end(target)
    assert (psql.state(dialog), psql.state(target)) == (None, "CD")


@pytest.mark.parametrize("path", ["first message", "local", "from the target", "queue off", "far"])
def test_row_089_send_itself_sees_that_the_lifetime_is_over(
    shop: Shop, clock: Callable[[str], None], path: str
) -> None:
    psql = shop.psql
    dialog = other = psql.value(
        "select broker.begin_dialog('//shop', %s, 'ordering', lifetime => '1 min')",
        "//elsewhere" if path == "far" else "//warehouse",
    )
    if path == "queue off":
        psql.rows("select broker.alter_queue('warehouse', status => false)")
    if path != "first message":
        psql.send(dialog)
    if path == "from the target":
        dialog = psql.handle_of(dialog)
    kind = "ack" if path == "from the target" else "order"
    clock("2 min")
    # No worker has looked yet.
    assert psql.refused("select broker.send(%s, %s)", dialog, kind) == "S8429"
    assert psql.refused("select broker.send_batch(%s, %s, '{a,b}')", dialog, kind) == "S8429"
    assert psql.refused("select broker.send_all(%s::uuid[], %s)", [dialog], kind) == "S8429"
    lasting = psql.dialog()
    psql.send(lasting)
    if path != "from the target":
        assert psql.refused("select broker.send_all(%s::uuid[], 'order')", [lasting, dialog]) == "S8429"
    assert psql.receive("shop") == []
    psql.end(other)


def test_row_083_each_side_has_a_timer_of_its_own_and_shows_it(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    psql = shop.psql
    dialog = psql.dialog()
    psql.send(dialog)
    target = psql.handle_of(dialog)
    for handle, timeout in ((dialog, "1 h"), (target, "2 h")):
        psql.rows("select broker.begin_conversation_timer(%s, %s::interval)", handle, timeout)
    due = "select is_initiator, dialog_timer - broker_private.clock() > %s::interval from broker.conversation_endpoints order by 1"
    assert psql.rows(due, "90 min") == [(False, True), (True, False)]
    clock("90 min")
    assert psql.value(FIRE) >= 1
    assert psql.receive("shop") == [(DIALOG_TIMER, 0, None)]
    assert [kind for kind, _, _ in psql.receive()] == ["order"]
