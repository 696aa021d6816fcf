"""Event notifications: tells the services that asked for it which queues should be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from pybroker.workers.arrivals import Arrivals

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# Service Broker looks every 5 s, and when a message arrives; the database keeps the 5 s between two events.
# This is for one whom nobody wakes.
LOOK_SECONDS = 1.0

logger: FilteringBoundLogger = structlog.get_logger()


class EventNotifications:
    """The event notifications of one database. Several workers may run it: each event is sent once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.arrived = Arrivals()
        """Set by somebody else when a message may have arrived."""

    async def run(self) -> None:
        """Send what is due until cancelled.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        while True:
            self.arrived.clear()
            await self._send()
            await self._clock.wait(self.arrived, self.arrived.pause(LOOK_SECONDS))

    async def _send(self) -> None:
        async with self._database.statement() as connection:
            cursor = await connection.execute(
                "select queue_name, notification_name, problem from broker_private.emit_queue_activations()"
            )
            told = await cursor.fetchall()
        for queue, notification, problem in told:
            log = logger.bind(database=self._database.name, queue=queue, notification=notification)
            if problem is None:
                log.debug("queue_activation_sent")
            else:
                log.error("event_notification_dropped", problem=problem)
