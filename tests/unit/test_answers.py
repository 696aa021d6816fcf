"""What a sender makes of an answer: nothing is forgotten here that the far broker has not stored."""

from __future__ import annotations

from pybroker.workers.transport.outgoing import batches
from pybroker.workers.transport.outgoing.in_flight import InFlight
from pybroker.workers.transport.protocol import arrays
from tests.fuzz.targets import TAKEN
from tests.unit.test_wire import ack


def test_of_a_batch_that_was_half_stored_only_that_half_is_acknowledged() -> None:
    # Dialog 1 has the messages 0 and 1, in rows 11 and 13; dialog 2 the message 4 in row 12.
    answer = ack(next_numbers=arrays.from_integers([1, 4], arrays.BIGINT))
    acknowledged, _, _ = batches.outcome(TAKEN, batches.ends_of(TAKEN), answer)
    assert acknowledged == [(1, 1, 11)]


def test_nothing_follows_a_batch_that_was_half_stored_until_all_was_answered() -> None:
    in_flight, first, second = InFlight(), {1: batches.End(2, 12)}, {1: batches.End(4, 14)}
    in_flight.add(first)
    in_flight.add(second)
    in_flight.settle(first, {1: 1})
    assert in_flight.broken() == [1]
    in_flight.settle(second, {})
    assert not in_flight
