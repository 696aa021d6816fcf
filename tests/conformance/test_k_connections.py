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


def test_row_165_row_166_a_connection_is_shown_and_counted_on_both_sides_while_it_and_its_worker_live(
    tmp_path: Path, server_for: ServerFor
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        # On a busy machine an answer takes long: what is sent again would be counted again.
        shop.start_worker(resend_after=60)
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
            counted = dict(
                site.psql.rows(
                    "select counter_name, cntr_value from broker.dm_os_performance_counters"
                    " where object_name = 'SQLServer:Broker/DBM Transport'"
                )
            )
            assert counted["Open Connection Count"] == 1
            assert counted["Message Fragment Sends/sec"] == sent[0]
            assert counted["Message Fragment Receives/sec"] == sent[1]
            assert counted["Send I/O Bytes Total"] > 0
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


def test_row_165_two_workers_that_both_send_share_one_connection(
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
        # Both have carried messages by then, and each side's row says whom it is connected with.
        shown = "is_accept, total_fragments_sent >= 3, total_fragments_received >= 3, peer_arbitration_id is not null"
        until(lambda: connections(shop.psql, shown) == [(False, True, True, True)])
        until(lambda: connections(warehouse.psql, shown) == [(True, True, True, True)])


def test_row_130_row_165_workers_that_call_each_other_at_once_lose_nothing_and_share_one_connection(
    tmp_path: Path, server_for: ServerFor
) -> None:
    with two_sites(tmp_path, server_for=server_for) as (shop, warehouse):
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        dialog = shop.psql.value(
            "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
        )
        shop.psql.send(dialog, "order", b"0")
        for site in (shop, warehouse):
            site.start_worker()
        assert warehouse.psql.bodies(timeout="120 s") == [b"0"]
        handle = warehouse.psql.value("select conversation_handle from broker.conversation_endpoints")
        many = "select broker.send_batch(%s, %s, (select array_agg(convert_to(n::text, 'UTF8') order by n) from generate_series(%s::int, %s::int) n))"
        for first in (1, 1001):
            for site in (shop, warehouse):
                assert site.stop_worker() == 0
            shop.psql.rows(many, dialog, "order", first, first + 999)
            warehouse.psql.rows(many, handle, "ack", first, first + 999)
            for site in (shop, warehouse):
                site.start_worker()
            expected = [str(number).encode() for number in range(first, first + 1000)]
            for site in (shop, warehouse):
                received: list[bytes | None] = []
                while len(received) < len(expected) and (
                    bodies := site.psql.bodies(site.name, timeout="120 s")
                ):
                    received += bodies
                assert received == expected
            until(lambda: share_one(shop, warehouse))


def share_one(one: Site, other: Site) -> bool:
    """Tell whether the views show one connection, the same, at both sides."""
    shown = [
        connections(site.psql, "worker_id, peer_arbitration_id, is_accept, state") for site in (one, other)
    ]
    if [len(rows) for rows in shown] != [1, 1]:
        return False
    ((here, there, is_accept, state),), ((far_here, far_there, far_is_accept, far_state),) = shown
    return (here, there, is_accept, state) == (far_there, far_here, not far_is_accept, far_state)
