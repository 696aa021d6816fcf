"""What the broker refuses, as exceptions: one class for each refusal that a program would catch.

A refusal of the database has the SQLSTATE ``S`` and Service Broker's number for numbers of four digits, ``T``
and the last four digits for those of five. Every other SQLSTATE, a lost connection or a serialization
failure, stays the psycopg exception that it was: programs have their handlers for those already.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

_REFUSAL = re.compile(r"([ST])(\d{4})")
_FIRST_OF_FIVE_DIGITS = 20000

# A call of a function or view that is not there; inside a function of the broker they would mean something
# else.
_NOT_MIGRATED = frozenset({"3F000", "42883", "42P01"})
# What an error of PostgreSQL's means here.
_NOTES = {
    "53100": "The server's disk is full. Nothing of this transaction was stored.",
    "55P03": "broker.diagnose(conversation_handle), in another session, names who holds the conversation.",
}
_MIGRATE = "Run pybroker migrate --database-url postgresql://…, as the database's owner."


class BrokerError(Exception):
    """The broker refused a call. Nothing of that call was done.

    Inside a transaction the database has ended everything up to the last savepoint, as after any SQL error.

    Attributes:
        numbers: Service Broker's error numbers that this class stands for; empty in the base class, which has
            the rest.
        message: what was refused, with the name of the object.
        number: Service Broker's error number; None where it has none.
        sqlstate: the SQLSTATE of the database's error, such as ``S8426``; None where no database was asked.
        hint: what to do about it.
    """

    numbers: ClassVar[frozenset[int]] = frozenset()

    def __init__(
        self, message: str, number: int | None = None, hint: str | None = None, sqlstate: str | None = None
    ) -> None:
        super().__init__(message, number, hint, sqlstate)
        self.message = message
        self.number = number
        self.hint = hint
        self.sqlstate = sqlstate

    def __str__(self) -> str:
        text = self.message if self.number is None else f"{self.number}: {self.message}"
        return f"{text}\nHINT:  {self.hint}" if self.hint else text


class NotMigratedError(BrokerError):
    """The database has no broker, or one of another version: it needs ``pybroker migrate``."""


class ArgumentError(BrokerError):
    """An argument has a value that is not allowed, or two arguments exclude each other (153)."""

    numbers: ClassVar[frozenset[int]] = frozenset({153})


class PermissionDenied(BrokerError):  # noqa: N818
    """The caller has no right to the object that the message names (229)."""

    numbers: ClassVar[frozenset[int]] = frozenset({229})


class QueueNotFound(BrokerError):  # noqa: N818
    """No queue has this name (208)."""

    numbers: ClassVar[frozenset[int]] = frozenset({208})


class QueueDisabledError(BrokerError):
    """The queue is disabled (9617)."""

    numbers: ClassVar[frozenset[int]] = frozenset({9617})


class ServiceNotFound(BrokerError):  # noqa: N818
    """No service of this database has this name (8423)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8423})


class ContractNotFound(BrokerError):  # noqa: N818
    """No contract has this name (8425)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8425})


class MessageTypeNotFound(BrokerError):  # noqa: N818
    """No message type has this name (8428)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8428})


class ConversationNotFound(BrokerError):  # noqa: N818
    """No conversation has this handle: it never existed here, or is over (8426; 8435 in send_all)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8426, 8435})


class ConversationGroupNotFound(BrokerError):  # noqa: N818
    """No conversation group has this id (8436)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8436})


class ConversationGroupMismatch(BrokerError):  # noqa: N818
    """The conversation group belongs to another service (9610; 8439 for a move)."""

    numbers: ClassVar[frozenset[int]] = frozenset({9610, 8439})


class ConversationStateError(BrokerError):
    """The state forbids to end or redrive (8427), to send (8429), to move (8438), to begin a timer (8458)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8427, 8429, 8438, 8458})


class MessageValidationError(BrokerError):
    """The body is not what the message type demands (8430)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8430})


class MessageTypeNotInContract(BrokerError):  # noqa: N818
    """The conversation's contract does not name the message type (8431)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8431})


class DirectionError(BrokerError):
    """Only the other side may send the message type (8432 at the initiator, 8434 at the target)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8432, 8434})


class NullBodyError(BrokerError):
    """The body is NULL, or None in Python; a message without a body is sent by leaving it out (8433)."""

    numbers: ClassVar[frozenset[int]] = frozenset({8433})


_CLASSES: dict[int, type[BrokerError]] = {
    number: error_class for error_class in BrokerError.__subclasses__() for number in error_class.numbers
}


def error_of(number: int, message: str, hint: str | None = None, sqlstate: str | None = None) -> BrokerError:
    """Return the exception of an error number, as an instance of the class that stands for it."""
    return _CLASSES.get(number, BrokerError)(message, number, hint, sqlstate)


def refusal_of(error: psycopg.Error) -> BrokerError | None:
    """Return what a psycopg error is as the broker's refusal; None where it stays what it is."""
    message = error.diag.message_primary or str(error)
    if match := _REFUSAL.fullmatch(error.sqlstate or ""):
        number = int(match[2]) + (_FIRST_OF_FIVE_DIGITS if match[1] == "T" else 0)
        return error_of(number, message, error.diag.message_hint, error.sqlstate)
    if error.sqlstate in _NOT_MIGRATED and error.diag.context is None:
        return NotMigratedError(
            f"The database has no broker of this version: {message}.",
            hint=_MIGRATE,
            sqlstate=error.sqlstate,
        )
    return None


def emptied_error() -> NotMigratedError:
    """Return the error of a database that has the broker's tables without their first rows."""
    return NotMigratedError(
        "The database has the tables of pybroker and none of their rows, as pg_dump --schema-only leaves it.",
        hint=_MIGRATE,
    )


@contextmanager
def broker_errors() -> Iterator[None]:
    """Raise the database's refusals as :class:`BrokerError`, with psycopg's error as the cause."""
    try:
        yield
    except psycopg.Error as error:
        refusal = refusal_of(error)
        if refusal is not None:
            raise refusal from error
        if note := _NOTES.get(error.sqlstate or ""):
            error.add_note(note)
        raise
