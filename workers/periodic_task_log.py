"""When which periodic task ran, noted in the database for everybody to see, without a write for each run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# So seldom is noted what ran, all of it together.
SELDOM = 10.0


class Records:
    """What a worker notes in `broker.periodic_tasks` of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._noted: set[str] = set()
        self._due = float("-inf")
        # What ran and was not noted: periods in seconds, and descriptions.
        self._ran: dict[str, tuple[float, str]] = {}

    async def note(self, name: str, period: float, description: str, error: str | None = None) -> None:
        """Note that a task ran now. A first run and a failure are noted at once, others in `SELDOM` seconds.

        What else ran meanwhile is noted with it: many tasks make one transaction.

        Args:
            name: the task.
            period: seconds.
            description: what it does, for people.
            error: why it failed, if it did.

        Raises:
            psycopg.Error: it can't be noted.
        """
        now = self._clock.monotonic()
        self._ran[name] = period, description
        if error is None and name in self._noted and now < self._due:
            return
        # All workers lock the rows in one order.
        ran = sorted(self._ran.items())
        self._ran.clear()
        async with self._database.statement() as connection:
            await connection.execute(
                "select broker_private.note_periodic_task(t.name, t.period, t.description,"
                " case when t.name = %s then %s end)"
                " from unnest(%s::text[], %s::interval[], %s::text[]) as t (name, period, description)",
                (
                    name,
                    error,
                    [task for task, _ in ran],
                    [timedelta(seconds=seconds) for _, (seconds, _) in ran],
                    [text for _, (_, text) in ran],
                ),
            )
        self._noted.update(task for task, _ in ran)
        self._due = now + SELDOM
        if error is not None:
            # After an error the next good run is news.
            self._noted.discard(name)
