"""How often open pages ask a database: the less often the more they cost, and once for all who look."""

from __future__ import annotations

import pytest

pytest.importorskip("jinja2", reason="the extra console is not installed")

from pybroker.console import readings
from pybroker.console.readings import Readings, Together


class Clock:
    """A clock that moves when it is told to, and a database that takes so many seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked = 0

    def monotonic(self) -> float:
        return self.now

    def answer(self, seconds: float) -> int:
        self.asked += 1
        self.now += seconds
        return self.asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(readings, "time", made)
    return made


def test_ten_open_pages_cost_a_hundredth_of_the_time(clock: Clock) -> None:
    kept = Readings(Together())
    spent = 0.0
    began = clock.now
    for _ in range(100):
        for page in range(10):
            before = clock.asked
            kept.of(f"/{page}", lambda: clock.answer(0.02), is_refresh=True)
            spent += 0.02 * (clock.asked - before)
        clock.now += kept.wait()
    assert spent / (clock.now - began) < 0.011


def test_ten_roles_with_a_page_each_cost_no_more_than_one_with_ten(clock: Clock) -> None:
    together = Together()
    everybody = [Readings(together) for _ in range(10)]
    spent, began = 0.0, clock.now
    for _ in range(100):
        for kept in everybody:
            before = clock.asked
            kept.of("/", lambda: clock.answer(0.02), is_refresh=True)
            spent += 0.02 * (clock.asked - before)
        clock.now += together.wait()
    assert spent / (clock.now - began) < 0.011
    del everybody[1:], kept
    assert together.wait() < 5, "who has left does not count"


def test_who_looks_at_the_same_page_shares_a_reading_and_who_opens_it_does_not(clock: Clock) -> None:
    kept = Readings(Together())
    found = [kept.of("/", lambda: clock.answer(0.001), is_refresh=True) for _ in range(5)]
    assert found == [1] * 5
    assert kept.of("/", lambda: clock.answer(0.001), is_refresh=False) == 2
    clock.now += kept.wait()
    assert kept.of("/", lambda: clock.answer(0.001), is_refresh=True) == 3


def test_what_failed_is_asked_again_and_what_nobody_asks_for_is_forgotten(clock: Clock) -> None:
    kept = Readings(Together())

    def fails() -> int:
        clock.answer(10)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        kept.of("/slow", fails, is_refresh=True)
    assert kept.wait() == readings.LONGEST_SECONDS
    clock.now += 2 * readings.LONGEST_SECONDS + 1
    assert kept.of("/", lambda: clock.answer(0.001), is_refresh=True) == 2
    assert kept.wait() == readings.SHORTEST_SECONDS
    for number in range(10_000):
        kept.of(f"/{number}", lambda: clock.answer(0), is_refresh=True)
    assert len(kept._kept) <= 200
