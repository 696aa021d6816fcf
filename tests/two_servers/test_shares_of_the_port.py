"""What a peer who has CONNECT may take of a worker: its share. The others are delivered as if it were one of them."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.transport.connection import limits, link
from pybroker.workers.transport.connection.limits import Limits
from pybroker.workers.transport.connection.session import WINDOW
from pybroker.workers.transport.incoming.dispatcher import DELIVERIES, Dispatcher
from pybroker.workers.transport.incoming.rotation import Rotation
from pybroker.workers.transport.protocol import arrays, wire
from pybroker.workers.transport.protocol.faults import LimitError, TransportError
from pybroker.workers.transport.protocol.rows import KnownCertificate
from tests.brokers import Site, two_sites
from tests.shop import until
from tests.transport import settled
from tests.worker.test_certificate import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pybroker.embedded import EmbeddedServer
    from pybroker.workers.database import Database
    from pybroker.workers.transport.connection.certificate_check import Credentials

ENOUGH_SECONDS = 120.0
_HANDSHAKES = 10
GREEDY, MODEST = uuid.UUID(int=7), uuid.UUID(int=8)
BLOCKED = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock' and query like '%%broker_private.deliver%%'"
)


def test_between_two_turns_of_a_peer_each_other_has_at_most_one() -> None:
    rotation = Rotation[tuple[bytes, int]]()
    for number in range(100):
        rotation.add(b"greedy", b"", (b"greedy", number))
    assert rotation.next() == (b"greedy", 0)
    for peer in (b"one", b"other"):
        for number in range(3):
            rotation.add(peer, b"", (peer, number))
    order = [rotation.next() for _ in range(9)]
    assert order == [
        (peer, n + (peer == b"greedy")) for n in range(3) for peer in (b"greedy", b"one", b"other")
    ]
    assert rotation.next() == (b"greedy", 4)


def test_what_a_forwarder_brings_of_several_brokers_has_turns_too_and_they_are_the_forwarders() -> None:
    rotation = Rotation[str]()
    for number in range(3):
        rotation.add(b"forwarder", b"greedy", f"greedy {number}")
    rotation.add(b"forwarder", b"modest", "modest 0")
    for number in range(2):
        rotation.add(b"peer", b"", f"peer {number}")
    assert [rotation.next() for _ in range(7)] == [
        "greedy 0", "peer 0", "modest 0", "peer 1", "greedy 1", "greedy 2", None,
    ]  # fmt: skip


def test_who_need_not_wait_any_more_is_forgotten() -> None:
    rotation = Rotation[int]()
    rotation.add(b"peer", b"a", 1)
    rotation.add(b"peer", b"b", 2)
    rotation.discard(b"peer", b"a", 1)
    rotation.discard(b"peer", b"a", 1)
    assert [rotation.next(), rotation.next()] == [2, None]


def test_all_peers_together_have_a_limit_and_what_is_released_can_be_taken_again() -> None:
    taken = Limits()
    share = limits.PEER_UNFINISHED_BYTES
    for peer in range(limits.ALL_UNFINISHED_BYTES // share):
        taken.hold(str(peer), share)
    with pytest.raises(LimitError, match="All users together"):
        taken.hold("one more", 1)
    taken.release("0", share)
    taken.hold("one more", share)
    with pytest.raises(LimitError, match='"one more"'):
        taken.hold("one more", 1)


def test_in_each_slot_one_batch_of_another_peer_is_delivered_before_ones_own() -> None:
    database = cast("Database", object())
    dispatcher = Dispatcher([database], Clock())
    order: list[bytes] = []
    free = asyncio.Semaphore(0)

    async def deliver(peer: bytes) -> None:
        async with dispatcher.delivery(database, peer, b""):
            order.append(peer)
            await free.acquire()

    async def run() -> None:
        deliveries = [asyncio.create_task(deliver(b"greedy")) for _ in range(3 * WINDOW)]
        await settled(lambda: len(order) == DELIVERIES)
        deliveries += [asyncio.create_task(deliver(peer)) for peer in (b"modest", b"other", b"modest")]
        await asyncio.sleep(0)
        for _ in deliveries:
            free.release()
        await asyncio.gather(*deliveries)

    asyncio.run(run())
    turns = order[DELIVERIES:]
    assert turns[:6] == [b"greedy", b"modest", b"other", b"greedy", b"modest", b"greedy"]
    assert len(order) == 3 * WINDOW + 3


@pytest.fixture(scope="module")
def peers(
    tmp_path_factory: pytest.TempPathFactory, server_for: Callable[[str, int], EmbeddedServer]
) -> Iterator[tuple[Site, Callable[[str], Credentials]]]:
    """A warehouse with its worker, and the credentials of two peers of it."""
    directory: Path = tmp_path_factory.mktemp("shares")
    with two_sites(directory, server_for=server_for) as (_, warehouse):
        identities = {name: Identity(directory / f"keys_{name}", name) for name in ("greedy", "modest")}
        for name, identity in identities.items():
            warehouse.trust(name, identity.pem)
        warehouse.psql.rows("select broker.alter_endpoint('endpoint', encryption => 'SUPPORTED')")
        warehouse.psql.rows("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
        warehouse.start_worker()
        until(lambda: "listener_opened" in warehouse.log.read_text())
        pem = (warehouse.keys / "warehouse.pem").read_text()
        yield (
            warehouse,
            lambda name: identities[name].credentials(
                KnownCertificate("warehouse", "warehouse_user", pem, True)
            ),
        )


async def connected(warehouse: Site, credentials: Credentials) -> link.Link:
    # An older worker, which announces no limit of dialogs.
    hello = wire.Hello(1, 1, [bytes(16)], "SUPPORTED", WINDOW, wire.MAXIMUM_FRAME_BYTES)
    for _ in range(_HANDSHAKES):
        # On a busy machine a handshake may take longer than it is given.
        with contextlib.suppress(TimeoutError):
            return await link.connect(f"tcp://127.0.0.1:{warehouse.port}", credentials, hello)
    raise AssertionError(f"port {warehouse.port} has ended none of {_HANDSHAKES} handshakes in time")


def batch(number: int, broker: uuid.UUID, dialogs: int = 1) -> wire.Batch:
    """Return a batch of so many new dialogs with a message each."""
    tomorrow = struct.pack(">q", int((time.time() - 946_684_800 + 86_400) * 1_000_000))

    def each(element: bytes | None, kind: int) -> bytes:
        return arrays.from_elements([element] * dialogs, kind)

    return wire.Batch(
        number=number,
        from_broker=broker.bytes,
        to_service="//warehouse",
        to_broker=None,
        conversation_ids=arrays.from_elements([uuid.uuid4().bytes for _ in range(dialogs)], arrays.UUID),
        from_initiator=each(b"\1", arrays.BOOLEAN),
        from_services=each(b"//far", arrays.TEXT),
        to_services=each(b"//warehouse", arrays.TEXT),
        to_brokers=each(None, arrays.UUID),
        contracts=each(b"ordering", arrays.TEXT),
        expirations=each(tomorrow, arrays.TIMESTAMPTZ),
        encrypted=each(b"\0", arrays.BOOLEAN),
        type_names=arrays.from_texts(["order"]),
        dialog_index=arrays.from_integers(range(1, dialogs + 1), arrays.INTEGER),
        type_index=arrays.from_integers([1] * dialogs, arrays.INTEGER),
        sequence_numbers=arrays.from_integers([0] * dialogs, arrays.BIGINT),
        kinds="M" * dialogs,
        bodies=each(str(broker.int).encode(), arrays.BYTEA),
    )


async def answer(line: link.Link) -> wire.Frame | None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        return await line.receive()


def test_what_an_older_sender_sends_too_much_of_is_stored_in_slices_and_answered_as_one(
    peers: tuple[Site, Callable[[str], Credentials]],
) -> None:
    warehouse, credentials = peers
    dialogs = 2 * wire.MAXIMUM_DIALOGS + 1

    async def send() -> wire.Frame | None:
        line = await connected(warehouse, credentials("greedy"))
        assert line.far.maximum_dialogs == wire.MAXIMUM_DIALOGS
        await line.send(batch(1, GREEDY, dialogs))
        ack = await answer(line)
        await line.close()
        return ack

    ack = asyncio.run(send())
    assert isinstance(ack, wire.Ack)
    assert arrays.to_integers(ack.next_numbers, arrays.BIGINT) == [1] * dialogs
    counts = warehouse.psql.rows("select count(*) from broker_private.messages group by xmin order by 1")
    assert counts == [(1,), (wire.MAXIMUM_DIALOGS,), (wire.MAXIMUM_DIALOGS,)]
    warehouse.psql.rows("delete from broker_private.messages")


def test_a_message_waits_for_one_batch_of_another_peer_in_each_slot_and_not_for_all_of_them(
    peers: tuple[Site, Callable[[str], Credentials]],
) -> None:
    warehouse, credentials = peers
    warehouse.psql.rows("delete from broker_private.messages")

    async def send() -> None:
        async with AsyncExitStack() as stack:

            async def line(name: str) -> link.Link:
                opened = await connected(warehouse, credentials(name))
                stack.push_async_callback(opened.close)
                return opened

            greedy = [await line("greedy") for _ in range(3)]
            modest = await line("modest")
            keeper = warehouse.session(autocommit=False)
            stack.callback(keeper.connection.close)
            # No batch gets through until all have come.
            keeper.rows("lock table broker_private.messages in share mode")
            for each in greedy:
                for number in range(1, WINDOW + 1):
                    await each.send(batch(number, GREEDY))
            await asyncio.to_thread(until, lambda: warehouse.psql.value(BLOCKED) == DELIVERIES)
            await modest.send(batch(1, MODEST))
            # Its way is looked up later, and by its refusal the first one's is known.
            elsewhere = msgspec.structs.replace(batch(2, MODEST), to_broker=bytes(16))
            await modest.send(elsewhere)
            assert isinstance(await answer(modest), wire.Refusal)
            keeper.connection.rollback()
            assert isinstance(await answer(modest), wire.Ack)
            for each in greedy:
                for _ in range(WINDOW):
                    assert isinstance(await answer(each), wire.Ack)

    asyncio.run(send())
    arrived = [
        bytes(body) for (body,) in warehouse.psql.rows("select body from broker_private.messages order by id")
    ]
    assert len(arrived) == 3 * WINDOW + 1
    # Had it waited for all of them, no more than the other slots' could have been stored behind it. How many are quicker
    # depends on the machine.
    assert arrived.index(str(MODEST.int).encode()) < 3 * WINDOW - DELIVERIES
    warehouse.psql.rows("delete from broker_private.messages")


def test_a_peer_has_so_many_connections_and_another_one_can_connect_all_the_same(
    peers: tuple[Site, Callable[[str], Credentials]],
) -> None:
    warehouse, credentials = peers

    async def connect() -> None:
        async with AsyncExitStack() as stack:

            async def line(name: str) -> link.Link:
                opened = await connected(warehouse, credentials(name))
                stack.push_async_callback(opened.close)
                await opened.send(wire.Ping(is_answer=False))
                return opened

            for _ in range(limits.PEER_CONNECTIONS):
                assert isinstance(await answer(await line("greedy")), wire.Ping)
            refused = await answer(await line("greedy"))
            assert isinstance(refused, wire.Refusal)
            assert refused.number is None
            assert f"{limits.PEER_CONNECTIONS} connections" in refused.text
            assert isinstance(await answer(await line("modest")), wire.Ping)

    asyncio.run(connect())
    until(lambda: "16 connections here" in warehouse.log.read_text())


def test_a_peer_has_so_many_bytes_in_unfinished_frames_and_what_it_sent_before_is_kept(
    peers: tuple[Site, Callable[[str], Credentials]],
) -> None:
    warehouse, credentials = peers
    warehouse.psql.rows("delete from broker_private.messages")
    nearly = struct.pack(">I", wire.MAXIMUM_FRAME_BYTES) + bytes(wire.MAXIMUM_FRAME_BYTES - 1)
    most = limits.PEER_UNFINISHED_BYTES // len(nearly)

    async def fill() -> None:
        async with AsyncExitStack() as stack:

            async def line(name: str) -> link.Link:
                while True:
                    opened = await connected(warehouse, credentials(name))
                    await opened.send(wire.Ping(is_answer=False))
                    with contextlib.suppress(TransportError):
                        # What the test before has closed is counted until the worker notices.
                        if isinstance(await answer(opened), wire.Ping):
                            break
                    await opened.close()
                stack.push_async_callback(opened.close)
                return opened

            for _ in range(most + 1):
                each = await line("greedy")
                await each.send(batch(1, GREEDY))
                assert isinstance(await answer(each), wire.Ack)
                with contextlib.suppress(OSError):
                    await each._stream.write(nearly)
            # The last one is refused, and nobody else.
            with contextlib.suppress(TransportError):
                refused = await answer(each)
                assert isinstance(refused, wire.Refusal)
            await asyncio.to_thread(until, lambda: "bytes in unfinished frames" in warehouse.log.read_text())
            modest = await line("modest")
            await modest.send(batch(1, MODEST))
            assert isinstance(await answer(modest), wire.Ack)

    asyncio.run(fill())
    assert warehouse.psql.value("select count(*) from broker_private.messages") == most + 2


EARLY_BYTES = 2**20
# In early_room.sql.
EARLY_OF_A_BROKER = 128 * 2**20


def early(number: int, broker: uuid.UUID) -> list[wire.Batch]:
    """Return a new dialog, and then a message of a megabyte that comes too early on it."""
    opening = batch(number, broker)
    return [
        opening,
        msgspec.structs.replace(
            opening,
            number=number + 1,
            after=number,
            sequence_numbers=arrays.from_integers([2], arrays.BIGINT),
            bodies=arrays.from_elements([bytes(EARLY_BYTES)], arrays.BYTEA),
        ),
    ]


def test_a_broker_has_so_much_room_for_what_comes_too_early_on_all_its_dialogs_together(
    peers: tuple[Site, Callable[[str], Credentials]],
) -> None:
    warehouse, credentials = peers
    kept = "select coalesce(sum(size), 0)::bigint from broker_private.early_messages"

    async def fill() -> None:
        line = await connected(warehouse, credentials("modest"))

        async def say(frame: wire.Batch) -> None:
            await line.send(frame)
            assert isinstance(await answer(line), wire.Ack)

        for dialog in range(EARLY_OF_A_BROKER // EARLY_BYTES + 8):
            for frame in early(1 + 2 * dialog, GREEDY):
                await say(frame)
        assert warehouse.psql.value(kept) == EARLY_OF_A_BROKER
        lost, too_early = early(10_001, GREEDY)
        await say(lost)
        await say(too_early)
        # What was not kept is sent again after what precedes it.
        await say(
            msgspec.structs.replace(
                lost, number=10_003, sequence_numbers=arrays.from_integers([1], arrays.BIGINT)
            )
        )
        await say(msgspec.structs.replace(too_early, number=10_004, after=None))
        # Another broker has its own.
        for frame in early(20_001, MODEST):
            await say(frame)
        await line.close()

    asyncio.run(fill())
    assert warehouse.psql.value(kept) == EARLY_OF_A_BROKER + EARLY_BYTES
    last = "select count(*) from broker_private.messages where sequence_number = 2"
    assert warehouse.psql.value(last) == 1


def test_where_there_is_no_room_the_oldest_large_message_of_a_broker_goes_on_and_others_are_told_to_wait(
    peers: tuple[Site, Callable[[str], Credentials]],
) -> None:
    warehouse, credentials = peers
    warehouse.psql.rows("delete from broker_private.early_messages")
    warehouse.psql.rows("delete from broker_private.messages")
    piece, pieces = 2**20, EARLY_OF_A_BROKER // 2**20 + 2
    first, second = batch(1, GREEDY), batch(2, GREEDY)

    def fragment(of: wire.Batch, number: int, at: int) -> wire.Fragment:
        fields = msgspec.structs.asdict(of) | {
            "number": number,
            "bodies": arrays.from_elements([bytes(piece)], arrays.BYTEA),
        }
        return wire.Fragment(**fields, piece_at=at * piece, total_bytes=pieces * piece)

    async def fill() -> None:
        line = await connected(warehouse, credentials("modest"))

        async def say(frame: wire.Batch) -> wire.Ack:
            await line.send(frame)
            ack = await answer(line)
            assert isinstance(ack, wire.Ack)
            return ack

        for at in range(pieces - 1):
            assert (await say(fragment(first, 1 + at, at))).stored_bytes == (at + 1) * piece
        held_up = await say(fragment(second, 1_000, 0))
        assert (held_up.stored_bytes, arrays.to_booleans(held_up.fault_is_final)) == (0, [False])
        assert "no room for another piece" in (arrays.to_texts(held_up.fault_texts)[0] or "")
        whole = await say(fragment(first, 1_001, pieces - 1))
        assert arrays.to_integers(whole.next_numbers, arrays.BIGINT) == [1]
        assert (await say(fragment(second, 1_002, 0))).stored_bytes == piece
        await line.close()

    asyncio.run(fill())
    assert warehouse.psql.value("select octet_length(body) from broker_private.messages") == pieces * piece
