"""Faults between two databases, planted with real workers and real TLS: diagnosis names each, and first."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from pybroker.commands import application
from tests.brokers import Site, two_sites
from tests.shop import until
from tests.worker.test_certificate import DAY, Identity

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
    # The far side's own finding is the cause, and names the command that starts its worker.
    given = ["diagnose", "--json", "--database-url", shop.url, "--far-database-url", warehouse.url]
    told = json.loads(CliRunner().invoke(application, given).output)["findings"]
    assert [one["number"] for one in told[:2]] == [103, 305]
    ((command,),) = [[mend["statement"] for mend in told[0]["mend"]]]
    assert shlex.split(command)[:3] == ["pybroker", "worker", "--database-url"]
    # A password is not in it.
    leads_to, known = (conninfo_to_dict(url) for url in (shlex.split(command)[3], warehouse.url))
    known.pop("password", None)
    assert leads_to == known
    # The route leads to the right place already: the mend puts in what is there.
    address = shop.psql.value("select address from broker.routes where remote_service_name = '//warehouse'")
    shop.psql.rows(told[1]["mend"][0]["statement"].replace("tcp://HOST:PORT", address))
    warehouse.psql.rows("select broker.revoke('CONNECT', 'ENDPOINT', 'endpoint', 'shop_user')")
    warehouse.start_worker()
    found(shop, 306)
    pem = (shop.keys / "shop.pem").read_text()
    warehouse.psql.rows("select broker.drop_certificate('shop')")
    # A pair: the queue is off too, and what comes first on the way is named first.
    found(shop, 307)
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => false)")
    assert first(shop) == 307
    warehouse.trust("shop", pem)
    found(shop, 316)
    assert warehouse.psql.rows("select number from broker.diagnose()") == [(202,)]
    (mend,) = warehouse.psql.rows("select mend from broker.diagnose() where number = 202")[0]
    warehouse.psql.rows(mend)
    assert warehouse.psql.receive(timeout="120 s") == [("order", 0, None)]
    until(lambda: first(shop) is None)
    warehouse.psql.rows("select broker.revoke('CONNECT', 'ENDPOINT', 'endpoint', 'shop_user')")
    restart(warehouse)
    shop.psql.send(dialog)
    found(shop, 306)
    grant = shop.psql.value("select mend from broker.diagnose()")
    warehouse.psql.rows(grant.replace("NAME", "endpoint").replace("USER", "shop_user"))
    healed(shop, warehouse, dialog)


def healed(shop: Site, warehouse: Site, dialog: UUID) -> None:
    """Once it is mended, what waited arrives, and nothing is said of its conversation but that."""
    assert len(warehouse.psql.receive(timeout="120 s")) == 1
    until(lambda: shop.psql.rows("select from broker.transmission_queue") == [])
    assert [
        one for one in shop.psql.rows("select level from broker.diagnose(%s)", dialog) if one == ("error",)
    ] == []


def restart(site: Site) -> None:
    """What a worker knew, and connections that were open, are gone."""
    site.kill_worker()
    site.start_worker()


def mend_of(site: Site, number: int, handle: UUID) -> str:
    text: str = site.psql.value(
        "select mend from broker.diagnose(%s) where number = %s and not is_destructive", handle, number
    )
    return text


def test_each_fault_of_the_endpoints_is_the_first_finding_until_it_is_mended(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    change = "select broker.alter_endpoint('endpoint', encryption => %s)"
    shop.psql.rows("select broker.alter_endpoint('endpoint', state => 'STOPPED')")
    for site in sites:
        site.start_worker()
    dialog = begin(shop)
    shop.psql.send(dialog)
    found(shop, 311, dialog)
    shop.psql.rows(mend_of(shop, 311, dialog))
    healed(shop, warehouse, dialog)

    # The key of the endpoint's certificate is gone.
    key = shop.keys / "shop.key"
    content = key.read_bytes()
    key.unlink()
    restart(shop)
    shop.psql.send(dialog)
    found(shop, 309, dialog)
    key.touch(mode=0o600)
    key.write_bytes(content)
    healed(shop, warehouse, dialog)

    # A certificate that is over, which the far side knows.
    old = Identity(shop.keys, "old", begins=-2 * DAY, ends=-DAY)
    shop.psql.rows("select broker.create_certificate('old', %s, 'old_user')", old.pem)
    warehouse.trust("old", old.pem)
    shop.psql.rows("select broker.alter_endpoint('endpoint', certificate => 'old')")
    restart(shop)
    shop.psql.send(dialog)
    found(shop, 308, dialog)
    shop.psql.rows("select broker.alter_endpoint('endpoint', certificate => 'shop')")
    healed(shop, warehouse, dialog)

    warehouse.psql.rows(change, "DISABLED")
    shop.psql.rows(change, "REQUIRED")
    for site in (warehouse, shop):
        restart(site)
    shop.psql.send(dialog)
    found(shop, 315, dialog)
    warehouse.psql.rows(change, "REQUIRED")
    healed(shop, warehouse, dialog)

    shop.psql.rows("select broker.drop_endpoint('endpoint')")
    restart(shop)
    shop.psql.send(dialog)
    found(shop, 310, dialog)
    shop.create_endpoint()
    shop.psql.rows("select broker.grant('CONNECT', 'ENDPOINT', 'endpoint', 'warehouse_user')")
    healed(shop, warehouse, dialog)


def test_each_fault_of_dialog_security_and_of_forwarding_is_named_until_it_is_mended(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    for site in sites:
        site.start_worker()
    dialog = shop.psql.value("select broker.begin_dialog('//shop', '//warehouse', 'ordering')")
    shop.psql.send(dialog)
    found(shop, 312, dialog)
    shop.psql.rows(mend_of(shop, 312, dialog).replace("'USER'", "'nobody_known'"))
    found(shop, 313, dialog)
    assert 322 in [number for (number,) in shop.psql.rows("select number from broker.diagnose()")]
    name = shop.psql.value("select name from broker.remote_service_bindings")
    shop.psql.rows("select broker.alter_remote_service_binding(%s, 'warehouse_user')", name)
    healed(shop, warehouse, dialog)

    # What comes from outside is to go on to a third broker.
    warehouse.psql.rows("select broker.drop_route('AutoCreatedWorker')")
    warehouse.psql.rows(
        "select broker.create_route('on', 'tcp://127.0.0.1:1', service_name => '//warehouse', scope => 'WORKER')"
    )
    restart(warehouse)
    clear = begin(shop)
    shop.psql.send(clear)
    found(shop, 317, clear)
    warehouse.psql.rows("select broker.alter_route('on', address => 'LOCAL')")
    healed(shop, warehouse, clear)


def test_a_broker_that_is_not_where_the_route_leads(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    shop.start_worker()
    warehouse.start_worker()
    dialog = begin(shop)
    shop.psql.send(dialog)
    assert len(warehouse.psql.receive(timeout="120 s")) == 1
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
    assert len(warehouse.psql.receive(timeout="120 s")) == 1
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
