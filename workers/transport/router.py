"""Decides for one database where each waiting message goes: a far address, this database, or nowhere yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.workers.clock import Backoff
from pybroker.workers.transport import statements
from pybroker.workers.transport.faults import TransportError, line_of, trace_of
from pybroker.workers.transport.local import LocalDelivery
from pybroker.workers.transport.outbound import FIRST_PAUSE, LONGEST_PAUSE
from pybroker.workers.transport.pace import Pace
from pybroker.workers.transport.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.outbound import Outbound
    from pybroker.workers.transport.statements import Destination

BUSY_SECONDS = 0.02
IDLE_SECONDS = 0.1
_GROWTH = 1.25
_LOCAL = "LOCAL"

logger: FilteringBoundLogger = structlog.get_logger()


class Router:
    """Looks at what waits in one database, and sets senders to work on it."""

    def __init__(
        self,
        database: Database,
        outbound_to: Callable[[tuple[str, ...]], Outbound],
        clock: Clock,
        pace: Pace | None = None,
    ) -> None:
        """Prepare.

        Args:
            database: the database to look at.
            outbound_to: returns the shared connection to an address (and its mirror).
            clock: paces the looks.
            pace: what an operator has set.
        """
        self._database = database
        self._outbound_to = outbound_to
        self._clock = clock
        self._pace = pace or Pace()
        self.arrived = asyncio.Event()
        self._local = LocalDelivery(database, clock)
        self._senders: dict[int, Sender] = {}
        self._running: dict[int | str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look again and again, less often while nothing waits, until cancelled. An error ends one look."""
        pause = BUSY_SECONDS
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            while True:
                try:
                    is_busy = await self._look()
                    backoff.reset()
                    pause = BUSY_SECONDS if is_busy else min(pause * _GROWTH, IDLE_SECONDS)
                except psycopg.Error as error:
                    pause = backoff.failed()
                    logger.warning(
                        "database_not_read",
                        database=self._database.name,
                        error=line_of(error),
                        next_attempt_in=pause,
                    )
                await self._clock.wait(self.arrived, pause)
                self.arrived.clear()
        finally:
            for task in self._running.values():
                task.cancel()
            if self._running:
                await asyncio.wait(self._running.values())

    async def _look(self) -> bool:
        """Start what is not running for every destination that messages wait for."""
        async with self._database.connection() as connection:
            work = await statements.transmission_work(connection)
        for destination in work:
            self._dispatch(destination)
        for number in self._senders.keys() - {destination.destination_no for destination in work}:
            # What it remembers is of no more use, and destinations may be many over time.
            if number not in self._running:
                del self._senders[number]
        return bool(self._running)

    def _dispatch(self, destination: Destination) -> None:
        if destination.address == _LOCAL:
            if self._local.is_due:
                self._start(_LOCAL, self._local.deliver)
            return
        number = destination.destination_no
        sender = self._senders.get(number)
        if sender is None:
            sender = self._senders[number] = Sender(self._database, number, self._clock, self._pace)
        if not self._database.greeting.is_broker_enabled:
            # The views say why by themselves.
            return
        if destination.address is None:
            problem = destination.problem or "9750: No route matches the service."
            self._say(sender, number, problem)
        elif sender.is_due:
            mirror = (destination.mirror_address,) if destination.mirror_address else ()
            outbound = self._outbound_to((destination.address, *mirror))
            if outbound.is_due:
                self._start(number, lambda: sender.send(destination, outbound))
            elif (fault := outbound.fault) is not None:
                self._say(sender, number, fault)

    def _say(self, sender: Sender, number: int, problem: TransportError | str) -> None:
        # What was said already is no work: a look with nothing else to do is followed by a longer pause.
        if not sender.has_said(problem):
            self._start(number, lambda: sender.wait_because(problem))

    def _start(self, key: int | str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if key in self._running:
            return
        task = asyncio.create_task(work(), name=f"{self._database.name} {key}")
        self._running[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: int | str, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            # One destination's accident, after which it pauses like after any failure.
            logger.error(
                "destination_failed", database=self._database.name, destination=key, trace=trace_of(error)
            )
