"""Looks at the monitors of one database, and runs the readers that are due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from psycopg.rows import class_row

from pybroker.workers.activation.reader import Reader, Task
from pybroker.workers.arrivals import Arrivals
from pybroker.workers.clock import Clock
from pybroker.workers.periodic_task_log import Records

if TYPE_CHECKING:
    from collections.abc import Collection

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.database import Database

POLL_BUSY = 0.05
POLL_QUIET = 0.25

# Service Broker's period: readers are added to a queue that does not keep up once in so many seconds.
TICK = 5.0

_CANCEL_SECONDS = 1.0

logger: FilteringBoundLogger = structlog.get_logger()


class Activation:
    """The part of a worker that activates the queues of one database.

    Attributes:
        wake: set it, and the monitors are looked at without delay.
    """

    def __init__(self, database: Database, clock: Clock | None = None, logins: Collection[str] = ()) -> None:
        """Prepare.

        Args:
            database: whose queues.
            clock: the worker's clock.
            logins: the roles that readers log in as, where their queue is executed as one of them.
        """
        self._database = database
        self._logins = frozenset(logins)
        self._clock = clock or Clock()
        self._readers: dict[asyncio.Task[None], Reader] = {}
        self._records = Records(database, self._clock)
        self.wake = Arrivals()

    async def run(self) -> None:
        """Start readers until cancelled. Readers go on then; running again goes on with them.

        Raises:
            psycopg.OperationalError: the server is away.
        """
        pause = POLL_BUSY
        while True:
            self.wake.clear()
            has_started = await self._start_due_readers()
            await self._records.note("queue_monitors", TICK, "Adjust the readers of each queue to its load.")
            longest = POLL_QUIET if self._readers else self.wake.pause(POLL_QUIET)
            pause = POLL_BUSY if has_started else min(pause * 2, longest)
            if pause > POLL_QUIET:
                pause = longest
            # The end of a reader is looked at without delay: the next one may be due.
            if await self._clock.wait(self.wake, pause):
                pause = POLL_BUSY

    async def finish(self, grace: float) -> None:
        """Wait until the running procedures have ended, and leave those that need too long to the server.

        A procedure that is left runs to its end in its session, which commits what it does and holds the
        reader's slot until then. To be called when `run` was cancelled, which ends the starting of readers.

        Args:
            grace: seconds.
        """
        if not self._readers:
            return
        logger.info(
            "waiting_for_readers", database=self._database.name, readers=len(self._readers), grace=grace
        )
        _, pending = await asyncio.wait(self._readers, timeout=grace)
        for running in pending:
            self._readers[running].leave()
        await self._end(pending, "readers_left_running")

    async def cancel(self) -> None:
        """Cancel the running procedures, which rolls back what they have not committed."""
        await self._end(set(self._readers), "readers_cancelled")

    async def _end(self, pending: set[asyncio.Task[None]], event: str) -> None:
        if pending:
            logger.warning(event, database=self._database.name, readers=len(pending))
            for running in pending:
                running.cancel()
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_SECONDS)
            while pending:
                # A cancellation that reaches the server a moment before the procedure begins is lost.
                await asyncio.gather(*(self._readers[running].interrupt() for running in pending))
                _, pending = await asyncio.wait(pending, timeout=_CANCEL_SECONDS)

    async def _start_due_readers(self) -> bool:
        async with (
            self._database.statement() as connection,
            connection.cursor(row_factory=class_row(Task)) as cursor,
        ):
            await cursor.execute(
                "select task_id, queue_id, queue_name, activation_procedure, execute_as"
                " from broker_private.activate_queues()"
            )
            due = await cursor.fetchall()
        for task in due:
            login = task.execute_as if task.execute_as in self._logins else None
            reader = Reader(self._database, task, self._clock, login)
            running = asyncio.create_task(
                reader.run(), name=f"reader of {task.queue_name} in {self._database.name}"
            )
            self._readers[running] = reader
            running.add_done_callback(self._forget)
        return bool(due)

    def _forget(self, running: asyncio.Task[None]) -> None:
        reader = self._readers.pop(running)
        self.wake.set()
        if not running.cancelled() and (error := running.exception()):
            logger.error(
                "reader_failed", queue=reader.task.queue_name, database=self._database.name, exc_info=error
            )
