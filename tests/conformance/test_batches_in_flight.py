"""Batches and their answers, several of a dialog on their way at once: rows 130, 131, 134, 136, 137, on a line that a test plays."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.database import Database as Served
from pybroker.workers.transport import statements
from pybroker.workers.transport.connection.send_slots import SendSlot, SendSlots
from pybroker.workers.transport.connection.session import Posted
from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
from pybroker.workers.transport.incoming.receiver import Receiver
from pybroker.workers.transport.outgoing import sender
from pybroker.workers.transport.protocol import arrays, faults
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.retry_schedule import Pace
from tests.brokers import INITIATOR_DEFINITIONS, TARGET_DEFINITIONS
from tests.shop import ERROR

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID

    from pybroker.workers.transport.incoming.forwarder import Forwarder
    from pybroker.workers.transport.protocol import wire
    from pybroker.workers.transport.protocol.rows import Destination
    from tests.conftest import Database

MESSAGES = 3000
COUNT = "select count(*) from broker_private.transmission_messages"


class Line:
    """Delivers into a database, each batch after the one before it, and may lose batches and answers.

    Attributes:
        losses: how likely it is that a batch is lost, and as likely its answer.
        answers: while it is clear, whatever arrived goes unanswered.
        most: how many batches were on their way at once.
        lost_answers: so many of the next answers are lost.
        arrived: called with each answer, before it goes back.
        dialogs: how many each batch had.
        contradictions: messages that were sent under a number of another one.
    """

    is_sibling = False
    is_due = True
    fault = None
    maximum_dialogs = 1000
    takes_traceparents = False

    def __init__(self, database: Served, losses: float, seed: int = 0) -> None:
        self.losses = losses
        self.answers = asyncio.Event()
        self.answers.set()
        self.most = 0
        self.lost_answers = 0
        self.arrived: Callable[[wire.Ack], None] = lambda _: None
        self.dialogs: list[int] = []
        self.contradictions: list[tuple[bytes | None, int, bytes | None]] = []
        self._sent: dict[tuple[bytes | None, int], bytes | None] = {}
        self._database = database
        # Nothing is delivered by the worker's routes, so nothing is forwarded.
        self._receiver = Receiver(
            [database], SecureDialogs([database], None, Clock()), cast("Forwarder", None), Clock()
        )
        self._random = random.Random(seed)
        self._on_their_way: list[asyncio.Task[wire.Ack]] = []
        self._number = 0
        self._delivering = asyncio.Lock()

    async def open(self) -> None:
        """Nothing is to be done."""

    async def ask(self, _: int | None) -> SendSlot:
        return SendSlots(1).ask(5)

    async def post(self, _: SendSlot, batch: Callable[[int], wire.Batch]) -> Posted:
        self._number += 1
        made = batch(self._number)
        self._compare(made)
        task = asyncio.create_task(self._carry(made))
        self._on_their_way = [each for each in self._on_their_way if not each.done()] + [task]
        self.most = max(self.most, len(self._on_their_way))
        if self.most >= sender.DEPTH_ALONE:
            self.answers.set()
        return Posted(self._number, task)

    async def exchange(self, batch: Callable[[int], wire.Batch], level: int | None = None) -> wire.Ack:
        return await (await self.post(SendSlots(1).ask(level or 5), batch)).answer

    def _compare(self, batch: wire.Batch) -> None:
        conversations = arrays.to_elements(batch.conversation_ids, arrays.UUID)
        for dialog, number, body in zip(
            arrays.to_integers(batch.dialog_index, arrays.INTEGER),
            arrays.to_integers(batch.sequence_numbers, arrays.BIGINT),
            arrays.to_elements(batch.bodies, arrays.BYTEA),
            strict=True,
        ):
            message = conversations[dialog - 1], number
            if self._sent.setdefault(message, body) != body:
                self.contradictions.append((*message, body))

    async def _carry(self, batch: wire.Batch) -> wire.Ack:
        is_lost, is_unanswered = (self._random.random() < self.losses for _ in range(2))
        # The lock is fair: they arrive in the order in which they were sent.
        async with self._delivering:
            if is_lost:
                raise TransportError(faults.SEND_FAILED, "The batch was lost.")
            ack = await self._receiver.deliver(self._database, batch, b"near")
            self.dialogs.append(arrays.element_count(batch.conversation_ids, arrays.UUID))
            self.arrived(ack)
        await self.answers.wait()
        if is_unanswered or self.lost_answers > 0:
            self.lost_answers -= 1
            raise TransportError(faults.RECEIVE_FAILED, "The answer was lost.")
        return ack


class Pair:
    """A sender of one database, and the line to another."""

    def __init__(self, near: Served, line: Line, destination: Destination) -> None:
        self.near = near
        self.line = line
        self.destination = destination
        pace = Pace(resend_after=0.01)
        dialogs = SecureDialogs([near], None, Clock())
        self.sender = sender.Sender(near, destination.destination_no, dialogs, Clock(), pace=pace)

    async def empty(self, count: Callable[[], int]) -> None:
        """Send until nothing waits."""
        gives_up_at = time.monotonic() + 100
        while waiting := count():
            assert time.monotonic() < gives_up_at, f"{waiting} messages still wait"
            await self.sender.send(self.destination, self.line)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def pair(near: Database, far: Database, losses: float = 0) -> AsyncIterator[Pair]:
    async with Served(near.url) as source, Served(far.url) as target:
        async with source.connection() as connection:
            (destination,) = await statements.transmission_work(connection)
        yield Pair(source, Line(target, losses), destination)


@pytest.fixture
def databases(make_database: Callable[[str], Database]) -> tuple[Database, Database]:
    near, far = make_database("near"), make_database("far")
    with near.connect() as connection:
        connection.execute(INITIATOR_DEFINITIONS)
        connection.execute(
            "select broker.create_route('far', 'tcp://127.0.0.1:1', service_name => '//warehouse')"
        )
    with far.connect() as connection:
        connection.execute(TARGET_DEFINITIONS)
        connection.execute("select broker.grant('SEND', 'SERVICE', '//warehouse', 'public')")
    return near, far


def send(near: Database, dialogs: int) -> list[UUID]:
    with near.connect() as connection:
        handles: list[UUID] = []
        for _ in range(dialogs):
            row = connection.execute(
                "select broker.begin_dialog('//shop', '//warehouse', 'ordering', encryption => false)"
            ).fetchone()
            assert row is not None
            handles.append(row[0])
        for handle in handles:
            connection.execute(
                "select broker.send_batch(%s, 'order', array(select convert_to(n::text, 'UTF8')"
                " from generate_series(0, %s) n))",
                (handle, MESSAGES // dialogs - 1),
            )
    return handles


def waiting(near: Database) -> int:
    with near.connect() as connection:
        row = connection.execute(COUNT).fetchone()
    assert row is not None
    return int(row[0])


def received(far: Database) -> list[list[tuple[int, bytes]]]:
    """Return what each group got, in its order."""
    groups = []
    with far.connect() as connection:
        while rows := connection.execute(
            "select message_sequence_number, message_body from broker.receive('warehouse', top => 100000)"
        ).fetchall():
            groups.append(rows)
    return groups


def test_several_batches_of_one_dialog_are_on_their_way_before_the_first_is_answered(
    databases: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = databases
    monkeypatch.setattr(sender, "MAXIMUM_MESSAGES", 100)
    monkeypatch.setattr(sender, "TURN_SECONDS", 600)
    send(near, 1)

    async def play() -> int:
        async with pair(near, far) as there:
            # Nothing is answered before so many are on their way; with one at a time this would never end.
            there.line.answers.clear()
            await there.empty(lambda: waiting(near))
            return there.line.most

    assert asyncio.run(play()) == sender.DEPTH_ALONE
    assert received(far) == [[(n, str(n).encode()) for n in range(MESSAGES)]]


@pytest.mark.parametrize("dialogs", [1, 3, 10])
def test_rows_130_134_lost_batches_and_answers_among_several_on_their_way_lose_and_double_nothing(
    databases: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch, dialogs: int
) -> None:
    near, far = databases
    monkeypatch.setattr(sender, "MAXIMUM_MESSAGES", 100)
    send(near, dialogs)

    async def play() -> Line:
        async with pair(near, far, losses=0.15) as there:
            await there.empty(lambda: waiting(near))
            return there.line

    assert asyncio.run(play()).contradictions == []
    expected = [(n, str(n).encode()) for n in range(MESSAGES // dialogs)]
    assert received(far) == [expected] * dialogs


def test_rows_131_136_a_batch_of_several_dialogs_is_answered_when_it_is_stored_by_the_next_number_of_each(
    databases: tuple[Database, Database],
) -> None:
    near, far = databases
    send(near, 10)
    answers: list[tuple[list[int], int]] = []

    async def play() -> list[int]:
        async with pair(near, far) as there:
            with far.connect() as reader:
                reader.autocommit = True

                def arrived(ack: wire.Ack) -> None:
                    # Another session sees what is stored, before the answer is on its way.
                    row = reader.execute("select count(*) from public.warehouse").fetchone()
                    assert row is not None
                    answers.append((arrays.to_integers(ack.next_numbers, arrays.BIGINT), row[0]))

                there.line.arrived = arrived
                await there.empty(lambda: waiting(near))
            return there.line.dialogs

    assert max(asyncio.run(play())) > 1
    assert all(stored >= sum(numbers) for numbers, stored in answers)
    assert answers[-1][1] == MESSAGES


def test_no_batch_has_more_dialogs_than_the_far_worker_says_that_it_takes(
    databases: tuple[Database, Database],
) -> None:
    near, far = databases
    send(near, MESSAGES)

    async def play() -> list[int]:
        async with pair(near, far) as there:
            there.line.maximum_dialogs = 40
            await there.empty(lambda: waiting(near))
            return there.line.dialogs

    assert max(asyncio.run(play())) == 40
    assert len(received(far)) == MESSAGES


def test_row_137_the_far_brokers_error_is_made_again_when_it_was_lost(
    databases: tuple[Database, Database],
) -> None:
    near, far = databases
    with near.connect() as connection:
        connection.execute(
            "select broker.send(broker.begin_dialog('//shop', '//warehouse', encryption => false), body => 'x'::bytea)"
        )

    async def play() -> None:
        async with pair(near, far) as there:
            there.line.lost_answers = 1
            await there.empty(lambda: waiting(near))
            assert there.line.dialogs == [1, 1]

    asyncio.run(play())
    with near.connect() as connection:
        errors = connection.execute(
            "select message_type_name, convert_from(message_body, 'UTF8') from broker.receive('shop')"
        ).fetchall()
    ((kind, text),) = errors
    assert kind == ERROR
    assert "-8408" in text
    assert received(far) == []
