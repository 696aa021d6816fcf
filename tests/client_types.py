"""What a type checker must say of programs: mypy reads this file, and nobody runs it.

An error that is expected is ignored by its name; one that does not come is an unused ignore, and fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, assert_type
from uuid import uuid4

if TYPE_CHECKING:
    import pybroker


@dataclass
class Order:
    id: int


def sends(dialog: pybroker.Conversation) -> None:
    dialog.send("//shop/order", Order(1))
    dialog.send("//shop/order", {"id": uuid4(), "price": Decimal(1)})
    dialog.send_batch("//shop/order", [Order(1), Order(2)])
    dialog.send("//shop/order", None)  # type: ignore[arg-type]
    dialog.send_batch("//shop/order", [b"1", None])  # type: ignore[list-item]
    dialog.send("//shop/order", object())  # type: ignore[arg-type]


def reads(message: pybroker.Message) -> None:
    assert_type(message.json(Order), Order)
    assert_type(message.json(list[Order]), list[Order])


async def sends_async(dialog: pybroker.AsyncConversation) -> None:
    await dialog.send("//shop/order", Order(1))
    await dialog.send("//shop/order", None)  # type: ignore[arg-type]
