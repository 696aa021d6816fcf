"""When a batch is worth a wait: the rule alone, on a clock that the test moves."""

from __future__ import annotations

import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.transport.outgoing.linger import TIMES_TAKING, WORTH_MESSAGES, Linger

LONGEST = 0.1
# Seconds that it takes to take a batch.
QUIET, BUSY = 0.002, 0.05


class SetClock(Clock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class Flow:
    """Batches to one destination, as a sender takes them."""

    def __init__(self, longest: float = LONGEST, taking: float = BUSY) -> None:
        self.clock = SetClock()
        self.taking = taking
        self.linger = Linger(longest, self.clock)

    def batch(self, messages: int, seconds: float) -> float:
        """Take a batch so long after the last one; return the pause after its answer, which comes at once."""
        self.clock.seconds += seconds
        self.linger.taken(messages, self.taking)
        return self.linger.pause(messages)

    def batches(self, count: int, messages: int, seconds: float) -> float:
        return [self.batch(messages, seconds) for _ in range(count)][-1]


def test_the_first_message_after_idleness_waits_for_no_other() -> None:
    flow = Flow()
    assert flow.batch(1, 0) == 0
    assert flow.batches(20, 3, 0.006) > 0
    assert flow.batch(1, 60) == 0


def test_a_request_and_its_answer_never_wait_for_each_other() -> None:
    # Thirty round trips a second, each a message alone, whose look behind it finds nothing.
    flow = Flow(taking=QUIET)
    for _ in range(100):
        assert flow.batch(1, 0.03) == 0
        assert flow.batch(0, 0.003) == 0


def test_where_taking_is_slow_messages_that_flow_wait_for_the_whole_of_it() -> None:
    flow = Flow()
    assert flow.batches(20, 3, 0.006) == pytest.approx(LONGEST)


def test_where_taking_is_quick_messages_wait_a_few_times_as_long_as_that() -> None:
    flow = Flow(taking=QUIET)
    assert flow.batches(20, 3, 0.006) == pytest.approx(TIMES_TAKING * QUIET, rel=0.01)


def test_the_pause_grows_as_taking_gets_slower() -> None:
    pauses = [Flow(taking=taking).batches(20, 3, 0.006) for taking in (0.001, 0.002, 0.005, 1)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[1] < pauses[2] < pauses[3] <= LONGEST + 1e-9


def test_a_look_that_finds_nothing_says_nothing_of_what_a_batch_takes() -> None:
    flow = Flow()
    flow.batches(20, 3, 0.006)
    flow.taking = 0.0
    flow.batch(0, 0.001)
    flow.taking = BUSY
    assert flow.batch(3, 0.006) == pytest.approx(LONGEST)


def test_a_batch_that_is_worth_its_cost_is_followed_at_once() -> None:
    flow = Flow()
    flow.batches(20, 3, 0.006)
    assert flow.batch(WORTH_MESSAGES, 0.1) == 0


def test_fast_messages_wait_only_until_they_are_worth_a_batch() -> None:
    flow = Flow()
    # Two thousand a second: fifty of them have come after 25 ms.
    assert flow.batches(40, 20, 0.01) == pytest.approx(0.025, rel=0.01)


def test_the_time_that_a_batch_took_is_part_of_the_pause() -> None:
    flow = Flow()
    flow.batches(20, 3, 0.006)
    flow.clock.seconds += 0.04
    assert flow.linger.pause(3) == pytest.approx(LONGEST - 0.04)
    flow.clock.seconds += 1
    assert flow.linger.pause(3) == 0


def test_zero_turns_it_off() -> None:
    assert Flow(longest=0.0).batches(20, 3, 0.006) == 0
