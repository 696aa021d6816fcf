"""Asks the far sides of open dialogs whether both sides remember the same.

A dialog on which messages pass finds out by itself that one of the two databases has gone back to an earlier
state (`torn_dialogs`, `fail_torn_dialogs`). Where both sides wait for each other, a question does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import structlog

from pybroker.backoff import Backoff
from pybroker.workers.transport import statements
from pybroker.workers.transport.outgoing import batches
from pybroker.workers.transport.protocol import arrays
from pybroker.workers.transport.protocol.faults import TransportError, line_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database
    from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
    from pybroker.workers.transport.outgoing.carrier import Carrier
    from pybroker.workers.transport.protocol import wire
    from pybroker.workers.transport.protocol.rows import Destination

# Dialogs that are looked at in one go, and so at most those of a batch.
_MOST_DIALOGS = 500
# Pauses in relation to the time that a batch took: a look takes a fifth of one sender's time, not all of it.
_REST = 4.0
# Seconds until who could not be reached is asked again, and how often that is tried before the next look.
_AGAIN_AFTER = 2.0
_AGAIN_AT_MOST = 60.0
_ATTEMPTS = 8
_LONGEST_REST = 60.0

logger: FilteringBoundLogger = structlog.get_logger()


class Probe:
    """Asks for the dialogs of one database, all of them in one look.

    Attributes:
        due: Set when a look is due before its period is over.
    """

    def __init__(
        self,
        database: Database,
        dialogs: SecureDialogs,
        carrier_for: Callable[[Destination], Awaitable[Carrier | None]],
        clock: Clock,
    ) -> None:
        """Prepare.

        Args:
            database: whose dialogs they are.
            dialogs: secures what leaves for another worker.
            carrier_for: finds the way to a destination, if there is one.
            clock: paces the looks.
        """
        self._database = database
        self._dialogs = dialogs
        self._carrier_for = carrier_for
        self._clock = clock
        self.due = asyncio.Event()
        # Who begins to serve a database does not know how old it is.
        self._may_have_gone_back = True
        self._is_doubtful = False
        self._known: tuple[object, ...] | None = None
        self._rests_until = 0.0

    def far_restarted(self) -> None:
        """Note that a far database may have gone back to an earlier state."""
        self.due.set()

    def look_at_database(self) -> None:
        """Ask soon if the database was restarted, enabled or replaced since this was last called."""
        greeting = self._database.greeting
        known = (greeting.server_started_at, greeting.service_broker_guid, greeting.is_broker_enabled)
        if self._known is not None and known != self._known:
            self._may_have_gone_back = True
            self.due.set()
        self._known = known

    async def look(self) -> None:
        """Ask on every open dialog; who can't be reached is asked again a few times.

        Raises:
            psycopg.Error: The database can't be read.
        """
        begun = self._clock.monotonic()
        if begun < self._rests_until:
            await self._clock.sleep(self._rests_until - begun)
        self.due.clear()
        self._is_doubtful, self._may_have_gone_back = self._may_have_gone_back, False
        backoff = Backoff(_AGAIN_AFTER, _AGAIN_AT_MOST)
        missed: set[int] | None = None
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    missed = await self._ask_all(missed)
                except psycopg.Error as error:
                    # After a restart the first statements still meet connections that are gone.
                    if attempt == _ATTEMPTS:
                        raise
                    logger.info("dialogs_not_asked", database=self._database.name, reason=line_of(error))
                # A look that is due asks them too.
                if missed == set() or await self._clock.wait(self.due, backoff.failed()):
                    break
        finally:
            # Until everybody has heard of it.
            self._may_have_gone_back |= self._is_doubtful and missed != set()
        # Whoever makes this one ask can't keep it busy.
        now = self._clock.monotonic()
        self._rests_until = now + min(now - begun, _LONGEST_REST)

    async def _ask_all(self, only: set[int] | None) -> set[int]:
        """Ask all, or those of some destinations; return the destinations that could not be asked."""
        missed: set[int] = set()
        after = 0
        while True:
            async with self._database.connection() as connection:
                found = await statements.dialogs_to_ask(connection, after, _MOST_DIALOGS)
            if not found:
                return missed
            for dialogs in found:
                after = max(after, *dialogs.endpoint_nos)
                destination = dialogs.destination
                number = destination.destination_no
                if number in missed or (only is not None and number not in only):
                    continue
                begun = self._clock.monotonic()
                try:
                    await self._ask(destination, dialogs.endpoint_nos)
                except TransportError as fault:
                    missed.add(number)
                    logger.info(
                        "dialogs_not_asked",
                        database=self._database.name,
                        destination=number,
                        reason=str(fault),
                    )
                await self._clock.sleep(_REST * (self._clock.monotonic() - begun))

    async def _ask(self, destination: Destination, endpoint_nos: list[int]) -> None:
        carrier = await self._carrier_for(destination)
        if carrier is None:
            return
        await carrier.open()
        async with self._database.connection() as connection:
            question = await statements.ask(connection, endpoint_nos)
            if question is None:
                return
            plans = None
            if not carrier.is_sibling:
                plans = await self._dialogs.plan(connection, self._database, question)
            if plans is not None and plans.held:
                # What can't be secured now sends nothing either.
                held = {endpoint_no for endpoint_no, _ in plans.held}
                left = [endpoint_no for endpoint_no in endpoint_nos if endpoint_no not in held]
                question = await statements.ask(connection, left) if left else None
                if question is None:
                    return
                plans = await self._dialogs.plan(connection, self._database, question)
                if plans is not None and plans.held:
                    return
            from_broker = await statements.broker_instance(connection)
        sealed = self._dialogs.seal(self._database, question, plans, from_broker)

        def batch(number: int) -> wire.Batch:
            return batches.batch_of(
                number,
                destination,
                question,
                from_broker,
                sealed=sealed,
                has_restarted=self._is_doubtful,
            )

        ack = await batches.proven(carrier.exchange(batch), sealed)
        try:
            ends = batches.ends_of(question)
            _, failed, _ = batches.outcome(question, ends, ack)
            ahead = batches.ahead(question, ends, ack)
        except arrays.ArrayError as error:
            raise batches.corrupted(error) from error
        if not ahead and not failed:
            return
        async with self._database.connection() as connection:
            torn = []
            if ahead:
                torn = await statements.fail_torn_dialogs(connection, *map(list, zip(*ahead, strict=True)))
            if failed:
                endpoints, codes, texts = map(list, zip(*failed, strict=True))
                await statements.fail_dialogs(connection, endpoints, codes, texts)
        if torn or failed:
            logger.warning(
                "dialogs_torn",
                database=self._database.name,
                destination=destination.destination_no,
                torn=len(torn),
                failed=len(failed),
                conversation_ids=question.conversations({*torn, *(endpoint for endpoint, _, _ in failed)}),
            )
