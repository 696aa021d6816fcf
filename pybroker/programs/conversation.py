"""The conversation that a handler of a service program gets: in the transaction of its reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pybroker.client.conversation import Conversation, Message
from pybroker.client.conversation_async import AsyncConversation, AsyncMessage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from pybroker.client.broker import Broker
    from pybroker.client.broker_async import AsyncBroker
    from pybroker.client.session import Transaction
    from pybroker.client.session_async import AsyncTransaction
    from pybroker.programs.group_state import GroupState


@dataclass
class Round:
    """What the calls of one transaction share.

    Attributes:
        state: the group's state; None if the program keeps none.
        ended: handles of conversations that a handler has ended; what else was received of them is left out.
    """

    state: GroupState | None = None
    ended: set[UUID] = field(default_factory=set)


class _InProgram:
    """What the conversations of sync and async programs have in common."""

    _round: Round

    @property
    def state(self) -> Any:
        """The state of the conversation group, to be changed in place; it is stored when the reader commits.

        Raises:
            LookupError: the program was made without ``state``.
        """
        return self._known_state().value

    def forget_state(self) -> None:
        """Remove the group's state when the reader commits.

        Raises:
            LookupError: the program was made without ``state``.
        """
        self._known_state().forget()

    def _known_state(self) -> GroupState:
        if self._round.state is None:
            raise LookupError("The program keeps no state: give service_program() state and state_table.")
        return self._round.state


@dataclass(frozen=True)
class ProgramConversation(_InProgram, Conversation):
    """A conversation, in a handler of a service program.

    Everything that a handler does on it, on its broker and on its connection is one transaction with what was
    received: it commits after the last handler, and is rolled back if one raises.

    Attributes:
        handle: the conversation handle.
        conversation_group_id: the group, which this transaction has locked.
        service_name: this side's service.
        messages: what the handler is called for.
        broker: for dialogs of the program's own.
    """

    conversation_group_id: UUID = field(compare=False)
    service_name: str = field(compare=False)
    messages: Sequence[Message] = field(compare=False, repr=False)
    broker: Broker = field(compare=False, repr=False)
    _transaction: Transaction = field(compare=False, repr=False)
    _round: Round = field(compare=False, repr=False)

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The transaction's connection, for the program's own statements in it."""
        return self._transaction.connection()

    def end(
        self, *, error_code: int | None = None, error_description: str | None = None, cleanup: bool = False
    ) -> None:
        """End this side of the conversation; see :meth:`Conversation.end`. The rest of it is left out."""
        super().end(error_code=error_code, error_description=error_description, cleanup=cleanup)
        self._round.ended.add(self.handle)


@dataclass(frozen=True)
class AsyncProgramConversation(_InProgram, AsyncConversation):
    """A conversation, in a handler of an async service program; see :class:`ProgramConversation`.

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

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        """Return the transaction's connection, for the program's own statements in it."""
        return await self._transaction.connection()

    async def end(
        self, *, error_code: int | None = None, error_description: str | None = None, cleanup: bool = False
    ) -> None:
        """End this side of the conversation; see :meth:`ProgramConversation.end`."""
        await super().end(error_code=error_code, error_description=error_description, cleanup=cleanup)
        self._round.ended.add(self.handle)
