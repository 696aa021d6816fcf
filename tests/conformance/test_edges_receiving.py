"""Receiving and locking: edge cases 1 to 22."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.shop import Shop


def test_edge_008_the_numbers_of_a_rolled_back_send_are_used_again(shop: Shop) -> None:
    sender, dialog = shop.session(autocommit=False), shop.psql.dialog()
    shop.psql.send(dialog, "order", b"0")
    sender.send(dialog, "order", b"lost")
    sender.connection.rollback()
    sender.send(dialog, "order", b"1")
    sender.connection.commit()
    assert shop.psql.receive() == [("order", 0, b"0"), ("order", 1, b"1")]


def test_edge_022_a_group_locked_before_a_savepoint_stays_locked_over_its_rollback(shop: Shop) -> None:
    shop.psql.send(shop.psql.dialog(), "order", b"kept")
    reader, other = shop.sessions(2)
    reader.rows("select broker.get_conversation_group('warehouse')")
    reader.rows("savepoint attempt")
    assert reader.bodies() == [b"kept"]
    reader.rows("rollback to attempt")
    assert other.bodies() == []
    assert reader.bodies() == [b"kept"]
