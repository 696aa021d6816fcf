"""Forwarding: rows 099, 141, 142 and 165, edge cases 063 and 064, through a worker whose home database has routes and nothing else.

It has the key of its endpoint and no other; forwarding is off in it as in any new endpoint.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.transport.dialog_security.key_files import master_key_path
from pybroker.workers.transport.incoming.forwarder import Forwarder
from pybroker.workers.transport.outgoing.peer import Peer
from pybroker.workers.transport.protocol import wire
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.retry_schedule import Pace
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS, Site
from tests.shop import END_DIALOG, until
from tests.transport import NO_DIALOGS, FarLink, settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from uuid import UUID

    from pybroker.embedded import EmbeddedServer
    from pybroker.workers.transport.connection.session import Session as WorkerSession
    from tests.shop import Session

    ServerFor = Callable[[str, int], EmbeddedServer]

WAITING = "select count(*) from broker.transmission_queue"
STATUS = "select broker.get_transmission_status(%s)"


@contextmanager
def three_sites(directory: Path, server_for: ServerFor) -> Iterator[tuple[Site, Site, Site]]:
    """Yield the initiator's and the target's site, which only know the third, and the third, which passes on."""
    with ExitStack() as stack:
        sites = []
        for name, server in (("shop", "shop"), ("warehouse", "warehouse"), ("post", "shop")):
            site = Site(name, server_for(server, 18), directory)
            stack.callback(site.drop_database)
            stack.callback(site.close)
            sites.append(site)
        shop, warehouse, post = sites
        certificates = {site.name: site.certificate() for site in sites}
        master_key_path(post.keys).unlink()
        for site in sites:
            site.listen(certificates[site.name])
        for site in (shop, warehouse):
            site.trust("post", certificates["post"])
            post.trust(site.name, certificates[site.name])
        shop.psql.rows(INITIATOR_DEFINITIONS)
        warehouse.psql.rows(TARGET_DEFINITIONS)
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        shop.route("//warehouse", post)
        warehouse.route("//shop", post)
        lead(post, "//warehouse", warehouse.port)
        lead(post, "//shop", shop.port)
        yield shop, warehouse, post


def bind(shop: Site, warehouse: Site) -> None:
    """Give the dialogs full security: both ends know each other's certificate, which opens no connection."""
    for site, far in ((shop, warehouse), (warehouse, shop)):
        site.psql.rows(
            "select broker.create_certificate(%s, %s, %s::name)",
            far.name,
            (far.keys / f"{far.name}.pem").read_text(),
            f"{far.name}_user",
        )
    shop.psql.rows("select broker.create_remote_service_binding('binding', '//warehouse', 'warehouse_user')")
    # No stranger may send, so who arrives is known by the certificate.
    warehouse.psql.rows(
        "select broker.revoke('SEND', 'SERVICE', '//warehouse', 'public'),"
        " broker.grant('SEND', 'SERVICE', '//warehouse', 'shop_user')"
    )


def lead(site: Site, service: str, port: int) -> None:
    """Make a route for what comes from outside."""
    site.psql.rows(
        "select broker.create_route(%s, %s, service_name => %s, scope => 'WORKER')",
        f"{service} from outside",
        f"tcp://127.0.0.1:{port}",
        service,
    )


def forward(site: Site) -> None:
    site.psql.rows("select broker.alter_endpoint('endpoint', message_forwarding => true)")


@pytest.fixture
def new_sites(tmp_path: Path, server_for: ServerFor) -> Iterator[tuple[Site, Site, Site]]:
    """Yield the sites as they are made: the third doesn't forward."""
    with three_sites(tmp_path, server_for) as sites:
        for site in sites:
            site.start_worker()
        yield sites


@pytest.fixture
def sites(new_sites: tuple[Site, Site, Site]) -> tuple[Site, Site, Site]:
    forward(new_sites[2])
    return new_sites


def begin(site: Site, service: str = "//warehouse", *, encryption: bool = False) -> UUID:
    handle: UUID = site.psql.value(
        "select broker.begin_dialog('//shop', %s, 'ordering', encryption => %s)", service, encryption
    )
    return handle


def received(session: Session, queue: str, count: int) -> list[tuple[str, int, bytes | None]]:
    messages: list[tuple[str, int, bytes | None]] = []

    def all_received() -> bool:
        messages.extend(session.receive(queue, timeout="5 s"))
        return len(messages) >= count

    until(all_received)
    return messages


def test_row_141_messages_cross_a_worker_that_has_routes_and_nothing_else(
    sites: tuple[Site, Site, Site],
) -> None:
    shop, warehouse, post = sites
    # More than message_forward_size: its pieces go one by one.
    post.psql.rows("select broker.alter_endpoint('endpoint', message_forward_size => 1)")
    large = b"x" * 3_000_000
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"0")
    shop.psql.send(dialog, "order", large)
    assert received(warehouse.psql, "warehouse", 2) == [("order", 0, b"0"), ("order", 1, large)]
    ((target, far_broker),) = warehouse.psql.rows(
        "select conversation_handle, far_broker_instance from broker.conversation_endpoints"
    )
    guid = "select service_broker_guid from broker.databases"
    assert far_broker == shop.psql.value(guid)
    warehouse.psql.send(target, "ack", b"thanks")
    warehouse.psql.end(target)
    assert received(shop.psql, "shop", 2) == [("ack", 0, b"thanks"), (END_DIALOG, 1, None)]
    shop.psql.end(dialog)
    until(lambda: warehouse.psql.state(target) == "CD")
    until(lambda: shop.psql.value(WAITING) == warehouse.psql.value(WAITING) == 0)
    kept = "select (select count(*) from broker_private.endpoints) + (select count(*) from broker_private.transmission_messages)"
    assert post.psql.value(kept) == 0


def test_row_141_sealed_dialogs_cross_a_worker_that_has_no_key_of_them(
    sites: tuple[Site, Site, Site],
) -> None:
    shop, warehouse, post = sites
    bind(shop, warehouse)
    # In pieces, both ways.
    large, answer = b"a secret order " * 50_000, b"a secret answer " * 50_000
    dialog = begin(shop, encryption=True)
    shop.psql.send(dialog, "order", b"0")
    shop.psql.send(dialog, "order", large)
    assert received(warehouse.psql, "warehouse", 2) == [("order", 0, b"0"), ("order", 1, large)]
    ((target, sender),) = warehouse.psql.rows(
        "select conversation_handle, far_principal_id from broker.conversation_endpoints"
    )
    assert sender == "shop_user"
    warehouse.psql.send(target, "ack", answer)
    warehouse.psql.end(target)
    assert received(shop.psql, "shop", 2) == [("ack", 0, answer), (END_DIALOG, 1, None)]
    shop.psql.end(dialog)
    until(lambda: warehouse.psql.state(target) == "CD")
    until(lambda: shop.psql.value(WAITING) == warehouse.psql.value(WAITING) == 0)
    assert {file.name for file in post.keys.iterdir()} == {"post.key", "post.pem"}


def test_row_142_a_worker_that_was_not_told_to_forward_says_so_and_its_sender_waits(
    new_sites: tuple[Site, Site, Site],
) -> None:
    shop, warehouse, post = new_sites
    dialog = begin(shop)
    shop.psql.send(dialog, "order", b"waits")
    until(lambda: shop.psql.value(STATUS, dialog)[:4] == "9792")
    assert "message forwarding is disabled" in shop.psql.value(STATUS, dialog)
    forward(post)
    assert received(warehouse.psql, "warehouse", 1) == [("order", 0, b"waits")]


def test_row_141_edge_063_a_forwarder_that_is_killed_under_load_loses_doubles_and_reorders_nothing(
    sites: tuple[Site, Site, Site],
) -> None:
    shop, warehouse, post = sites
    dialogs, rounds, messages = 3, 3, 40
    handles = [begin(shop) for _ in range(dialogs)]
    expected = [str(number).encode() for number in range(rounds * messages)]
    send = "select broker.send(%s, 'order', convert_to(n::text, 'UTF8')) from generate_series(%s::int, %s::int) n"
    arrived: dict[UUID, list[bytes]] = {}

    def take() -> bool:
        for handle, body in warehouse.psql.rows(
            "select conversation_handle, message_body from broker.receive('warehouse', timeout => '200 ms')"
        ):
            arrived.setdefault(handle, []).append(body)
            warehouse.psql.send(handle, "ack", body)
        return sum(map(len, arrived.values())) >= dialogs * (at + 1) * messages - messages

    for at in range(rounds):
        for handle in handles:
            shop.psql.rows(send, handle, at * messages, (at + 1) * messages - 1)
        # Most of this round's messages have passed, and others are on their way.
        until(take)
        post.kill_worker()
        post.start_worker()
    answers: dict[UUID, list[bytes]] = {}
    while sum(map(len, answers.values())) < dialogs * len(expected):
        take()
        for handle, body in shop.psql.rows(
            "select conversation_handle, message_body from broker.receive('shop', timeout => '200 ms')"
        ):
            answers.setdefault(handle, []).append(body)
    assert list(arrived.values()) == [expected] * dialogs
    assert answers == dict.fromkeys(handles, expected)
    until(lambda: shop.psql.value(WAITING) == warehouse.psql.value(WAITING) == 0)
    assert warehouse.psql.bodies() == shop.psql.bodies("shop") == []


def test_row_141_routes_that_lead_in_a_circle_end_after_so_many_hops(sites: tuple[Site, Site, Site]) -> None:
    shop, _, post = sites
    shop.route("//nowhere", post)
    lead(post, "//nowhere", shop.port)
    lead(shop, "//nowhere", post.port)
    forward(shop)
    dialog = begin(shop, "//nowhere")
    shop.psql.send(dialog)
    until(lambda: "routes lead in a circle" in shop.psql.value(STATUS, dialog))
    until(lambda: "reason=hops" in (shop.log.read_text() + post.log.read_text()))


def test_row_165_what_is_being_forwarded_is_shown_as_in_sql_server(sites: tuple[Site, Site, Site]) -> None:
    initiator, _, post = sites
    columns = post.psql.value(
        "select string_agg(attname, ' ' order by attnum) from pg_attribute"
        " where attrelid = 'broker.dm_broker_forwarded_messages'::regclass and attnum > 0"
    )
    assert columns == (
        "conversation_id is_initiator to_service_name to_broker_instance from_service_name from_broker_instance"
        " adjacent_broker_address message_sequence_number message_fragment_number hops_remaining time_to_live time_consumed"
        " message_id worker_id"
    )
    # Somebody who accepts connections and never says a word.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        initiator.route("//silent", post)
        lead(post, "//silent", port)
        dialog = begin(initiator, "//silent")
        initiator.psql.send(dialog)
        shown = (
            "select is_initiator, to_service_name, from_service_name, adjacent_broker_address, message_sequence_number,"
            " hops_remaining, time_to_live, message_id is not null from broker.dm_broker_forwarded_messages"
        )
        expected = (True, "//silent", "//shop", f"tcp://127.0.0.1:{port}", 0, 15, 120, True)
        until(lambda: post.psql.rows(shown) == [expected])
        # It stays in memory as long as it waits, and nobody but the sender keeps it.
        assert initiator.psql.value(WAITING) == 1


class Time(Clock):
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class Post:
    """A forwarder, and the one far side that it passes batches on to."""

    def __init__(self, limit: int = 2**20, window: int = 16) -> None:
        self.clock = Time()
        self.far = FarLink("tcp://far:4022")
        self.far.far = msgspec.structs.replace(self.far.far, window=window)
        self.outbound = Peer(("tcp://far:4022",), self._connect, self.clock, Pace())
        self.forwarder = Forwarder(lambda _: self.outbound, lambda: limit, self.clock)

    async def _connect(self, _: str) -> WorkerSession:
        return self.far.line(self.clock, Pace())

    def relay(self, number: int = 1, **fields: Any) -> asyncio.Task[wire.Ack]:
        batch = msgspec.structs.replace(NO_DIALOGS(number), **fields)
        return asyncio.create_task(self.forwarder.relay(batch, ("tcp://far:4022",)))

    async def sent(self, count: int) -> list[wire.Batch]:
        def batches() -> list[wire.Batch]:
            return [frame for frame in self.far.sent_frames if isinstance(frame, wire.Batch)]

        await settled(lambda: len(batches()) >= count)
        return batches()

    def answer(self, batch: wire.Batch) -> None:
        self.far.arrive(wire.Ack(batch.number, bytes(16), b"1", b"2", b"3", b"4"))


async def refusal(relayed: asyncio.Task[wire.Ack]) -> str:
    with pytest.raises(TransportError) as refused:
        await relayed
    return str(refused.value)


def played(play: Callable[[Post], Any], **options: int) -> None:
    async def run() -> None:
        await play(Post(**options))

    asyncio.run(run())


def test_row_141_a_batch_is_passed_on_as_it_is_and_the_far_answer_is_the_answer_to_it() -> None:
    async def play(post: Post) -> None:
        relayed = post.relay(77, bodies=b"sealed", hops_remaining=3, time_consumed_ms=40)
        (batch,) = await post.sent(1)
        expected = msgspec.structs.replace(
            NO_DIALOGS(batch.number), bodies=b"sealed", hops_remaining=2, time_consumed_ms=40
        )
        assert batch == expected
        post.answer(batch)
        assert await relayed == wire.Ack(77, bytes(16), b"1", b"2", b"3", b"4")

    played(play)


def test_row_141_what_would_exceed_the_memory_for_forwarding_is_dropped_and_its_sender_told() -> None:
    async def play(post: Post) -> None:
        first = post.relay(1, bodies=bytes(2**19))
        (batch,) = await post.sent(1)
        assert "message_forward_size, 1 MB" in await refusal(post.relay(2, bodies=bytes(2**19)))
        post.answer(batch)
        await first
        # Alone it passes, whatever its size: it is in memory already.
        large = post.relay(3, bodies=bytes(2**21))
        post.answer((await post.sent(2))[1])
        assert (await large).number == 3

    played(play)


def test_row_141_a_batch_that_is_older_than_its_sender_allows_or_has_no_hop_left_is_dropped() -> None:
    async def play(post: Post) -> None:
        assert "9736" in await refusal(post.relay(hops_remaining=0))
        assert "longer than its sender allows" in await refusal(
            post.relay(time_to_live_ms=100, time_consumed_ms=100)
        )
        assert [frame for frame in post.far.sent_frames if isinstance(frame, wire.Batch)] == []

    played(play)


def test_row_141_row_157_what_could_not_be_forwarded_for_60_s_is_purged() -> None:
    async def play(post: Post) -> None:
        sent = post.relay(1)
        await post.sent(1)
        waits = post.relay(2)
        await settled(lambda: len(post.forwarder._held) >= 2)
        post.clock.seconds += 59.9
        post.forwarder.purge()
        assert not any(held.is_stale for held in post.forwarder._held)
        assert not waits.done()
        post.clock.seconds += 0.1
        post.forwarder.purge()
        assert "60 s" in await refusal(waits)
        # What has left is its receiver's to answer.
        assert not sent.done()
        post.answer((await post.sent(1))[0])
        assert (await sent).number == 1

    played(play, window=1)


def test_row_099_edge_064_what_is_forwarded_goes_in_the_order_in_which_it_came() -> None:
    async def play(post: Post) -> None:
        relayed = [post.relay(number, bodies=b"%d" % number) for number in range(1, 6)]
        for count in range(1, 6):
            post.answer((await post.sent(count))[-1])
        assert [(await each).number for each in relayed] == [1, 2, 3, 4, 5]
        assert [batch.bodies for batch in await post.sent(5)] == [b"1", b"2", b"3", b"4", b"5"]

    played(play, window=1)


def test_row_099_what_is_forwarded_goes_after_the_workers_own_of_level_10_and_before_its_own_of_level_1() -> (
    None
):
    async def play(post: Post) -> None:
        def own(level: int) -> asyncio.Task[wire.Ack]:
            def batch(number: int) -> wire.Batch:
                return msgspec.structs.replace(NO_DIALOGS(number), bodies=b"own %d" % level)

            return asyncio.create_task(post.outbound.exchange(batch, level))

        # The far side takes one batch at a time, so all others wait for their turn.
        first = own(1)
        await post.sent(1)
        waiting = [own(1), post.relay(1, bodies=b"forwarded"), own(10)]
        await settled(lambda: post.outbound.waiting == len(waiting))
        for count in range(1, 5):
            post.answer((await post.sent(count))[-1])
        await asyncio.gather(first, *waiting)
        bodies = [batch.bodies for batch in await post.sent(4)]
        assert bodies == [b"own 1", b"own 10", b"forwarded", b"own 1"]

    played(play, window=1)
