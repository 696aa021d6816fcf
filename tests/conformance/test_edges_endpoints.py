"""The life of an endpoint: edge cases 23 to 46."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.shop import DIALOG_TIMER, FIRE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.shop import Shop


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
