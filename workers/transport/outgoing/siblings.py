"""Databases of one worker reach each other: no route, no endpoint, no certificate, and no socket.

Service Broker does so between the databases of an instance. The way is the same as to a far broker, by the
transmission queue in one transaction and into the other database in the next, so it is as safe as that.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.workers.transport import statements
from pybroker.workers.transport.connection.send_slots import DEFAULT_PRIORITY, SendSlots
from pybroker.workers.transport.connection.session import Posted
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import TransportError, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.connection.send_slots import SendSlot
    from pybroker.workers.transport.incoming.receiver import Receiver
    from pybroker.workers.transport.protocol.rows import Destination

# Seconds for which it is remembered whether a database has a service.
_REMEMBERED = 1.0
_MOST_REMEMBERED = 10_000

# Batches to a sibling are answered one by one, so none follows another.
_NUMBER = 1

logger: FilteringBoundLogger = structlog.get_logger()


class Sibling:
    """Carries batches into another database of the same worker."""

    is_sibling = True
    maximum_dialogs = wire.MAXIMUM_DIALOGS
    takes_traceparents = True

    def __init__(self, database: Database, receiver: Receiver) -> None:
        self._database = database
        self._receiver = receiver

    @property
    def broker_instance(self) -> UUID:
        """The database as a broker instance."""
        return self._database.greeting.service_broker_guid

    @property
    def is_due(self) -> bool:
        """Whether its broker is enabled."""
        return self._database.greeting.is_broker_enabled

    @property
    def fault(self) -> TransportError | None:
        """Why it can't be tried now."""
        if self.is_due:
            return None
        return TransportError(
            faults.TARGET_DISABLED, f"The broker of the database {self._database.name} is disabled."
        )

    async def open(self) -> None:
        """Make sure that the database takes messages.

        Raises:
            TransportError: Its broker is disabled.
        """
        fault = self.fault
        if fault is not None:
            raise fault

    async def ask(self, priority: int | None) -> SendSlot:
        """Return a slot: there is no connection that could be narrow."""
        return SendSlots(1).ask(DEFAULT_PRIORITY if priority is None else priority)

    async def post(self, _: SendSlot, batch: Callable[[int], wire.Batch]) -> Posted:
        """Begin to deliver a batch; the task raises what `exchange` does."""
        return Posted(_NUMBER, asyncio.create_task(self.exchange(batch), name="to a sibling"))

    async def exchange(self, batch: Callable[[int], wire.Batch], priority: int | None = None) -> wire.Ack:  # noqa: ARG002 - nothing waits here
        """Deliver a batch, and return what became of it.

        Raises:
            TransportError: Nothing of it was stored; send it again.
        """
        return await self._receiver.deliver(self._database, batch(_NUMBER), None)


class Siblings:
    """The databases of the worker, as each other's neighbours."""

    def __init__(self, databases: Sequence[Database], receiver: Receiver, clock: Clock) -> None:
        """Prepare.

        Args:
            databases: all that the worker serves.
            receiver: stores batches in them.
            clock: says how long something is remembered.
        """
        self._siblings = {database: Sibling(database, receiver) for database in databases}
        self._clock = clock
        self._services: dict[tuple[Database, str], tuple[float, bool]] = {}

    def with_broker(self, source: Database, broker: UUID) -> Sibling | None:
        """Return the database other than the source that is this broker instance."""
        for database, sibling in self._siblings.items():
            if database is not source and sibling.broker_instance == broker:
                return sibling
        return None

    async def having_service(self, source: Database, destination: Destination) -> list[Sibling]:
        """Return the databases other than the source that may have the service of a destination.

        That of the broker instance, if it names one, or else those whose broker is enabled.
        """
        if destination.broker_instance is not None:
            sibling = self.with_broker(source, destination.broker_instance)
            return [] if sibling is None else [sibling]
        return [
            sibling
            for database, sibling in self._siblings.items()
            if database is not source
            and database.greeting.is_broker_enabled
            and await self._has_service(database, destination.service_name)
        ]

    def trim(self) -> None:
        """Forget the answers that are not trusted any more."""
        now = self._clock.monotonic()
        self._services = {key: answer for key, answer in self._services.items() if answer[0] > now}

    async def _has_service(self, database: Database, service_name: str) -> bool:
        now = self._clock.monotonic()
        until, has_it = self._services.get((database, service_name), (now, False))
        if until > now:
            return has_it
        try:
            async with database.connection() as connection:
                has_it = await statements.has_service(connection, service_name)
        except psycopg.Error as error:
            # One that is away has its services still; what it can't take waits for it.
            logger.warning("sibling_not_read", database=database.name, error=line_of(error))
        if len(self._services) >= _MOST_REMEMBERED:
            self._services.clear()
        self._services[database, service_name] = (now + _REMEMBERED, has_it)
        return has_it
