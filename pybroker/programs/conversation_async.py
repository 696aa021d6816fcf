"""The conversation that a handler of a service program gets: in the transaction of its reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pybroker.client.conversation_async import AsyncConversation
from pybroker.programs.round import InRound, State_co

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from pybroker.client.broker_async import AsyncBroker
    from pybroker.client.conversation_async import AsyncMessage
    from pybroker.client.session_async import AsyncTransaction
    from pybroker.programs.round import Round


@dataclass(frozen=True)
class AsyncProgramConversation(InRound[State_co], AsyncConversation):
    """A conversation, in a handler of a service program.

    Everything that a handler does on it, on its broker and on its connection is one transaction with what was
    received: it commits after the last handler, and is rolled back if one raises.

    ``AsyncProgramConversation[OrderState]`` is one whose group's state is an OrderState.

    Attributes:
        handle: the conversation handle.
        conversation_group_id: the group, which this transaction has locked.
        service_name: this side's service.
        messages: what the handler is called for.
        broker: for dialogs of the program's own.
    """

    conversation_group_id: UUID = field(compare=False)
    service_name: str = field(compare=False)
    messages: Sequence[AsyncMessage] = field(compare=False, repr=False)
    broker: AsyncBroker = field(compare=False, repr=False)
    _transaction: AsyncTransaction = field(compare=False, repr=False)
    _round: Round = field(compare=False, repr=False)

    # sync: @property
    async def connection(self) -> psycopg.AsyncConnection[Any]:
        """The transaction's connection, for the program's own statements in it."""
        return await self._transaction.connection()

    async def end(
        self, *, error_code: int | None = None, error_description: str | None = None, cleanup: bool = False
    ) -> None:
        """End this side of the conversation, and leave out the rest of it.

        As :meth:`AsyncConversation.end`.
        """
        await super().end(error_code=error_code, error_description=error_description, cleanup=cleanup)
        self._round.ended.add(self.handle)
