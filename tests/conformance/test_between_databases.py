"""What two databases with a worker each show of sections A, C, D and of the edge cases: one pair of servers for all tests.

Each test has services of its own, so that none sees another's messages.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.brokers import Site, two_sites
from tests.shop import END_DIALOG, ERROR, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

Received = tuple[str, int, bytes | None]

_NUMBERS = itertools.count(1)
_NOWHERE = "tcp://127.0.0.1:1"


class Pair(NamedTuple):
    """A service and its queue at the initiator's site, and one at the target's."""

    shop: Site
    warehouse: Site
    initiator: str
    target: str

    def dialog(self, **options: object) -> UUID:
        extra = "".join(f", {name} => %s" for name in options)
        handle: UUID = self.shop.psql.value(
            f"select broker.begin_dialog(%s, %s, 'ordering', encryption => false{extra})",
            self.initiator,
            self.target,
            *options.values(),
        )
        return handle

    def arrived(self, count: int = 1) -> list[Received]:
        """Wait for so many messages at the target, and take them."""
        return _arrived(self.warehouse, self.target, count)

    def answered(self, count: int = 1) -> list[Received]:
        """Wait for so many messages at the initiator, and take them."""
        return _arrived(self.shop, self.initiator, count)

    def far(self, dialog: UUID) -> UUID:
        """Return the target's handle of a dialog."""
        conversation = self.shop.psql.value(
            "select conversation_id from broker.conversation_endpoints where conversation_handle = %s", dialog
        )
        handle: UUID = self.warehouse.psql.value(
            "select conversation_handle from broker.conversation_endpoints where conversation_id = %s",
            conversation,
        )
        return handle

    def opened(self) -> tuple[UUID, UUID]:
        """Return both handles of a dialog that has said something each way."""
        dialog = self.dialog()
        self.shop.psql.send(dialog, "order", b"first")
        assert self.arrived() == [("order", 0, b"first")]
        until(lambda: self.waiting(self.shop) == [])
        return dialog, self.far(dialog)

    def waiting(self, site: Site) -> list[tuple[int, str]]:
        """Return number and status of what this pair's services have in a transmission queue."""
        return site.psql.rows(
            "select message_sequence_number::integer, transmission_status from broker.transmission_queue"
            " where %s in (from_service_name, to_service_name) order by 1",
            self.initiator,
        )

    def cut(self, site: Site) -> None:
        """Lead what this site sends on the pair's dialogs to where nobody is."""
        self._lead(site, _NOWHERE)
        # A worker that has just looked up the route takes with it what is sent in the next moment.
        time.sleep(0.5)

    def mend(self, site: Site) -> None:
        other = self.warehouse if site is self.shop else self.shop
        self._lead(site, f"tcp://127.0.0.1:{other.port}")

    def _lead(self, site: Site, address: str) -> None:
        name = self.target if site is self.shop else self.initiator
        site.psql.rows("select broker.alter_route(%s, address => %s)", name, address)


def _arrived(site: Site, queue: str, count: int) -> list[Received]:
    received: list[Received] = []

    def all_received() -> bool:
        received.extend(site.psql.receive(queue, timeout="5 s"))
        return len(received) >= count

    until(all_received)
    return received


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("sites"), server_for=server_for) as (shop, warehouse):
        shop.start_worker()
        warehouse.start_worker()
        yield shop, warehouse


@pytest.fixture
def pair(sites: tuple[Site, Site]) -> Pair:
    shop, warehouse = sites
    number = next(_NUMBERS)
    pair = Pair(shop, warehouse, f"//shop {number}", f"//warehouse {number}")
    for site, service in ((shop, pair.initiator), (warehouse, pair.target)):
        site.psql.rows("select broker.create_queue(%s)", service)
        site.psql.rows("select broker.create_service(%s, %s, '{ordering}')", service, service)
        site.psql.rows("select broker.grant('SEND', 'SERVICE', %s, 'public')", service)
    shop.route(pair.target, warehouse)
    warehouse.route(pair.initiator, shop)
    return pair


def _code(message: Received) -> int:
    kind, _, body = message
    assert kind == ERROR
    return int((body or b"").split(b"<Code>")[1].split(b"</Code>")[0])


def test_row_016_what_the_receivers_contract_forbids_comes_back_as_an_error(pair: Pair) -> None:
    shop, warehouse = pair.shop.psql, pair.warehouse.psql
    shop.rows("select broker.create_message_type('rumour')")
    shop.rows("select broker.create_contract('talk', '{order,invoice,rumour}', '{ack}')")
    warehouse.rows("select broker.create_contract('talk', '{order}', '{ack,invoice}')")
    warehouse.rows("select broker.alter_service(%s, add_contracts => '{talk}')", pair.target)
    begin = "select broker.begin_dialog(%s, %s, 'talk', encryption => false)"
    for forbidden, code in (("invoice", -8437), ("rumour", -8498)):
        dialog = shop.value(begin, pair.initiator, pair.target)
        shop.send(dialog, "order", b"fine")
        shop.send(dialog, forbidden, b"<a/>")
        (error,) = pair.answered()
        assert (_code(error), shop.state(dialog)) == (code, "ER")
        assert pair.arrived() == [("order", 0, b"fine")]
    dialog = shop.value(begin, pair.initiator, pair.target)
    shop.send(dialog, "order", b"fine")
    assert pair.arrived() == [("order", 0, b"fine")]
    target = pair.far(dialog)
    warehouse.send(target, "invoice", b"<a/>")
    (error,) = pair.arrived()
    assert (_code(error), warehouse.state(target)) == (-8457, "ER")


def test_row_037_the_far_broker_is_unknown_until_the_first_acknowledgement(pair: Pair) -> None:
    far = "select far_broker_instance from broker.conversation_endpoints where conversation_handle = %s"
    pair.cut(pair.shop)
    dialog = pair.dialog()
    assert pair.shop.psql.value(far, dialog) is None
    pair.shop.psql.send(dialog)
    until(lambda: pair.waiting(pair.shop)[0][1] != "")
    assert pair.shop.psql.value(far, dialog) is None
    pair.mend(pair.shop)
    assert pair.arrived() == [("order", 0, None)]
    guid = pair.warehouse.psql.value("select service_broker_guid from broker.databases")
    until(lambda: pair.shop.psql.value(far, dialog) == guid)


def test_rows_045_072_edges_027_029_the_end_waits_its_turn_and_for_its_acknowledgement(pair: Pair) -> None:
    dialog, target = pair.opened()
    pair.cut(pair.shop)
    pair.shop.psql.send(dialog, "order", b"before the end")
    pair.shop.psql.end(dialog)
    until(lambda: all(status for _, status in pair.waiting(pair.shop)))
    assert [number for number, _ in pair.waiting(pair.shop)] == [1, 2]
    assert (pair.shop.psql.state(dialog), pair.warehouse.psql.state(target)) == ("DO", "CO")
    pair.mend(pair.shop)
    until(lambda: pair.shop.psql.state(dialog) is None)
    assert pair.waiting(pair.shop) == []
    assert pair.warehouse.psql.state(target) == "DI"
    assert pair.arrived(2) == [("order", 1, b"before the end"), (END_DIALOG, 2, None)]
    assert pair.warehouse.psql.state(target) == "DI"


def test_row_076_what_arrives_after_the_local_end_is_dropped_and_acknowledged(pair: Pair) -> None:
    dialog, target = pair.opened()
    pair.cut(pair.warehouse)
    pair.warehouse.psql.end(target)
    pair.shop.psql.send(dialog, "order", b"too late")
    until(lambda: pair.waiting(pair.shop) == [])
    assert pair.warehouse.psql.receive(pair.target) == []
    assert pair.warehouse.psql.state(target) == "DO"
    pair.mend(pair.warehouse)
    assert pair.answered() == [(END_DIALOG, 0, None)]
    until(lambda: pair.warehouse.psql.state(target) == "CD")


def test_edge_033_after_a_cleanup_the_far_side_keeps_an_orphan_and_learns_when_it_speaks(pair: Pair) -> None:
    dialog, target = pair.opened()
    pair.shop.psql.rows("select broker.end_conversation(%s, cleanup => true)", dialog)
    assert pair.shop.psql.state(dialog) is None
    assert pair.warehouse.psql.state(target) == "CO"
    pair.warehouse.psql.send(target, "ack", b"is anybody there?")
    (error,) = pair.arrived()
    assert (_code(error), pair.warehouse.psql.state(target)) == (-8462, "ER")
    dialog, target = pair.opened()
    pair.warehouse.psql.rows("select broker.end_conversation(%s, cleanup => true)", target)
    pair.shop.psql.end(dialog)
    until(lambda: pair.shop.psql.state(dialog) is None)


@pytest.mark.parametrize(
    ("error", "number", "state"), [((), "9779", "DI"), ((7, "never mind"), "9784", "ER")]
)
def test_row_143_edge_037_what_waits_when_the_far_side_ends_is_held_and_goes_with_the_local_end(
    pair: Pair, error: tuple[object, ...], number: str, state: str
) -> None:
    dialog, target = pair.opened()
    pair.cut(pair.shop)
    pair.shop.psql.send(dialog, "order", b"never leaves")
    until(lambda: pair.waiting(pair.shop)[0][1] != "")
    pair.warehouse.psql.end(target, *error)
    until(lambda: pair.shop.psql.state(dialog) == state)
    pair.mend(pair.shop)
    other = pair.dialog()
    pair.shop.psql.send(other, "order", b"passes by")
    assert pair.arrived() == [("order", 0, b"passes by")]
    until(lambda: len(pair.waiting(pair.shop)) == 1)
    assert pair.waiting(pair.shop)[0][1].startswith(number)
    assert pair.shop.psql.value("select broker.get_transmission_status(%s)", dialog).startswith(number)
    pair.shop.psql.end(dialog)
    assert (pair.shop.psql.state(dialog), pair.waiting(pair.shop)) == (None, [])


def test_edges_059_060_a_row_without_a_status_was_not_tried_and_goes_once_it_is_acknowledged(
    pair: Pair,
) -> None:
    pair.shop.stop_worker()
    try:
        pair.shop.psql.send(pair.dialog(), "order", b"not tried")
        assert pair.waiting(pair.shop) == [(0, "")]
    finally:
        pair.shop.start_worker()
    assert pair.arrived() == [("order", 0, b"not tried")]
    until(lambda: pair.waiting(pair.shop) == [])


def test_edge_038_both_sides_end_at_once_and_no_application_hears_of_it(pair: Pair) -> None:
    dialog, target = pair.opened()
    pair.cut(pair.shop)
    pair.cut(pair.warehouse)
    pair.shop.psql.end(dialog)
    pair.warehouse.psql.end(target)
    assert (pair.shop.psql.state(dialog), pair.warehouse.psql.state(target)) == ("DO", "DO")
    pair.mend(pair.shop)
    pair.mend(pair.warehouse)
    until(lambda: pair.shop.psql.state(dialog) is None)
    until(lambda: pair.warehouse.psql.state(target) == "CD")
    assert pair.shop.psql.receive(pair.initiator) == []
    assert pair.warehouse.psql.receive(pair.target) == []


def test_edge_039_when_the_lifetime_is_over_each_side_learns_it_by_itself(pair: Pair) -> None:
    dialog = pair.dialog(lifetime="2 s")
    pair.shop.psql.send(dialog, "order", b"short-lived")
    assert pair.arrived() == [("order", 0, b"short-lived")]
    target = pair.far(dialog)
    pair.cut(pair.shop)
    pair.cut(pair.warehouse)
    (here,) = pair.answered()
    (there,) = pair.arrived()
    assert (_code(here), _code(there)) == (-8489, -8489)
    assert (pair.shop.psql.state(dialog), pair.warehouse.psql.state(target)) == ("ER", "ER")
    assert pair.shop.psql.refused("select broker.send(%s, 'order')", dialog) == "S8429"
    pair.shop.psql.end(dialog)
    pair.warehouse.psql.end(target)
    assert (pair.shop.psql.state(dialog), pair.warehouse.psql.state(target)) == (None, "CD")


def test_row_049_one_body_on_many_conversations_arrives_on_each(pair: Pair) -> None:
    dialogs = [pair.dialog() for _ in range(20)]
    body = b"to all of you" * 1000
    pair.shop.psql.rows("select broker.send_all(%s, 'order', %s::bytea)", dialogs, body)
    assert pair.arrived(20) == [("order", 0, body)] * 20
    until(lambda: pair.waiting(pair.shop) == [])
    pair.shop.psql.rows("select broker_private.sweep()")
    assert pair.shop.psql.value("select count(*) from broker_private.shared_bodies") == 0


@pytest.mark.parametrize("is_honored", [True, False])
def test_row_097_where_priority_is_honored_the_urgent_leave_first(pair: Pair, is_honored: bool) -> None:
    shop = pair.shop.psql
    urgent = f"{pair.initiator} urgent"
    shop.rows("select broker.create_service(%s, %s)", urgent, pair.initiator)
    pair.warehouse.route(urgent, pair.shop)
    create = "select broker.create_broker_priority(%s, local_service_name => %s, priority_level => %s)"
    shop.rows(create, pair.initiator, pair.initiator, 1)
    shop.rows(create, urgent, urgent, 10)
    shop.rows("select broker.alter_broker(honor_broker_priority => %s)", is_honored)
    pair.cut(pair.shop)
    for service in (pair.initiator, urgent):
        for _ in range(3):
            dialog = shop.value(
                "select broker.begin_dialog(%s, %s, 'ordering', encryption => false)", service, pair.target
            )
            shop.send(dialog, "order", service.encode())
            shop.send(dialog, "order", service.encode())
    levels = "select priority from broker.transmission_queue where to_service_name = %s order by enqueue_time"
    assert [level for (level,) in shop.rows(levels, pair.target)] == [1] * 6 + [10] * 6
    pair.mend(pair.shop)
    rows = f'select message_body from "{pair.target}" order by queuing_order'
    until(lambda: len(pair.warehouse.psql.rows(rows)) == 12)
    expected = [urgent, pair.initiator] if is_honored else [pair.initiator, urgent]
    assert [body.decode() for (body,) in pair.warehouse.psql.rows(rows)] == [
        service for service in expected for _ in range(6)
    ]


def test_row_169_an_event_of_one_database_wakes_who_waits_for_it_in_another(pair: Pair) -> None:
    shop, waiter = pair.shop.psql, pair.warehouse.session()
    notifications = "http://schemas.microsoft.com/SQL/Notifications"
    pair.warehouse.psql.rows(
        "select broker.alter_service(%s, add_contracts => %s)",
        pair.target,
        [f"{notifications}/PostEventNotification"],
    )
    shop.rows(
        "select broker.create_event_notification('here', %s, 'QUEUE_ACTIVATION', %s)",
        pair.initiator,
        pair.target,
    )
    waiter.rows("select broker.sleep_on(%s)", pair.target)
    assert waiter.value("select broker.sleep_on(%s)", pair.target)
    dialog = shop.value(
        "select broker.begin_dialog(%s, %s, 'ordering', encryption => false)", pair.initiator, pair.initiator
    )
    shop.send(dialog)
    assert list(waiter.connection.notifies(timeout=120, stop_after=1))
    waiter.connection.close()
    arrived = pair.arrived()
    kind, number, body = arrived[0]
    assert (kind, number) == (f"{notifications}/EventNotification", 0)
    assert f"<ObjectName>{pair.initiator}</ObjectName>".encode() in (body or b"")
    shop.rows("select broker.drop_event_notification('here')")
    # As long as the message waits there, the event is told again every five seconds.
    while arrived[-1][0] != END_DIALOG:
        arrived += pair.arrived()
    assert {again for again, _, _ in arrived[:-1]} == {kind}
