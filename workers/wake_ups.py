"""Wakes the parts of the worker that wait for messages, a moment after the messages were committed.

One session for each database sleeps on the queues that the worker has to do with, by the protocol that
sql/conversation/sleep_on.sql tells: while it sleeps, whoever puts a message into one of them notifies it.
Everything works without it, at the pace at which each part looks by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from pybroker.workers.database import WORKER_NAME

if TYPE_CHECKING:
    import asyncio

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# Nothing but a lost notification is found by the look after a sleep.
LONGEST_SLEEP = 1.0
# While messages wait somewhere it can't sleep on everything.
LOOK_SECONDS = 0.25
# After a notification: while messages come one after the other, not each should have to notify.
REST_SECONDS = 0.05

logger: FilteringBoundLogger = structlog.get_logger()


class WakeUps:
    """The wake-ups of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._events: list[asyncio.Event] = []

    def add(self, event: asyncio.Event) -> None:
        """Have this event set whenever a message may have arrived; its waiter clears it before it looks."""
        self._events.append(event)

    async def run(self) -> None:
        """Wake until cancelled. Returns at once behind a pooler, where others would get the notifications.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        session = await self._database.open_session(f"{WORKER_NAME}: wake-ups")
        async with session:
            if await _value(session, "select pg_backend_pid()") != session.info.backend_pid:
                logger.info("wake_ups_unavailable", database=self._database.name, reason="a pooler")
                return
            while True:
                is_asleep = await _value(session, "select broker_private.sleep_on_work()")
                longest = LONGEST_SLEEP if is_asleep else LOOK_SECONDS
                is_notified = False
                async for _ in session.notifies(timeout=longest, stop_after=1):
                    is_notified = True
                if is_notified or not is_asleep:
                    for event in self._events:
                        event.set()
                if is_notified:
                    await session.execute("select pg_advisory_unlock_all()")
                    await self._clock.sleep(REST_SECONDS)


async def _value(session: AsyncConnection[Any], query: str) -> Any:
    row = await (await session.execute(query.encode())).fetchone()
    return row and row[0]
