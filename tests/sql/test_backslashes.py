"""A session may read a backslash in a literal as an escape, as clients from before PostgreSQL 9.1 want it; functions mean what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.shop import ERROR

if TYPE_CHECKING:
    from tests.shop import Shop

BROKER = "{0f0e0d0c-0b0a-0908-0706-050403020100}"


def test_a_session_with_another_reading_of_backslashes_uses_the_same_broker(shop: Shop) -> None:
    old = shop.session()
    old.rows("set standard_conforming_strings = off")
    route = "select broker.create_route(%s, %s, service_name => '//far', broker_instance => %s)"
    old.rows(route, "first", "tcp://[::1]:4022", BROKER)
    old.rows(route, "second", "tcp://far.example:4022", BROKER.strip("{}"))
    for address in ("tcp://two words:4022", "tcp://[:4022", "tcp://a]:4022"):
        assert old.refused(route, "wrong", address, BROKER)
    dialog = old.dialog()
    old.rows("select broker.send_all(array[%s, %s]::uuid[], 'order', '1'::bytea)", dialog, old.dialog())
    assert len(old.received(2)) == 2
    far = old.handle_of(dialog)
    old.end(far, 7, r"C:\temp\new")
    ((kind, _, body),) = old.received(1, "shop")
    assert kind == ERROR
    assert body is not None
    assert rb"C:\temp\new" in body
