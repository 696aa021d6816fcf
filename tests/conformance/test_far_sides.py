"""What only shows between two databases: two servers, a worker beside each, TLS between them; one pair for all tests here."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.brokers import Site, two_sites
from tests.shop import END_DIALOG, ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer
    from tests.shop import Session


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("sites"), server_for=server_for) as (initiator, target):
        # The same contract by name, but each side has its own idea of who sends what.
        for site, by_initiator, by_target in (
            (initiator, "order,return,note", "ack,label"),
            (target, "order,label", "ack,return"),
        ):
            for name in ("return", "label", "note"):
                site.psql.rows("select broker.create_message_type(%s)", name)
            site.psql.rows(
                "select broker.create_contract('exchange', %s, %s)", f"{{{by_initiator}}}", f"{{{by_target}}}"
            )
        target.psql.rows("select broker.alter_service('//warehouse', add_contracts => '{exchange}')")
        initiator.start_worker()
        target.start_worker()
        yield initiator, target


@pytest.fixture
def shop(sites: tuple[Site, Site]) -> Session:
    return sites[0].psql


@pytest.fixture
def warehouse(sites: tuple[Site, Site]) -> Session:
    return sites[1].psql


def begin(shop: Session, contract: str = "ordering", **options: object) -> UUID:
    extra = "".join(f", {name} => %s" for name in options)
    handle: UUID = shop.value(
        f"select broker.begin_dialog('//shop', '//warehouse', %s, encryption => false{extra})",
        contract,
        *options.values(),
    )
    return handle


def converse(shop: Session, warehouse: Session, **options: object) -> tuple[UUID, UUID]:
    """Begin a dialog, send order 0, and return the handles of both sides once it is received and acknowledged."""
    dialog = begin(shop, **options)
    shop.send(dialog, "order", b"0")
    until(lambda: handle_of(shop, warehouse, dialog))
    target = handle_of(shop, warehouse, dialog)
    assert target is not None
    assert warehouse.bodies(conversation_handle=target) == [b"0"]
    until(lambda: waiting(shop, dialog) == 0)
    return dialog, target


def handle_of(shop: Session, warehouse: Session, dialog: UUID) -> UUID | None:
    conversation = shop.value(
        "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", dialog
    )
    found = warehouse.rows(
        "select conversation_handle from broker.conversation_endpoints where conversation_id = %s",
        conversation,
    )
    return found[0][0] if found else None


def set_clock(session: Session, offset: str) -> None:
    session.rows(
        "create or replace function broker_private.clock() returns timestamptz language sql volatile"
        f" begin atomic select pg_catalog.clock_timestamp() + interval '{offset}'; end"
    )


def waiting(session: Session, dialog: UUID) -> int:
    count: int = session.value(
        "select count(*) from broker.transmission_queue where conversation_handle = %s", dialog
    )
    return count


def error_of(session: Session, queue: str, dialog: UUID) -> bytes:
    """Return the code in the Error message that arrives on a dialog."""
    until(lambda: session.state(dialog) == "ER")
    (kind, _, body), *_ = session.receive(queue, conversation_handle=dialog)
    assert kind == ERROR
    return (body or b"").partition(b"<Code>")[2].partition(b"</Code>")[0]


@pytest.mark.parametrize(("kind", "code"), [("return", b"-8437"), ("note", b"-8498")])
def test_row_016_what_the_target_s_contract_does_not_let_the_initiator_send_is_answered_with_an_error(
    shop: Session, warehouse: Session, kind: str, code: bytes
) -> None:
    dialog = begin(shop, "exchange")
    shop.send(dialog, "order", b"taken")
    shop.send(dialog, kind, b"refused")
    assert error_of(shop, "shop", dialog) == code
    assert warehouse.bodies(timeout="120 s") == [b"taken"]
    target = handle_of(shop, warehouse, dialog)
    assert target is not None
    shop.end(dialog)
    # Left open it would get an Error into the queue that the next tests read, once the shop has forgotten the dialog.
    warehouse.end(target)


def test_row_016_what_the_initiator_s_contract_does_not_let_the_target_send_is_answered_with_an_error(
    shop: Session, warehouse: Session
) -> None:
    dialog, target = converse(shop, warehouse, contract="exchange")
    warehouse.send(target, "return", b"refused")
    assert error_of(warehouse, "warehouse", target) == b"-8457"
    assert shop.bodies("shop") == []
    warehouse.end(target)
    shop.end(dialog)


def test_row_037_edge_024_the_far_broker_is_known_once_it_has_acknowledged(
    shop: Session, warehouse: Session
) -> None:
    far = "select far_broker_instance from broker.conversation_endpoints where conversation_handle = %s"
    unsent = begin(shop)
    assert shop.value(far, unsent) is None
    dialog, target = converse(shop, warehouse)
    guid = "select service_broker_guid from broker.databases"
    assert shop.value(far, dialog) == warehouse.value(guid)
    assert warehouse.value(far, target) == shop.value(guid)
    assert target != dialog


def test_row_072_edges_027_028_029_this_side_is_do_until_the_broker_acknowledges_and_the_other_di_in_its_turn(
    sites: tuple[Site, Site], shop: Session, warehouse: Session
) -> None:
    dialog, target = converse(shop, warehouse)
    sites[0].stop_worker()
    warehouse.send(target, "ack", b"before the end")
    shop.send(dialog, "order", b"1")
    shop.end(dialog)
    assert shop.state(dialog) == "DO"
    assert shop.refused("select broker.end_conversation(%s)", dialog) == "S8427"
    assert shop.refused("select broker.send(%s, 'order')", dialog) == "S8429"
    assert warehouse.state(target) == "CO"
    sites[0].start_worker()
    until(lambda: warehouse.state(target) == "DI")
    assert warehouse.receive(conversation_handle=target) == [("order", 1, b"1"), (END_DIALOG, 2, None)]
    until(lambda: shop.state(dialog) is None)
    assert warehouse.state(target) == "DI"
    assert shop.bodies("shop") == []
    warehouse.end(target)
    assert warehouse.state(target) == "CD"


def test_row_076_edges_037_038_what_both_sides_send_and_end_at_once_is_dropped(
    sites: tuple[Site, Site], shop: Session, warehouse: Session
) -> None:
    dialog, target = converse(shop, warehouse)
    for site in sites:
        site.stop_worker()
    shop.send(dialog, "order", b"never read")
    warehouse.send(target, "ack", b"never read")
    shop.end(dialog)
    warehouse.end(target)
    assert (shop.state(dialog), warehouse.state(target)) == ("DO", "DO")
    for site in sites:
        site.start_worker()
    until(lambda: shop.state(dialog) is None)
    until(lambda: warehouse.state(target) == "CD")
    assert shop.bodies("shop") == warehouse.bodies() == []
    assert waiting(shop, dialog) == waiting(warehouse, target) == 0


def test_edge_033_after_a_cleanup_the_far_side_is_alone_and_learns_it_when_it_sends(
    shop: Session, warehouse: Session
) -> None:
    dialog, target = converse(shop, warehouse)
    shop.rows("select broker.end_conversation(%s, cleanup => true)", dialog)
    assert shop.state(dialog) is None
    assert warehouse.state(target) == "CO"
    set_clock(shop, "31 min")
    shop.rows("select broker_private.sweep()")
    set_clock(shop, "0")
    # Its worker has been started a moment ago, so it asks by itself. Then SEND may be too late for what follows.
    with suppress(psycopg.DatabaseError):
        warehouse.send(target, "ack", b"into the void")
    assert error_of(warehouse, "warehouse", target) == b"-8462"
    warehouse.end(target)
    assert warehouse.state(target) == "CD"


def test_edge_035_an_error_to_a_side_that_has_ended_is_not_sent(shop: Session, warehouse: Session) -> None:
    dialog, target = converse(shop, warehouse)
    warehouse.end(target)
    until(lambda: shop.state(dialog) == "DI")
    shop.end(dialog, 7, "too late")
    assert shop.state(dialog) is None
    until(lambda: warehouse.state(target) == "CD")
    assert warehouse.bodies() == []


def test_row_089_edge_039_both_sides_learn_that_the_lifetime_is_over_without_each_other(
    sites: tuple[Site, Site], shop: Session, warehouse: Session
) -> None:
    dialog, target = converse(shop, warehouse, lifetime="1 h")
    for site in sites:
        site.stop_worker()
    for session, queue, handle in ((shop, "shop", dialog), (warehouse, "warehouse", target)):
        set_clock(session, "2 h")
        session.rows("select broker_private.fire_timers()")
        set_clock(session, "0")
        assert error_of(session, queue, handle) == b"-8489"
        assert session.refused("select broker.send(%s, 'order')", handle) == "S8429"
        session.end(handle)
    assert waiting(shop, dialog) == waiting(warehouse, target) == 0
    for site in sites:
        site.start_worker()


def test_edge_048_a_named_broker_without_the_service_answers_with_an_error(
    sites: tuple[Site, Site], shop: Session, warehouse: Session
) -> None:
    sites[0].route("//nowhere", sites[1])
    guid = warehouse.value("select service_broker_guid from broker.databases")
    named = shop.value(
        "select broker.begin_dialog('//shop', '//nowhere', 'ordering', encryption => false, broker_instance => %s)",
        str(guid),
    )
    waits = shop.value("select broker.begin_dialog('//shop', '//nowhere', 'ordering', encryption => false)")
    for dialog in (waits, named):
        shop.send(dialog)
    assert error_of(shop, "shop", named) == b"-8490"
    until(lambda: "9793" in shop.value("select broker.get_transmission_status(%s)", waits))
    assert waiting(shop, waits) == 1
    shop.rows("select broker.end_conversation(%s, cleanup => true)", waits)
