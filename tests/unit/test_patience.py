"""A wait that gives up says what it waited for, and what was so then."""

from __future__ import annotations

import pytest

from tests import patience
from tests.patience import state_of, until

LIMIT = 3


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, [], "arrived"])
    assert until(lambda: next(values)) == "arrived"


def test_who_gives_up_tells_both_sides_of_a_comparison() -> None:
    arrived = [b"first"]
    with pytest.raises(AssertionError) as caught:
        until(lambda: len(arrived) >= LIMIT, seconds=0)
    told = str(caught.value)
    assert "len(arrived) >= LIMIT" in told
    assert "len(arrived) is 1" in told
    assert "LIMIT is 3" in told
    assert "arrived: [b'first']" in told


def test_each_part_of_a_condition_is_told() -> None:
    counts = {"sent": 4, "received": 2}
    told = state_of(lambda: counts["received"] == 4 and not counts["sent"])
    assert "counts['received'] is 2" in told
    assert "counts['sent'] is 4" in told


def test_a_part_that_raises_is_no_other_failure() -> None:
    rows: list[int] = []
    told = state_of(lambda: rows and rows[0] == 1)
    assert "rows is []" in told
    assert "rows[0] is not to be told: IndexError" in told


def test_a_function_is_told_by_its_name_and_is_not_called_again() -> None:
    looks: list[str] = []

    def has_arrived() -> bool:
        looks.append("look")
        return False

    with pytest.raises(AssertionError, match=r"has_arrived\s+looks: \['look'\]"):
        until(has_arrived, seconds=0)


@pytest.mark.timeout(2)
def test_a_wait_gives_up_before_the_test_is_ended() -> None:
    with pytest.raises(AssertionError, match="waited in vain"):
        until(lambda: False)


def test_the_time_of_a_longer_test_is_its_own(request: pytest.FixtureRequest) -> None:
    patience.begin(request.node)
    request.node.add_marker(pytest.mark.timeout(900))
    shorter = patience._gives_up_at
    patience.begin(request.node)
    assert patience._gives_up_at > shorter
