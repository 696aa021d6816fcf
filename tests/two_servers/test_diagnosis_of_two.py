"""Faults between two databases, planted with real workers and real TLS: diagnosis names each, and first."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from tests.brokers import Site, two_sites
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

    ServerFor = Callable[[str, int], EmbeddedServer]


@pytest.fixture
def sites(tmp_path: Path, server_for: ServerFor) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path, server_for=server_for) as pair:
        yield pair


def begin(site: Site) -> UUID:
    handle: UUID = site.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    return handle


def first(site: Site, handle: UUID | None = None) -> int | None:
    rows = site.psql.rows("select number from broker.diagnose(%s) limit 1", handle)
    return rows[0][0] if rows else None


def found(site: Site, number: int, handle: UUID | None = None) -> None:
    until(lambda: first(site, handle) == number)


def test_each_fault_of_the_way_is_the_first_finding_until_it_is_mended(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    dialog = begin(shop)
    shop.psql.send(dialog)
    shop.start_worker()
    found(shop, 305, dialog)
    warehouse.psql.rows("select broker.revoke('CONNECT', 'ENDPOINT', 'endpoint', 'shop_user')")
    warehouse.start_worker()
    found(shop, 306)
    pem = (shop.keys / "shop.pem").read_text()
    warehouse.psql.rows("select broker.drop_certificate('shop')")
    found(shop, 307)
    # A pair: the queue is off too, and what comes first on the way is named first.
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => false)")
    assert first(shop) == 307
    warehouse.trust("shop", pem)
    found(shop, 316)
    assert warehouse.psql.rows("select number from broker.diagnose()") == [(202,)]
    (mend,) = warehouse.psql.rows("select mend from broker.diagnose() where number = 202")[0]
    warehouse.psql.rows(mend)
    assert warehouse.psql.receive(timeout="30 s") == [("order", 0, None)]
    until(lambda: first(shop) is None)


def test_a_broker_that_is_not_where_the_route_leads(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    shop.start_worker()
    warehouse.start_worker()
    dialog = begin(shop)
    shop.psql.send(dialog)
    assert len(warehouse.psql.receive(timeout="30 s")) == 1
    until(lambda: shop.psql.rows("select from broker.transmission_queue") == [])
    warehouse.psql.rows("select broker.alter_broker('NEW_BROKER')")
    shop.psql.send(dialog)
    found(shop, 314, dialog)


def test_the_journey_of_a_message_is_on_one_time_line(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    for site in sites:
        site.psql.rows("select broker.start_trace()")
        site.start_worker()
    dialog = begin(shop)
    shop.psql.send(dialog)
    assert len(warehouse.psql.receive(timeout="30 s")) == 1
    until(lambda: shop.psql.rows("select from broker.transmission_queue") == [])
    given = ["--journey", str(dialog), "--database-url", shop.url, "--far-database-url", warehouse.url]
    result = CliRunner().invoke(application, ["diagnose", *given, "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)["journey"]
    events = [(step["database"], step["event"]) for step in told["steps"]]
    way = [
        ("shop", "BEGIN DIALOG"),
        ("shop", "SEND Message"),
        ("shop", "Remote"),
        ("warehouse", "Dialog Created"),
        ("warehouse", "Received Sequenced Message"),
    ]
    assert [one for one in events if one in way] == way
    assert {("warehouse", "RECEIVE"), ("shop", "Acknowledgement Received")} <= set(events)
    assert told["gone"] == []
