"""The view of connections: row 165."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.brokers import two_sites
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from tests.brokers import Site
    from tests.shop import Session, Shop

    ServerFor = Callable[[str, int], EmbeddedServer]

COLUMNS = (
    "connection_id transport_stream_id state state_desc connect_time login_time authentication_method principal_name"
    " remote_user_name last_activity_time is_accept login_state login_state_desc peer_certificate_id encryption_algorithm"
    " encryption_algorithm_desc receives_posted is_receive_flow_controlled sends_posted is_send_flow_controlled"
    " total_bytes_sent total_bytes_received total_fragments_sent total_fragments_received total_sends total_receives"
    " peer_arbitration_id"
)


def test_row_165_the_view_has_the_columns_of_sql_server_in_their_order(shop: Shop) -> None:
    shown = shop.psql.value(
        "select string_agg(attname, ' ' order by attnum) from pg_attribute"
        " where attrelid = 'broker.dm_broker_connections'::regclass and attnum > 0"
    )
    assert shown == f"{COLUMNS} address worker_id"


def connections(psql: Session, columns: str) -> list[tuple[object, ...]]:
    return psql.rows(f"select {columns} from broker.dm_broker_connections order by is_accept")


def send(site: Site, messages: int) -> None:
    dialog = site.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    site.psql.rows(
        "select broker.send_batch(%s, 'order', array_fill('x'::bytea, array[%s::int]))", dialog, messages
    )
    until(lambda: site.psql.rows("select from broker.transmission_queue") == [])


def test_row_165_a_connection_is_shown_on_both_sides_while_it_and_its_worker_live(
    tmp_path: Path, server_for: ServerFor
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        shop.start_worker()
        warehouse.start_worker()
        send(shop, 7)
        for site, user, is_accept, sent in (
            (shop, "warehouse_user", False, (7, 0)),
            (warehouse, "shop_user", True, (0, 7)),
        ):
            told = (
                "state_desc, login_state_desc, principal_name, is_accept, encryption_algorithm_desc like 'TLS%%',"
                " total_fragments_sent, total_fragments_received, peer_certificate_id is not null, sends_posted"
            )
            expected = ("LOGGED_IN", "ONLINE", user, is_accept, True, *sent, True, 0)
            until(lambda: connections(site.psql, told) == [expected])  # noqa: B023 - called at once
            passed = "total_bytes_sent > 0 and total_bytes_received > 0 and login_time >= connect_time"
            assert connections(site.psql, passed) == [(True,)]
        assert connections(shop.psql, "address") == [(f"tcp://127.0.0.1:{warehouse.port}",)]
        # A worker that is stopped takes its connections along; of one that was killed they are hidden by and by.
        assert shop.stop_worker() == 0
        assert connections(shop.psql, "*") == []
        until(lambda: connections(warehouse.psql, "*") == [])
        shop.start_worker()
        send(shop, 1)
        until(lambda: len(connections(warehouse.psql, "*")) == 1)
        warehouse.kill_worker()
        warehouse.psql.rows(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            " begin atomic select pg_catalog.clock_timestamp() + interval '15 s'; end"
        )
        assert connections(warehouse.psql, "*") == []


def test_two_workers_that_both_send_have_one_connection_in_each_direction(
    tmp_path: Path, server_for: ServerFor
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        shop.start_worker()
        warehouse.start_worker()
        for _ in range(3):
            send(shop, 10)
            warehouse.psql.rows(
                "select broker.send(h, 'ack') from (select conversation_handle h from broker.conversation_endpoints) e"
            )
            until(lambda: warehouse.psql.rows("select from broker.transmission_queue") == [])
        for site in (shop, warehouse):
            until(lambda: connections(site.psql, "is_accept") == [(False,), (True,)])  # noqa: B023 - called at once
