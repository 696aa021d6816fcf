"""Section G at the side that messages come to: the worker's own routes say what it takes from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.brokers import Site, two_sites
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pybroker.embedded import EmbeddedServer


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("sites"), server_for=server_for) as (shop, warehouse):
        shop.start_worker()
        warehouse.start_worker()
        yield shop, warehouse


def test_row_109_edge_055_what_comes_from_outside_goes_by_the_routes_of_the_worker(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.drop_route('AutoCreatedWorker')")
    dialog = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    shop.psql.send(dialog, "order", b"hello")

    def status() -> str:
        text: str = shop.psql.value("select broker.get_transmission_status(%s)", dialog)
        return text[:4]

    until(lambda: status() == "9750")
    warehouse.psql.rows(
        "select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//warehouse', scope => 'WORKER')"
    )
    until(lambda: status() == "9792")
    warehouse.psql.rows("select broker.alter_route('far', address => 'LOCAL')")
    assert warehouse.psql.bodies(timeout="120 s") == [b"hello"]
    warehouse.psql.rows(
        "select broker.drop_route('far'), broker.create_route('AutoCreatedWorker', 'LOCAL', scope => 'WORKER')"
    )


def test_row_111_the_name_of_a_service_may_say_where_it_is(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    name = f"tcp://127.0.0.1:{warehouse.port}/stock"
    warehouse.psql.rows("select broker.create_queue('stock')")
    warehouse.psql.rows(
        "select broker.create_service(%s, 'stock', '{ordering}'), broker.grant('SEND', 'SERVICE', %s, 'public')",
        name,
        name,
    )
    shop.psql.rows("select broker.create_route('by name', 'TRANSPORT')")
    dialog = shop.psql.value(
        "select broker.begin_dialog('//shop', %s, 'ordering', encryption => false)", name
    )
    shop.psql.send(dialog, "order", b"hello")
    assert warehouse.psql.bodies("stock", timeout="120 s") == [b"hello"]


def test_rows_082_117_acknowledgements_need_no_route_back_and_have_no_status(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.drop_route('//shop')")
    dialog = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    shop.psql.send(dialog, "order", b"hello")
    ((handle,),) = warehouse.psql.rows(
        "select conversation_handle from broker.receive('warehouse', timeout => '120 s')"
    )
    until(lambda: shop.psql.rows("select * from broker.transmission_queue") == [])
    status = "select broker.get_transmission_status(%s)"
    assert warehouse.psql.value(status, handle) == "", "an acknowledgement waits for nothing"
    warehouse.psql.send(handle, "ack", b"answer")
    until(lambda: "9793" in warehouse.psql.value("select broker.get_transmission_status(%s)", handle))
    warehouse.route("//shop", shop)
    assert shop.psql.bodies("shop", timeout="120 s") == [b"answer"]


def test_row_103_what_went_nowhere_goes_by_a_route_for_any_service_once_its_own_is_gone(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    shop.psql.rows("select broker.drop_route('//warehouse')")
    shop.psql.rows(
        "select broker.create_route('dead', 'tcp://127.0.0.1:1', '//warehouse', broker_instance => gen_random_uuid()::text)"
    )
    dialog = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    shop.psql.send(dialog, "order", b"stranded")
    until(
        lambda: shop.psql.value(
            "select d.broker_instance is not null from broker_private.destinations d"
            " join broker_private.endpoints e using (destination_no) where e.conversation_handle = %s",
            dialog,
        )
    )
    shop.psql.rows(
        "select broker.drop_route('dead'), broker.create_route('any', %s)",
        f"tcp://127.0.0.1:{warehouse.port}",
    )
    assert warehouse.psql.bodies(timeout="120 s") == [b"stranded"]
    shop.psql.rows("select broker.drop_route('any')")
    shop.route("//warehouse", warehouse)
