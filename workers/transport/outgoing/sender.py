"""Sends what waits for one destination: take, send, wait for the acknowledgement, acknowledge.

`take` only reads, so a batch that was never acknowledged is simply taken again, with the same numbers, when
the schedule of its dialogs says so (`pace`). A dialog is always in the same lane; what a lane has in flight
is sent, arrives and is settled one after the other: that keeps its messages in order (`in_flight`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg
import structlog

from pybroker.backoff import Backoff
from pybroker.workers.transport import statements, traces
from pybroker.workers.transport.dialog_security.held_dialogs import HeldDialogs
from pybroker.workers.transport.outgoing import batches
from pybroker.workers.transport.outgoing.known_dialogs import Found, KnownDialogs
from pybroker.workers.transport.outgoing.lane import Lane
from pybroker.workers.transport.outgoing.linger import Linger
from pybroker.workers.transport.outgoing.peer import FIRST_PAUSE, LONGEST_PAUSE
from pybroker.workers.transport.outgoing.transfers import Transfers
from pybroker.workers.transport.protocol import arrays, wire
from pybroker.workers.transport.protocol.faults import TransportError, line_of
from pybroker.workers.transport.resends import Resends
from pybroker.workers.transport.retry_schedule import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import AsyncConnection
    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.database import Database, Session
    from pybroker.workers.transport.dialog_security.sealing import Plans, Sealed
    from pybroker.workers.transport.dialog_security.secure_dialogs import SecureDialogs
    from pybroker.workers.transport.outgoing.carrier import Carrier
    from pybroker.workers.transport.outgoing.in_flight import InFlight
    from pybroker.workers.transport.protocol.rows import Destination, Taken

LANES = 4
# Batches of one lane that are on their way at once; of one that is the only lane, for few dialogs.
DEPTH = 4
DEPTH_ALONE = 8
_FEW_DIALOGS = 4
# After so many batches by priority one takes the oldest messages, but not in lanes: what was due there is the
# first batch of the next turn.
_MOST_BY_PRIORITY = 15
# A larger body crosses in pieces of this size, one of a dialog at a time: a worker holds no more of it.
PIECE_BYTES = 2**19
# While pieces cross, how long nothing else to send is waited for.
_GLANCE_SECONDS = 0.02
# While a batch waits for a slot, how often it is looked whether something of a higher priority has come.
_LOOK_AGAIN_SECONDS = 0.05
# Batches that are looked at in one go for one without a dialog that can't be secured.
_MOST_LOOKS = 20
MAXIMUM_MESSAGES = 1000
MAXIMUM_BYTES = 2**20
# How long one destination may send after routes and broker were looked at.
TURN_SECONDS = 1.0

logger: FilteringBoundLogger = structlog.get_logger()


class _Underway(NamedTuple):
    """A batch on its way: whether more lies behind it, and how many dialogs it has."""

    is_full: bool
    dialogs: int
    messages: int


class _Settled(NamedTuple):
    """Whether anything moved, and by endpoint the number after the last that the far broker has stored."""

    has_moved: bool
    next_numbers: dict[int, int]


class _Found(NamedTuple):
    """A batch that may leave: which broker and incarnation it comes from, how it is secured, its contexts."""

    batch: Taken
    from_broker: UUID
    incarnation: str
    plans: Plans | None
    traceparents: list[wire.Traceparent]


class _Sent(NamedTuple):
    """What is on its way."""

    batch: Taken
    incarnation: str
    ends: dict[int, batches.End]
    sealed: Sealed | None
    answer: asyncio.Task[wire.Ack]
    traceparents: list[wire.Traceparent]


class Sender:
    """Sends to one destination of one database."""

    def __init__(
        self,
        database: Database,
        destination_no: int,
        dialogs: SecureDialogs,
        clock: Clock,
        *,
        pace: Pace | None = None,
        lanes: int = LANES,
        traces: bool = False,
    ) -> None:
        """Prepare.

        Args:
            database: where the messages wait.
            destination_no: the destination's number there.
            dialogs: secures what leaves for another worker.
            clock: says when the next attempt is due.
            pace: how long what was not acknowledged waits before it is sent again.
            lanes: batches in flight at once while there is much to send.
            traces: whether the trace contexts of messages go with them.
        """
        self._database = database
        self._destination_no = destination_no
        self._dialogs = dialogs
        self._clock = clock
        self._lanes = lanes
        self._traces = traces
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._due = 0.0
        # What the database refused to note, beside the batches.
        self._refusals = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._may_note_at = 0.0
        self._way: tuple[Destination, Carrier] | None = None
        self._until = 0.0
        self._has_priorities = False
        self._status: str | None = None
        self._has_status = False
        # By endpoint; a dialog that is not due is left out.
        pace = pace or Pace()
        self._resends = Resends(clock, pace)
        self._linger = Linger(pace.linger, clock)
        # Since the last batch by age.
        self._batches_by_priority = 0
        self._transfers = Transfers()
        self._known = KnownDialogs()
        self._held = HeldDialogs(database.name, clock)
        # By dialog: of which message the far broker has how many bytes.
        self._stored: dict[int, tuple[int, int]] = {}

    @property
    def is_due(self) -> bool:
        """Whether nothing went wrong lately, or the pause after it is over."""
        return self._clock.monotonic() >= self._due

    @property
    def may_note(self) -> bool:
        """Whether the database did not lately refuse what was to be noted of the destination."""
        return self._clock.monotonic() >= self._may_note_at

    @contextmanager
    def noting(self, failure: str, **details: object) -> Iterator[None]:
        """Let the block write to the database; log a failure by this name, and wait before trying again."""
        try:
            yield
        except psycopg.Error as error:
            self._may_note_at = self._clock.monotonic() + self._refusals.failed()
            logger.warning(
                failure,
                database=self._database.name,
                destination=self._destination_no,
                error=line_of(error),
                **details,
            )
        else:
            self._refusals.reset()

    def has_said(self, problem: TransportError | str) -> bool:
        """Whether the problem is the destination's transmission status already."""
        return str(problem) == self._status

    async def send(self, destination: Destination, carrier: Carrier) -> None:
        """Send until nothing waits, or until something is wrong; that becomes the transmission status."""
        self._has_status = self._has_status or destination.has_status
        try:
            await carrier.open()
        except TransportError as fault:
            # The connection paces its own attempts, for all who want to use it.
            await self.wait_because(fault)
            return
        is_through = False
        self._way = destination, carrier
        self._until = self._clock.monotonic() + TURN_SECONDS
        try:
            try:
                is_through = await self._send_all(destination, carrier)
            except asyncio.CancelledError:
                self._transfers.cancel()
                raise
            finally:
                await self._transfers.end()
        except TransportError as fault:
            await self.wait_because(fault)
        except psycopg.Error as error:
            logger.warning(
                "batch_not_taken",
                database=self._database.name,
                destination=self._destination_no,
                error=line_of(error),
            )
        finally:
            # After whatever else went wrong too, or it would go wrong again at once.
            if not is_through:
                self._due = self._clock.monotonic() + self._backoff.failed()

    def keep_on(self, destination: Destination, carrier: Carrier) -> None:
        """Let the turn last longer if it goes this way, which is what routes and broker say now.

        Not where the broker honours priorities: there the oldest message is due with the next turn.
        """
        if self._way == (destination, carrier) and not self._has_priorities:
            self._until = self._clock.monotonic() + TURN_SECONDS

    async def wait_because(self, problem: TransportError | str) -> None:
        """Make the problem the destination's transmission status."""
        text = str(problem)
        if self.has_said(problem):
            return
        with self.noting("status_not_set", status=text):
            async with self._database.statement() as connection:
                await statements.set_destination_status(connection, self._destination_no, text)
            self._status, self._has_status = text, True

    async def _send_all(self, destination: Destination, carrier: Carrier) -> bool:
        """Send batch by batch, or several at once while there is much; return False if something is wrong.

        Most of the time little waits, and looking into one lane costs a quarter of looking into four. A turn
        has an end, unless the router finds that nothing has changed; then another one begins.
        """
        has_sent = False
        send_large = partial(self._send_large, destination, carrier)
        async with Lane(0, 1, 1 if carrier.is_sibling else DEPTH_ALONE) as lane:
            while self._may_go_on():
                self._transfers.start(lane, send_large)
                batch = await self._post_batch(destination, carrier, lane)
                if batch is None and lane.is_empty:
                    if self._transfers.is_busy:
                        await self._clock.sleep(_GLANCE_SECONDS)
                        continue
                    if self._resends.waiting() or self._held.endpoints() or not has_sent:
                        # Only dialogs wait that are not due, or that the far side has ended; what comes for
                        # others waits a moment at most.
                        self._due = self._clock.monotonic() + FIRST_PAUSE
                    return True
                has_sent = True
                is_full = batch is not None and batch.is_full
                goes_on = is_full and batch is not None and batch.dialogs <= _FEW_DIALOGS
                if not await (lane.room() if goes_on else lane.drained()):
                    # If none of them is due, what lies behind them may go.
                    if not self._resends.waiting():
                        return False
                elif is_full and not goes_on:
                    # Here, where all of them are in one lane, the priority of each counts against all others.
                    self._transfers.start(lane, send_large)
                    await self._send_in_lanes(destination, carrier)
                elif batch is not None and not (is_full or self._transfers.is_busy):
                    # What comes meanwhile waits in its table, and goes by its priority as ever.
                    pause = self._linger.pause(batch.messages)
                    if pause:
                        await self._clock.sleep(pause)
        return True

    def _may_go_on(self) -> bool:
        return self._database.greeting.is_broker_enabled and self._clock.monotonic() < self._until

    async def _send_in_lanes(self, destination: Destination, carrier: Carrier) -> None:
        """Send in all lanes until one of them has room left.

        A lane that runs dry ends the others after their next batch: one lane may be enough from then
        on, and what comes for the dry lane's dialogs must not wait for them.
        """
        is_deep = True
        send_large = partial(self._send_large, destination, carrier)

        async def send_lane(number: int) -> None:
            nonlocal is_deep
            try:
                async with Lane(number, self._lanes, 1 if carrier.is_sibling else DEPTH) as lane:
                    while is_deep and self._may_go_on():
                        batch = await self._post_batch(destination, carrier, lane)
                        has_moved = await lane.room()
                        self._transfers.start(lane, send_large)
                        is_deep = is_deep and has_moved and batch is not None and batch.is_full
            finally:
                is_deep = False

        # None may be left in flight when one fails: the next turn would take the same messages again.
        results = await asyncio.gather(*map(send_lane, range(self._lanes)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _post_batch(self, destination: Destination, carrier: Carrier, lane: Lane) -> _Underway | None:
        """Begin to send the next batch of a lane, which follows those in flight; None if there is none."""
        # A lane has only some of the dialogs, and the oldest message may be of another.
        by_age = lane.is_alone and (
            self._batches_by_priority >= _MOST_BY_PRIORITY or self._transfers.wants_oldest
        )
        self._batches_by_priority = 0 if by_age else self._batches_by_priority + 1
        began = self._clock.monotonic()
        found = await self._take(carrier, lane, by_age=by_age)
        messages = 0 if found is None else len(found.batch.kinds)
        self._linger.taken(messages, self._clock.monotonic() - began)
        if found is None:
            return None
        self._has_priorities = found.batch.priority is not None
        slot = await carrier.ask(found.batch.priority)
        try:
            # What honours no priorities has nothing that could go before this.
            while not await slot.given(None if found.batch.priority is None else _LOOK_AGAIN_SECONDS):
                found = await self._take(carrier, lane, by_age=by_age)
                if found is None:
                    slot.end()
                    return None
                slot.priority = found.batch.priority or slot.priority
            ready = found
            sealed = self._dialogs.seal(self._database, ready.batch, ready.plans, ready.from_broker)
        except BaseException:
            slot.end()
            raise
        taken = ready.batch
        ends = batches.ends_of(taken)
        fresh = [endpoint for endpoint in ends if endpoint not in lane.in_flight]

        def batch(number: int) -> wire.Batch:
            return batches.batch_of(
                number,
                destination,
                ready.batch,
                ready.from_broker,
                sealed=sealed,
                after=lane.last_batch,
                traceparents=ready.traceparents if carrier.takes_traceparents else None,
            )

        left_at = time.time_ns()
        posted = await carrier.post(slot, batch)
        # Now, not before: what never got to the connection has its slot as soon as there is one again. What
        # follows on a dialog in flight changes nothing of its schedule.
        self._resends.sent(fresh)
        lane.last_batch = posted.number
        lane.in_flight.add(ends)
        traces.on_its_way(destination.service_name, ready.traceparents, posted.answer, left_at)
        sent = _Sent(taken, ready.incarnation, ends, sealed, posted.answer, ready.traceparents)
        lane.add(self._settle_in_order(sent, lane.newest, lane.in_flight))
        is_full = len(taken.kinds) * 2 >= _most_messages(carrier) or len(taken.bodies) * 2 >= MAXIMUM_BYTES
        return _Underway(is_full, len(ends), len(taken.kinds))

    async def _take(self, carrier: Carrier, lane: Lane, *, by_age: bool) -> _Found | None:
        """Return the next batch of a lane, or None if nothing waits."""
        in_flight = lane.in_flight
        waiting = [endpoint for endpoint in self._resends.waiting() if endpoint not in in_flight]
        for _ in range(_MOST_LOOKS):
            found, has_held = await self._take_secured(carrier, lane, waiting, by_age=by_age)
            # Behind dialogs that can't be secured there may be others.
            if not has_held:
                return found
        return None

    async def _take_secured(
        self, carrier: Carrier, lane: Lane, waiting: list[int], *, by_age: bool
    ) -> tuple[_Found | None, bool]:
        """Return the next batch of a lane; or none, and whether dialogs are held from now on instead."""
        in_flight = lane.in_flight
        turn = lane.number, lane.lanes
        limits = _most_messages(carrier), MAXIMUM_BYTES, PIECE_BYTES
        paused = [*waiting, *self._transfers.crossing(), *in_flight.broken(), *self._held.endpoints()]
        flying = in_flight.columns()
        async with self._database.connection() as connection:
            found = None
            if not (by_age or paused or flying[0]):
                found = await self._known.take(
                    connection, self._destination_no, turn, limits, is_sibling=carrier.is_sibling
                )
            large = dict[int, int]()
            if found is None:
                taken, large = await statements.take_small(
                    connection, self._destination_no, turn, limits, paused, by_age=by_age, in_flight=flying
                )
                found = Found(taken)
            self._transfers.note(large, by_age=by_age)
            taken = found.taken
            if taken is None:
                return None, False
            plans = await self._plan(connection, carrier, taken)
            if plans is not None and plans.held:
                await self._hold(connection, taken, plans)
                return None, True
            return await self._found(connection, taken, plans, found.from_broker), False

    async def _found(
        self,
        connection: Session,
        taken: Taken,
        plans: Plans | None,
        from_broker: UUID | None = None,
    ) -> _Found:
        contexts: list[wire.Traceparent] = []
        if self._traces:
            contexts = await statements.traceparents_to_send(connection, *traces.rows_of(taken))
        from_broker = from_broker or await statements.broker_instance(connection)
        return _Found(taken, from_broker, connection.incarnation, plans, contexts)

    async def _plan(self, connection: AsyncConnection[Any], carrier: Carrier, taken: Taken) -> Plans | None:
        """Decide how a batch leaves; None if in the clear, as all does that stays within the worker."""
        return None if carrier.is_sibling else await self._dialogs.plan(connection, self._database, taken)

    async def _hold(self, connection: AsyncConnection[Any], taken: Taken, plans: Plans) -> None:
        if await self._held.hold(connection, taken, plans.held) and self._has_status:
            # What was wrong with the connection is not what they wait for.
            await statements.set_destination_status(connection, self._destination_no, None)
            self._status, self._has_status = None, False

    async def _settle_in_order(
        self,
        sent: _Sent,
        before_it: asyncio.Task[bool] | None,
        in_flight: InFlight,
    ) -> bool:
        """Wait for the answer to a batch, and for all before it; note what became of it."""
        acknowledged: dict[int, int] = {}
        try:
            try:
                ack = await batches.proven(sent.answer, sent.sealed)
            finally:
                # Also of one that was lost: what follows it waits for this, and so for all before it.
                if before_it is not None:
                    await asyncio.wait((before_it,))
            settled = await self._settle(sent, ack)
            acknowledged = settled.next_numbers
        finally:
            in_flight.settle(sent.ends, acknowledged)
        # Of what follows on these dialogs nothing was answered yet: their schedules begin now.
        self._resends.sent(in_flight.of(acknowledged))
        if settled.has_moved:
            self._backoff.reset()
        return settled.has_moved

    async def _send_large(self, destination: Destination, carrier: Carrier, endpoint: int) -> None:
        """Send the oldest message of a dialog in pieces, from where the far broker has it on."""
        while self._may_go_on():
            if not await self._send_piece(destination, carrier, endpoint):
                return

    async def _send_piece(self, destination: Destination, carrier: Carrier, endpoint: int) -> bool:
        """Send one piece; return whether more of the message is to be sent now."""
        async with self._database.connection() as connection:
            piece = await statements.take_piece(
                connection, self._destination_no, endpoint, self._stored.get(endpoint, (0, 0)), PIECE_BYTES
            )
            if piece is None:
                return False
            plans = await self._plan(connection, carrier, piece.taken)
            if plans is not None and plans.held:
                await self._hold(connection, piece.taken, plans)
                return False
            found = await self._found(connection, piece.taken, plans)
        place = piece.piece_at, piece.total_bytes
        sealed = self._dialogs.seal(self._database, piece.taken, plans, found.from_broker, place)

        def fragment(number: int) -> wire.Fragment:
            batch = msgspec.structs.asdict(
                batches.batch_of(
                    number,
                    destination,
                    found.batch,
                    found.from_broker,
                    sealed=sealed,
                    traceparents=found.traceparents if carrier.takes_traceparents else None,
                )
            )
            return wire.Fragment(**batch, piece_at=piece.piece_at, total_bytes=piece.total_bytes)

        slot = await carrier.ask(piece.taken.priority)
        try:
            await slot.given()
        except BaseException:
            slot.end()
            raise
        left_at = time.time_ns()
        posted = await carrier.post(slot, fragment)
        traces.on_its_way(destination.service_name, found.traceparents, posted.answer, left_at)
        self._resends.sent([endpoint])
        ack = await batches.proven(posted.answer, sealed)
        self._stored.pop(endpoint, None)
        ends = batches.ends_of(piece.taken)
        sent = _Sent(piece.taken, found.incarnation, ends, sealed, posted.answer, found.traceparents)
        if (await self._settle(sent, ack)).has_moved:
            self._backoff.reset()
            return False
        stored = min(ack.stored_bytes, piece.total_bytes)
        (number,) = arrays.to_integers(piece.taken.sequence_numbers, arrays.BIGINT)
        self._stored[endpoint] = number, stored
        if stored <= piece.piece_at:
            return False
        self._resends.acknowledged([endpoint])
        self._backoff.reset()
        return True

    async def _settle(self, sent: _Sent, ack: wire.Ack) -> _Settled:
        """Note what became of a batch, in one transaction."""
        taken, ends, traceparents = sent.batch, sent.ends, sent.traceparents
        try:
            acknowledged, failed, waiting = batches.outcome(taken, ends, ack)
            ahead = batches.ahead(taken, ends, ack)
            is_plain = batches.is_plain(taken, acknowledged, ack)
        except arrays.ArrayError as error:
            raise batches.corrupted(error) from error
        async with self._database.connection() as connection:
            if connection.incarnation != sent.incarnation:
                # It may have given these numbers to messages that nobody has seen. If so, the far broker
                # finds out from what is sent anew: it knows when each was sent.
                self._resends.acknowledged(ends)
                return _Settled(has_moved=False, next_numbers={})
            moved, torn = 0, list[int]()
            if ahead:
                # First: an end that is acknowledged has nothing more to say.
                torn = await statements.fail_torn_dialogs(connection, *map(list, zip(*ahead, strict=True)))
            if acknowledged:
                moved = await acknowledge(connection, taken, acknowledged, ack, is_plain=is_plain)
                if traceparents:
                    rows = {endpoint: row for endpoint, _, row in acknowledged}
                    await statements.forget_traceparents(
                        connection, *traces.acknowledged(taken, traceparents, rows)
                    )
            if failed:
                endpoint_nos, codes, texts = map(list, zip(*failed, strict=True))
                await statements.fail_dialogs(connection, endpoint_nos, codes, texts)
            if waiting:
                endpoint_nos, _, texts = map(list, zip(*waiting, strict=True))
                await statements.set_dialog_statuses(connection, endpoint_nos, texts)
            if self._has_status:
                await statements.set_destination_status(connection, self._destination_no, None)
        gone_on = {endpoint for endpoint, _, _ in acknowledged} if moved else set()
        gone_on.update(endpoint for endpoint, _, _ in failed)
        gone_on.update(torn)
        self._resends.acknowledged(gone_on)
        self._resends.keyless(batches.keyless(waiting))
        self._status, self._has_status = None, False
        if failed or waiting or torn:
            logger.warning(
                "dialogs_refused",
                database=self._database.name,
                destination=self._destination_no,
                failed=len(failed),
                waiting=len(waiting),
                torn=len(torn),
                conversation_ids=taken.conversations({*(each[0] for each in (*failed, *waiting)), *torn}),
            )
        return _Settled(
            bool(moved or failed or torn), {endpoint: number for endpoint, number, _ in acknowledged if moved}
        )


async def acknowledge(
    connection: AsyncConnection[Any],
    taken: Taken,
    acknowledged: list[tuple[int, int, int]],
    ack: wire.Ack,
    *,
    is_plain: bool,
) -> int:
    """Forget what of a batch the far broker has stored; return the number of rows removed."""
    endpoint_nos, next_numbers, row_ids = map(list, zip(*acknowledged, strict=True))
    moved = None
    if is_plain:
        moved = await statements.acknowledge_plain(connection, taken, next_numbers, row_ids)
    if moved is None:
        broker = UUID(bytes=ack.broker_instance)
        moved = await statements.acknowledge(connection, broker, endpoint_nos, next_numbers, row_ids)
    return moved


def _most_messages(carrier: Carrier) -> int:
    """Return how many messages a batch may have: with no more of them it has no more dialogs either."""
    return min(MAXIMUM_MESSAGES, carrier.maximum_dialogs)
