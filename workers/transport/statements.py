"""The functions of `broker_private` that transport calls, each as one coroutine.

The arrays of a batch stay the bytes that PostgreSQL wrote. Loader and dumper for that are registered on
single cursors, so whoever else uses the connection sees lists as always.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.rows import args_row, class_row, scalar_row, tuple_row

from pybroker.workers.transport.protocol import arrays
from pybroker.workers.transport.protocol.rows import (
    Delivered,
    Described,
    Destination,
    DialogsToAsk,
    Endpoint,
    KnownCertificate,
    Securities,
    Taken,
    TakenPiece,
    TakenPlainly,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection, AsyncCursor
    from psycopg.rows import AsyncRowFactory
    from psycopg.types.json import Jsonb

    from pybroker.workers.transport.protocol.wire import Batch, Fragment, Traceparent
    from pybroker.workers.transport.traces import Arrived

Row = TypeVar("Row")

# The columns of a batch, arrays of boolean, bytea, integer, text, bigint, timestamptz, uuid; and a record.
_ARRAY_TYPES = (1000, 1001, 1007, 1009, 1016, 1185, 2951, 2249)

_DESTINATION = (
    "destination_no, service_name, broker_instance, address, mirror_address, is_local, broker_instances,"
    " is_reply, is_missing, problem, has_status, is_stranded"
)
# A database of an older version doesn't say which are for new dialogs: all are.
_CERTIFICATE = (
    "k.name, k.user_name, k.certificate_pem, k.may_connect,"
    " coalesce((pg_catalog.to_jsonb(k) ->> 'is_active_for_begin_dialog')::boolean, true)"
    " as is_active_for_begin_dialog"
)
_TAKEN = (
    "endpoint_nos, conversation_ids, from_initiator, from_services, to_services, to_brokers, contracts,"
    " expirations, encrypted, type_names, dialog_index, type_index, sequence_numbers, kinds, bodies, row_ids,"
    " owners, far_users, bindings, established, session_keys, acknowledged, sent_at, level"
)
_DELIVERED = (
    "%b::uuid, %b::uuid[], %b::boolean[], %b::text[], %b::text[], %b::uuid[], %b::text[], %b::timestamptz[],"
    " %b::boolean[], %b::text[], %b::integer[], %b::integer[], %b::bigint[], %b::text, %b::bytea[]"
)
_SECURITIES = "%b::text[], %b::text[], %b::bytea[]"
_HISTORY = "%b::bigint[], %b::timestamptz[]"


_TAKE = (
    "broker_private.take(%b::integer, %b::integer, %b::integer, %b::integer, %b::bigint, %b, %b::bigint,"
    " %b::boolean, %b::bigint[], %b::bigint[], %b::bigint[])"
)
# Workers and databases are not upgraded in one moment, so a session asks once.
_known: WeakKeyDictionary[AsyncConnection[Any], dict[str, bool]] = WeakKeyDictionary()
_TRANSMISSION_WORK = "broker_private.transmission_work(integer[])"
_DESCRIBE = "broker_private.describe_dialogs(bigint[], integer[])"
_DELIVER_PLAIN = (
    "broker_private.deliver_plain(uuid, uuid[], boolean[], uuid[], text[], integer[], integer[], bigint[],"
    " bytea[], text[], text[], bytea[], bigint[], timestamp with time zone[])"
)
_DESCRIBED = tuple(field.name for field in fields(Described))


@dataclass(frozen=True, slots=True)
class Binary:
    """Marks a parameter as a value in PostgreSQL's binary format; a plain bytes would be a bytea."""

    content: bytes


class _ArrayLoader(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _BinaryDumper(Dumper):
    # No type is named: the casts and the functions' signatures say it.
    format = Format.BINARY

    def dump(self, obj: Binary) -> Buffer:
        return obj.content


async def endpoint_and_certificates(
    connection: AsyncConnection[Any],
) -> tuple[Endpoint | None, list[KnownCertificate]]:
    """Return the endpoint of this home database, and every certificate that it knows.

    Both are looked at every few seconds for ever, so they share a statement.
    """
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"select (select pg_catalog.jsonb_agg(pg_catalog.to_jsonb(c)) from (select {_CERTIFICATE}"  # noqa: S608
            " from broker_private.worker_certificates() k) c),"
            " e.name, e.state, e.listener_ip, e.listener_port, e.certificate_name, e.certificate_pem,"
            " e.encryption, e.is_message_forwarding_enabled, e.message_forwarding_size"
            " from (select) o left join broker_private.worker_endpoint() e on true"
        )
        known, *columns = await anext(cursor)
    certificates = [KnownCertificate(**row) for row in known or ()]
    return (None if columns[0] is None else Endpoint(*columns)), certificates


async def certificates(connection: AsyncConnection[Any]) -> list[KnownCertificate]:
    """Return every certificate that this home database knows."""
    async with connection.cursor(row_factory=class_row(KnownCertificate)) as cursor:
        await cursor.execute(
            f"select {_CERTIFICATE} from broker_private.worker_certificates() k"  # noqa: S608
        )
        return await cursor.fetchall()


async def note_connections(connection: AsyncConnection[Any], worker: UUID, connections: Jsonb) -> None:
    """Say which connections a worker has, with the columns of `broker_private.connections`."""
    await connection.execute("select broker_private.note_connections(%s, %s)", (worker, connections))


async def note_forwarded_messages(connection: AsyncConnection[Any], worker: UUID, messages: Jsonb) -> None:
    """Say which messages a worker passes on, with the columns of `broker_private.forwarded_messages`."""
    await connection.execute("select broker_private.note_forwarded_messages(%s, %s)", (worker, messages))


async def transmission_work(
    connection: AsyncConnection[Any], running: Sequence[int] = ()
) -> list[Destination]:
    """Return the next destinations that messages wait for, and those that are being sent to."""
    select = f"select {_DESTINATION} from broker_private.transmission_work"  # noqa: S608
    async with connection.cursor(row_factory=class_row(Destination)) as cursor:
        if await _has(connection, _TRANSMISSION_WORK):
            await cursor.execute(f"{select}(%s::integer[])", (list(running),))
        else:
            # The database is not upgraded yet, and returns all of them.
            await cursor.execute(f"{select}()")
        return await cursor.fetchall()


async def dialogs_to_ask(connection: AsyncConnection[Any], after: int, most: int) -> list[DialogsToAsk]:
    """Return the next open dialogs behind an endpoint, those of at most so many endpoints."""
    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(
            f"select {_DESTINATION}, endpoint_nos"  # noqa: S608
            " from broker_private.dialogs_to_ask(%s::bigint, %s::integer)",
            (after, most),
        )
        return [DialogsToAsk(Destination(*columns), dialogs) for *columns, dialogs in await cursor.fetchall()]


async def ask(connection: AsyncConnection[Any], endpoint_nos: Sequence[int]) -> Taken | None:
    """Return a question on each of these dialogs, or None if all of them have ended."""
    async with await _array_cursor(connection, args_row(Taken)) as cursor:
        await cursor.execute(
            f"select {_TAKEN} from broker_private.ask(%b)",  # noqa: S608
            (Binary(arrays.from_integers(endpoint_nos, arrays.BIGINT)),),
        )
        return await cursor.fetchone()


async def broker_instance(connection: AsyncConnection[Any]) -> UUID:
    """Return the database's guid.

    Exact after `take` or `deliver` in the same transaction: NEW_BROKER waits for those.
    """
    async with connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute("select service_broker_guid from broker.databases")
        guid: UUID = await anext(cursor)
        return guid


async def take_plain(
    connection: AsyncConnection[Any],
    destination: int,
    lane: tuple[int, int],
    limits: tuple[int, int, int],
) -> TakenPlainly | None:
    """Return the next batch, without `kinds` if nothing waits; None if something in it is odd."""
    if not await _is_new(connection):
        return None
    async with await _array_cursor(connection, scalar_row) as cursor:
        await cursor.execute(
            "select broker_private.take_plain(%b::integer, %b::integer, %b::integer, %b::integer, %b::bigint,"
            " %b::bigint)",
            (destination, *lane, *limits),
        )
        record: bytes = await anext(cursor)
    is_plain, from_broker, incarnation, level, kinds, *columns = arrays.to_fields(record)
    if is_plain != b"\1" or from_broker is None or incarnation is None:
        return None
    return TakenPlainly(
        UUID(bytes=from_broker),
        incarnation.decode(),
        None if level is None else int.from_bytes(level, "big"),
        "" if kinds is None else kinds.decode(),
        *(column or b"" for column in columns),
    )


async def describe_dialogs(
    connection: AsyncConnection[Any], endpoint_nos: Sequence[int], type_ids: Sequence[int]
) -> Described:
    """Return what a batch says of these dialogs, and the names of these message types."""
    async with await _array_cursor(connection, args_row(Described)) as cursor:
        await cursor.execute(
            f"select {', '.join(_DESCRIBED)} from broker_private.describe_dialogs(%b, %b)",  # noqa: S608
            (
                Binary(arrays.from_integers(endpoint_nos, arrays.BIGINT)),
                Binary(arrays.from_integers(type_ids, arrays.INTEGER)),
            ),
        )
        return await anext(cursor)


async def take_small(
    connection: AsyncConnection[Any],
    destination: int,
    lane: tuple[int, int],
    limits: tuple[int, int, int],
    paused: list[int],
    *,
    by_age: bool = False,
    in_flight: tuple[list[int], list[int], list[int]] = ([], [], []),
) -> tuple[Taken | None, dict[int, int]]:
    """Return what `take` does without bodies larger than the last limit, and the dialogs that have one.

    Those come with their priorities, the oldest message's first, and are for `take_piece`; what precedes a
    large message on its dialog is in the batch. `by_age`: the oldest messages, whatever their priority.
    `in_flight`: endpoints with the last row of each that is on its way, and the number that follows.
    """
    async with await _array_cursor(connection, tuple_row) as cursor:
        await cursor.execute(
            f"select {_TAKEN}, large_endpoint_nos, large_levels from {_TAKE}",  # noqa: S608
            (
                destination,
                *lane,
                *limits[:2],
                Binary(arrays.from_integers(paused, arrays.BIGINT)),
                limits[2],
                by_age,
                *(Binary(arrays.from_integers(column, arrays.BIGINT)) for column in in_flight),
            ),
        )
        row = await cursor.fetchone()
    if row is None:
        return None, {}
    *columns, large, priorities = row
    numbers = arrays.to_integers(large, arrays.BIGINT) if large else []
    levels = arrays.to_integers(priorities, arrays.INTEGER) if priorities else []
    # They may be all that the row has.
    taken = None if columns[0] is None else Taken(*columns)
    return taken, dict(zip(numbers, levels, strict=True))


async def _is_new(connection: AsyncConnection[Any]) -> bool:
    """Return whether the database has the functions for what is plain."""
    return await _has(connection, _DESCRIBE)


async def _has(connection: AsyncConnection[Any], function: str) -> bool:
    """Return whether the database had a function when this session first asked."""
    known = _known.setdefault(connection, {})
    if function not in known:
        found = await connection.execute("select pg_catalog.to_regprocedure(%s) is not null", (function,))
        known[function] = bool((await found.fetchone() or (False,))[0])
    return known[function]


async def take_piece(
    connection: AsyncConnection[Any],
    destination: int,
    endpoint: int,
    stored: tuple[int, int],
    piece_bytes: int,
) -> TakenPiece | None:
    """Return the oldest message of a dialog with a piece of its body, or None if it can't be sent now.

    `stored` is a message's number, and how many bytes of it the far broker has.
    """
    async with await _array_cursor(connection, tuple_row) as cursor:
        await cursor.execute(
            f"select {_TAKEN}, piece_at, total_bytes from broker_private.take_piece("  # noqa: S608
            "%b::integer, %b::bigint, %b::bigint, %b::bigint, %b::integer)",
            (destination, endpoint, *stored, piece_bytes),
        )
        row = await cursor.fetchone()
    if row is None:
        return None
    *columns, piece_at, total_bytes = row
    return TakenPiece(Taken(*columns), piece_at, total_bytes)


async def deliver_piece(
    connection: AsyncConnection[Any], fragment: Fragment, securities: Securities
) -> Delivered:
    """Store a piece of a message, and the message with its last piece."""
    async with await _array_cursor(connection, args_row(Delivered)) as cursor:
        await cursor.execute(
            "select next_numbers, fault_codes, fault_texts, fault_is_final, stored_bytes"  # noqa: S608
            f" from broker_private.deliver_piece({_DELIVERED}, %b::bigint, %b::bigint,"
            f" {_SECURITIES}, {_HISTORY})",
            (
                *_delivery(fragment),
                fragment.piece_at,
                fragment.total_bytes,
                *_securities(securities),
                *_history(fragment),
            ),
        )
        return await anext(cursor)


async def deliver(connection: AsyncConnection[Any], batch: Batch, securities: Securities) -> Delivered:
    """Store a batch."""
    whole = "deliver"
    if batch.acknowledged and batch.sent_at and not batch.kinds.strip("M") and await _is_new(connection):
        if len(batch.kinds) == 1:
            delivered = await _deliver_one(connection, batch, securities)
        elif await _has(connection, _DELIVER_PLAIN):
            delivered = await _deliver_plain(connection, batch, securities)
            whole = "deliver_fully"
        else:
            delivered = None
        if delivered is not None:
            return delivered
    async with await _array_cursor(connection, args_row(Delivered)) as cursor:
        await cursor.execute(
            "select next_numbers, fault_codes, fault_texts, fault_is_final"  # noqa: S608
            f" from broker_private.{whole}({_DELIVERED}, {_SECURITIES}, {_HISTORY})",
            (*_delivery(batch), *_securities(securities), *_history(batch)),
        )
        return await anext(cursor)


async def _deliver_one(
    connection: AsyncConnection[Any], batch: Batch, securities: Securities
) -> Delivered | None:
    """Store a batch of one message; return None, with nothing stored, if it is odd, and `deliver`'s."""
    columns = (
        (batch.conversation_ids, arrays.UUID),
        (batch.from_initiator, arrays.BOOLEAN),
        (batch.to_brokers, arrays.UUID),
        (batch.type_names, arrays.TEXT),
        (batch.sequence_numbers, arrays.BIGINT),
        (batch.bodies, arrays.BYTEA),
        (securities.kinds, arrays.TEXT),
        (securities.far_users, arrays.TEXT),
        (securities.session_keys, arrays.BYTEA),
        (batch.acknowledged, arrays.BIGINT),
        (batch.sent_at, arrays.TIMESTAMPTZ),
    )
    values: list[Binary | None] = []
    for column, element_type in columns:
        elements = arrays.to_elements(column, element_type)
        if len(elements) != 1:
            return None
        values.append(None if elements[0] is None else Binary(elements[0]))
    async with await _array_cursor(connection, scalar_row) as cursor:
        await cursor.execute(
            "select broker_private.deliver_one(%b::uuid, %b::uuid, %b::boolean, %b::uuid, %b::text,"
            " %b::bigint, %b::bytea, %b::text, %b::text, %b::bytea, %b::bigint, %b::timestamptz)",
            (UUID(bytes=batch.from_broker), *values),
        )
        next_number: int | None = await anext(cursor)
    if next_number is None:
        return None
    return Delivered(arrays.from_integers([next_number], arrays.BIGINT), *_no_faults(1))


@lru_cache(maxsize=64)
def _no_faults(dialogs: int) -> tuple[bytes, bytes, bytes]:
    """Return columns without a code and a text, so that nothing is final."""
    return (
        arrays.from_elements([None] * dialogs, arrays.INTEGER),
        arrays.from_texts([None] * dialogs),
        arrays.from_elements([b"\0"] * dialogs, arrays.BOOLEAN),
    )


async def _deliver_plain(
    connection: AsyncConnection[Any], batch: Batch, securities: Securities
) -> Delivered | None:
    """Store a batch; return None, with nothing stored, if anything in it is odd."""
    async with await _array_cursor(connection, scalar_row) as cursor:
        await cursor.execute(
            "select broker_private.deliver_plain(%b::uuid, %b::uuid[], %b::boolean[], %b::uuid[], %b::text[],"
            f" %b::integer[], %b::integer[], %b::bigint[], %b::bytea[], {_SECURITIES}, {_HISTORY})",
            (
                UUID(bytes=batch.from_broker),
                *map(
                    Binary,
                    (
                        batch.conversation_ids,
                        batch.from_initiator,
                        batch.to_brokers,
                        batch.type_names,
                        batch.dialog_index,
                        batch.type_index,
                        batch.sequence_numbers,
                        batch.bodies,
                    ),
                ),
                *_securities(securities),
                *_history(batch),
            ),
        )
        next_numbers: bytes | None = await anext(cursor)
    if next_numbers is None:
        return None
    dialogs = arrays.element_count(next_numbers, arrays.BIGINT)
    return Delivered(next_numbers, *_no_faults(dialogs))


def _delivery(batch: Batch) -> tuple[object, ...]:
    return (
        UUID(bytes=batch.from_broker),
        *map(
            Binary,
            (
                batch.conversation_ids,
                batch.from_initiator,
                batch.from_services,
                batch.to_services,
                batch.to_brokers,
                batch.contracts,
                batch.expirations,
                batch.encrypted,
                batch.type_names,
                batch.dialog_index,
                batch.type_index,
                batch.sequence_numbers,
            ),
        ),
        batch.kinds,
        Binary(batch.bodies),
    )


def _securities(securities: Securities) -> tuple[Binary, ...]:
    return tuple(map(Binary, (securities.kinds, securities.far_users, securities.session_keys)))


def _history(batch: Batch) -> tuple[Binary | None, ...]:
    return tuple(Binary(column) if column else None for column in (batch.acknowledged, batch.sent_at))


async def note_dialog_security(
    connection: AsyncConnection[Any],
    endpoint_nos: list[int],
    kinds: list[str],
    session_keys: list[bytes | None],
) -> None:
    """Pin how dialogs are secured that go over the network for the first time."""
    await connection.execute(
        "select broker_private.note_dialog_security(%s::bigint[], %s::text[], %s::bytea[])",
        (endpoint_nos, kinds, session_keys),
    )


async def traceparents_to_send(
    connection: AsyncConnection[Any], endpoint_nos: list[int], row_ids: list[int]
) -> list[Traceparent]:
    """Return the trace contexts of messages, given by endpoint and row; of most there is none."""
    cursor = await connection.execute(
        "select places, traceparents from broker_private.traceparents_to_send(%s::bigint[], %s::bigint[])",
        (endpoint_nos, row_ids),
    )
    places, traceparents = await anext(cursor)
    return sorted(zip(places or (), traceparents or (), strict=True))


async def forget_traceparents(
    connection: AsyncConnection[Any], endpoint_nos: list[int], row_ids: list[int]
) -> None:
    """Forget the trace contexts of messages that the far broker has stored."""
    await connection.execute(
        "select broker_private.forget_traceparents(%s::bigint[], %s::bigint[])", (endpoint_nos, row_ids)
    )


async def note_arrived_traceparents(
    connection: AsyncConnection[Any], arrived: Sequence[Arrived], messages: int
) -> None:
    """Note the trace contexts of some of the messages that were stored in the same transaction."""
    await connection.execute(
        "select broker_private.note_arrived_traceparents("
        "%s::uuid[], %s::boolean[], %s::bigint[], %s::text[], %s::integer)",
        (
            [UUID(bytes=one.conversation_id) for one in arrived],
            [one.from_initiator for one in arrived],
            [one.sequence_number for one in arrived],
            # The database takes no text with a NUL in it.
            [one.traceparent.replace("\0", "") for one in arrived],
            messages,
        ),
    )


async def acknowledge_plain(
    connection: AsyncConnection[Any], taken: Taken, next_numbers: Sequence[int], row_ids: Sequence[int]
) -> int | None:
    """Do it where nothing is odd; if something is, change nothing and return None."""
    if not await _is_new(connection):
        return None
    numbers = arrays.to_integers(taken.acknowledged, arrays.BIGINT)
    async with await _array_cursor(connection, scalar_row) as cursor:
        if len(row_ids) == 1:
            await cursor.execute(
                "select broker_private.acknowledge_one(%b::bigint, %b::bigint, %b::bigint, %b::bigint)",
                (*arrays.to_integers(taken.endpoint_nos, arrays.BIGINT), *numbers, *next_numbers, *row_ids),
            )
        else:
            await cursor.execute(
                "select broker_private.acknowledge_plain(%b::bigint[], %b::bigint[], %b::bigint[],"
                " %b::bigint[], %b::bigint, %b::integer)",
                (
                    *map(Binary, (taken.endpoint_nos, taken.acknowledged)),
                    *(
                        Binary(arrays.from_integers(column, arrays.BIGINT))
                        for column in (next_numbers, row_ids)
                    ),
                    max(row_ids),
                    sum(next_numbers) - sum(numbers),
                ),
            )
        removed: int | None = await anext(cursor)
        return removed


async def acknowledge(
    connection: AsyncConnection[Any],
    far_broker: UUID,
    endpoint_nos: Sequence[int],
    next_numbers: Sequence[int],
    row_ids: Sequence[int],
) -> int:
    """Forget what the far broker has stored; return the number of rows removed."""
    columns = (Binary(arrays.from_integers(c, arrays.BIGINT)) for c in (endpoint_nos, next_numbers, row_ids))
    async with await _array_cursor(connection, scalar_row) as cursor:
        await cursor.execute(
            "select broker_private.acknowledge(%b::uuid, %b::bigint[], %b::bigint[], %b::bigint[])",
            (far_broker, *columns),
        )
        return int(await anext(cursor))


async def fail_dialogs(
    connection: AsyncConnection[Any], endpoint_nos: list[int], codes: list[int], descriptions: list[str]
) -> None:
    """Put an Error message into the queues of dialogs that the far broker refused for good."""
    await connection.execute(
        "select broker_private.fail_dialogs(%s::bigint[], %s::integer[], %s::text[])",
        (endpoint_nos, codes, descriptions),
    )


async def fail_torn_dialogs(
    connection: AsyncConnection[Any], endpoint_nos: list[int], next_numbers: list[int]
) -> list[int]:
    """End the dialogs on which the far broker has taken more than was ever sent; return their endpoints."""
    cursor = await connection.execute(
        "select broker_private.fail_torn_dialogs(%s::bigint[], %s::bigint[])", (endpoint_nos, next_numbers)
    )
    (torn,) = await anext(cursor)
    return list(torn)


async def set_dialog_statuses(
    connection: AsyncConnection[Any], endpoint_nos: list[int], texts: list[str]
) -> None:
    """Say why the messages of these dialogs wait."""
    await connection.execute(
        "select broker_private.set_dialog_statuses(%s::bigint[], %s::text[])", (endpoint_nos, texts)
    )


async def hold_unbound(connection: AsyncConnection[Any], endpoint_nos: list[int]) -> None:
    """Say that these dialogs wait for a remote service binding, and ask for one where that is possible."""
    await connection.execute("select broker_private.hold_unbound(%s::bigint[])", (endpoint_nos,))


async def set_destination_status(
    connection: AsyncConnection[Any], destination: int, text: str | None
) -> None:
    """Say why everything for a destination waits; None when it no longer does."""
    await connection.execute(
        "select broker_private.set_destination_status(%s::integer, %s::text)", (destination, text)
    )


async def spread_dialogs(
    connection: AsyncConnection[Any], destination: int, brokers: Sequence[UUID] | None
) -> tuple[int, int]:
    """Give the dialogs that wait for a destination to one broker each.

    Returns how many were given, and how many can't be, as they went somewhere already.
    """
    cursor = await connection.execute(
        "select moved, stays from broker_private.spread_dialogs(%s::integer, %s::uuid[])",
        (destination, None if brokers is None else list(brokers)),
    )
    moved, stays = await anext(cursor)
    return moved, stays


async def request_route(connection: AsyncConnection[Any], service_name: str) -> None:
    """Ask the dynamic routing service for a route, or note its answer."""
    await connection.execute("select broker_private.request_route(%s::text)", (service_name,))


async def route_from_outside(
    connection: AsyncConnection[Any], service_name: str, broker: UUID | None
) -> tuple[str, ...]:
    """Return where a worker takes what comes from outside, by the routes of this home database.

    One address, or one and its mirror's, or none.
    """
    cursor = await connection.execute(
        "select address, mirror_address from broker_private.route_from_outside(%s::text, %s::uuid)",
        (service_name, broker),
    )
    return tuple(address for address in await anext(cursor) if address is not None)


async def has_service(connection: AsyncConnection[Any], service_name: str) -> bool:
    """Return whether the database has a service of that name."""
    cursor = await connection.execute("select from broker.services where name = %s", (service_name,))
    return await cursor.fetchone() is not None


async def deliver_local(connection: AsyncConnection[Any]) -> int:
    """Move what waits for queues of this database; return the number of messages moved."""
    async with connection.cursor(row_factory=scalar_row) as cursor:
        await cursor.execute("select broker_private.deliver_local()")
        return int(await anext(cursor))


async def _array_cursor(
    connection: AsyncConnection[Any], row_factory: AsyncRowFactory[Row]
) -> AsyncCursor[Row]:
    # Texts inside of arrays are never decoded here, so both ends have to mean UTF-8 by their bytes.
    if connection.info.encoding != "utf-8":
        await connection.execute("set client_encoding to 'UTF8'")
    cursor = connection.cursor(binary=True, row_factory=row_factory)
    cursor.adapters.register_dumper(Binary, _BinaryDumper)
    for array_type in _ARRAY_TYPES:
        cursor.adapters.register_loader(array_type, _ArrayLoader)
    return cursor
