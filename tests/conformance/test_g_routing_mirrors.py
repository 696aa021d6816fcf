"""Mirrored routes: rows 107 and 112, with a streaming standby that is promoted under load."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest

from pybroker.embedded import EmbeddedServer
from pybroker.workers.clock import Clock
from pybroker.workers.transport.outgoing.peer import Peer
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.retry_schedule import Pace
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS, Site, introduce
from tests.conftest import SETTINGS
from tests.proxy import Proxy, proxy_to
from tests.shop import ERROR, in_background, until
from tests.standby import Standby, follow_synchronously, standby_of, stop_following
from tests.transport import NO_DIALOGS, FarLink, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.workers.transport.connection.session import Session as WorkerSession
    from tests.shop import Session, Shop

WAITING = "select count(*) from broker.transmission_queue"


class Pair:
    """A shop, and a warehouse with a standby; the shop's route names both, by lines that can be cut."""

    def __init__(self, shop: Site, warehouse: Site, standby: Standby, lines: tuple[Proxy, Proxy]) -> None:
        self.shop = shop
        self.warehouse = warehouse
        self.standby = standby
        self._line, self._mirror = lines

    def lose(self) -> None:
        """Let the principal's machine die."""
        self.warehouse.kill_worker()
        self._line.is_down = True
        self._line.cut()
        self.warehouse.server.kill()

    def take_over(self) -> None:
        self.standby.promote()
        self._mirror.is_down = False

    def fail_over(self) -> None:
        """Let the principal's machine die, and the standby take over."""
        self.lose()
        self.take_over()


class Sender:
    """Sends one message after another on each of some dialogs, in a session and a thread of its own, until it is told to stop.

    Attributes:
        sent: how many were sent on each dialog.
    """

    def __init__(self, session: Session, handles: list[UUID]) -> None:
        self.sent = 0
        self._session = session
        self._handles = handles
        self._is_over = threading.Event()
        self._sending = in_background(self._send)

    def passes(self, count: int) -> None:
        """Wait until so many more were sent on each dialog."""
        begun = self.sent
        until(lambda: self._sending.done() or self.sent >= begun + count)
        if self._sending.done():
            self._sending.result()

    def stop(self) -> None:
        self._is_over.set()
        self._sending.result()
        self._session.connection.close()

    def _send(self) -> None:
        while not self._is_over.wait(0.01):
            for handle in self._handles:
                self._session.send(handle, "order", b"%d" % self.sent)
            self.sent += 1


@pytest.fixture
def pair(tmp_path: Path, server_for: Callable[[str, int], EmbeddedServer]) -> Iterator[Pair]:
    with EmbeddedServer(version=18, listen=True, settings=SETTINGS) as server:
        shop, warehouse = (
            Site("shop", server_for("shop", 18), tmp_path),
            Site("warehouse", server, tmp_path),
        )
        try:
            introduce(shop, warehouse)
            shop.psql.rows(INITIATOR_DEFINITIONS)
            warehouse.psql.rows(TARGET_DEFINITIONS)
            warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
            warehouse.psql.rows("create table booked (dialog uuid, number integer, place bigserial)")
            warehouse.route("//shop", shop)
            with (
                standby_of(warehouse) as standby,
                proxy_to(warehouse.port) as line,
                proxy_to(warehouse.port) as mirror,
            ):
                # Two workers on one machine have one port between them: the standby's is its alone once it listens.
                mirror.is_down = True
                shop.psql.rows(
                    "select broker.create_route('warehouse', %s, service_name => '//warehouse',"
                    " broker_instance => %s, mirror_address => %s)",
                    f"tcp://127.0.0.1:{line.port}",
                    str(warehouse.psql.value("select service_broker_guid from broker.databases")),
                    f"tcp://127.0.0.1:{mirror.port}",
                )
                for site in (shop, warehouse, standby):
                    site.start_worker()
                yield Pair(shop, warehouse, standby, (line, mirror))
        finally:
            for site in (shop, warehouse):
                site.close()
            shop.drop_database()


def begin(shop: Site) -> UUID:
    handle: UUID = shop.psql.value(
        "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
    )
    return handle


BOOK = b"""
with received as materialized (
  select conversation_handle, message_body from broker.receive('warehouse', top => 20, timeout => '200 ms')
)
insert into booked (dialog, number)
select conversation_handle, convert_from(message_body, 'UTF8')::integer from received
"""


def test_row_112_a_standby_that_followed_synchronously_takes_over_under_load_and_nothing_is_lost(
    pair: Pair,
) -> None:
    shop, warehouse, standby = pair.shop, pair.warehouse, pair.standby
    follow_synchronously(warehouse)
    until(lambda: "worker_waits" in standby.log.read_text())
    assert standby.stop_worker() == 0
    standby.start_worker()
    handles = [begin(shop) for _ in range(3)]
    places: list[Site] = [warehouse]
    is_over = threading.Event()

    def book() -> None:
        while not is_over.is_set():
            # The server of the last place may be going or not be there yet.
            with suppress(psycopg.OperationalError), places[-1].session().connection as session:
                while not is_over.is_set():
                    session.execute(BOOK)

    reader = threading.Thread(target=book)
    reader.start()
    sender = Sender(shop.session(), handles)
    try:
        until(lambda: warehouse.psql.value("select count(*) from booked") > 50)
        # What is on its way when the principal dies, what waits while there is none, and what comes after that.
        pair.lose()
        sender.passes(10)
        pair.take_over()
        places.append(standby)
        sender.passes(30)
        sender.stop()
        messages = sender.sent
        until(lambda: standby.psql.value("select count(*) from booked") >= len(handles) * messages)
        until(lambda: shop.psql.value(WAITING) == 0)
    finally:
        sender.stop()
        is_over.set()
        reader.join()
    booked = standby.psql.rows("select dialog, array_agg(number order by place) from booked group by dialog")
    assert [numbers for _, numbers in booked] == [list(range(messages))] * len(handles)


def test_row_112_what_a_standby_that_was_behind_has_lost_ends_in_a_numbered_error_on_both_sides(
    pair: Pair,
) -> None:
    shop, warehouse, standby = pair.shop, pair.warehouse, pair.standby
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"0")
    followed = "select count(*) from broker_private.messages"
    until(lambda: standby.psql.value(followed) == 1 and shop.psql.value(WAITING) == 0)
    stop_following(standby)
    walreceivers = "select count(*) from pg_stat_wal_receiver"
    until(lambda: standby.psql.value(walreceivers) == 0)
    shop.psql.send(dialog, "order", b"1")
    until(lambda: shop.psql.value(WAITING) == 0)
    assert warehouse.psql.value(followed) == 2
    pair.fail_over()
    shop.psql.send(dialog, "order", b"2")
    until(lambda: shop.psql.state(dialog) == "ER")
    ((kind, _, body),) = shop.psql.receive("shop", timeout="120 s")
    assert (kind, b"<Code>-9720</Code>" in (body or b"")) == (ERROR, True)
    (there,) = standby.psql.rows("select conversation_handle from broker.conversation_endpoints")[0]
    until(lambda: standby.psql.state(there) == "ER")
    (first, order) = standby.psql.receive(conversation_handle=there)
    assert (first[0], b"<Code>-9719</Code>" in (first[2] or b"")) == (ERROR, True)
    assert order == ("order", 0, b"0")
    # Dialogs that begin now are whole.
    shop.psql.send(begin(shop), "order", b"new")
    until(lambda: standby.psql.bodies(timeout="1 s") == [b"new"])


def test_row_107_a_route_with_a_mirror_comes_before_local(shop: Shop) -> None:
    psql = shop.psql
    broker = psql.value("select service_broker_guid from broker.databases")
    create = "select broker.create_route(%s, %s, service_name => '//warehouse', broker_instance => %s, mirror_address => %s)"
    taken = "select address, mirror_address from broker_private.route_of('//warehouse', %s)"
    here, mirror = "tcp://here.example:4022", "tcp://mirror.example:4022"
    psql.rows(create, "local", "LOCAL", str(broker), None)
    psql.rows(create, "network", "tcp://there.example:4022", str(broker), None)
    assert psql.rows(taken, broker) == [("LOCAL", None)]
    psql.rows(create, "mirrored", here, str(broker), mirror)
    assert psql.rows(taken, broker) == [(here, mirror)]


class Time(Clock):
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class Network:
    """Two far sides; each answers while it is the principal's."""

    def __init__(self, clock: Clock) -> None:
        self.answering = {"tcp://one:1"}
        self.links: list[FarLink] = []
        self._clock = clock

    async def connect(self, address: str) -> WorkerSession:
        if address not in self.answering:
            raise TransportError(faults.CONNECT_FAILED, "Nobody there.")
        self.links.append(FarLink(address))
        return self.links[-1].line(self._clock, Pace())


async def refused(outbound: Peer, link: FarLink, number: int) -> None:
    """Send a batch that is answered with this refusal."""
    before = len(link.sent_frames)
    sending = asyncio.create_task(outbound.exchange(NO_DIALOGS))
    await settled(lambda: len(link.sent_frames) > before)
    batch = link.sent_frames[-1]
    assert isinstance(batch, wire.Batch)
    link.arrive(wire.Refusal(batch.number, number, "The database is away."))
    with pytest.raises(TransportError):
        await sending


@pytest.mark.parametrize("number", [faults.UNREACHABLE, faults.REPLICA])
def test_row_112_a_worker_whose_database_is_away_is_left_when_the_partner_is_the_principal(
    number: int,
) -> None:
    async def play() -> None:
        clock = Time()
        network = Network(clock)
        outbound = Peer(("tcp://one:1", "tcp://two:2"), network.connect, clock, Pace())
        await outbound.open()
        await refused(outbound, network.links[0], number)
        # The partner doesn't say that it is the principal: the connection stays.
        assert (await outbound.open()).link.address == "tcp://one:1"
        network.answering.add("tcp://two:2")
        assert (await outbound.open()).link.address == "tcp://one:1"
        clock.seconds += 60
        assert (await outbound.open()).link.address == "tcp://two:2"
        # There it stays, also when the first one is back.
        network.links[-1].arrive(None)
        await settled(lambda: outbound.fault is not None)
        clock.seconds += 15
        assert (await outbound.open()).link.address == "tcp://two:2"

    asyncio.run(play())
