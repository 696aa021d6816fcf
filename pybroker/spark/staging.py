"""Messages between RECEIVE and Spark's commit: received once, readable until Spark is done with them.

Spark may read a batch again after a task or its driver died, and a message that was received is gone
from its queue. So RECEIVE and the copy into `pybroker_spark.staged_messages` are one transaction, and
only what Spark has committed is deleted. No message passes through the driver.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

import psycopg

from pybroker.connection_string import checked
from pybroker.message import END_DIALOG_MESSAGE_TYPE, ERROR_MESSAGE_TYPE
from pybroker.spark.options import OptionError

if TYPE_CHECKING:
    from pybroker.spark.options import ReadOptions

# Groups in a RECEIVE: many share its cost, few are locked while it runs.
_GROUPS = 100
# Any number will do, if everybody who installs takes the same.
_INSTALLING = 0x70795370

_STAGE = """
    with received as materialized (
      select pg_catalog.row_number() over () as place, m as message
      from broker.receive_groups(%(queue)s, %(groups)s, top => %(top)s) m
    )
    insert into pybroker_spark.staged_messages (reader, position, message)
    select %(reader)s, %(after)s + received.place, received.message from received
    returning (message).message_type_name, (message).conversation_handle
    """


_MAY_STAGE = """
    select pg_catalog.has_schema_privilege('pybroker_spark', 'USAGE') and pg_catalog.bool_and(
      pg_catalog.has_table_privilege(c.oid, privilege)
    )
    from pg_catalog.pg_class c, pg_catalog.unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) as privilege
    where c.relnamespace = 'pybroker_spark'::regnamespace and c.relname in ('staged_messages', 'readers')
    """


class ReaderInUseError(Exception):
    """Another query reads under this name."""


def install(database_url: str) -> None:
    """Create the schema `pybroker_spark` with the data source's tables; nothing happens when it is there.

    Args:
        database_url: A role that may create a schema in this database, which will own the tables.
    """
    with psycopg.connect(checked(database_url)) as connection:
        connection.execute("select pg_catalog.pg_advisory_xact_lock(%s)", [_INSTALLING])
        if not _is_installed(connection):
            connection.execute(resources.files("pybroker.spark").joinpath("staging.sql").read_bytes())


def check_reading(options: ReadOptions) -> None:
    """Refuse what could not be read, before Spark plans anything.

    Raises:
        OptionError: The database can't be reached, has no broker, or the role may not read from the queue.
    """
    try:
        connection = psycopg.connect(options.database_url, autocommit=True, application_name="pybroker spark")
    except psycopg.OperationalError as error:
        raise OptionError(f"database_url: {str(error).strip()}") from None
    with connection:
        if not _value(connection, "select pg_catalog.to_regclass('broker.service_queues') is not null"):
            raise OptionError("database_url: this database has no broker; run pybroker migrate for it")
        may_receive = connection.execute(
            "select exists (select from broker.service_queues where name = %s)", [options.queue]
        ).fetchone()
        if may_receive != (True,):
            raise OptionError(
                f"queue: there is no {options.queue!r} that this role may receive from;"
                f" as its owner select broker.grant('RECEIVE', 'QUEUE', {options.queue!r}, …)"
            )
        if not _is_installed(connection):
            if not _value(
                connection,
                "select pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')",
            ):
                raise OptionError(
                    "database_url: this role may not create the schema pybroker_spark; run"
                    " pybroker.spark.install with one that may, and grant the schema and its tables"
                )
        elif not _value(connection, _MAY_STAGE):
            raise OptionError(
                "database_url: this role needs USAGE on the schema pybroker_spark, and SELECT, INSERT, UPDATE"
                " and DELETE on its tables"
            )


def connect(database_url: str) -> psycopg.Connection[Any]:
    """Open a session in which each statement commits by itself, where the tables are."""
    connection = psycopg.connect(database_url, autocommit=True, application_name="pybroker spark")
    if not _is_installed(connection):
        install(database_url)
    return connection


def finish_batch(database_url: str, reader: str) -> int:
    """Be done with the batch that `spark.read` shows, so that the next read shows the next one.

    Args:
        database_url: Where the queue is.
        reader: The option `reader` of that read, by default the queue's name.

    Returns:
        How many messages the batch had.
    """
    with connect(database_url) as connection, connection.transaction():
        row = connection.execute(
            """
            select staged_position from pybroker_spark.readers where reader = %s and not is_stream for update
            """,
            [reader],
        ).fetchone()
        return 0 if row is None else finish(connection, reader, row[0])


def finish(connection: psycopg.Connection[Any], reader: str, position: int) -> int:
    """Forget what is staged up to this position, and return how many messages that were."""
    with connection.transaction():
        connection.execute(
            """
            update pybroker_spark.readers set finished_position = greatest(finished_position, %s)
            where reader = %s
            """,
            [position, reader],
        )
        return connection.execute(
            "delete from pybroker_spark.staged_messages where reader = %s and position <= %s",
            [reader, position],
        ).rowcount


def hold(connection: psycopg.Connection[Any], reader: str) -> None:
    """Keep others from reading under this name for as long as the session lives.

    Raises:
        ReaderInUseError: Another query does, and went on for half a minute.
    """
    # A driver that was killed leaves its session to the server, which may take a moment to notice.
    connection.execute("set lock_timeout = '30 s'")
    try:
        connection.execute(
            "select pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended('pybroker_spark ' || %s, 0))",
            [reader],
        )
    except psycopg.errors.LockNotAvailable:
        raise ReaderInUseError(
            f"Another query reads as {reader!r}. Stop it, or give this one a name of its own: reader."
        ) from None
    finally:
        connection.execute("reset lock_timeout")


def positions(
    connection: psycopg.Connection[Any], options: ReadOptions, *, is_stream: bool
) -> tuple[int, int]:
    """Return up to where Spark is done, and up to where messages are staged.

    Neither changes until the caller's transaction ends.

    Raises:
        ReaderInUseError: The name belongs to another queue, or to the other kind of read.
    """
    connection.execute(
        """
        insert into pybroker_spark.readers (reader, queue, is_stream) values (%s, %s, %s)
        on conflict do nothing
        """,
        [options.reader, options.queue, is_stream],
    )
    row = connection.execute(
        """
        select finished_position, staged_position, queue, is_stream from pybroker_spark.readers
        where reader = %s for update
        """,
        [options.reader],
    ).fetchone()
    assert row is not None  # noqa: S101
    finished, staged, queue, was_stream = row
    if (queue, was_stream) != (options.queue, is_stream):
        raise ReaderInUseError(
            f"{options.reader!r} names a {'stream' if was_stream else 'batch'} from the queue {queue!r}."
            " Give this read a name of its own with the option reader."
        )
    return finished, staged


def stage(connection: psycopg.Connection[Any], options: ReadOptions, most: int | None) -> int:
    """Receive up to `most` messages, or all that there are; return up to where messages are staged."""
    while True:
        with connection.transaction():
            position = _position_for_update(connection, options.reader)
            first = position
            # A transaction that receives without end would keep what it received from everybody else.
            limit = options.max_messages if most is None else most
            while position - first < limit and (
                received := _receive(connection, options, position, limit - position + first)
            ):
                position += received
            connection.execute(
                "update pybroker_spark.readers set staged_position = %s where reader = %s",
                [position, options.reader],
            )
        # Less than a transaction may take: the queue has been empty.
        if most is not None or position - first < limit:
            return position


def _position_for_update(connection: psycopg.Connection[Any], reader: str) -> int:
    row = connection.execute(
        "select staged_position from pybroker_spark.readers where reader = %s for update", [reader]
    ).fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


def _receive(connection: psycopg.Connection[Any], options: ReadOptions, after: int, most: int) -> int:
    groups = min(_GROUPS, most)
    received = connection.execute(
        _STAGE,
        {
            "queue": options.queue,
            "groups": groups,
            "top": most // groups,
            "reader": options.reader,
            "after": after,
        },
    ).fetchall()
    if options.end_conversations:
        ended = {
            handle
            for message_type, handle in received
            if message_type in {END_DIALOG_MESSAGE_TYPE, ERROR_MESSAGE_TYPE}
        }
        for handle in ended:
            connection.execute("select broker.end_conversation(%s)", [handle])
    return len(received)


def _is_installed(connection: psycopg.Connection[Any]) -> bool:
    # Not by to_regclass, which sees nothing in a schema that the role may not use.
    return _value(
        connection,
        """
        select exists (
          select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
          where n.nspname = 'pybroker_spark' and c.relname = 'dialogs'
        )
        """,
    )


def _value(connection: psycopg.Connection[Any], query: str) -> bool:
    row = connection.execute(query.encode()).fetchone()
    return row is not None and bool(row[0])
