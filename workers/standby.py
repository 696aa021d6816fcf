"""Whether the worker's databases can be written: beside a standby it waits, and listens nowhere.

So of two workers with one home database, each beside its own server, only the one at the principal answers,
and a far worker finds it by trying both addresses of a mirrored route.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import structlog

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

LOOK_SECONDS = 1.0
# While it serves: nothing is asked then, only whether the last answer was another one.
WATCH_SECONDS = 2.0

logger: FilteringBoundLogger = structlog.get_logger()


async def until_principal(databases: Sequence[Database], stop: asyncio.Event, clock: Clock) -> bool:
    """Wait until none of the servers is in recovery; return False if `stop` was set before.

    Raises:
        ServingError: A database is no longer migrated, or the role no longer a worker's.
    """
    is_told = False
    while standbys := [database for database in databases if database.greeting.is_in_recovery]:
        if not is_told:
            logger.info("worker_waits", standbys=[database.name for database in standbys])
            is_told = True
        if await clock.wait(stop, LOOK_SECONDS):
            return False
        for database in standbys:
            # One that is away is as good as a standby.
            with suppress(psycopg.Error):
                await database.renew_greeting()
    return True


async def watch(
    databases: Sequence[Database], stop: asyncio.Event, over: asyncio.Event, clock: Clock
) -> None:
    """Set `over` when `stop` is set, or when a server has become a standby, as far as its greeting tells."""
    while not any(database.greeting.is_in_recovery for database in databases):
        if await clock.wait(stop, WATCH_SECONDS):
            break
    over.set()
