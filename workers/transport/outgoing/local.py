"""Moves messages that stay within their database but had to wait for a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.backoff import Backoff
from pybroker.workers.transport import statements
from pybroker.workers.transport.protocol.faults import line_of

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

_FIRST_PAUSE = 0.05
# A queue that is turned on delivers by itself, so a long look in between is enough.
_LONGEST_PAUSE = 2.0

logger: FilteringBoundLogger = structlog.get_logger()


class LocalDelivery:
    """Delivers within one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._due = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the last look moved something, or the pause after it is over."""
        return self._clock.monotonic() >= self._due

    async def deliver(self) -> None:
        """Move what can be moved, until nothing more can."""
        try:
            while await self._deliver_some():
                self._backoff.reset()
        except psycopg.Error as error:
            logger.warning("local_delivery_failed", database=self._database.name, error=line_of(error))
        finally:
            self._due = self._clock.monotonic() + self._backoff.failed()

    async def _deliver_some(self) -> int:
        async with self._database.statement() as connection:
            return await statements.deliver_local(connection)
