"""Failures of handlers: whose they are, how they are told, and the pause after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.errors import DeadlockDetected, SerializationFailure

from pybroker.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from pybroker.message import ReceivedMessage

# A failing message comes back at once; without a pause a broken handler would take a processor.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class HandlerFailure(Exception):  # noqa: N818
    """A handler raised, as the cause says, with a message of this conversation."""

    def __init__(self, handle: UUID, *, is_alone: bool) -> None:
        super().__init__(handle)
        self.handle = handle
        # Of more than one nobody knows which failed; they are received one by one then.
        self.is_alone = is_alone


def raise_as_failure(handle: UUID, received: Sequence[ReceivedMessage], error: Exception) -> None:
    """Raise a handler's error as the conversation's failure, unless trying again may mend it.

    Args:
        handle: of the conversation.
        received: all that the transaction has received.
        error: the handler's.
    """
    if isinstance(error, DeadlockDetected | SerializationFailure):
        raise error
    is_alone = sum(message.conversation_handle == handle for message in received) == 1
    raise HandlerFailure(handle, is_alone=is_alone) from error


def noted(error: Any, server_encoding: str | None) -> str:
    """Return an error in one line that the database can store: what its encoding lacks is escaped."""
    text = in_one_line(error).replace("\0", "\\x00")
    # SQL_ASCII stores any bytes, and the client's are UTF-8.
    name = "utf-8" if server_encoding in (None, "SQL_ASCII") else server_encoding.replace("WIN", "cp", 1)
    try:
        return text.encode(name, "backslashreplace").decode(name)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode()


def in_one_line(error: Any) -> str:
    """Return an error, or the outcome that holds one, as its class and text in one line."""
    found = error.exception() if hasattr(error, "exception") and callable(error.exception) else error
    text = one_line(found)
    return f"{type(found).__name__}: {text}" if text else type(found).__name__
