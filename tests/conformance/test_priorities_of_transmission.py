"""Priorities of what waits in the transmission queue: row 97 and edge 62, without a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pybroker.workers.clock import Clock
from pybroker.workers.database import Database
from pybroker.workers.transport import statements
from pybroker.workers.transport.connection.send_slots import SendSlot, SendSlots
from pybroker.workers.transport.connection.session import Posted
from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
from pybroker.workers.transport.outgoing import sender
from pybroker.workers.transport.protocol import arrays, wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    import pytest

    from tests.shop import Session, Shop

TAKE = "select bodies from broker_private.take(%s, 0, 1, %s, 1000000, '{}')"
NUMBERS = "select sequence_numbers from broker_private.take(%s, 0, 1, 100, 1000000, '{}')"


def _destination(psql: Session) -> int:
    number: int = psql.value("select destination_no from broker_private.transmission_messages limit 1")
    return number


def _taken(psql: Session, most: int = 100) -> list[bytes]:
    taken: list[bytes] = psql.value(TAKE, _destination(psql), most)
    return taken


def test_row_097_edge_062_the_level_counts_while_it_is_honoured_and_is_always_shown(shop: Shop) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    psql.rows("select broker.create_service('//urgent', 'shop')")
    psql.rows(
        "select broker.create_broker_priority('high', local_service_name => '//urgent', priority_level => 10)"
    )
    psql.rows(
        "select broker.create_broker_priority('low', local_service_name => '//shop', priority_level => 1)"
    )
    low, high = (
        psql.value("select broker.begin_dialog(%s, '//far', 'ordering')", service)
        for service in ("//shop", "//urgent")
    )
    for number in (b"1", b"2"):
        psql.send(low, "order", b"low " + number)
    psql.send(high, "order", b"high 1")
    levels = "select priority from broker.transmission_queue order by enqueue_time"
    honored = "select is_broker_priority_honored from broker.databases"
    assert psql.rows(levels) == [(1,), (1,), (10,)]
    assert psql.value(honored) is False
    assert _taken(psql) == [b"low 1", b"low 2", b"high 1"]
    psql.rows("select broker.alter_broker(honor_broker_priority => true)")
    assert psql.value(honored) is True
    assert _taken(psql) == [b"high 1", b"low 1", b"low 2"]
    psql.send(high, "order", b"high 2")
    psql.send(low, "order", b"low 3")
    psql.end(high)
    assert _taken(psql, 2) == [b"high 1", b"high 2"]
    # Each dialog's own numbers: two messages and the end of one, three messages of the other.
    assert psql.value(NUMBERS, _destination(psql)) == [0, 1, 2, 0, 1, 2]
    psql.rows("select broker.alter_broker(honor_broker_priority => false)")
    assert _taken(psql) == [b"low 1", b"low 2", b"high 1", b"high 2", b"low 3", None]
    assert psql.value(NUMBERS, _destination(psql)) == [0, 1, 0, 1, 2, 2]
    assert psql.rows(levels) == [(1,), (1,), (10,), (10,), (1,), (10,)]


def test_row_097_the_option_is_the_database_owners(shop: Shop) -> None:
    clerk = shop.session(user=shop.database.role())
    assert clerk.refused("select broker.alter_broker(honor_broker_priority => true)") == "S0229"
    assert shop.psql.refused("select broker.alter_broker()") == "S0153"


class Recorder:
    """A line to a far broker that stores everything; what it carried is in `bodies`."""

    is_sibling = True
    maximum_dialogs = wire.MAXIMUM_DIALOGS
    takes_traceparents = False
    is_due = True
    fault = None

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []
        self.levels: list[int | None] = []
        self.batches = 0

    async def open(self) -> None:
        """Nothing is to be done."""

    async def ask(self, level: int | None) -> SendSlot:
        self.levels.append(level)
        return SendSlots(1).ask(5)

    async def post(self, _: SendSlot, batch: Callable[[int], wire.Batch]) -> Posted:
        return Posted(1, asyncio.create_task(self.exchange(batch)))

    async def exchange(self, batch: Callable[[int], wire.Batch], _: int | None = None) -> wire.Ack:
        sent = batch(1)
        self.batches += 1
        self.bodies += arrays.to_elements(sent.bodies, arrays.BYTEA)
        dialogs = arrays.to_integers(sent.dialog_index, arrays.INTEGER)
        numbers = arrays.to_integers(sent.sequence_numbers, arrays.BIGINT)
        # The last one of each dialog is what counts.
        next_numbers = {dialog: number + 1 for dialog, number in zip(dialogs, numbers, strict=True)}
        count = len(next_numbers)
        return wire.Ack(
            1,
            bytes(16),
            arrays.from_integers([next_numbers[dialog] for dialog in sorted(next_numbers)], arrays.BIGINT),
            arrays.from_integers([None] * count, arrays.INTEGER),
            arrays.from_texts([None] * count),
            arrays.from_elements([b"\0"] * count, arrays.BOOLEAN),
        )

    def place(self, name: bytes) -> int:
        """Return how many others were carried before the one whose body begins so."""
        return next(place for place, body in enumerate(self.bodies) if body and body.startswith(name))


class SlowLine(Recorder):
    """A line on which nothing is answered before four have been carried, so none is overtaken by one that begins later."""

    def __init__(self) -> None:
        super().__init__()
        self._four = asyncio.Event()

    async def exchange(self, batch: Callable[[int], wire.Batch], level: int | None = None) -> wire.Ack:
        ack = await super().exchange(batch, level)
        if len(self.bodies) >= 4:
            self._four.set()
        await self._four.wait()
        return ack


class BatchClock(Clock):
    """Time that passes with what a line carries: a turn of a second has 20 batches and a few."""

    def __init__(self, line: Recorder) -> None:
        self._line = line

    def monotonic(self) -> float:
        return self._line.batches / 20


def honoured(shop: Shop) -> Session:
    """Let what leaves '//shop' be of level 1, and what leaves '//urgent' of level 10."""
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    psql.rows("select broker.create_service('//urgent', 'shop')")
    psql.rows(
        "select broker.create_broker_priority('high', local_service_name => '//urgent', priority_level => 10);"
        "select broker.create_broker_priority('low', local_service_name => '//shop', priority_level => 1);"
        "select broker.alter_broker(honor_broker_priority => true)"
    )
    return psql


def begin(psql: Session, service: str, count: int = 1) -> list[UUID]:
    begun = "select broker.begin_dialog(%s, '//far', 'ordering') from generate_series(1, %s)"
    return [handle for (handle,) in psql.rows(begun, service, count)]


def send_turns(
    shop: Shop, line: Recorder, turns: int = 1, clock: Clock | None = None, **options: int
) -> list[int]:
    """Let a worker send for so many turns to the one destination; return how much was carried after each."""

    async def send() -> list[int]:
        async with Database(shop.database.url) as database:
            async with database.connection() as connection:
                (destination,) = await statements.transmission_work(connection)
            dialogs = SecureDialogs([database], None, Clock())
            here = sender.Sender(database, destination.destination_no, dialogs, clock or Clock(), **options)
            carried = []
            for _ in range(turns):
                await here.send(destination, line)
                carried.append(len(line.bodies))
            return carried

    return asyncio.run(send())


def test_row_098_a_message_of_level_1_leaves_among_those_of_level_10_after_15_batches(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    psql = honoured(shop)
    (low,), (high,) = begin(psql, "//shop"), begin(psql, "//urgent")
    psql.send(low, "order", b"low")
    psql.rows("select broker.send_batch(%s, 'order', array_fill('high'::bytea, array[40]))", high)
    monkeypatch.setattr(sender, "MAXIMUM_MESSAGES", 1)
    monkeypatch.setattr(sender, "TURN_SECONDS", 600)
    line = Recorder()
    send_turns(shop, line, lanes=1)
    assert line.bodies.index(b"low") == 15
    # What leaves by its age is hindered by nobody's priorities.
    assert set(line.levels) == {10}
    assert len(line.bodies) == 41


def test_row_098_while_a_deep_backlog_leaves_in_lanes_the_oldest_leave_with_the_next_turn_and_the_large_beside_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    psql = honoured(shop)
    (low,), (large,), high = begin(psql, "//shop"), begin(psql, "//urgent"), begin(psql, "//urgent", 10)
    psql.send(low, "order", b"low")
    psql.send(large, "order", b"large".ljust(1000))
    # One after the other of each dialog, as a backlog of few dialogs leaves in one lane.
    psql.rows(
        "select broker.send(h, 'order', 'high'::bytea) from generate_series(1, 100) n, unnest(%s) h order by n",
        high,
    )
    monkeypatch.setattr(sender, "MAXIMUM_MESSAGES", 10)
    monkeypatch.setattr(sender, "PIECE_BYTES", 500)
    line = Recorder()
    first, _ = send_turns(shop, line, turns=2, clock=BatchClock(line))
    assert line.place(b"large") < first
    assert b"low" in line.bodies
    assert psql.value("select count(*) from broker.transmission_queue where priority = 10") > 200


def test_row_097_of_large_bodies_that_wait_those_of_the_highest_level_cross_first(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    psql = honoured(shop)
    for handle in begin(psql, "//shop", 12):
        psql.send(handle, "order", b"low".ljust(1000))
    for handle in begin(psql, "//urgent", 2):
        psql.send(handle, "order", b"high".ljust(1000))
    monkeypatch.setattr(sender, "PIECE_BYTES", 500)
    monkeypatch.setattr(sender, "TURN_SECONDS", 600)
    line = SlowLine()
    send_turns(shop, line)
    # Four cross at once.
    assert sum(body is not None and body.startswith(b"high") for body in line.bodies[:4]) == 2
    assert len(line.bodies) == 14


def test_row_098_a_large_body_of_level_1_crosses_among_those_of_level_10(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    psql = honoured(shop)
    (low,) = begin(psql, "//shop")
    psql.send(low, "order", b"low".ljust(1000))
    for handle in begin(psql, "//urgent", 60):
        psql.send(handle, "order", b"high".ljust(1000))
    monkeypatch.setattr(sender, "PIECE_BYTES", 500)
    monkeypatch.setattr(sender, "TURN_SECONDS", 600)
    line = Recorder()
    send_turns(shop, line)
    # The 16th, give or take those that cross beside it.
    assert 10 <= line.place(b"low") < 30
    assert len(line.bodies) == 61
