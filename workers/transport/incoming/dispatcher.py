"""Lets only few batches at once into each database, by turns, and drops what has waited too long."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pybroker.workers.transport.incoming.rotation import Rotation
from pybroker.workers.transport.protocol import faults
from pybroker.workers.transport.protocol.faults import TransportError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database

# Deliveries at once for each database: enough to keep it busy, while senders still find connections.
DELIVERIES = 6
# Seconds after which a batch that no delivery has picked up is dropped; its sender sends it again.
STALE_SECONDS = 10.0


class Dispatcher:
    """The batches that have arrived, in memory until a delivery picks them up; of one origin in order."""

    def __init__(self, databases: Sequence[Database], clock: Clock) -> None:
        """Prepare.

        Args:
            databases: where batches are delivered.
            clock: says how long one has waited.
        """
        self._clock = clock
        self._free = dict.fromkeys(databases, DELIVERIES)
        self._waiting: dict[Database, dict[asyncio.Future[None], float]] = {
            database: {} for database in databases
        }
        self._turns: dict[Database, Rotation[asyncio.Future[None]]] = {
            database: Rotation() for database in databases
        }

    @asynccontextmanager
    async def delivery(self, database: Database, peer: bytes, origin: bytes) -> AsyncIterator[None]:
        """Wait until a batch may be delivered into a database; the block is its delivery.

        Args:
            database: where to.
            peer: who has sent it here; peers have turns.
            origin: the broker that it comes from; what one peer brings of several has turns too.

        Raises:
            TransportError: 9749, it has waited for so long that it was dropped.
        """
        await self._enter(database, peer, origin)
        try:
            yield
        finally:
            self._leave(database)

    def drop_stale(self) -> int:
        """Drop what waits for longer than `STALE_SECONDS`; return how many batches that were."""
        stale = self._clock.monotonic() - STALE_SECONDS
        dropped = 0
        for waiting in self._waiting.values():
            for batch, since in waiting.items():
                if since < stale and not batch.done():
                    batch.set_exception(
                        TransportError(
                            faults.TARGET_BUSY,
                            f"The far database did not get to the batch within {STALE_SECONDS:g} s.",
                        )
                    )
                    dropped += 1
        return dropped

    async def _enter(self, database: Database, peer: bytes, origin: bytes) -> None:
        waiting = self._waiting[database]
        if self._free[database] > 0:
            self._free[database] -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[turn] = self._clock.monotonic()
        self._turns[database].add(peer, origin, turn)
        try:
            await turn
        except asyncio.CancelledError:
            # It may have been given the turn at the same moment.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(database)
            raise
        finally:
            del waiting[turn]
            self._turns[database].discard(peer, origin, turn)

    def _leave(self, database: Database) -> None:
        while (turn := self._turns[database].next()) is not None:
            # One that was dropped or cancelled may still be in the line.
            if not turn.done():
                turn.set_result(None)
                return
        self._free[database] += 1
