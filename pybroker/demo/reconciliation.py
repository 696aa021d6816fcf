"""Order by order: was what was sent booked once, and acknowledged once, with the same amount?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decimal import Decimal

    import psycopg


@dataclass(frozen=True)
class Mismatch:
    """An order whose story does not agree in both databases."""

    order_id: str
    reason: str


@dataclass(frozen=True)
class Reconciliation:
    """The result: how many orders were to be played, and which do not agree."""

    orders: int
    reconciled: int
    mismatches: list[Mismatch]

    @property
    def is_complete(self) -> bool:
        """Whether every order agrees, and nothing else was booked or acknowledged."""
        return self.reconciled == self.orders and not self.mismatches


def reconcile(
    orders: int, trader: psycopg.Connection[Any], brokerage: psycopg.Connection[Any]
) -> Reconciliation:
    """Compare the tables of both databases."""
    sent = _rows(trader, "select order_id, amount from public.orders")
    acknowledged = _rows(trader, "select order_id, amount, ack_id from public.acknowledgements")
    booked = _rows(brokerage, "select order_id, amount, trade_no from public.trades")
    mismatches = []
    for order_id in sorted(sent.keys() | acknowledged.keys() | booked.keys(), key=_natural):
        reason = _disagreement(*(rows.get(order_id, []) for rows in (sent, booked, acknowledged)))
        if reason:
            mismatches.append(Mismatch(order_id, reason))
    different = {mismatch.order_id for mismatch in mismatches}
    return Reconciliation(orders, len(sent.keys() - different), mismatches)


def _rows(connection: psycopg.Connection[Any], query: str) -> dict[str, list[tuple[Any, ...]]]:
    rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for order_id, *rest in connection.execute(query.encode()):
        rows[order_id].append(tuple(rest))
    return rows


def _natural(order_id: str) -> tuple[int, str]:
    return len(order_id), order_id


def _disagreement(
    sent: list[tuple[Decimal]],
    booked: list[tuple[Decimal, int]],
    acknowledged: list[tuple[Decimal, int]],
) -> str | None:
    """Say what does not agree about one order, or None."""
    if not sent:
        return "was never sent"
    for what, rows in (("booked", booked), ("acknowledged", acknowledged)):
        if len(rows) != 1:
            return f"{what} {len(rows)} times"
    ((amount,),) = sent
    if booked[0][0] != amount:
        return f"sent for {amount}, booked for {booked[0][0]}"
    if acknowledged[0] != booked[0]:
        return (
            f"booked as trade {booked[0][1]} for {booked[0][0]},"
            f" acknowledged as trade {acknowledged[0][1]} for {acknowledged[0][0]}"
        )
    return None
