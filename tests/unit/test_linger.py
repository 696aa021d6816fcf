"""When a batch is worth a wait: the rule alone, on a clock that the test moves."""

from __future__ import annotations

import pytest

from pybroker.workers.clock import Clock
from pybroker.workers.transport.outgoing.linger import WORTH_MESSAGES, Linger

LONGEST = 0.1


class SetClock(Clock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class Flow:
    """Batches to one destination, as a sender takes them."""

    def __init__(self, longest: float = LONGEST, time_left: float = 0.0) -> None:
        self.clock = SetClock()
        self.time_left = time_left
        self.linger = Linger(longest, self.clock, lambda: self.time_left)

    def batch(self, messages: int, seconds: float) -> float:
        """Take a batch so long after the last one; return the pause after its answer, which comes at once."""
        self.clock.seconds += seconds
        self.linger.taken(messages)
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
    flow = Flow(time_left=1.0)
    for _ in range(100):
        assert flow.batch(1, 0.03) == 0
        assert flow.batch(0, 0.003) == 0


def test_without_time_left_messages_that_flow_wait_for_the_whole_of_it() -> None:
    flow = Flow()
    assert flow.batches(20, 3, 0.006) == pytest.approx(LONGEST)


def test_with_time_left_no_message_waits_longer_than_ten_milliseconds() -> None:
    flow = Flow(time_left=0.6)
    assert 0 < flow.batches(20, 3, 0.006) <= 0.1 * LONGEST + 1e-9


def test_the_pause_grows_as_processors_run_out_of_time() -> None:
    pauses = [Flow(time_left=left).batches(20, 3, 0.006) for left in (0.5, 0.2, 0.1, 0.0)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[1] < pauses[-1]


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
