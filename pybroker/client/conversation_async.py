"""Conversations: one side of a dialog, known by its handle, and the messages received on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pybroker import tracing
from pybroker.client import statements
from pybroker.message import NO_BODY, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from pybroker.client.session_async import AsyncSession
    from pybroker.duration import Duration
    from pybroker.message import Body


@dataclass(frozen=True)
class AsyncConversation:
    """One side of a dialog. Two are equal if their handles are.

    Every method here locks the conversation's group until its transaction ends, and waits for whoever holds
    it. All need RECEIVE on the queue of this side's service, and raise ConversationNotFound (8426) once the
    conversation is over.

    Attributes:
        handle: the conversation handle; each side of a dialog has its own.
    """

    handle: UUID
    _session: AsyncSession = field(repr=False, compare=False)

    async def send(self, message_type: str, body: Body = NO_BODY) -> None:
        """Send a message to the far side.

        Args:
            message_type: a type that the contract lets this side send.
            body: bytes; a str, which is sent as UTF-8; or what json can hold. Without one the message has no
                body.

        Raises:
            ConversationStateError: this side or the far side has ended, or the conversation failed (8429).
            MessageTypeNotFound, MessageTypeNotInContract, DirectionError: 8428, 8431, 8432 and 8434.
            MessageValidationError: the body is not what the type demands (8430).
            NullBodyError: the body is None (8433).
            TypeError, ValueError: json can't hold the body; nothing was sent to the database.
        """
        with tracing.sending(message_type, self.handle) as traceparent:
            steps = statements.send(
                self._session.validations, self.handle, message_type, body, traceparent=traceparent
            )
            await self._session.run(steps)

    async def send_batch(self, message_type: str, bodies: Iterable[Body]) -> None:
        """Send many messages in their order, all or none, in one call: much cheaper than a call for each.

        Args:
            message_type: a type that the contract lets this side send.
            bodies: each as in :meth:`send`; they are read to the end before anything is sent.

        Raises:
            BrokerError: as :meth:`send`.
        """
        bodies = list(bodies)
        with tracing.sending(message_type, self.handle, len(bodies)) as traceparent:
            steps = statements.send_batch(
                self._session.validations, self.handle, message_type, bodies, traceparent=traceparent
            )
            await self._session.run(steps)

    async def end(
        self, *, error_code: int | None = None, error_description: str | None = None, cleanup: bool = False
    ) -> None:
        """End this side of the conversation; its messages that nobody received are removed.

        The far side is told after everything that was sent before. With an error it is told at once, and what
        still waits to be sent is dropped. With cleanup it is never told: for conversations whose far side is
        gone.

        Args:
            error_code: above 0; together with ``error_description``.
            error_description: up to 3,000 characters.
            cleanup: remove this side, whatever its state.

        Raises:
            ConversationStateError: this side has ended already (8427).
            BrokerError: an error without both values, or out of range (8419, 8422, 8424), or with cleanup
                (153).
        """
        await self._session.run(
            statements.end_conversation(self.handle, error_code, error_description, cleanup)
        )

    async def begin_timer(self, timeout: Duration) -> None:
        """Have a DialogTimer message in this side's own queue when the time is over; a worker puts it there.

        The far side knows nothing of it. A timer that this side has begun before is replaced.

        Args:
            timeout: above 0, in seconds or as a timedelta; within the dialog's lifetime.

        Raises:
            ConversationStateError: this side has ended the conversation (8458).
            ArgumentError: the timeout is not above 0 (153).
            BrokerError: it goes beyond the lifetime (8410).
            PermissionDenied: no SEND on this side's service (229).
        """
        await self._session.run(statements.begin_timer(self.handle, timeout))

    async def move(self, conversation_group_id: UUID) -> None:
        """Join another conversation group of the same service; messages that wait here go along.

        Both groups are locked until the transaction ends. A group that loses its last conversation is gone.

        Args:
            conversation_group_id: a group that exists.

        Raises:
            ConversationGroupNotFound: there is no such group (8436).
            ConversationGroupMismatch: the group is of another service (8439).
            ConversationStateError: this side has ended (8438).
            PermissionDenied: the caller owns neither the conversation nor its service (229).
        """
        await self._session.run(statements.move_conversation(self.handle, conversation_group_id))

    async def note_failure(self, error: str, *, retry_after: Sequence[Duration] | None = None) -> bool:
        """Note that a transaction which had received from this conversation failed, after it was rolled back.

        On a queue with ``poison_action`` QUARANTINE the fifth failure in a row quarantines the conversation:
        nothing of it is received until :meth:`redrive` or :meth:`discard`. On other queues nothing is noted.

        Args:
            error: what failed, for ``broker.quarantine``; of longer ones the first 3,000 characters.
            retry_after: quarantine it at once, and try again after the first of these pauses, after the next
                failure in a row after the second; when all are used up it stays in quarantine.

        Returns:
            Whether the conversation is quarantined now.

        Raises:
            ArgumentError: there is no text, more than 100 pauses, or one that is not from 0 to 1 year (153).
        """
        return await self._session.run(statements.note_failure(self.handle, error, retry_after))

    async def redrive(self) -> int:
        """Take the conversation out of quarantine: all its messages can be received, the failing one first.

        Returns:
            How many messages that are.

        Raises:
            ConversationStateError: it is not quarantined (8427).
        """
        return await self._session.run(statements.redrive(self.handle))

    async def discard(self) -> int:
        """Remove the message that failed, and take the conversation out of quarantine with the others.

        Returns:
            How many messages can be received.

        Raises:
            ConversationStateError: it is not quarantined (8427).
        """
        return await self._session.run(statements.discard(self.handle))

    async def transmission_status(self) -> str:
        """Return the last problem of sending on this conversation, with Service Broker's number in front.

        ``""`` if there is none, nothing was tried yet, or the conversation is over: it raises no
        ConversationNotFound.
        """
        return await self._session.run(statements.get_transmission_status(self.handle))


@dataclass(frozen=True)
class AsyncMessage(ReceivedMessage):
    """A received message: the columns of ``broker.message``, readings of the body, and its conversation.

    Attributes:
        conversation: to answer on.
        traceparent: the W3C trace context that came with it, if the program traces and its sender did.
    """

    conversation: AsyncConversation = field(repr=False, compare=False)
    traceparent: str | None = field(default=None, repr=False, compare=False)

    async def reply(self, message_type: str, body: Body = NO_BODY) -> None:
        """Send a message back on the conversation; see :meth:`AsyncConversation.send`."""
        await self.conversation.send(message_type, body)
