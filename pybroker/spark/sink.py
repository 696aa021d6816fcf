"""Writing: each partition of a batch is one transaction, which also notes that it was sent."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from pybroker.message import END_DIALOG_MESSAGE_TYPE
from pybroker.spark.staging import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from pybroker.spark.options import WriteOptions

COLUMNS = ("conversation_handle", "conversation_key", "message_type_name", "message_body")
# Rows that a task holds at a time.
_ROWS = 5_000
# Batches of a query that stay noted: Spark repeats the last one at most.
_NOTED_BATCHES = 100

_DIALOG = """
    select d.conversation_handle
    from pybroker_spark.dialogs d
    join broker.conversation_endpoints e
      on e.conversation_handle = d.conversation_handle and e.state in ('SO', 'CO')
    where (d.from_service, d.to_service, d.contract, d.conversation_key)
      = (%(from)s, %(to)s, %(contract)s, %(key)s)
    """
_NEW_DIALOG = """
    insert into pybroker_spark.dialogs
      (from_service, to_service, contract, conversation_key, conversation_handle)
    select
      %(from)s, %(to)s, %(contract)s, %(key)s,
      broker.begin_dialog(
        %(from)s, %(to)s, %(contract)s, broker_instance => %(broker)s, encryption => %(encryption)s
      )
    on conflict (from_service, to_service, contract, conversation_key)
      do update set conversation_handle = excluded.conversation_handle
    returning conversation_handle
    """


class SinkError(Exception):
    """Rows that can't be sent."""


@dataclass
class Sent(WriterCommitMessage):
    """What a task sent.

    Attributes:
        query: What its batch is counted under.
        messages: How many; 0 if an earlier attempt had.
    """

    query: str
    messages: int


class _Sender:
    """What both kinds of write share; travels to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        names = schema.fieldNames()
        if unknown := [name for name in names if name not in COLUMNS]:
            raise SinkError(f"The sink has no column {unknown[0]}; it takes {', '.join(COLUMNS)}.")
        if options.from_service is None and "conversation_handle" not in names:
            raise SinkError("Give the options from_service and to_service, or a column conversation_handle.")

    def _send(self, query: str, batch: int, rows: Iterator[Row]) -> Sent:
        task = TaskContext.get()
        assert task is not None  # noqa: S101
        with connect(self._options.database_url) as connection, connection.transaction():
            # Before anything is sent: a second attempt waits here for the first to commit or to fail.
            is_new = connection.execute(
                """
                insert into pybroker_spark.written_partitions (query, batch, partition, messages)
                values (%s, %s, %s, 0)
                on conflict do nothing
                """,
                [query, batch, task.partitionId()],
            ).rowcount
            if not is_new:
                return Sent(query, 0)
            sent = 0
            while chunk := list(itertools.islice(rows, _ROWS)):
                self._send_chunk(connection, chunk, f"partition {task.partitionId()}")
                sent += len(chunk)
            connection.execute(
                """
                update pybroker_spark.written_partitions set messages = %s
                where query = %s and batch = %s and partition = %s
                """,
                [sent, query, batch, task.partitionId()],
            )
            return Sent(query, sent)

    def _send_chunk(self, connection: psycopg.Connection[Any], rows: list[Row], default_key: str) -> None:
        conversations: dict[tuple[bool, str], list[tuple[str, bytes]]] = {}
        for row in rows:
            given = row.asDict()
            handle, key = given.get("conversation_handle"), given.get("conversation_key")
            message = (given.get("message_type_name") or self._options.message_type, _body(given))
            conversations.setdefault((handle is not None, handle or key or default_key), []).append(message)
        # In one order: tasks that share conversations wait for each other, and never in a circle.
        for (is_handle, name), messages in sorted(conversations.items(), key=lambda item: item[0]):
            dialog = name if is_handle else self._dialog(connection, name)
            for message_type, run in itertools.groupby(messages, key=lambda message: message[0]):
                if message_type == END_DIALOG_MESSAGE_TYPE:
                    connection.execute("select broker.end_conversation(%s::uuid)", [dialog])
                    continue
                connection.execute(
                    "select broker.send_batch(%s::uuid, %s, %s::bytea[])",
                    [dialog, message_type, [body for _, body in run]],
                )

    def _dialog(self, connection: psycopg.Connection[Any], key: str) -> Any:
        if self._options.from_service is None:
            raise SinkError(
                "A row has no conversation_handle: give it one, or give from_service and to_service."
            )
        names = {
            "from": self._options.from_service,
            "to": self._options.to_service,
            "contract": self._options.contract,
            "broker": self._options.broker_instance,
            "encryption": self._options.encryption,
            "key": key,
        }
        # Two tasks with one key must not begin two dialogs.
        connection.execute(
            """
            select pg_catalog.pg_advisory_xact_lock(
              pg_catalog.hashtextextended(
                pg_catalog.concat_ws(' ', %(from)s::text, %(to)s::text, %(key)s::text), 0
              )
            )
            """,
            names,
        )
        found = (
            connection.execute(_DIALOG, names).fetchone() or connection.execute(_NEW_DIALOG, names).fetchone()
        )
        assert found is not None  # noqa: S101
        return found[0]


class BatchWriter(DataSourceWriter, _Sender):
    """`df.write`: a task that is repeated sends once, so does a batch with the options query and batch."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _Sender.__init__(self, options, schema)
        self._query = options.query or f"batch {uuid.uuid4()}"

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Send a partition."""
        return self._send(self._query, self._options.batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Forget a batch that has no name under which it could be repeated."""
        if self._options.query is None:
            _forget(self._options, self._query, self._options.batch + 1)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what was sent, and the note of it: nothing can call a message back."""


class StreamWriter(DataSourceStreamWriter, _Sender):
    """`df.writeStream`: a batch that Spark repeats sends only the partitions that were not sent."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        _Sender.__init__(self, options, schema)

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Send a partition."""
        task = TaskContext.get()
        assert task is not None  # noqa: S101
        # Spark hands the batch to commit() only, but every task knows it.
        query, batch = (
            task.getLocalProperty("sql.streaming.queryId"),
            task.getLocalProperty("streaming.sql.batchId"),
        )
        if query is None or batch is None:
            raise SinkError("Spark doesn't tell its tasks which batch they write.")
        return self._send(self._options.query or query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Forget batches that Spark never repeats."""
        for query in {message.query for message in messages if isinstance(message, Sent)}:
            _forget(self._options, query, batchId - _NOTED_BATCHES)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave what was sent, and the note of it: the batch is repeated, and finishes what is missing."""


def _forget(options: WriteOptions, query: str, before: int) -> None:
    with connect(options.database_url) as connection:
        connection.execute(
            "delete from pybroker_spark.written_partitions where query = %s and batch < %s", [query, before]
        )


def _body(row: dict[str, Any]) -> bytes:
    body = row.get("message_body")
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    raise SinkError(f"message_body is {type(body).__name__}; give a string or binary column.")
