"""When which periodic task ran, noted in the database for everybody to see, without a write for each run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# A task that runs more often is noted once in this many seconds.
SELDOM = 5.0


class Records:
    """What a worker notes in `broker.periodic_tasks` of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._noted: dict[str, float] = {}

    async def note(self, name: str, period: float, description: str, error: str | None = None) -> None:
        """Note that a task ran now; one that failed is noted always, others once in `SELDOM` seconds.

        Args:
            name: the task.
            period: seconds.
            description: what it does, for people.
            error: why it failed, if it did.

        Raises:
            psycopg.Error: it can't be noted.
        """
        now = self._clock.monotonic()
        if error is None and now < self._noted.get(name, float("-inf")) + SELDOM:
            return
        async with self._database.connection() as connection:
            await connection.execute(
                "select broker_private.note_periodic_task(%s, %s, %s, %s)",
                (name, timedelta(seconds=period), description, error),
            )
        # After an error the next good run is news.
        self._noted[name] = now if error is None else float("-inf")
