"""ServiceEcho and ServiceDiagnostic: the broker answers in place of any service, over the service's own way."""

from __future__ import annotations

import uuid
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from tests.brokers import Site, two_sites
from tests.shop import END_DIALOG, ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

BROKER = "http://schemas.microsoft.com/SQL/ServiceBroker"
ECHO, DIAGNOSTIC = f"{BROKER}/ServiceEcho", f"{BROKER}/ServiceDiagnostic"


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("system"), server_for=server_for) as (shop, warehouse):
        for site in (shop, warehouse):
            site.start_worker()
        yield shop, warehouse


def begin(shop: Site, contract: str, to: str = "//warehouse") -> UUID:
    handle: UUID = shop.psql.value(
        "select broker.begin_dialog('//shop', %s, %s, encryption => false)", to, contract
    )
    return handle


def answer(shop: Site, dialog: UUID) -> tuple[str, bytes | None]:
    ((kind, _, body),) = shop.psql.receive("shop", conversation_handle=dialog, timeout="120 s")
    return kind, body


def status(shop: Site, query: str) -> dict[str, str | None]:
    """Ask, end the dialog, and return the elements of the Status."""
    dialog = begin(shop, DIAGNOSTIC)
    shop.psql.send(dialog, f"{DIAGNOSTIC}/Query", query.encode())
    kind, body = answer(shop, dialog)
    assert kind == f"{DIAGNOSTIC}/Status"
    shop.psql.end(dialog)
    return {element.tag: element.text for element in ET.fromstring(body or b"")}


def test_an_echo_comes_back_over_the_way_of_the_service_that_it_was_sent_to(
    sites: tuple[Site, Site],
) -> None:
    shop, warehouse = sites
    dialog = begin(shop, ECHO)
    for body in (b"once", b"", bytes(range(256)) * 4000):
        shop.psql.send(dialog, f"{ECHO}/Echo", body)
        kind, came = answer(shop, dialog)
        assert (kind, came or b"") == (f"{ECHO}/Echo", body)
    assert warehouse.psql.receive() == [], "the service's own programs see nothing of it"
    shop.psql.end(dialog)
    open_ones = "select count(*) from broker.conversation_endpoints where state <> 'CD'"
    until(lambda: warehouse.psql.value(open_ones) == 0)


def test_a_service_of_the_same_database_is_echoed_too(sites: tuple[Site, Site]) -> None:
    shop, _ = sites
    shop.psql.rows("select broker.create_queue('here'), broker.create_service('//here', 'here')")
    dialog = begin(shop, ECHO, "//here")
    shop.psql.send(dialog, f"{ECHO}/Echo", b"near")
    assert answer(shop, dialog) == (f"{ECHO}/Echo", b"near")
    shop.psql.end(dialog)
    shop.psql.rows("select broker.drop_service('//here'), broker.drop_queue('here')")


def test_who_may_not_send_to_a_service_gets_no_echo(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.create_queue('closed'), broker.create_service('//closed', 'closed')")
    shop.route("//closed", warehouse)
    dialog = begin(shop, ECHO, "//closed")
    shop.psql.send(dialog, f"{ECHO}/Echo", b"may I?")
    kind, body = answer(shop, dialog)
    assert (kind, b"<Code>-8494</Code>" in (body or b"")) == (ERROR, True)
    shop.psql.end(dialog)


def test_a_service_that_lists_the_contract_answers_by_itself(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    warehouse.psql.rows("select broker.alter_service('//warehouse', add_contracts => array[%s])", ECHO)
    dialog = begin(shop, ECHO)
    shop.psql.send(dialog, f"{ECHO}/Echo", b"to the program")
    assert warehouse.psql.receive(timeout="120 s") == [(f"{ECHO}/Echo", 0, b"to the program")]
    warehouse.psql.rows("select broker.alter_service('//warehouse', drop_contracts => array[%s])", ECHO)
    shop.psql.end(dialog)
    assert [kind for kind, _, _ in warehouse.psql.receive(timeout="120 s")] == [END_DIALOG]


def test_a_status_says_of_a_service_what_keeps_messages_from_it(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    asked = "<Query><Contract>{}</Contract></Query>"
    expected = {"Service": "//warehouse", "QueueAcceptsMessages": "true", "ContractAccepted": "true"}
    assert status(shop, asked.format("ordering")) == expected
    assert status(shop, asked.format("a &lt; b")) == {**expected, "ContractAccepted": "false"}
    dialog = begin(shop, DIAGNOSTIC)
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => false)")
    shop.psql.send(dialog, f"{DIAGNOSTIC}/Query", b"<Query/>")
    _, body = answer(shop, dialog)
    assert b"<QueueAcceptsMessages>false</QueueAcceptsMessages>" in (body or b"")
    warehouse.psql.rows("select broker.alter_queue('warehouse', status => true)")
    shop.psql.end(dialog)


def test_a_status_of_a_conversation_is_for_its_other_side_alone(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    dialog = begin(shop, "ordering")
    for _ in range(3):
        shop.psql.send(dialog, "order", b"x")
    number = "select conversation_id from broker.conversation_endpoints where conversation_handle = %s"
    conversation = shop.psql.value(number, dialog)
    waiting = "select count(*) from broker.transmission_queue where conversation_handle = %s"
    until(lambda: shop.psql.value(waiting, dialog) == 0)
    asked = "<Query><Conversation>{}</Conversation></Query>"
    found = status(shop, asked.format(conversation))
    assert (found["ConversationState"], found["ArrivedInOrder"]) == ("CO", "3")
    for nobodys in (uuid.uuid4(), "no number"):
        assert status(shop, asked.format(nobodys))["ConversationState"] == "unknown"
    # As if it were another broker's.
    foreign = "update broker_private.endpoints set far_broker_instance = gen_random_uuid() where conversation_id = %s"
    warehouse.psql.rows(foreign, conversation)
    found = status(shop, asked.format(conversation))
    assert (found["ConversationState"], "ArrivedInOrder" in found) == ("unknown", False)
    shop.psql.rows("select broker.end_conversation(%s, cleanup => true)", dialog)
    warehouse.psql.received(3)


@pytest.mark.parametrize("query", ["<Other/>", f"<Query>{'x' * 8000}</Query>"])
def test_what_can_t_be_answered_gets_a_description(sites: tuple[Site, Site], query: str) -> None:
    shop, _ = sites
    dialog = begin(shop, DIAGNOSTIC)
    shop.psql.send(dialog, f"{DIAGNOSTIC}/Query", query.encode())
    kind, body = answer(shop, dialog)
    assert kind == f"{DIAGNOSTIC}/Description"
    assert b"<Query><Contract>" in (body or b"")
    shop.psql.end(dialog)


def test_what_the_broker_answers_does_not_follow_a_service_to_another_queue(sites: tuple[Site, Site]) -> None:
    shop, warehouse = sites
    dialog = begin(shop, ECHO)
    shop.psql.send(dialog, f"{ECHO}/Echo", b"before")
    assert answer(shop, dialog) == (f"{ECHO}/Echo", b"before")
    warehouse.psql.rows(
        "select broker.create_queue('other'), broker.alter_service('//warehouse', queue => 'other')"
    )
    shop.psql.send(dialog, f"{ECHO}/Echo", b"after")
    assert answer(shop, dialog) == (f"{ECHO}/Echo", b"after")
    assert warehouse.psql.receive("other") == []
    warehouse.psql.rows(
        "select broker.alter_service('//warehouse', queue => 'warehouse'), broker.drop_queue('other')"
    )
    shop.psql.end(dialog)
