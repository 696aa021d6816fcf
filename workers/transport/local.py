"""Moves messages that stay within their database but had to wait: for a queue, or for a look at their XML."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.workers.clock import Backoff
from pybroker.workers.transport import statements
from pybroker.workers.transport.faults import line_of
from pybroker.xml import is_well_formed

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

_MESSAGES = 200
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
        to_check: list[tuple[int, bytes]] = []
        if not self._database.greeting.has_xml_parser:
            async with self._database.connection() as connection:
                to_check = await statements.local_messages_to_check(connection, _MESSAGES)
        # In a thread: libxml2 gives up the interpreter's lock while it parses.
        results = await asyncio.to_thread(lambda: [is_well_formed(body) for _, body in to_check])
        well_formed = [row for (row, _), passed in zip(to_check, results, strict=True) if passed]
        malformed = [row for (row, _), passed in zip(to_check, results, strict=True) if not passed]
        async with self._database.connection() as connection:
            moved = await statements.deliver_local(connection, well_formed, malformed)
        if malformed:
            logger.warning("local_messages_malformed", database=self._database.name, messages=len(malformed))
        return moved
