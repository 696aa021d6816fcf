"""The dialog protocol between two sites: what is sent again and when, what waits for what came before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.transport.pace import Pace, Resends
from tests.brokers import Site, two_sites
from tests.proxy import Proxy, proxy_to
from tests.shop import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer

# More than a handshake takes, so that only an acknowledgement is cut off.
LARGE = b"x" * 40_000
WAITING = "select count(*) from broker.transmission_queue where conversation_handle = %s"


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Site]]:
    with two_sites(tmp_path_factory.mktemp("protocol"), server_for=server_for) as (initiator, target):
        target.start_worker()
        yield initiator, target


@pytest.fixture
def line(sites: tuple[Site, Site]) -> Iterator[Proxy]:
    """The shop's way to the warehouse; its worker is started by the test, with the knobs that it needs."""
    shop, warehouse = sites
    with proxy_to(warehouse.port) as proxy:
        shop.psql.rows("select broker.drop_route('//warehouse')")
        shop.route("//warehouse", proxy)
        yield proxy
        shop.stop_worker()


def begin(site: Site) -> UUID:
    handle: UUID = site.psql.value("select broker.begin_dialog('//shop', '//warehouse', 'ordering')")
    return handle


class SetClock(Clock):
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time


def test_row_132_a_dialog_is_sent_again_after_4_8_16_32_and_then_every_64_seconds() -> None:
    clock = SetClock()
    resends = Resends(clock, Pace())
    for seconds in (4, 8, 16, 32, 64, 64, 64):
        resends.sent([1])
        clock.time += seconds - 0.01
        assert resends.waiting() == [1]
        clock.time += seconds * 0.1 + 0.02
        assert resends.waiting() == []
    resends.acknowledged([1])
    resends.sent([1])
    clock.time += 4.5
    assert resends.waiting() == []


def test_row_132_the_schedule_of_a_dialog_that_is_gone_is_forgotten() -> None:
    clock = SetClock()
    resends = Resends(clock, Pace())
    for _ in range(4):
        resends.sent([1])
    clock.time += 200
    assert resends.waiting() == []
    resends.sent([1])
    clock.time += 4.5
    assert resends.waiting() == []


def test_row_133_edge_056_edge_058_what_loses_its_acknowledgement_is_sent_again_and_delivered_once(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    line.cuts_answers_after = 20_000
    dialog = begin(shop)
    shop.psql.send(dialog, "order", LARGE)
    shop.start_worker()
    until(lambda: line.cuts >= 3)
    assert shop.psql.value(WAITING, dialog) == 1
    line.cuts_answers_after = None
    until(lambda: shop.psql.value(WAITING, dialog) == 0)
    shop.psql.send(dialog, "order", b"next")
    until(lambda: shop.psql.value(WAITING, dialog) == 0)
    assert warehouse.psql.receive() == [("order", 0, LARGE), ("order", 1, b"next")]


def test_edge_057_a_new_message_does_not_make_its_dialog_due_and_holds_no_other_up(
    sites: tuple[Site, Site], line: Proxy
) -> None:
    shop, warehouse = sites
    line.cuts_answers_after = 20_000
    dialog, other = begin(shop), begin(shop)
    shop.psql.send(dialog, "order", LARGE)
    shop.start_worker(resend_after=600)
    until(lambda: line.cuts >= 1)
    line.cuts_answers_after = None
    assert warehouse.psql.bodies(timeout="30 s") == [LARGE]
    shop.psql.send(dialog, "order", b"waits for its dialog's next attempt")
    shop.psql.send(other, "order", b"goes")
    assert warehouse.psql.bodies(timeout="30 s") == [b"goes"]
    until(lambda: shop.psql.value(WAITING, other) == 0)
    assert (line.cuts, shop.psql.value(WAITING, dialog)) == (1, 2)
    assert shop.psql.value("select broker.get_transmission_status(%s)", dialog) == ""
    # Its schedule is the worker's; another one tries at once.
    shop.stop_worker()
    shop.start_worker()
    assert warehouse.psql.bodies(timeout="30 s") == [b"waits for its dialog's next attempt"]
