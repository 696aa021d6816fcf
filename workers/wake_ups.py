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
    from collections.abc import Callable, Iterable

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.arrivals import Arrivals
    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# Nothing but a lost notification is found by the look after a sleep.
LONGEST_SLEEP = 1.0
# While messages wait somewhere it can't sleep on everything.
LOOK_SECONDS = 0.25
# After a notification: while messages come one after the other, not each should have to notify.
REST_SECONDS = 0.05
# Numbers of what is slept on besides queues: the transmission queue, and the incomplete messages.
TRANSMISSION_QUEUE = 0
INCOMPLETE_MESSAGES = 1
_CHANNEL = "pybroker_"

logger: FilteringBoundLogger = structlog.get_logger()


def is_plain_queue(queue: int) -> bool:
    """Whether this is the number of a queue that somebody receives from."""
    return queue not in (TRANSMISSION_QUEUE, INCOMPLETE_MESSAGES)


class WakeUps:
    """The wake-ups of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiters: list[tuple[Arrivals, Callable[[int], bool]]] = []

    def add(self, arrivals: Arrivals, concerns: Callable[[int], bool] = is_plain_queue) -> None:
        """Have this set whenever a message may have arrived in one of the queues that concern its waiter."""
        self._waiters.append((arrivals, concerns))

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
            try:
                await self._watch(session)
            finally:
                for arrivals, _ in self._waiters:
                    arrivals.are_watched = False
                    arrivals.set()

    async def _watch(self, session: AsyncConnection[Any]) -> None:
        while True:
            awake_on = await _value(session, "select broker_private.sleep_on_queues()")
            # What was committed since the last sleep has notified nobody.
            self._wake(awake_on)
            for arrivals, _ in self._waiters:
                arrivals.are_watched = True
            notified = [
                int(notification.channel.removeprefix(_CHANNEL))
                async for notification in session.notifies(
                    timeout=LOOK_SECONDS if awake_on else LONGEST_SLEEP, stop_after=1
                )
            ]
            self._wake(notified)
            if notified:
                await session.execute("select pg_advisory_unlock_all()")
                await self._clock.sleep(REST_SECONDS)

    def _wake(self, queues: Iterable[int]) -> None:
        for arrivals, concerns in self._waiters:
            if any(map(concerns, queues)):
                arrivals.set()


async def _value(session: AsyncConnection[Any], query: str) -> Any:
    row = await (await session.execute(query.encode())).fetchone()
    return row and row[0]
