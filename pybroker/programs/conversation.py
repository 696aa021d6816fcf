# Made from conversation_async.py by python -m tests.sync_twin: change that file.
"""The conversation that a handler of a service program gets: in the transaction of its reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pybroker.client.conversation import Conversation
from pybroker.programs.round import InRound, State_co

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from pybroker.client.broker import Broker
    from pybroker.client.conversation import Message
    from pybroker.client.session import Transaction
    from pybroker.programs.round import Round


@dataclass(frozen=True)
class ProgramConversation(InRound[State_co], Conversation):
    """A conversation, in a handler of a service program.

    Everything that a handler does on it, on its broker and on its connection is one transaction with what was
    received: it commits after the last handler, and is rolled back if one raises.

    ``ProgramConversation[OrderState]`` is one whose group's state is an OrderState.

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
        """End this side of the conversation, and leave out the rest of it.

        As :meth:`Conversation.end`.
        """
        super().end(error_code=error_code, error_description=error_description, cleanup=cleanup)
        self._round.ended.add(self.handle)
