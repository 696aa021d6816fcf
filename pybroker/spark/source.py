"""Reading: what Spark asks of a batch and of a stream, answered from what is staged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from pybroker.spark.options import OptionError
from pybroker.spark.staging import connect, finish, hold, positions, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg
    from pyspark.sql.types import StructType

    from pybroker.spark.options import ReadOptions

try:
    from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 give no limit and take all that there is for AvailableNow.
    ReadMaxRows = None  # type: ignore[assignment,misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]

# Rows that a task holds at a time.
_ROWS = 1_000
# A bigint without its sign.
_LARGEST = 2**63 - 1

# A column of Spark's and what it is in PostgreSQL: names are those of broker.message.
COLUMNS = {
    "position": ("bigint", "s.position"),
    "priority": ("smallint", "(s.message).priority"),
    "queuing_order": ("bigint", "(s.message).queuing_order"),
    "conversation_group_id": ("string", "(s.message).conversation_group_id::text"),
    "conversation_handle": ("string", "(s.message).conversation_handle::text"),
    "message_sequence_number": ("bigint", "(s.message).message_sequence_number"),
    "service_name": ("string", "(s.message).service_name"),
    "service_contract_name": ("string", "(s.message).service_contract_name"),
    "message_type_name": ("string", "(s.message).message_type_name"),
    "message_body": ("binary", "(s.message).message_body"),
    "message_id": ("string", "(s.message).message_id::text"),
    "message_enqueue_time": ("timestamp", "(s.message).message_enqueue_time"),
}
SCHEMA = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())

_ARROW = {
    "bigint": pa.int64(),
    "smallint": pa.int16(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class Slice(InputPartition):
    """The conversation groups of a batch that one task reads.

    Attributes:
        after: The batch begins after this position.
        until: The batch's last position.
        number: Which of the batch's parts this is, from 0.
        of: Into how many the batch is split.
    """

    def __init__(self, after: int, until: int, number: int, of: int) -> None:
        super().__init__((after, until, number, of))
        self.after = after
        self.until = until
        self.number = number
        self.of = of


def _slices(after: int, until: int, of: int) -> Sequence[Slice]:
    return [Slice(after, until, number, of) for number in range(of)] if until > after else []


class _StagedMessages:
    """What both kinds of read share; travels to the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._columns = [name for name in schema.fieldNames() if name in COLUMNS]
        if unknown := [name for name in schema.fieldNames() if name not in COLUMNS]:
            raise OptionError(f"schema: a message has no column {unknown[0]}; it has {', '.join(COLUMNS)}")
        for field in schema.fields:
            kind = field.dataType.simpleString()
            if kind != COLUMNS[field.name][0]:
                raise OptionError(
                    f"schema: {field.name} is {COLUMNS[field.name][0]}, not {kind};"
                    " read it so, and cast it afterwards"
                )

    def _read(self, part: Slice) -> Iterator[pa.RecordBatch]:
        """Yield the slice's messages in the order in which they were received."""
        fields = pa.schema([(name, _ARROW[COLUMNS[name][0]]) for name in self._columns])
        query = f"""
            select {", ".join(COLUMNS[name][1] for name in self._columns)}
            from pybroker_spark.staged_messages s
            where s.reader = %s and s.position > %s and s.position <= %s
              and pg_catalog.mod(
                pg_catalog.hashtextextended((s.message).conversation_group_id::text, 0) & %s, %s
              ) = %s
            order by s.position
            """  # noqa: S608
        with connect(self._options.database_url) as connection, connection.transaction():
            cursor = connection.cursor(name="slice", binary=True)
            cursor.execute(
                query.encode(), [self._options.reader, part.after, part.until, _LARGEST, part.of, part.number]
            )
            while rows := cursor.fetchmany(_ROWS):
                columns = list(zip(*rows, strict=True))
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)],
                    schema=fields,
                )


class BatchReader(DataSourceReader, _StagedMessages):
    """`spark.read`: a batch stays what it is, however often it is looked at, until `finish_batch`."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        _StagedMessages.__init__(self, options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Receive a batch unless one is still open, and split it."""
        with connect(self._options.database_url) as connection, connection.transaction():
            finished, staged = positions(connection, self._options, is_stream=False)
            if staged == finished:
                staged = stage(connection, self._options, self._options.max_messages)
            # Spark would make a partition of its own of none.
            return _slices(finished, staged, self._options.partitions) or [Slice(staged, staged, 0, 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a slice, in order."""
        assert isinstance(partition, Slice)  # noqa: S101
        return self._read(partition)


class StreamReader(DataSourceStreamReader, _StagedMessages, SupportsTriggerAvailableNow):
    """`spark.readStream`: what lies between two offsets never changes, nor how it is split.

    An offset is a position and, at the end of a batch, in how many partitions the batch is read. A sink
    notes by partition what it has sent, so a batch that came again in others would lose and double messages.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        _StagedMessages.__init__(self, options, schema)
        self._connection: psycopg.Connection[Any] | None = None
        self._last: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, and a session can't travel.
        return {**self.__dict__, "_connection": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Begin where Spark was done: what a lost checkpoint knew of is read again."""
        return {"position": self._positions()[0]}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the option max_messages."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Receive what there is now, after which there is nothing new."""
        self._positions()
        self._last = stage(self._session(), self._options, None)

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        """Receive what is still missing from a batch of the limit's size."""
        _, staged = self._positions()
        begun = staged if start is None else int(start["position"])
        most = getattr(limit, "max_rows", self._options.max_messages if start is None else None)
        if self._last is None and (most is None or staged - begun < most):
            staged = stage(
                self._session(), self._options, None if most is None else most - max(staged - begun, 0)
            )
        end = staged if self._last is None else self._last
        position = max(begun, end if most is None else min(end, begun + most))
        # Spark begins a batch for whatever differs from the start.
        if start is not None and position == begun:
            return start
        return {"position": position, "partitions": self._options.partitions}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Split what lies between two offsets."""
        # An earlier version's checkpoint doesn't say it.
        of = end.get("partitions", self._options.partitions)
        return _slices(start["position"], end["position"], of)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a slice, in order."""
        assert isinstance(partition, Slice)  # noqa: S101
        return self._read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Forget what Spark is done with."""
        finish(self._session(), self._options.reader, end["position"])

    def stop(self) -> None:
        """Let another query read under this name."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _positions(self) -> tuple[int, int]:
        return positions(self._session(), self._options, is_stream=True)

    def _session(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.broken:
            self._connection = connect(self._options.database_url)
            hold(self._connection, self._options.reader)
        return self._connection
