"""A conversation across two databases: real workers, real TLS, and kills; checked by counting messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.embedded import available_versions
from pybroker.migrations import migrate
from tests import missing
from tests.brokers import Site, two_sites
from tests.shop import END_DIALOG, ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

    ServerFor = Callable[[str, int], EmbeddedServer]


@pytest.fixture
def sites(tmp_path: Path, server_for: ServerFor) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path, server_for=server_for) as (initiator, target):
        initiator.start_worker()
        target.start_worker()
        yield initiator, target


def begin(site: Site) -> UUID:
    handle: UUID = site.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    return handle


def test_a_conversation_goes_there_and_back_and_both_sides_end(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"0")
    shop.psql.send(dialog, "order", b"1")
    received: list[tuple[str, int, bytes | None]] = []
    while len(received) < 2:
        received += warehouse.psql.receive(timeout="120 s")
    assert received == [("order", 0, b"0"), ("order", 1, b"1")]
    target, far_broker = warehouse.psql.rows(
        "select conversation_handle, far_broker_instance from broker.conversation_endpoints"
    )[0]
    assert far_broker == shop.psql.value("select service_broker_guid from broker.databases")
    warehouse.psql.send(target, "ack", b"thanks")
    warehouse.psql.end(target)
    assert shop.psql.receive("shop", timeout="120 s", top=1) == [("ack", 0, b"thanks")]
    assert shop.psql.receive("shop", timeout="120 s") == [(END_DIALOG, 1, None)]
    far = "select far_broker_instance from broker.conversation_endpoints where conversation_handle = %s"
    assert shop.psql.value(far, dialog) == warehouse.psql.value(
        "select service_broker_guid from broker.databases"
    )
    assert shop.psql.state(dialog) == "DI"
    shop.psql.end(dialog)
    assert shop.psql.state(dialog) is None
    until(lambda: warehouse.psql.state(target) == "CD")
    until(lambda: shop.psql.rows("select from broker.transmission_queue") == [])


def test_row_045_072_messages_wait_for_the_acknowledgement_and_the_end_for_its_own(
    tmp_path: Path, server_for: ServerFor
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        dialog = begin(shop)
        shop.psql.send(dialog, "order", b"0")
        shop.psql.end(dialog)
        assert shop.psql.state(dialog) == "DO"
        rows = "select message_sequence_number, is_end_of_dialog from broker.transmission_queue order by 1"
        assert shop.psql.rows(rows) == [(0, False), (1, True)]
        shop.start_worker()
        until(lambda: "9754" in shop.psql.value("select broker.get_transmission_status(%s)", dialog))
        assert shop.psql.rows(rows) == [(0, False), (1, True)]
        warehouse.start_worker()
        until(lambda: shop.psql.rows(rows) == [])
        assert shop.psql.state(dialog) is None
        assert warehouse.psql.receive(timeout="120 s") == [("order", 0, b"0"), (END_DIALOG, 1, None)]


def test_row_032_004_what_the_target_refuses_comes_back_as_an_error_message(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    broken = begin(shop)
    shop.psql.send(broken, "invoice", b"<id>1</id>")
    shop.psql.send(broken, "invoice", b"<broken")
    shop.psql.send(broken, "invoice", b"<id>never</id>")
    ((kind, _, body),) = shop.psql.receive("shop", timeout="120 s")
    assert (kind, b"<Code>-9615</Code>" in (body or b"")) == (ERROR, True)
    assert shop.psql.state(broken) == "ER"
    assert warehouse.psql.bodies(timeout="120 s") == [b"<id>1</id>"]
    warehouse.psql.rows(
        "select broker.create_service('//initiates only', 'warehouse'),"
        " broker.grant('SEND', 'SERVICE', '//initiates only', 'public')"
    )
    shop.route("//initiates only", warehouse)
    refused = shop.psql.value(
        "select broker.begin_dialog('//shop', '//initiates only', 'ordering', encryption => false)"
    )
    shop.psql.send(refused)
    ((kind, _, body),) = shop.psql.receive("shop", timeout="120 s")
    assert (kind, b"<Code>-8408</Code>" in (body or b"")) == (ERROR, True)


def test_row_006_edge_083_the_receiver_applies_its_own_validation(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.alter_message_type('order', 'EMPTY')")
    dialog = begin(shop)
    shop.psql.send(dialog)
    shop.psql.send(dialog, "order", b"not empty")
    ((kind, _, body),) = shop.psql.receive("shop", timeout="120 s")
    assert (kind, b"<Code>-8430</Code>" in (body or b"")) == (ERROR, True)
    assert warehouse.psql.receive(timeout="120 s") == [("order", 0, None)]


def test_postgresql_15_and_18_talk_to_each_other(tmp_path: Path, server_for: ServerFor) -> None:
    if 15 not in available_versions():
        missing.skip("PostgreSQL 15", "apt-get install postgresql-15")
    with two_sites(tmp_path, versions=(15, 18), server_for=server_for) as (shop, warehouse):
        dialog = begin(shop)
        shop.psql.send(dialog, "order", "grün".encode())
        shop.psql.rows("select broker.send(%s, 'invoice', '<id>1</id>'::xml)", dialog)
        assert shop.psql.refused("select broker.send(%s, 'invoice', '<id>')", dialog) == "S8430"
        shop.start_worker()
        warehouse.start_worker()
        received: list[bytes | None] = []
        while len(received) < 2:
            received += warehouse.psql.bodies(timeout="120 s")
        assert received == ["grün".encode(), b"<id>1</id>"]
        target = warehouse.psql.value("select conversation_handle from broker.conversation_endpoints")
        warehouse.psql.send(target, "ack", b"back")
        assert shop.psql.receive("shop", timeout="120 s") == [("ack", 0, b"back")]


def test_row_074_an_error_drops_what_waits_and_arrives_alone(tmp_path: Path, server_for: ServerFor) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        dialog = begin(shop)
        shop.psql.send(dialog, "order", b"0")
        shop.psql.send(dialog, "order", b"1")
        shop.psql.end(dialog, 7, "changed our mind")
        assert shop.psql.value("select count(*) from broker.transmission_queue") == 1
        shop.start_worker()
        warehouse.start_worker()
        ((kind, _, body),) = warehouse.psql.receive(timeout="120 s")
        assert (kind, b"<Code>7</Code>" in (body or b"")) == (ERROR, True)
        until(lambda: shop.psql.state(dialog) is None)


def test_row_021_a_target_queue_that_is_off_makes_the_sender_wait(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => false)")
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"0")
    until(lambda: "9749" in shop.psql.value("select broker.get_transmission_status(%s)", dialog))
    shop.psql.send(dialog, "order", b"1")
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => true)")
    received: list[bytes | None] = []
    while len(received) < 2:
        received += warehouse.psql.bodies(timeout="120 s")
    assert received == [b"0", b"1"]
    until(lambda: shop.psql.value("select broker.get_transmission_status(%s)", dialog) == "")


def test_replies_find_a_broker_that_has_just_got_a_new_guid(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    first = begin(shop)
    shop.psql.send(first)
    assert warehouse.psql.bodies(timeout="120 s") == [None]
    shop.psql.rows("select broker.alter_broker('NEW_BROKER')")
    shop.psql.send(begin(shop), "order", b"from the new one")
    assert warehouse.psql.bodies(timeout="120 s") == [b"from the new one"]
    target, far_broker = warehouse.psql.rows(
        "select conversation_handle, far_broker_instance from broker.conversation_endpoints"
        " where not is_initiator order by lifetime desc limit 1"
    )[0]
    assert far_broker == shop.psql.value("select service_broker_guid from broker.databases")
    warehouse.psql.send(target, "ack", b"to the new one")
    assert shop.psql.receive("shop", timeout="120 s") == [("ack", 0, b"to the new one")]


def test_a_dialog_that_the_far_broker_refuses_holds_no_other_up(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    refused = begin(shop)
    shop.psql.send(refused)
    assert warehouse.psql.bodies(timeout="120 s") == [None]
    until(lambda: shop.psql.rows("select from broker.transmission_queue") == [])
    warehouse.psql.rows("select broker.alter_broker('NEW_BROKER')")
    many = "select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[1500]))"
    shop.psql.rows(many, refused)
    shop.psql.send(begin(shop), "order", b"goes through")
    assert warehouse.psql.bodies(timeout="120 s") == [b"goes through"]
    until(lambda: shop.psql.value("select count(*) from broker.transmission_queue") == 1500)
    until(lambda: "9795" in shop.psql.value("select broker.get_transmission_status(%s)", refused))


def test_a_foreign_certificate_gets_no_message_through_and_the_sender_learns_why(
    tmp_path: Path, server_for: ServerFor
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        warehouse.psql.rows("select broker.revoke('CONNECT', 'ENDPOINT', 'endpoint', 'shop_user')")
        dialog = begin(shop)
        shop.psql.send(dialog)
        shop.start_worker()
        warehouse.start_worker()
        status = "select broker.get_transmission_status(%s)"
        until(lambda: "28034" in shop.psql.value(status, dialog))
        warehouse.psql.rows("select broker.drop_certificate('shop')")
        until(
            lambda: "28034" not in shop.psql.value(status, dialog) and shop.psql.value(status, dialog) != ""
        )
        assert warehouse.psql.bodies() == []
        pem = (shop.keys / "shop.pem").read_text()
        warehouse.trust("shop", pem)
        assert warehouse.psql.receive(timeout="120 s") == [("order", 0, None)]


def test_a_worker_needs_no_more_than_a_worker_role(tmp_path: Path, server_for: ServerFor) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        for site in (shop, warehouse):
            site.psql.rows("create role carrier login; create role clerk nologin; grant clerk to carrier")
            migrate(site.url, worker_roles=["carrier"])
            site.url = site.server.url(site.name, user="carrier")
        warehouse.psql.rows(
            "create table seen (body bytea, who name);"
            "grant insert on seen to clerk;"
            "create procedure see() language plpgsql as $$ begin"
            " insert into seen select message_body, current_user from broker.receive('warehouse', timeout => '1 s');"
            " commit; end $$;"
            "select broker.grant('RECEIVE', 'QUEUE', 'warehouse', 'clerk');"
            "select broker.alter_queue('warehouse', activation_procedure => 'public.see', max_queue_readers => 1,"
            " execute_as => 'clerk')"
        )
        shop.start_worker()
        warehouse.start_worker()
        shop.psql.send(begin(shop), "order", b"carried")
        until(lambda: warehouse.psql.rows("select body, who from seen") == [(b"carried", "clerk")])
        assert (shop.stop_worker(), warehouse.stop_worker()) == (0, 0)
        carrier = psycopg.connect(shop.url, autocommit=True)
        with carrier, pytest.raises(psycopg.errors.InsufficientPrivilege):
            carrier.execute("select from broker_private.endpoints")


def test_a_worker_cannot_open_the_other_sites_server(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    password = psycopg.conninfo.conninfo_to_dict(shop.url)["password"]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(warehouse.url, password=str(password))
    for site, other in ((shop, warehouse), (warehouse, shop)):
        assert site.worker is not None
        given = site.worker.args
        assert other.url not in map(str, given if isinstance(given, list) else [])


def test_a_route_to_the_workers_own_address_leads_to_its_own_database(sites: tuple[Site, Site]) -> None:
    """Who has the key of the endpoint's own certificate may connect to it."""
    shop, _ = sites
    shop.psql.rows(
        "select broker.create_queue('mirror'), broker.create_service('//mirror', 'mirror', '{ordering}'),"
        " broker.grant('SEND', 'SERVICE', '//mirror', 'public')"
    )
    shop.route("//mirror", shop)
    dialog = shop.psql.value(
        "select broker.begin_dialog('//shop', '//mirror', 'ordering', encryption => false)"
    )
    shop.psql.send(dialog, "order", b"there")
    received = shop.psql.rows(
        "select conversation_handle, message_body from broker.receive('mirror', timeout => '120 s')"
    )
    assert [body for _, body in received] == [b"there"], shop.psql.value(
        "select broker.get_transmission_status(%s)", dialog
    )
    shop.psql.send(received[0][0], "ack", b"and back")
    assert shop.psql.receive("shop", timeout="120 s") == [("ack", 0, b"and back")]
