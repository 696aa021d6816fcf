"""Levels over all databases of a worker, on one connection to another worker: rows 97 and 98."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from pybroker.workers.clock import Clock
from pybroker.workers.database import Database as Served
from pybroker.workers.transport import statements
from pybroker.workers.transport.connection.send_slots import SendSlot, SendSlots
from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
from pybroker.workers.transport.outgoing import sender
from pybroker.workers.transport.outgoing.peer import Peer
from pybroker.workers.transport.protocol import arrays, faults, wire
from pybroker.workers.transport.protocol.faults import TransportError
from pybroker.workers.transport.retry_schedule import Pace
from tests.brokers import INITIATOR_DEFINITIONS
from tests.transport import FarLink, settled

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pybroker.workers.transport.connection.session import Session
    from tests.conftest import Database


# Of each database; all together are too few for the rule that nobody waits for ever.
MESSAGES = 4


def given(turns: list[SendSlot]) -> list[bool]:
    return [turn.is_given for turn in turns]


def test_row_097_the_highest_level_has_the_next_turn_and_among_equals_who_asked_first() -> None:
    turns = SendSlots(16)
    first = turns.ask(1)
    assert first.is_given
    waiting = [turns.ask(level) for level in (5, 9, 10, 9)]
    assert given(waiting) == [False] * 4
    order = []
    current = first
    while len(order) < len(waiting):
        current.written()
        (current,) = (turn for turn in waiting if turn.is_given and turn not in order)
        order.append(current)
    assert [waiting.index(turn) for turn in order] == [2, 1, 3, 0]


def test_row_097_what_waits_can_rise_and_who_gives_up_is_passed_over() -> None:
    turns = SendSlots(16)
    first, low, high, gone = (turns.ask(level) for level in (5, 1, 9, 10))
    gone.end()
    low.priority = 10
    first.written()
    assert given([low, high]) == [True, False]
    low.written()
    assert high.is_given


def test_row_098_who_has_waited_longest_has_a_turn_after_15_that_were_given_past_him() -> None:
    turns = SendSlots(1)
    current = turns.ask(10)
    low = turns.ask(1)
    passed = 0
    while not low.is_given:
        following = turns.ask(10)
        current.end()
        current = following
        passed += not low.is_given
        assert passed <= 15
    assert passed == 15


def test_no_more_batches_are_unanswered_than_the_far_side_takes_and_the_end_of_the_connection_wakes_all() -> (
    None
):
    turns = SendSlots(2)
    running = [turns.ask(5) for _ in range(4)]
    for turn in running:
        turn.written()
    assert given(running) == [True, True, False, False]
    running[0].end()
    running[0].end()
    assert given(running) == [True, True, True, False]
    turns.close(TransportError(faults.SEND_FAILED, "It was cut."))
    assert running[3].is_given
    assert turns.ask(5).is_given


class NarrowLink(FarLink):
    """A line that takes a batch only when the test lets it, and answers each at once."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.passes = asyncio.Semaphore(0)
        self.passed: list[bytes | None] = []
        self.passing: bytes | None = None

    async def send(self, frame: wire.Frame) -> None:
        if isinstance(frame, wire.Batch):
            (self.passing,) = arrays.to_elements(frame.bodies, arrays.BYTEA)
            await self.passes.acquire()
            self.passed.append(self.passing)
            self.passing = None
            (number,) = arrays.to_integers(frame.sequence_numbers, arrays.BIGINT)
            self.arrive(
                wire.Ack(
                    frame.number,
                    bytes(16),
                    arrays.from_integers([number + 1], arrays.BIGINT),
                    arrays.from_integers([None], arrays.INTEGER),
                    arrays.from_texts([None]),
                    arrays.from_elements([b"\0"], arrays.BOOLEAN),
                )
            )
        else:
            await super().send(frame)


def database_of(make_database: Callable[[str], Database], level: int | None, body: bytes) -> Database:
    """Return one whose messages have this level; None: it doesn't honour priorities, and they have level 10."""
    made = make_database(f"level_{level}")
    with made.connect() as connection:
        connection.execute(INITIATOR_DEFINITIONS)
        connection.execute(
            "select broker.create_route('far', 'tcp://far:4022', service_name => '//far'),"
            " broker.create_broker_priority('all', local_service_name => '//shop', priority_level => %s)",
            (level or 10,),
        )
        connection.execute("select broker.alter_broker(honor_broker_priority => %s)", (level is not None,))
        connection.execute(
            "select broker.send_batch(broker.begin_dialog('//shop', '//far', 'ordering', encryption => false),"
            " 'order', array_fill(%s::bytea, array[%s::int]))",
            (body, MESSAGES),
        )
    return made


def test_row_097_the_level_10_of_one_database_goes_before_all_others_of_the_worker(
    make_database: Callable[[str], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MAXIMUM_MESSAGES", 1)
    monkeypatch.setattr(sender, "TURN_SECONDS", 600)
    levels = {4: b"4", None: b"5", 9: b"9", 10: b"10"}
    databases = [database_of(make_database, level, body) for level, body in levels.items()]
    with databases[1].connect() as connection:
        shown = connection.execute("select distinct priority from broker.transmission_queue").fetchall()
    assert shown == [(10,)]

    async def play() -> list[bytes | None]:
        links: list[NarrowLink] = []

        async def connect(address: str) -> Session:
            links.append(NarrowLink(address))
            return links[-1].line(Clock(), Pace())

        def everybody_has_asked(passed: int) -> bool:
            """Whether one is passing after so many, and each database that has more to send waits for its turn."""
            if not links or links[0].passing is None or len(links[0].passed) != passed:
                return False
            begun = [*links[0].passed, links[0].passing]
            return line.waiting == sum(begun.count(body) < MESSAGES for body in levels.values())

        line = Peer(("tcp://far:4022",), connect, Clock(), Pace())
        async with AsyncExitStack() as stack:
            sending = []
            for database in databases:
                served = await stack.enter_async_context(Served(database.url))
                async with served.connection() as connection:
                    (destination,) = await statements.transmission_work(connection)
                here = sender.Sender(
                    served, destination.destination_no, SecureDialogs([served], None, Clock()), Clock()
                )
                sending.append(asyncio.create_task(here.send(destination, line)))
            for passed in range(len(levels) * MESSAGES):
                await settled(partial(everybody_has_asked, passed))
                links[0].passes.release()
            await asyncio.gather(*sending)
        return links[0].passed

    first, *rest = asyncio.run(play())
    # Who came first found the line free; after that the levels count, and 5 for who doesn't honour them.
    assert first is not None
    in_order = [body for body in (b"10", b"9", b"5", b"4") for _ in range(MESSAGES)]
    in_order.remove(first)
    assert rest == in_order
