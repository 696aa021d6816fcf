"""Asking the far broker how a service stands, where nobody may look into its database: over real workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest
from typer.testing import CliRunner

from pybroker.commands import application
from pybroker.diagnosis.asking import Services, ask_about
from tests.brokers import Site, two_sites
from tests.patience import PATIENCE
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

ORDERING = Services("//shop", "//warehouse", "ordering", "off")


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("asking"), server_for=server_for) as (shop, warehouse):
        for site in (shop, warehouse):
            site.start_worker()
        # The command waits 10 s for an answer: less than two workers take to start on a busy machine.
        assert ask(shop) == []
        yield shop, warehouse


def diagnose(shop: Site, *given: str) -> list[tuple[int, str]]:
    """Run the command; return the numbers and the problems."""
    result = CliRunner().invoke(application, ["diagnose", *given, "--database-url", shop.url, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return [(one["number"], one["problem"]) for one in json.loads(result.output)["findings"]]


def configured(shop: Site, contract: str = "ordering") -> list[tuple[int, str]]:
    services = ["--from-service", "//shop", "--to-service", "//warehouse", "--contract", contract]
    return diagnose(shop, "configuration", *services, "--encryption", "off")


def ask(shop: Site, conversation: UUID | None = None, patience: float = PATIENCE) -> list[tuple[int, str]]:
    found = ask_about(shop.psql.connection, ORDERING, conversation, patience=patience)
    return [(one.number, one.problem) for one in found]


def left(site: Site) -> int:
    count: int = site.psql.value("select count(*) from broker_private.endpoints where local_end is null")
    return count


def test_a_service_that_stands_well_is_asked_and_nothing_is_left_of_it(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    until(lambda: configured(shop) == [])
    assert ask(shop) == []
    for site, queue in ((shop, "shop"), (warehouse, "warehouse")):
        until(lambda site=site: left(site) == 0)
        assert site.psql.receive(queue) == [], "no program sees anything of it"


def test_what_the_far_broker_says_is_a_finding(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => false)")
    assert [number for number, _ in ask(shop)] == [316]
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => true)")
    warehouse.psql.rows("select broker.alter_service('//warehouse', drop_contracts => '{ordering}')")
    assert [number for number, _ in ask(shop)] == [503]
    until(lambda: [number for number, _ in configured(shop)] == [503])
    warehouse.psql.rows("select broker.alter_service('//warehouse', add_contracts => '{ordering}')")
    warehouse.psql.rows("select broker.revoke('SEND', 'SERVICE', '//warehouse', 'public')")
    ((number, problem),) = ask(shop)
    assert number == 507
    assert "8494" in problem
    warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
    assert ask(shop) == []


def test_a_conversation_is_told_of_to_the_broker_on_its_other_side(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    handle = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    for _ in range(3):
        shop.psql.send(handle)
    until(lambda: warehouse.psql.value("select count(*) from broker.queue_messages") == 3)
    until(
        lambda: (
            "3 messages have arrived there in order"
            in dict(diagnose(shop, "runtime", "--conversation", str(handle), "--timeout", "1")).get(417, "")
        )
    )
    for site in sites:
        site.psql.rows(
            "select broker.end_conversation(conversation_handle, cleanup => true) from broker.conversation_endpoints"
            " where state <> 'CD'"
        )


def test_a_far_broker_that_is_silent_is_said_to_be(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.kill_worker()
    assert [number for number, _ in ask(shop, patience=0.5)] == [509]
    warehouse.start_worker()
    assert ask(shop) == []


def test_an_answer_that_nobody_reads_is_gone_after_its_minute(sites: tuple[Site, Site]) -> None:
    shop, _ = sites
    handle = shop.psql.value("select broker.query_service('//shop', '//warehouse', encryption => false)")
    status = "select broker.read_status(%s)"
    until(lambda: shop.psql.value(status, handle) is not None)
    assert shop.psql.value(status, handle) == (
        "<Status><Service>//warehouse</Service><QueueAcceptsMessages>true</QueueAcceptsMessages></Status>"
    )
    shop.psql.rows(
        "update broker_private.endpoints set expires_at = now() where conversation_handle = %s", handle
    )
    until(lambda: left(shop) == 0)
    until(lambda: shop.psql.value("select count(*) from broker_private.messages") == 0)


def test_who_may_not_receive_for_the_service_asks_nothing_and_reads_nothing(sites: tuple[Site, Site]) -> None:
    shop, _ = sites
    shop.psql.rows("create role onlooker login")
    handle = shop.psql.value("select broker.query_service('//shop', '//warehouse', encryption => false)")
    with psycopg.connect(shop.server.url(shop.name), user="onlooker", autocommit=True) as session:
        ((number, problem),) = (
            (one.number, one.problem) for one in ask_about(session, ORDERING, patience=0.1)
        )
        assert (number, "onlooker" in problem) == (901, True)
        for text in ("select broker.read_status(%s)", "select broker.end_conversation(%s)"):
            with pytest.raises(psycopg.Error) as refused:
                session.execute(text.encode(), (handle,))
            assert refused.value.sqlstate == "S0229"
    shop.psql.rows("select broker.end_conversation(%s)", handle)
    shop.psql.rows("drop role onlooker")
