"""Who may SEND from another worker, between two workers with full dialog security: rows 119, 120, 122 and 128, edge case 88."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.brokers import Site, two_sites
from tests.shop import ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("senders"), server_for=server_for) as (shop, warehouse):
        warehouse.psql.rows("select broker.revoke('SEND', 'SERVICE', '//warehouse', 'public')")
        shop.psql.rows("select broker.create_remote_service_binding('far', '//warehouse', 'warehouse_user')")
        shop.start_worker()
        warehouse.start_worker()
        yield shop, warehouse


@pytest.fixture(autouse=True)
def granted(sites: tuple[Site, Site]) -> None:
    """SEND at the warehouse for the shop's user, and nobody else."""
    sites[1].psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'shop_user')")


def sent(shop: Site, body: bytes, *, encryption: bool = True) -> UUID:
    dialog: UUID = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => %s)", encryption
    )
    shop.psql.send(dialog, "order", body)
    return dialog


def arrived(site: Site, queue: str = "warehouse") -> tuple[str, bytes]:
    """Wait for the next message, and return its type and body."""
    ((kind, body),) = site.psql.rows(
        "select message_type_name, message_body from broker.receive(%s, top => 1, timeout => '120 s')", queue
    )
    return kind, body


def status(site: Site, dialog: UUID) -> str:
    text: str = site.psql.value("select broker.get_transmission_status(%s)", dialog)
    return text[:4]


@pytest.mark.parametrize("encryption", [True, False])
def test_rows_119_120_edge_088_a_binding_secures_a_dialog_and_the_target_knows_its_user(
    sites: tuple[Site, Site], *, encryption: bool
) -> None:
    shop, warehouse = sites
    dialog = sent(shop, b"secured", encryption=encryption)
    assert arrived(warehouse) == ("order", b"secured")
    far = "select f.far_principal_id from broker.conversation_endpoints f where f.conversation_id = %s"
    conversation = shop.psql.value(
        "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", dialog
    )
    assert warehouse.psql.value(far, conversation) == "shop_user"
    assert shop.psql.value(far, conversation) == "warehouse_user"
    handle = warehouse.psql.value(
        "select conversation_handle from broker.conversation_endpoints where conversation_id = %s",
        conversation,
    )
    warehouse.psql.send(handle, "ack", b"answered")
    assert arrived(shop, "shop") == ("ack", b"answered")


def test_row_128_who_has_lost_send_is_told_so_and_begins_no_dialog(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.revoke('SEND', 'SERVICE', '//warehouse', 'shop_user')")
    dialog = sent(shop, b"refused")
    kind, body = arrived(shop, "shop")
    assert (kind, b"<Code>-8494</Code>" in body) == (ERROR, True)
    assert shop.psql.state(dialog) == "ER"
    assert warehouse.psql.receive() == []
    warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'shop_user')")
    sent(shop, b"granted")
    assert arrived(warehouse) == ("order", b"granted")


def is_taken(shop: Site, warehouse: Site) -> bool:
    """Begin a dialog, wait until the warehouse has taken or refused it, and return which."""
    dialog = sent(shop, b"tried")
    received: list[object] = []

    def is_decided() -> bool:
        received.extend(warehouse.psql.receive())
        return bool(received) or shop.psql.state(dialog) == "ER"

    until(is_decided)
    shop.psql.receive("shop")
    return bool(received)


def test_row_128_whoever_has_another_users_certificate_is_that_user(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    assert is_taken(shop, warehouse)
    pem = warehouse.psql.value("select certificate_pem from broker.certificates where name = 'shop'")
    warehouse.psql.rows(
        "select broker.drop_certificate('shop'), broker.create_certificate('shop', %s, 'other_user'),"
        " broker.grant('CONNECT', 'ENDPOINT', 'endpoint', 'other_user')",
        pem,
    )
    # Within seconds: the worker remembers whose a certificate is for so long.
    until(lambda: not is_taken(shop, warehouse))
    warehouse.psql.rows(
        "select broker.drop_certificate('shop'), broker.create_certificate('shop', %s, 'shop_user')", pem
    )
    until(lambda: is_taken(shop, warehouse))


def test_row_120_a_dropped_binding_never_sends_a_dialog_in_the_clear(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    dialog = sent(shop, b"first", encryption=False)
    assert arrived(warehouse) == ("order", b"first")
    shop.psql.rows("select broker.drop_remote_service_binding('far')")
    shop.psql.send(dialog, "order", b"second")
    until(lambda: status(shop, dialog) == "9727")
    shop.psql.rows(
        "select broker.create_remote_service_binding('far', '//warehouse', 'warehouse_user', anonymous => true)"
    )
    other = sent(shop, b"as nobody")
    kind, body = arrived(shop, "shop")
    assert (kind, b"<Code>-8494</Code>" in body) == (ERROR, True)
    assert shop.psql.state(other) == "ER"
    until(lambda: status(shop, dialog) == "9727")
    shop.psql.rows("select broker.alter_remote_service_binding('far', anonymous => false)")
    assert arrived(warehouse) == ("order", b"second")


def test_row_120_without_a_binding_it_waits_until_there_is_one(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    shop.psql.rows("select broker.drop_remote_service_binding('far')")
    dialog = sent(shop, b"waited")
    until(lambda: status(shop, dialog) == "9727")
    shop.psql.rows("select broker.create_remote_service_binding('far', '//warehouse', 'warehouse_user')")
    assert arrived(warehouse) == ("order", b"waited")
