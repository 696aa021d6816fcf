"""Connections between endpoints: when they are opened again, and when they end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from pybroker.workers.clock import Clock
from pybroker.workers.database import Database
from pybroker.workers.transport.incoming.dispatcher import DELIVERIES, Dispatcher
from pybroker.workers.transport.outgoing.peer import Peer
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import OwnSideError, TransportError
from pybroker.workers.transport.retry_schedule import Pace
from tests.transport import NO_DIALOGS, FarLink, settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pybroker.workers.transport.connection.session import Session


class TestClock(Clock):
    """Time that passes only when a test says so."""

    __test__ = False

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class Network:
    """What answers the calls of one Peer: a fault, or a new connection to a far side that the test plays."""

    def __init__(self, clock: Clock, pace: Pace) -> None:
        self.fault: TransportError | None = None
        self.links: list[FarLink] = []
        self.lines: list[Session] = []
        self.attempts = 0
        self._clock = clock
        self._pace = pace

    async def connect(self, address: str) -> Session:
        self.attempts += 1
        if self.fault is not None:
            raise self.fault.again()
        self.links.append(FarLink(address))
        self.lines.append(self.links[-1].line(self._clock, self._pace))
        return self.lines[-1]


@asynccontextmanager
async def outbound(pace: Pace) -> AsyncIterator[tuple[Peer, Network, TestClock]]:
    clock = TestClock()
    network = Network(clock, pace)
    yield Peer(("tcp://far:4022",), network.connect, clock, pace), network, clock


async def fails(outbound: Peer) -> int:
    with pytest.raises(TransportError) as refused:
        await outbound.open()
    return refused.value.number


def test_row_138_nobody_is_called_for_60_s_after_a_failed_attempt() -> None:
    async def play() -> None:
        async with outbound(Pace()) as (made, network, clock):
            network.fault = TransportError(faults.CONNECT_FAILED, "Nobody there.")
            assert await fails(made) == 9754
            clock.seconds += 59.9
            assert not made.is_due
            assert await fails(made) == 9754
            assert network.attempts == 1
            clock.seconds += 0.1
            assert made.is_due
            assert await fails(made) == 9754
            assert network.attempts == 2
            network.fault = None
            clock.seconds += 60
            await made.open()
            assert made.fault is None

    asyncio.run(play())


def test_an_address_that_stays_silent_is_logged_seldom() -> None:
    async def play() -> None:
        pace = Pace(retry_connect_after=2)
        async with outbound(pace) as (made, network, clock):
            with capture_logs() as logged:
                for reason in ("Nobody there.", "Nobody there.", "No answer.", "No answer.", "No answer."):
                    network.fault = TransportError(faults.CONNECT_FAILED, reason)
                    assert await fails(made) == 9754
                    clock.seconds += 2
                clock.seconds += 300
                assert await fails(made) == 9754
                network.fault = None
                clock.seconds += 2
                await made.open()
            told = [(one["reason"], one["attempts"]) for one in logged]
            assert told == [("Nobody there.", 1), ("No answer.", 2), ("No answer.", 3)]

    asyncio.run(play())


def test_row_138_nobody_is_called_for_15_s_after_a_disconnect() -> None:
    async def play() -> None:
        async with outbound(Pace()) as (made, network, clock):
            await made.open()
            network.links[0].arrive(None)
            await settled(lambda: made.fault is not None)
            clock.seconds += 14.9
            assert not made.is_due
            assert await fails(made) == 9755
            clock.seconds += 0.1
            assert made.is_due
            await made.open()
            assert network.attempts == 2

    asyncio.run(play())


def test_row_138_what_is_wrong_at_this_side_suppresses_nobody() -> None:
    async def play() -> None:
        async with outbound(Pace()) as (made, network, clock):
            network.fault = OwnSideError(faults.NO_PRIVATE_KEY, "There is no key.")
            assert await fails(made) == 28037
            network.fault = None
            clock.seconds += 1
            await made.open()

    asyncio.run(play())


def test_row_138_an_operator_may_have_other_pauses() -> None:
    async def play() -> None:
        async with outbound(Pace(reconnect_after=2, retry_connect_after=3)) as (made, network, clock):
            network.fault = TransportError(faults.CONNECT_FAILED, "Nobody there.")
            assert await fails(made) == 9754
            clock.seconds += 3
            network.fault = None
            await made.open()
            network.links[0].arrive(None)
            await settled(lambda: made.fault is not None)
            clock.seconds += 1.9
            assert not made.is_due
            clock.seconds += 0.1
            assert made.is_due

    asyncio.run(play())


def test_row_139_a_connection_without_a_batch_for_90_s_is_closed_and_opened_when_needed() -> None:
    async def play() -> None:
        async with outbound(Pace()) as (made, network, clock):
            await made.open()
            link, line = network.links[0], network.lines[0]
            clock.seconds += 89
            line.leave_if_idle()
            assert line.is_usable
            answer = asyncio.create_task(made.exchange(NO_DIALOGS))
            await settled(lambda: link.batches)
            # What is on its way keeps it open, however long the far side takes.
            clock.seconds += 100
            line.leave_if_idle()
            assert line.is_usable
            link.arrive(wire.Ack(link.batches[0].number, bytes(16), b"", b"", b"", b""))
            await answer
            line.leave_if_idle()
            await settled(lambda: link.is_closed)
            # It was nobody's failure: the next message does not wait.
            assert made.is_due
            await made.open()
            assert network.attempts == 2

    asyncio.run(play())


def test_row_140_what_no_delivery_picked_up_for_10_s_is_dropped() -> None:
    async def play() -> None:
        clock = TestClock()
        database = Database("dbname=far", clock)
        dispatcher = Dispatcher([database], clock)
        delivered: list[int] = []
        is_over = asyncio.Event()

        async def deliver(number: int) -> None:
            async with dispatcher.delivery(database, b"far", b""):
                delivered.append(number)
                await is_over.wait()

        running = [asyncio.create_task(deliver(number)) for number in range(DELIVERIES + 2)]
        await settled(lambda: len(delivered) == DELIVERIES)
        clock.seconds += 6
        late = asyncio.create_task(deliver(100))
        # Who goes by himself gives his place to nobody who waits.
        gone = asyncio.create_task(deliver(101))
        await asyncio.sleep(0)
        gone.cancel()
        clock.seconds += 4.1
        assert dispatcher.drop_stale() == 2
        for dropped in running[DELIVERIES:]:
            with pytest.raises(TransportError) as refused:
                await dropped
            assert refused.value.number == 9749
        assert dispatcher.drop_stale() == 0
        is_over.set()
        await asyncio.gather(late, *running[:DELIVERIES])
        assert delivered == [*range(DELIVERIES), 100]

    asyncio.run(play())


def test_a_far_side_that_falls_silent_is_given_up() -> None:
    async def play() -> None:
        async with outbound(Pace(ping_after=0.005)) as (made, network, _):
            await made.open()
            network.links[0].answers_pings = False
            await settled(lambda: network.links[0].is_closed)
            assert made.fault is not None
            assert made.fault.number == 9755
            assert "did not answer" in made.fault.text
            assert not made.is_due

    asyncio.run(play())


def test_row_127_a_new_certificate_is_used_after_what_is_on_its_way() -> None:
    async def play() -> None:
        async with outbound(Pace(ping_after=0.005)) as (made, network, _):
            first = asyncio.create_task(made.exchange(NO_DIALOGS))
            await settled(lambda: network.links and network.links[0].batches)
            network.links[0].is_outdated = True
            second = asyncio.create_task(made.exchange(NO_DIALOGS))
            pings = len(network.links[0].sent_frames)
            await settled(lambda: len(network.links[0].sent_frames) > pings + 2)
            assert network.attempts == 1
            network.links[0].arrive(
                wire.Ack(network.links[0].batches[0].number, bytes(16), b"", b"", b"", b"")
            )
            await first
            await settled(lambda: len(network.links) == 2 and network.links[1].batches)
            await settled(lambda: network.links[0].is_closed)
            network.links[1].arrive(
                wire.Ack(network.links[1].batches[0].number, bytes(16), b"", b"", b"", b"")
            )
            await second

    asyncio.run(play())
