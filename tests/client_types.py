"""What a type checker must say of programs: mypy reads this file, and nobody runs it.

An error that is expected is ignored by its name; one that does not come is an unused ignore, and fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import assert_type
from uuid import uuid4

import pybroker


@dataclass
class Order:
    id: int


@dataclass
class OrderState:
    lines: int = 0


@dataclass
class Tally:
    orders: int = 0


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


def programs(app: pybroker.App) -> None:
    assert_type(app.service_program("a"), pybroker.ServiceProgram[None])
    program = app.service_program("b", state=OrderState, state_table="order_states")
    assert_type(program, pybroker.ServiceProgram[OrderState])
    app.service_program("c", state=OrderState)  # type: ignore[call-overload]
    app.service_program("c", state_table="order_states")  # type: ignore[call-overload]
    app.service_program("c", state=OrderState(), state_table="order_states")  # type: ignore[call-overload]


def states(
    kept: pybroker.ProgramConversation[OrderState],
    kept_async: pybroker.AsyncProgramConversation[OrderState],
    without: pybroker.ProgramConversation[None],
    unsaid: pybroker.ProgramConversation,
) -> None:
    assert_type(kept.state, OrderState)
    assert_type(kept_async.state, OrderState)
    kept.state.line += 1  # type: ignore[attr-defined]
    kept.state = OrderState()  # type: ignore[misc]
    without.state.lines += 1  # type: ignore[attr-defined]
    unsaid.state.lines += 1


def handlers(
    program: pybroker.ServiceProgram[OrderState],
    conversation: pybroker.ProgramConversation[OrderState],
    async_conversation: pybroker.AsyncProgramConversation[OrderState],
) -> None:
    @program.on("//shop/order")
    def fulfil(conversation: pybroker.ProgramConversation[OrderState], order: Order) -> None:
        conversation.state.lines += order.id

    assert_type(fulfil(conversation, Order(1)), None)
    fulfil(conversation=conversation, order=Order(1))
    fulfil(conversation, "an order")  # type: ignore[arg-type]
    fulfil(conversation)  # type: ignore[call-arg]
    fulfil(async_conversation, Order(1))  # type: ignore[arg-type]

    @program.on("//shop/nudge")
    async def nudge(conversation: pybroker.AsyncProgramConversation[OrderState]) -> None:
        await conversation.send("//shop/ack", b"1")

    async def calls() -> None:
        await nudge(async_conversation)
        await nudge(async_conversation, Order(1))  # type: ignore[call-arg]
        nudge(async_conversation)  # type: ignore[unused-coroutine]

    @program.on("//shop/bill")
    async def bill(conversation: pybroker.AsyncProgramConversation[OrderState], text: str) -> None: ...

    @program.on("//shop/any")
    def unsaid(conversation: pybroker.ProgramConversation, message: pybroker.Message) -> None: ...

    @program.on("//shop/wider")
    @program.on("//shop/widest")
    def wider(conversation: pybroker.Conversation) -> None: ...

    program.on("//shop/short")(lambda conversation: None)
    program.on("//shop/shorter")(lambda conversation, body: None)


def wrong_handlers(program: pybroker.ServiceProgram[OrderState]) -> None:
    on = program.on("//shop/order")

    @on  # type: ignore[call-overload]
    def another_state(conversation: pybroker.ProgramConversation[Tally]) -> None: ...

    @on  # type: ignore[call-overload]
    def too_many(conversation: pybroker.ProgramConversation[OrderState], a: Order, b: Order) -> None: ...

    @on  # type: ignore[call-overload]
    def too_few() -> None: ...

    @on  # type: ignore[call-overload]
    def by_name(*, conversation: pybroker.ProgramConversation[OrderState]) -> None: ...

    @on  # type: ignore[call-overload]
    def no_conversation(order: Order) -> None: ...

    @on  # type: ignore[call-overload]
    async def sync_conversation(conversation: pybroker.ProgramConversation[OrderState]) -> None: ...

    @on  # type: ignore[call-overload]
    def async_conversation(conversation: pybroker.AsyncProgramConversation[OrderState]) -> None: ...

    @on  # type: ignore[call-overload]
    def returns(conversation: pybroker.ProgramConversation[OrderState]) -> int:
        return conversation.state.lines

    on("no function")  # type: ignore[call-overload]


def functions(program: pybroker.ServiceProgram[OrderState], other: pybroker.ServiceProgram[None]) -> None:
    @program
    def kept(conversation: pybroker.ProgramConversation[OrderState]) -> None:
        assert_type([message.body for message in conversation.messages], list[bytes])

    assert_type(kept, pybroker.ServiceProgram[OrderState])

    @kept.on("//shop/order")
    def order(conversation: pybroker.ProgramConversation[OrderState], order: Order) -> None: ...

    @program
    async def kept_async(conversation: pybroker.AsyncProgramConversation[OrderState]) -> None: ...

    @other  # type: ignore[arg-type]
    def another_state(conversation: pybroker.ProgramConversation[OrderState]) -> None: ...

    @program  # type: ignore[arg-type]
    def with_body(conversation: pybroker.ProgramConversation[OrderState], order: Order) -> None: ...

    @program  # type: ignore[arg-type]
    async def sync_conversation(conversation: pybroker.ProgramConversation[OrderState]) -> None: ...
