"""How long the closed endpoint of a target stays that another broker talked to: rows 78 and 79, edge cases 31 and 32."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.shop import Shop

SWEEP = "select broker_private.sweep()"


@pytest.fixture
def clock(shop: Shop) -> Callable[[str], None]:
    def move(offset: str) -> None:
        shop.psql.rows(
            "create or replace function broker_private.clock() returns timestamptz language sql volatile"
            f" begin atomic select pg_catalog.clock_timestamp() + interval '{offset}'; end"
        )

    return move


class FarBroker:
    """An initiator elsewhere: what its worker would bring."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.conversation: UUID = uuid.uuid4()

    def bring(self, first: int, kinds: str) -> int:
        """Bring a batch of messages (M) and ends (E), numbered from the first one; return what is expected next."""
        count = len(kinds)
        numbers = list(range(first, first + count))
        bodies = [b"x" if kind == "M" else None for kind in kinds]
        ((answer,),) = self.shop.psql.rows(
            "select next_numbers from broker_private.deliver(%s, array[%s], array[true], array['//far'], array['//warehouse'],"
            " array[null::uuid], array['ordering'], array[now() + interval '1 day'], array[true], array['order'],"
            " array_fill(1, array[%s]), array_fill(1, array[%s]), %s::bigint[], %s, %s::bytea[], '{L}', '{null}', '{null}')",
            uuid.UUID(int=1),
            self.conversation,
            count,
            count,
            numbers,
            kinds,
            bodies,
        )
        return int(answer[0])

    def end_here(self) -> UUID:
        """End the target's side, and return its handle."""
        handle: UUID = self.shop.psql.value(
            "select conversation_handle from broker.conversation_endpoints where conversation_id = %s",
            self.conversation,
        )
        self.shop.psql.end(handle)
        return handle


def test_row_078_a_closed_target_goes_when_the_initiator_cannot_send_its_first_message_again(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    far = FarBroker(shop)
    assert far.bring(0, "M") == 1
    assert far.bring(1, "ME") == 3
    target = far.end_here()
    clock("25 min")
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) == "CD"
    clock("31 min")
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) is None


def test_row_079_edges_031_032_sent_and_forgotten_is_kept_for_its_lifetime_and_never_taken_twice(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    far = FarBroker(shop)
    assert far.bring(0, "ME") == 2
    assert len(shop.psql.receive()) == 2
    target = far.end_here()
    # The acknowledgement was lost, and the initiator's worker comes back after hours.
    clock("20 h")
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) == "CD"
    assert far.bring(0, "ME") == 2
    assert shop.psql.receive() == []
    assert len(shop.psql.rows("select from broker.conversation_endpoints")) == 1
    clock("24 h 31 min")
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) is None


def test_row_078_a_batch_that_comes_again_confirms_nothing(shop: Shop, clock: Callable[[str], None]) -> None:
    far = FarBroker(shop)
    assert far.bring(0, "MM") == 2
    assert far.bring(0, "MMME") == 4
    target = far.end_here()
    clock("20 h")
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) == "CD"


def test_row_078_a_target_that_ends_first_goes_half_an_hour_after_its_end_was_acknowledged(
    shop: Shop, clock: Callable[[str], None]
) -> None:
    far = FarBroker(shop)
    far.bring(0, "M")
    target = far.end_here()
    assert shop.psql.state(target) == "DO"
    shop.psql.rows(
        "select broker_private.acknowledge(%s, array(select endpoint_no from broker_private.endpoints), '{1}',"
        " array(select id from broker_private.transmission_messages))",
        uuid.UUID(int=1),
    )
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) == "CD"
    clock("31 min")
    shop.psql.rows(SWEEP)
    assert shop.psql.state(target) is None
