"""The way to one address: a connection is opened when there is something to send, and shared by all who do.

Who answers at the address may be connected with this worker already, as he has called, or by another of his
addresses: then that connection is used. He is known by his certificate, and by nothing that he says.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from pybroker.workers.transport.connection.send_slots import DEFAULT_PRIORITY
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import OwnSideError, TransportError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.connection.send_slots import SendSlot
    from pybroker.workers.transport.connection.session import FarWorker, Posted, Session
    from pybroker.workers.transport.retry_schedule import Pace

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0
# What is wrong at this side is looked at again this soon: nobody is called in vain by that.
_OWN_FAULT_SECONDS = 1.0
# Longer than anybody keeps one that he does not use.
_FORGET_SECONDS = 600.0
# How often the log says again that there is no connection for the same reason.
_TELL_SECONDS = 300.0
# For so long who answered at an address is taken to be there still, if he is connected with this worker.
_KNOWN_SECONDS = 600.0
# By these a far side says that its database is away, or a standby: then the mirror may be the principal.
_NO_PRINCIPAL = (faults.UNREACHABLE, faults.REPLICA)

logger: FilteringBoundLogger = structlog.get_logger()


class Peer:
    """Finds, opens and uses the connection to a far endpoint at one address, or at its mirror."""

    is_sibling = False

    def __init__(
        self,
        addresses: tuple[str, ...],
        connect: Callable[[str], Awaitable[Session]],
        clock: Clock,
        pace: Pace,
        connected: Callable[[FarWorker], Session | None] = lambda _: None,
    ) -> None:
        """Prepare, without connecting.

        Args:
            addresses: `tcp://host:port`, the mirror's last; the one that answered last is tried first.
            connect: opens a connection to one of them, or raises TransportError.
            clock: says when the next attempt is due.
            pace: how long the pauses are.
            connected: returns the connection that there is with a worker, whoever has opened it.
        """
        self._addresses = list(addresses)
        self._connect = connect
        self._clock = clock
        self._pace = pace
        self._connected = connected
        self._due = 0.0
        self._opening = asyncio.Lock()
        self._fault: TransportError | None = None
        self._session: Session | None = None
        self._met: FarWorker | None = None
        self._met_until = 0.0
        self._last_asked = clock.monotonic()
        self._is_doubtful = False
        self._probe_due = 0.0
        self._told: str | None = None
        self._tell_again = 0.0
        self._failures = 0

    @property
    def is_due(self) -> bool:
        """Whether there is a connection, or an attempt to open one is due."""
        self._note_end()
        return self._session is not None or self._clock.monotonic() >= self._due or self._shared() is not None

    @property
    def fault(self) -> TransportError | None:
        """Why the last attempt to connect failed, or how the last connection ended."""
        self._note_end()
        return self._fault

    @property
    def maximum_dialogs(self) -> int:
        """How many dialogs a batch may have: what the Hello of the far side says."""
        return wire.MAXIMUM_DIALOGS if self._session is None else self._session.link.far.maximum_dialogs

    @property
    def takes_traceparents(self) -> bool:
        """Whether the Hello of the far side says that batches may bring trace contexts."""
        return self._session is not None and self._session.link.far.takes_traceparents

    @property
    def waiting(self) -> int:
        """How many batches wait for a slot."""
        return 0 if self._session is None else self._session.send_slots.waiting

    @property
    def is_forgettable(self) -> bool:
        """Whether there is no connection, nothing to remember of one, and nobody who needs it."""
        unused = self._clock.monotonic() - self._last_asked
        return self.is_due and self._session is None and unused >= _FORGET_SECONDS

    async def open(self) -> Session:
        """Return the connection.

        Raises:
            TransportError: It can't be opened, or failed so recently that the next attempt is not due.
        """
        self._last_asked = self._clock.monotonic()
        async with self._opening:
            self._note_end()
            if self._session is not None and not self._session.is_usable:
                await self._part()
            if self._session is not None and self._is_doubtful and self._clock.monotonic() >= self._probe_due:
                await self._look_for_principal()
            if self._session is None:
                self._session = self._shared()
            if self._session is not None:
                return self._session
            if self._fault is not None and not self.is_due:
                raise self._fault.again()
            return await self._open()

    async def exchange(self, batch: Callable[[int], wire.Batch], priority: int | None = None) -> wire.Ack:
        """Send a batch, made for the number that it gets, and wait for what became of it.

        Raises:
            TransportError: It was refused, or the connection was lost, so that nobody knows; send it again.
        """
        slot = await self.ask(priority)
        try:
            await slot.given()
        except BaseException:
            slot.end()
            raise
        return await (await self.post(slot, batch)).answer

    async def ask(self, priority: int | None) -> SendSlot:
        """Ask for a slot to send a batch of this priority; whoever gets it posts a batch, or ends it.

        Raises:
            TransportError: There is no connection.
        """
        while True:
            session = await self.open()
            # Nobody may have come in between but the end of the connection.
            if session.is_usable:
                return session.send_slots.ask(DEFAULT_PRIORITY if priority is None else priority)

    async def post(self, slot: SendSlot, batch: Callable[[int], wire.Batch]) -> Posted:
        """Begin to send a batch that has its slot; return its number, and what waits for the answer.

        Turns are given one after the other, and so the batches arrive. The task raises what `exchange` does.

        Raises:
            TransportError: It was not sent.
        """
        session = self._session
        while session is None or slot.send_slots is not session.send_slots or slot.send_slots.is_closed:
            if slot.send_slots.fault is not None:
                raise slot.send_slots.fault.again()
            slot.end()
            slot = await self.ask(slot.priority)
            try:
                await slot.given()
            except BaseException:
                slot.end()
                raise
            session = self._session
        posted = session.post(slot, batch)
        posted.answer.add_done_callback(self._judge)
        return posted

    def _judge(self, carrying: asyncio.Task[wire.Ack]) -> None:
        """Doubt that who answers has the principal, when he says so."""
        if carrying.cancelled() or len(self._addresses) == 1:
            return
        error = carrying.exception()
        if error is None:
            self._is_doubtful = False
        elif isinstance(error, TransportError) and error.number in _NO_PRINCIPAL:
            self._is_doubtful = True

    def _shared(self) -> Session | None:
        """Return the connection with who answered at the address lately, if there is one."""
        if self._met is None or self._clock.monotonic() >= self._met_until:
            return None
        return self._connected(self._met)

    def _note_end(self) -> None:
        session = self._session
        if session is None or session.fault is None:
            return
        self._session = None
        self._fault = session.fault
        # After a connection that both sides were done with there is nothing to wait for.
        if session.leaving is None and not session.link.is_outdated:
            pause = self._pace.reconnect_after
            if session.was_closed_here:
                pause = min(_OWN_FAULT_SECONDS, pause)
            self._due = session.ended_at + pause

    async def _part(self) -> None:
        """Go on without a connection that is left, after what is on it: nothing may overtake that."""
        session = self._session
        if session is None:
            return
        if session.link.is_outdated and not session.is_accept:
            session.leave(TransportError(faults.RECEIVE_FAILED, "The endpoint has another certificate now."))
        await session.drained()
        self._note_end()
        self._session = None
        if session.was_left_by_far:
            # A peer that takes leave as soon as it was called must not be called without a pause.
            self._fault = session.leaving
            self._due = max(self._due, session.began_at + _OWN_FAULT_SECONDS)

    async def _open(self) -> Session:
        fault: TransportError | None = None
        for address in tuple(self._addresses):
            try:
                session = await self._connect(address)
            except TransportError as error:
                fault = fault or error
                continue
            self._use(session, address)
            return session
        self._fault = fault or TransportError(faults.CONNECT_FAILED, "There is no address.")
        pause = self._pace.retry_connect_after
        if isinstance(self._fault, OwnSideError):
            pause = min(pause, _OWN_FAULT_SECONDS)
        self._due = self._clock.monotonic() + pause
        self._tell_failure(self._fault, pause)
        raise self._fault.again()

    def _tell_failure(self, fault: TransportError, pause: float) -> None:
        """Log why there is no connection: each reason at once, and the same one seldom."""
        now, reason = self._clock.monotonic(), str(fault)
        self._failures += 1
        if reason == self._told and now < self._tell_again:
            return
        logger.warning(
            "connection_failed",
            address=self._addresses[0],
            number=fault.number,
            reason=fault.text,
            attempts=self._failures,
            next_attempt_in=pause,
        )
        self._told, self._tell_again, self._failures = reason, now + _TELL_SECONDS, 0

    def _use(self, session: Session, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.insert(0, address)
        self._session = session
        self._fault = self._told = None
        self._failures = 0
        self._is_doubtful = False
        self._met = session.worker
        self._met_until = self._clock.monotonic() + _KNOWN_SECONDS

    async def _look_for_principal(self) -> None:
        """Go over to the other address if a worker answers there: one beside a standby would not listen."""
        self._probe_due = self._clock.monotonic() + self._pace.retry_connect_after
        address, before = self._addresses[-1], self._session
        try:
            session = await self._connect(address)
        except TransportError:
            return
        logger.info("mirror_taken", address=address, instead_of=self._addresses[0])
        self._use(session, address)
        if before is not None and before is not session and not before.is_accept:
            before.end(TransportError(faults.UNREACHABLE, "The mirror has the principal now."))
