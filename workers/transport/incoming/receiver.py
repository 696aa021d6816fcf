"""Stores what other brokers send: a batch, one transaction, an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
import psycopg
import structlog

from pybroker.workers.transport import statements, traces
from pybroker.workers.transport.connection.refusals import Refusals
from pybroker.workers.transport.incoming.dispatcher import Dispatcher
from pybroker.workers.transport.protocol import arrays, envelope, faults, slices, wire
from pybroker.workers.transport.protocol.faults import TransportError, line_of, number_of, trace_of
from pybroker.workers.transport.protocol.rows import Securities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.connection.link import Link
    from pybroker.workers.transport.dialog_security.opening import Opened
    from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
    from pybroker.workers.transport.incoming.forwarder import Forwarder
    from pybroker.workers.transport.protocol.rows import Delivered

# Seconds for which a route is remembered, and how many are.
_REMEMBERED = 1.0
_MOST_REMEMBERED = 10_000
_LOCAL = ("LOCAL",)
# The classes of SQLSTATE that say of a server that it is not there.
_AWAY = ("08", "57")
# The security of a dialog that comes from a database of the same worker.
_SIBLING = "L"
# What no user is called: with the broker's number, a database of the same worker as a peer.
_SIBLING_PEER = b"\0"

logger: FilteringBoundLogger = structlog.get_logger()


class Receiver:
    """Takes batches from far workers and delivers them into the databases of this worker."""

    def __init__(
        self,
        databases: Sequence[Database],
        dialogs: SecureDialogs,
        forwarder: Forwarder,
        clock: Clock,
        far_restarted: Callable[[Database], None] = lambda _: None,
        *,
        traces: bool = False,
    ) -> None:
        """Prepare.

        Args:
            databases: all that the worker serves; the first is its home, which has its routes.
            dialogs: opens what far brokers have sealed.
            forwarder: passes on what is for another worker.
            clock: says how long a route is remembered.
            far_restarted: hears of a database which a far one has asked that may have gone back.
            traces: whether the trace contexts that messages bring are stored.
        """
        self._databases = databases
        self._dialogs = dialogs
        self._forwarder = forwarder
        self._clock = clock
        self._far_restarted = far_restarted
        self._traces = traces
        self._routes: dict[tuple[str, bytes | None], tuple[float, tuple[str, ...]]] = {}
        self._dispatcher = Dispatcher(databases, clock)
        self._refusals = Refusals("batch", "batches")

    async def answer(self, link: Link, batch: wire.Batch, before_it: asyncio.Task[bool] | None) -> bool:
        """Handle a batch, after the one before it, and answer on its link; return whether it was taken."""
        answer: wire.Ack | wire.Refusal
        try:
            if before_it is not None:
                await _follow(before_it)
            answer = await self._take_in(batch, link.peer.user_name.encode())
        except TransportError as fault:
            self._refusals.note(link.address, fault)
            answer = wire.Refusal(batch.number, fault.number, fault.text[: wire.TEXT_CHARACTERS])
        except Exception as error:  # whatever it is, the connection of the other batches must live
            _log_accident(link.address, error)
            answer = wire.Refusal(
                batch.number, faults.NOT_TRANSMITTED, "An error in the far worker; see its log."
            )
        try:
            await link.send(answer)
        except TransportError as fault:
            # The reading side of the link notices by itself; the peer sends the batch again.
            logger.info("answer_not_sent", address=link.address, number=fault.number, reason=fault.text)
        return isinstance(answer, wire.Ack)

    async def _take_in(self, batch: wire.Batch, peer: bytes) -> wire.Ack:
        try:
            addresses = await self._route_of(batch)
            database = await self._database_for(batch) if addresses == _LOCAL else None
        except psycopg.Error as error:
            raise _not_taken(error) from error
        if not self._traces and batch.traceparents:
            # Told that this worker takes none, he has brought them nevertheless.
            batch = msgspec.structs.replace(batch, traceparents=[])
        if database is None:
            with traces.spanned("forward", batch.to_service, batch.traceparents):
                return await self._forwarder.relay(batch, addresses)
        return await self.deliver(database, batch, peer)

    async def deliver(self, database: Database, batch: wire.Batch, peer: bytes | None) -> wire.Ack:
        """Store a batch in a database of this worker, and return what became of it.

        What has more dialogs than this worker's Hello allows is stored part by part, and each part waits for
        its turn: it can't keep others waiting for longer than any batch. What fails is sent again.

        Args:
            database: where to.
            batch: what arrived.
            peer: who has sent it here; None: it comes from a database of the same worker.

        Raises:
            TransportError: Not all of it was stored.
        """
        if batch.has_restarted:
            self._far_restarted(database)
        turn = peer or _SIBLING_PEER + batch.from_broker, batch.from_broker
        try:
            with traces.spanned("deliver", batch.to_service, batch.traceparents):
                return await self._deliver_by_turns(database, batch, turn, is_sibling=peer is None)
        except psycopg.Error as error:
            raise _not_taken(error) from error
        except arrays.ArrayError as error:
            raise TransportError(faults.CORRUPTED, f"A corrupted batch was received: {error}.") from error

    async def _deliver_by_turns(
        self, database: Database, batch: wire.Batch, turn: tuple[bytes, bytes], *, is_sibling: bool
    ) -> wire.Ack:
        opened: Opened | None = None
        delivered: list[Delivered] = []
        async with self._dispatcher.delivery(database, *turn), database.connection() as connection:
            if batch.envelopes and not is_sibling:
                opened = await self._dialogs.open(connection, database, batch)
            parts = _parts(batch, opened, is_sibling=is_sibling)
            if (first := next(parts, None)) is not None:
                delivered.append(await _deliver(connection, *first))
                # Now, as the messages may be received a moment later. Those of a batch that is larger than
                # this worker asks for are left out.
                if batch.traceparents and (arrived := traces.stored(batch, first[0], delivered[0])):
                    await statements.note_arrived_traceparents(connection, arrived, len(batch.kinds))
            broker = await statements.broker_instance(connection)
        for part in parts:
            async with self._dispatcher.delivery(database, *turn), database.connection() as connection:
                delivered.append(await _deliver(connection, *part))
                if await statements.broker_instance(connection) != broker:
                    raise TransportError(faults.BROKER_NOT_HERE, "The far database became another broker.")
        whole = slices.joined(delivered) if delivered else None
        if opened is not None:
            return opened.answer(batch.number, broker, whole)
        if whole is None:
            raise arrays.ArrayError("nothing is in it")
        return wire.Ack(
            batch.number,
            broker.bytes,
            whole.next_numbers,
            whole.fault_codes,
            whole.fault_texts,
            whole.fault_is_final,
            whole.stored_bytes,
        )

    def drop_stale(self) -> None:
        """Drop the batches that no delivery has picked up for long; their senders send them again.

        Tells in the log how many were refused, too.
        """
        dropped = self._dispatcher.drop_stale()
        if dropped:
            logger.warning("batches_dropped", batches=dropped, number=faults.TARGET_BUSY)
        self._refusals.tell()

    def trim(self) -> None:
        """Forget the routes that are not trusted any more."""
        now = self._clock.monotonic()
        self._routes = {key: route for key, route in self._routes.items() if route[0] > now}

    async def _route_of(self, batch: wire.Batch) -> tuple[str, ...]:
        """Return where the worker's own routes lead what comes from outside: an address, and its mirror's."""
        now = self._clock.monotonic()
        key = (batch.to_service, batch.to_broker)
        until, addresses = self._routes.get(key, (now, ()))
        if until > now:
            return addresses
        broker = None if batch.to_broker is None else UUID(bytes=batch.to_broker)
        async with self._databases[0].connection() as connection:
            addresses = await statements.route_from_outside(connection, batch.to_service, broker)
        if not addresses:
            raise TransportError(
                faults.NO_ROUTE,
                f'No route of this worker leads to the service "{batch.to_service}".'
                " One of scope WORKER in its home database would.",
            )
        if len(self._routes) >= _MOST_REMEMBERED:
            self._routes.clear()
        self._routes[key] = (now + _REMEMBERED, addresses)
        return addresses

    async def _database_for(self, batch: wire.Batch) -> Database:
        """Return the served database that a batch is for: by broker instance, or by service name."""
        if batch.to_broker is not None:
            broker = UUID(bytes=batch.to_broker)
            for database in self._databases:
                if database.greeting.service_broker_guid == broker:
                    return _enabled(database)
            raise TransportError(faults.BROKER_NOT_HERE, f"The broker instance {broker} is not served here.")
        if len(self._databases) == 1:
            return _enabled(self._databases[0])
        for database in self._databases:
            if database.greeting.is_broker_enabled:
                async with database.connection() as connection:
                    if await statements.has_service(connection, batch.to_service):
                        return database
        raise TransportError(
            faults.SERVICE_NOT_FOUND,
            f'The service "{batch.to_service}" is in none of the databases served here.',
        )


async def _follow(before_it: asyncio.Task[bool]) -> None:
    """Wait for the batch before; without it this one would only leave gaps.

    Raises:
        TransportError: That one was not taken.
    """
    await asyncio.wait((before_it,))
    if before_it.cancelled() or not before_it.result():
        raise TransportError(faults.NOT_TRANSMITTED, "The batch before it was not taken.")


def _parts(
    batch: wire.Batch, opened: Opened | None, *, is_sibling: bool
) -> Iterator[tuple[wire.Batch, Securities]]:
    """Return what is to be stored of a batch, in parts of as many dialogs as one may have."""
    if opened is None:
        kind = _SIBLING if is_sibling else envelope.CLEAR
        count = arrays.element_count(batch.conversation_ids, arrays.UUID)
        return slices.cut(batch, Securities.of_all(kind, count), wire.MAXIMUM_DIALOGS)
    if opened.batch is None:
        return iter(())
    securities = Securities(
        arrays.from_texts(opened.kinds),
        arrays.from_texts(opened.far_users),
        arrays.from_elements(opened.session_keys, arrays.BYTEA),
    )
    return slices.cut(opened.batch, securities, wire.MAXIMUM_DIALOGS)


async def _deliver(connection: AsyncConnection[Any], batch: wire.Batch, securities: Securities) -> Delivered:
    if isinstance(batch, wire.Fragment):
        return await statements.deliver_piece(connection, batch, securities)
    try:
        return await statements.deliver(connection, batch, securities)
    except psycopg.errors.UntranslatableCharacter:
        # A name that the database's encoding lacks. The other dialogs of the batch don't wait for it.
        await connection.rollback()
    apart = []
    for part in slices.cut(batch, securities, 1):
        try:
            async with connection.transaction():
                apart.append(await statements.deliver(connection, *part))
        except psycopg.errors.UntranslatableCharacter as error:
            apart.append(slices.refused(_not_taken(error)))
    return slices.joined(apart)


def _log_accident(address: str, error: Exception) -> None:
    logger.error("batch_failed", address=address, trace=trace_of(error))


def _not_taken(error: psycopg.Error) -> TransportError:
    number = number_of(error.sqlstate)
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        number = faults.REPLICA
    elif isinstance(error, psycopg.OperationalError) and (error.sqlstate or "08")[:2] in _AWAY:
        number = faults.UNREACHABLE
    return TransportError(
        number,
        f"The far database did not take the batch: {line_of(error)}"
        + (f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""),
    )


def _enabled(database: Database) -> Database:
    if not database.greeting.is_broker_enabled:
        raise TransportError(faults.TARGET_DISABLED, "The broker of the target database is disabled.")
    return database
