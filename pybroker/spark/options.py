"""The options of the data source, checked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import psycopg

from pybroker.connection_string import checked

if TYPE_CHECKING:
    from collections.abc import Mapping


class OptionError(ValueError):
    """An option is missing or cannot be used."""


class ReadOptions(msgspec.Struct, frozen=True):
    """What to read.

    Attributes:
        database_url: Where the queue is.
        queue: Its name.
        reader: Under which name received messages are remembered until Spark is done with them.
        max_messages: Messages that a batch receives at most.
        partitions: Into how many parts a batch is split; a conversation group is in one.
        end_conversations: Whether a conversation is ended here when EndDialog or Error arrives.
    """

    database_url: str
    queue: str
    reader: str
    max_messages: int
    partitions: int
    end_conversations: bool


class WriteOptions(msgspec.Struct, frozen=True):
    """How to send.

    Attributes:
        database_url: Where the sending service is.
        from_service: The service that begins dialogs; None where every row names a conversation_handle.
        to_service: The service that they go to.
        broker_instance: The broker that has it; None is whichever the routes lead to.
        contract: The dialogs' contract.
        message_type: The type of rows that don't name one.
        encryption: Whether the dialogs must be encrypted when they leave the worker.
        query: What batches are counted under; None is the streaming query's id, or a new one for each.
        batch: The number of a batch of `query`.
    """

    database_url: str
    from_service: str | None
    to_service: str | None
    broker_instance: str | None
    contract: str
    message_type: str
    encryption: bool
    query: str | None
    batch: int


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read.

    Raises:
        OptionError: One is missing, unknown or no such value.
    """
    _check_names(given, ReadOptions)
    queue = _required(given, "queue")
    return ReadOptions(
        database_url=_database_url(given),
        queue=queue,
        reader=given.get("reader", queue),
        max_messages=_number(given, "max_messages", 10_000, least=1),
        partitions=_number(given, "partitions", 8, least=1),
        end_conversations=_truth(given, "end_conversations", default=True),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write.

    Raises:
        OptionError: One is missing, unknown or no such value.
    """
    _check_names(given, WriteOptions)
    from_service, to_service = given.get("from_service"), given.get("to_service")
    if (from_service is None) != (to_service is None):
        raise OptionError("from_service and to_service go together")
    return WriteOptions(
        database_url=_database_url(given),
        from_service=from_service,
        to_service=to_service,
        broker_instance=given.get("broker_instance"),
        contract=given.get("contract", "DEFAULT"),
        message_type=given.get("message_type", "DEFAULT"),
        encryption=_truth(given, "encryption", default=True),
        query=given.get("query"),
        batch=_number(given, "batch", 0, least=0),
    )


def _check_names(given: Mapping[str, str], known: type[msgspec.Struct]) -> None:
    # Spark adds some of its own, such as the checkpoint's path and the output mode.
    spark_s_own = {"path", "checkpointlocation", "outputmode", "queryname"}
    names = known.__struct_fields__
    if unknown := sorted({name.lower() for name in given} - set(names) - spark_s_own):
        raise OptionError(f"pybroker has no option {unknown[0]}; it has {', '.join(names)}")


def _database_url(given: Mapping[str, str]) -> str:
    found = given.get("database_url") or os.environ.get("PYBROKER_DATABASE_URL")
    if not found:
        raise OptionError(
            "give the option database_url, or set PYBROKER_DATABASE_URL where Spark's driver runs"
        )
    try:
        return checked(found)
    except psycopg.ProgrammingError as error:
        raise OptionError(f"database_url: {error}") from None


def _required(given: Mapping[str, str], name: str) -> str:
    found = given.get(name)
    if not found:
        raise OptionError(f"give the option {name}")
    return found


def _number(given: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = given.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise OptionError(f"{name} is {text!r}; give a whole number, {least} or more")
    return int(text)


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise OptionError(f"{name} is {text!r}; give true or false")
    return text == "true"
