"""Messages: the columns that RECEIVE returns and how to read them, and what a body can be."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, overload
from uuid import UUID

import msgspec
from lxml import etree

ERROR_MESSAGE_TYPE = "http://schemas.microsoft.com/SQL/ServiceBroker/Error"
END_DIALOG_MESSAGE_TYPE = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog"
DIALOG_TIMER_MESSAGE_TYPE = "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer"
_OWN_MESSAGE_TYPES = {ERROR_MESSAGE_TYPE, END_DIALOG_MESSAGE_TYPE, DIALOG_TIMER_MESSAGE_TYPE}

T = TypeVar("T")


class Dataclass(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Json = str | int | float | dict[str, Any] | list[Any] | tuple[Any, ...]
Typed = Dataclass | msgspec.Struct | UUID | datetime | date | time | timedelta | Decimal | Enum
Body = bytes | bytearray | memoryview | Json | Typed
"""What can be sent: bytes; a str, as UTF-8; or what else JSON can hold, by msgspec. Not None (8433)."""

NO_BODY = b""


def encoded(body: Body | None) -> bytes | None:
    """Return a body as the bytes that are sent.

    Dataclasses, Structs, UUIDs, dates, Decimals and the like become what `ReceivedMessage.json` reads back.
    The server refuses None.

    Raises:
        TypeError, ValueError: JSON can't hold it, NaN and the infinities included, or it is a str with a lone
            surrogate.
    """
    if body is None or isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    if not isinstance(body, str):
        # msgspec alone would send NaN as null.
        body = json.dumps(
            body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=msgspec.to_builtins
        )
    return body.encode()


class ConversationError(NamedTuple):
    """What an Error message says.

    Attributes:
        code: above 0 the far program's own; below 0 the broker's, the negated number of the error.
        description: the text, up to 3,000 characters.
    """

    code: int
    description: str


def _parsed(body: bytes) -> etree._Element:
    # The far side may be anybody: no entity is expanded and nothing is fetched. A parser serves one document
    # at a time.
    return etree.fromstring(body, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))


@dataclass(frozen=True)
class ReceivedMessage:
    """The columns of ``broker.message``, and how to read them.

    Attributes:
        status: 0, received.
        priority: 1 to 10, the conversation's; a queue hands out the highest first.
        queuing_order: the message's place in its queue.
        conversation_group_id: the group, which this transaction now has locked: the key of a program's own
            state.
        conversation_handle: this side's handle of the conversation.
        message_sequence_number: the message's place in its conversation, from 0.
        service_name: the service that the conversation is with.
        service_id: its id.
        service_contract_name: the conversation's contract.
        service_contract_id: its id.
        message_type_name: what the message is; compare this to decide what to do.
        message_type_id: its id.
        validation: ``N`` none, ``E`` empty, ``X`` XML.
        message_body: the body; None if it is empty.
        message_id: the message's own id, the same on both sides.
        message_enqueue_time: when it came into the queue.
    """

    status: int
    priority: int
    queuing_order: int
    conversation_group_id: UUID
    conversation_handle: UUID
    message_sequence_number: int
    service_name: str
    service_id: int
    service_contract_name: str
    service_contract_id: int
    message_type_name: str
    message_type_id: int
    validation: str
    message_body: bytes | None
    message_id: UUID
    message_enqueue_time: datetime

    @property
    def body(self) -> bytes:
        """The body; ``b""`` if there is none."""
        return self.message_body or b""

    @property
    def text(self) -> str:
        """The body as text.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
        """
        return self.body.decode()

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, body_type: type[T]) -> T: ...

    def json(self, body_type: Any = None) -> Any:
        """Return the value that the body holds as JSON.

        Args:
            body_type: what it must be: a dataclass, a msgspec Struct, a TypedDict, UUID, datetime, Decimal,
                ``list[...]`` of them and so on. Without it come dicts, lists, strings and numbers.

        Raises:
            ValueError: it is not JSON in UTF-8, as an empty body; or not of that type; or the message is the
                broker's own, such as EndDialog.
        """
        if self.message_type_name in _OWN_MESSAGE_TYPES:
            raise ValueError(
                f"This is a message of the broker itself, {self.message_type_name}, and holds no JSON."
                " Look at message_type_name, is_error and is_end_dialog first."
            )
        if body_type is None:
            return json.loads(self.text)
        try:
            return msgspec.json.decode(self.body, type=body_type)
        except msgspec.DecodeError as failure:
            raise ValueError(
                f"The body of the message {self.message_id}, a {self.message_type_name},"
                f" can't be read as {body_type}: {failure}"
            ) from failure

    def xml(self) -> etree._Element:
        """Return the body's root element, as lxml's. Entities stay as they are; nothing else is read.

        Raises:
            lxml.etree.XMLSyntaxError: it is not XML.
        """
        return _parsed(self.body)

    @property
    def is_error(self) -> bool:
        """Whether this is an Error message: the conversation failed, and what is left to do is to end it."""
        return self.message_type_name == ERROR_MESSAGE_TYPE

    @property
    def is_end_dialog(self) -> bool:
        """Whether the far side ended the conversation: end it here too."""
        return self.message_type_name == END_DIALOG_MESSAGE_TYPE

    @property
    def error(self) -> ConversationError | None:
        """What an Error message says; None for any other message.

        Raises:
            ValueError: the body is not that of an Error message.
        """
        if not self.is_error:
            return None
        try:
            root = self.xml()
            # Service Broker's own documents print two namespaces.
            return ConversationError(int(root.findtext("{*}Code", "")), root.findtext("{*}Description", ""))
        except (etree.XMLSyntaxError, ValueError) as failure:
            raise ValueError(
                f"The Error message {self.message_id} can't be read: {self.body[:200]!r}"
            ) from failure


COLUMNS = tuple(column.name for column in fields(ReceivedMessage))
