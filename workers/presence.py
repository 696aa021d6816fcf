"""Tells the home database that this worker lives, and what it has in memory, for the views that show it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from psycopg import AsyncConnection

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

PERIOD = 5.0
# What changes together is told together, and a storm of changes costs no more than this many seconds allow.
_GATHER_SECONDS = 0.25
_FAREWELL_SECONDS = 2.0


class Presence:
    """This worker as the views of its home database show it.

    Attributes:
        worker_id: chosen anew by each process.
        changed: set by whoever has something that the views should show before the period is over.
    """

    def __init__(self, home: Database, clock: Clock) -> None:
        self._home = home
        self._clock = clock
        self._parts: list[Callable[[AsyncConnection[Any], UUID], Awaitable[None]]] = []
        self.worker_id = uuid4()
        self.changed = asyncio.Event()

    def add(self, tell: Callable[[AsyncConnection[Any], UUID], Awaitable[None]]) -> None:
        """Have a part of the worker write what it has, each time, by one statement."""
        self._parts.append(tell)

    async def tell(self) -> None:
        """Write everything anew.

        Raises:
            psycopg.Error: the home database can't be written now.
        """
        await self._clock.sleep(_GATHER_SECONDS)
        self.changed.clear()
        async with self._home.statement() as session:
            await session.execute("select broker_private.note_worker(%s)", (self.worker_id,))
            for part in self._parts:
                await part(session, self.worker_id)

    async def leave(self) -> None:
        """Have the views forget this worker now, and not after 15 seconds, if they can."""
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS), self._home.connection() as session:
                await session.execute("select broker_private.forget_worker(%s)", (self.worker_id,))
