"""Priorities of what waits in the transmission queue: row 97 and edge 62, without a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pybroker.workers.clock import Clock
from pybroker.workers.database import Database
from pybroker.workers.transport import arrays, sender, statements, wire
from pybroker.workers.transport.secure_dialogs import SecureDialogs
from pybroker.workers.transport.turns import Turn, Turns

if TYPE_CHECKING:
    from collections.abc import Callable

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
    is_due = True
    fault = None

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []
        self.levels: list[int | None] = []

    async def open(self) -> None:
        """Nothing is to be done."""

    async def ask(self, level: int | None) -> Turn:
        self.levels.append(level)
        return Turns(1).ask(5)

    async def post(self, _: Turn, batch: Callable[[int], wire.Batch]) -> asyncio.Task[wire.Ack]:
        return asyncio.create_task(self.exchange(batch))

    async def exchange(self, batch: Callable[[int], wire.Batch], _: int | None = None) -> wire.Ack:
        sent = batch(1)
        self.bodies += arrays.to_elements(sent.bodies, arrays.BYTEA)
        (number,) = arrays.to_integers(sent.sequence_numbers, arrays.BIGINT)
        return wire.Ack(
            1,
            bytes(16),
            arrays.from_integers([number + 1], arrays.BIGINT),
            arrays.from_integers([None], arrays.INTEGER),
            arrays.from_texts([None]),
            arrays.from_elements([b"\0"], arrays.BOOLEAN),
        )


def test_row_098_a_message_of_level_1_leaves_among_those_of_level_10_after_15_batches(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    psql = shop.psql
    psql.rows("select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//far')")
    psql.rows("select broker.create_service('//urgent', 'shop')")
    psql.rows(
        "select broker.create_broker_priority('high', local_service_name => '//urgent', priority_level => 10);"
        "select broker.create_broker_priority('low', local_service_name => '//shop', priority_level => 1);"
        "select broker.alter_broker(honor_broker_priority => true)"
    )
    low, high = (
        psql.value("select broker.begin_dialog(%s, '//far', 'ordering')", service)
        for service in ("//shop", "//urgent")
    )
    psql.send(low, "order", b"low")
    psql.rows("select broker.send_batch(%s, 'order', array_fill('high'::bytea, array[40]))", high)
    monkeypatch.setattr(sender, "MAXIMUM_MESSAGES", 1)
    monkeypatch.setattr(sender, "TURN_SECONDS", 600)
    line = Recorder()

    async def send() -> None:
        async with Database(shop.database.url) as database:
            async with database.connection() as connection:
                (destination,) = await statements.transmission_work(connection)
            dialogs = SecureDialogs([database], None, Clock())
            only_lane = sender.Sender(database, destination.destination_no, dialogs, Clock(), lanes=1)
            await only_lane.send(destination, line)

    asyncio.run(send())
    assert line.bodies.index(b"low") == 15
    # What leaves by its age is hindered by nobody's priorities.
    assert set(line.levels) == {10}
    assert len(line.bodies) == 41
