"""What a batch of another broker costs grows with the batch and no faster: a large one may not stop the others."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.shop import Session, Shop

FEW, MANY = 1_000, 4_000
FAR_BROKER = uuid.UUID(int=1)


def delivery(dialogs: int, kinds: str, acknowledged: int) -> str:
    """Return a delivery of so many new dialogs, a message for each of the kinds on each."""
    messages = dialogs * len(kinds)

    def of_each(*values: str) -> str:
        return ", ".join(f"array_fill({value}, array[{dialogs}])" for value in values)

    headers = of_each(
        "true", "'//far'::text", "'//warehouse'::text", "null::uuid", "'ordering'::text",
        "now() + interval '1 day'", "false",
    )  # fmt: skip
    security = of_each("'L'::text", "null::text", "null::bytea", f"{acknowledged}::bigint")
    body = f"case substr('{kinds}', 1 + m % {len(kinds)}, 1) when 'M' then '\\x01'::bytea end"
    each = f"from generate_series(0, {messages - 1}) m"
    return (
        f"select * from broker_private.deliver('{FAR_BROKER}',"
        f" array(select gen_random_uuid() from generate_series(1, {dialogs})), {headers},"
        f" '{{order}}', array(select 1 + m / {len(kinds)} {each}), array_fill(1, array[{messages}]),"
        f" array(select m % {len(kinds)} {each})::bigint[], repeat('{kinds}', {dialogs}),"
        f" array(select {body} {each}), {security}, array_fill(clock_timestamp(), array[{messages}]))"
    )


def pages_of(session: Session, call: str) -> int:
    """Return how many pages a call has touched, with those of what it went through outside of all tables."""
    plan = session.value(f"explain (analyze, buffers, timing off, format json) {call}")[0]["Plan"]
    return sum(
        int(plan[f"{name} Blocks"]) for name in ("Shared Hit", "Shared Read", "Temp Read", "Temp Written")
    )


@pytest.mark.parametrize(
    ("kinds", "acknowledged"),
    [
        pytest.param("M", 0, id="plain"),
        pytest.param("ME", 0, id="with an end", marks=pytest.mark.dear),
        pytest.param("ME", -1, id="that is doubted", marks=pytest.mark.dear),
    ],
)
def test_a_batch_of_four_times_the_dialogs_costs_four_times_as_much(
    shop: Shop, kinds: str, acknowledged: int
) -> None:
    psql = shop.psql
    # So that a list of some hundred messages that is gone through leaves pages that can be counted.
    psql.rows("set work_mem = '64kB'")
    psql.rows(delivery(FEW, kinds, acknowledged))
    few = pages_of(psql, delivery(FEW, kinds, acknowledged))
    many = pages_of(psql, delivery(MANY, kinds, acknowledged))
    assert many / MANY < 1.3 * few / FEW
    arrived = psql.value("select count(*) from broker_private.messages where sequence_number = 0")
    assert arrived == 2 * FEW + MANY
