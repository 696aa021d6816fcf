"""What transport does at fixed periods; `periodic` runs it, and notes when, as it does its own tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.workers import presence
from pybroker.workers.periodic import PeriodicTask

if TYPE_CHECKING:
    from pybroker.workers.database import Database
    from pybroker.workers.presence import Presence


class Upkeep:
    """The periodic tasks of one worker's transport."""

    def __init__(self, home: Database, here: Presence) -> None:
        """Prepare.

        Args:
            home: the database whose tasks those of the whole worker are.
            here: this worker, as the views show it.
        """
        self._home = home
        self._presence = here

    def tasks(self, database: Database) -> tuple[PeriodicTask, ...]:
        """Return the tasks that are to run for a database; the home database has those of the worker too."""
        if database is not self._home:
            return ()
        return (PeriodicTask("presence", presence.PERIOD, self.tell_presence, self._presence.changed),)

    async def tell_presence(self, _: Database) -> None:
        """Show the worker's connections, and that it lives."""
        await self._presence.tell()
