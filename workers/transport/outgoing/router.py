"""Decides for one database where each waiting message goes: a far address, this database, or nowhere yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.backoff import Backoff
from pybroker.workers import cancellation
from pybroker.workers.arrivals import Arrivals
from pybroker.workers.transport import statements
from pybroker.workers.transport.outgoing.local import LocalDelivery
from pybroker.workers.transport.outgoing.peer import FIRST_PAUSE, LONGEST_PAUSE
from pybroker.workers.transport.outgoing.sender import Sender
from pybroker.workers.transport.protocol.faults import TransportError, line_of, trace_of
from pybroker.workers.transport.retry_schedule import Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
    from pybroker.workers.transport.outgoing.carrier import Carrier
    from pybroker.workers.transport.outgoing.peer import Peer
    from pybroker.workers.transport.outgoing.siblings import Sibling, Siblings
    from pybroker.workers.transport.protocol.rows import Destination

# After something was begun or has ended: what comes next may be for another destination, or for a sender
# that is gone.
BUSY_SECONDS = 0.02
# While senders run; they find by themselves what comes for their destinations.
RUNNING_SECONDS = 0.05
# While something waits that nobody can send now.
IDLE_SECONDS = 0.1
_GROWTH = 1.25
_LOCAL = "LOCAL"
_SEVERAL = 2
# Until it is tried again to give the dialogs of a destination to brokers, after none could be given.
_SPREAD_SECONDS = 0.5
# A look has fewer destinations where it has all of them: see broker_private.transmission_work.
_MOST_AT_ONCE = 100
# Of more destinations nothing is remembered between two looks at them.
_MOST_SENDERS = 1_000

logger: FilteringBoundLogger = structlog.get_logger()


class Router:
    """Looks at what waits in one database, and sets senders to work on it."""

    def __init__(
        self,
        database: Database,
        siblings: Siblings,
        dialogs: SecureDialogs,
        outbound_to: Callable[[tuple[str, ...]], Peer],
        clock: Clock,
        *,
        pace: Pace | None = None,
        traces: bool = False,
    ) -> None:
        """Prepare.

        Args:
            database: the database to look at.
            siblings: the worker's databases.
            dialogs: secures what leaves for another worker.
            outbound_to: returns the shared connection to an address (and its mirror).
            clock: paces the looks.
            pace: what an operator has set.
            traces: whether the trace contexts of messages go with them.
        """
        self._database = database
        self._siblings = siblings
        self._dialogs = dialogs
        self._outbound_to = outbound_to
        self._clock = clock
        self._pace = pace or Pace()
        self._traces = traces
        self.arrived = Arrivals()
        # Since the last look.
        self._has_begun = False
        self._has_ended = False
        self._local = LocalDelivery(database, clock)
        self._spread_after: dict[int, float] = {}
        self._senders: dict[int, Sender] = {}
        self._running: dict[int | str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look again and again, less often while nothing waits, until cancelled. An error ends one look."""
        pause = BUSY_SECONDS
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            while True:
                self._has_begun = self._has_ended
                self._has_ended = False
                try:
                    longest = await self._look()
                    backoff.reset()
                    pause = BUSY_SECONDS if self._has_begun else min(pause * _GROWTH, longest)
                    if pause > IDLE_SECONDS:
                        pause = longest
                except psycopg.Error as error:
                    pause = backoff.failed()
                    logger.warning(
                        "database_not_read",
                        database=self._database.name,
                        error=line_of(error),
                        next_attempt_in=pause,
                    )
                await self._clock.wait(self.arrived, pause)
                if self._has_ended:
                    # Not at once: a message that comes now is not to start a sender for itself alone.
                    await self._clock.sleep(BUSY_SECONDS)
                self.arrived.clear()
        finally:
            await cancellation.end(self._running.values())

    def reclassify(self) -> None:
        """Let every dialog be given to a broker at the next look, whatever came of the last try."""
        if self._spread_after:
            self._spread_after.clear()
            self.arrived.set()

    async def carrier_for(self, destination: Destination) -> Carrier | None:
        """Return the way to a destination whose dialogs were given to a broker already; None without one."""
        siblings = await self._siblings_for(destination)
        if siblings:
            return siblings[0]
        if destination.address in (None, _LOCAL):
            return None
        return self._far(destination, destination.address)

    async def _look(self) -> float:
        """Start what is not running for each destination that messages wait for; return the longest pause."""
        async with self._database.statement() as connection:
            running = [number for number in self._running if isinstance(number, int)]
            work = await statements.transmission_work(connection, running)
        for destination in work:
            await self._dispatch(destination)
        # What it remembers is of no more use, and destinations may be many over time. Of very many a look has
        # only some: the last ones that it had are remembered, so that nothing is said of them twice.
        most = 0 if len(work) < _MOST_AT_ONCE else _MOST_SENDERS
        waiting = {destination.destination_no for destination in work}
        idle = [number for number in self._senders if number not in waiting and number not in self._running]
        for number in idle[: max(len(idle) - most, 0)]:
            del self._senders[number]
            self._spread_after.pop(number, None)
        if self._running:
            return RUNNING_SECONDS
        return IDLE_SECONDS if work else self.arrived.pause(IDLE_SECONDS)

    async def _dispatch(self, destination: Destination) -> None:
        if destination.address == _LOCAL:
            if self._local.is_due:
                self._start(_LOCAL, self._local.deliver)
            return
        number = destination.destination_no
        sender = self._senders.pop(number, None)
        if sender is None:
            sender = Sender(
                self._database,
                number,
                self._dialogs,
                self._clock,
                pace=self._pace,
                traces=self._traces,
            )
        # Last, as those that were not looked at for longest are forgotten first.
        self._senders[number] = sender
        if not self._database.greeting.is_broker_enabled:
            # The views say why by themselves.
            return
        if not sender.may_note:
            return
        if destination.is_missing:
            self._start(number, lambda: self._ask_for_route(sender, destination))
        else:
            await self._choose(sender, destination)

    async def _choose(self, sender: Sender, destination: Destination) -> None:
        """Send by what ranks first, or say why nothing can be sent."""
        number = destination.destination_no
        siblings = await self._siblings_for(destination)
        brokers = destination.broker_instances
        if brokers is None and len(siblings) >= _SEVERAL:
            brokers = [sibling.broker_instance for sibling in siblings]
        if brokers is not None:
            if self._spread_after.get(number, 0.0) <= self._clock.monotonic():
                self._start(number, lambda: self._spread(sender, destination, brokers))
        elif destination.is_stranded and not self._is_served(destination):
            self._start(number, lambda: self._give_back(sender, destination))
        elif siblings:
            self._send(sender, destination, siblings[0])
        elif destination.address is not None:
            self._send(sender, destination, self._far(destination, destination.address))
        elif destination.broker_instance is not None and not sender.has_said(str(destination.problem)):
            self._start(number, lambda: self._give_back(sender, destination))
        else:
            self._say(sender, number, str(destination.problem))

    def _is_served(self, destination: Destination) -> bool:
        """Whether the broker instance of a destination is a database of this worker."""
        broker = destination.broker_instance
        return broker is not None and self._siblings.with_broker(self._database, broker) is not None

    async def _siblings_for(self, destination: Destination) -> list[Sibling]:
        """Return the databases of this worker that may have the messages, before any on the network.

        A route with a mirror ranks before them; the way back to a broker of this worker before all routes.
        """
        broker = destination.broker_instance
        if destination.is_reply and broker is not None:
            sibling = self._siblings.with_broker(self._database, broker)
            if sibling is not None:
                return [sibling]
        if not destination.is_local or destination.mirror_address is not None:
            return []
        return await self._siblings.having_service(self._database, destination)

    def _far(self, destination: Destination, address: str) -> Peer:
        mirror = (destination.mirror_address,) if destination.mirror_address else ()
        return self._outbound_to((address, *mirror))

    def _send(self, sender: Sender, destination: Destination, carrier: Carrier) -> None:
        if destination.destination_no in self._running:
            sender.keep_on(destination, carrier)
            return
        if not sender.is_due:
            return
        if carrier.is_due:
            self._start(destination.destination_no, lambda: sender.send(destination, carrier))
        elif (fault := carrier.fault) is not None:
            self._say(sender, destination.destination_no, fault)

    async def _spread(self, sender: Sender, destination: Destination, brokers: list[UUID]) -> None:
        """Give each dialog that waits without a broker to one of them.

        What went somewhere before there were several, and was never answered, is sent to the first.
        """
        number = destination.destination_no
        moved, stays = 0, 0
        with sender.noting("dialogs_not_spread"):
            async with self._database.statement() as connection:
                moved, stays = await statements.spread_dialogs(connection, number, brokers)
        if moved:
            self.arrived.set()
            return
        self._spread_after[number] = self._clock.monotonic() + _SPREAD_SECONDS
        sibling = self._siblings.with_broker(self._database, brokers[0])
        if stays and sibling is not None:
            await sender.send(destination, sibling)
        elif stays and destination.address is not None:
            await sender.send(destination, self._far(destination, destination.address))

    async def _ask_for_route(self, sender: Sender, destination: Destination) -> None:
        """Ask the dynamic routing service, or note that it has answered."""
        with sender.noting("route_not_requested", service=destination.service_name):
            async with self._database.statement() as connection:
                await statements.request_route(connection, destination.service_name)

    async def _give_back(self, sender: Sender, destination: Destination) -> None:
        """Let dialogs that were given to a broker which no route leads to any more be given to another."""
        with sender.noting("dialogs_not_given_back"):
            async with self._database.statement() as connection:
                await statements.spread_dialogs(connection, destination.destination_no, None)
        if destination.problem is not None and sender.may_note:
            await sender.wait_because(destination.problem)

    def _say(self, sender: Sender, number: int, problem: TransportError | str) -> None:
        # What was said already is no work: a look with nothing else to do is followed by a longer pause.
        if not sender.has_said(problem):
            self._start(number, lambda: sender.wait_because(problem))

    def _start(self, key: int | str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if key in self._running:
            return
        self._has_begun = True
        task = asyncio.create_task(work(), name=f"{self._database.name} {key}")
        self._running[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: int | str, task: asyncio.Task[None]) -> None:
        del self._running[key]
        self._has_ended = True
        self.arrived.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # One destination's accident, after which it pauses like after any failure.
            logger.error(
                "destination_failed", database=self._database.name, destination=key, trace=trace_of(error)
            )
