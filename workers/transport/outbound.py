"""The connection to one address: opened when there is something to send, closed when there is not for long.

Any number of senders share it. Batches in flight are told apart by their numbers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from pybroker.workers.transport import faults, wire
from pybroker.workers.transport.faults import OwnSideError, TransportError
from pybroker.workers.transport.turns import DEFAULT_LEVEL, Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.link import Link
    from pybroker.workers.transport.pace import Pace
    from pybroker.workers.transport.turns import Turn

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0
_UNANSWERED_PINGS = 3
# What is wrong at this side is looked at again this soon: nobody is called in vain by that.
_OWN_FAULT_SECONDS = 1.0
# The far side answers, but not this batch: it is taken and sent again.
_ACK_SECONDS = 120.0
# Longer than anybody keeps one that he does not use.
_FORGET_SECONDS = 600.0
# By these a far side says that its database is away, or a standby: then the mirror may be the principal.
_NO_PRINCIPAL = (faults.UNREACHABLE, faults.REPLICA)

logger: FilteringBoundLogger = structlog.get_logger()


class Outbound:
    """Opens, uses and closes the connection to a far endpoint at one address, or at its mirror."""

    is_sibling = False

    def __init__(
        self,
        addresses: tuple[str, ...],
        connect: Callable[[str], Awaitable[Link]],
        clock: Clock,
        pace: Pace,
    ) -> None:
        """Prepare, without connecting.

        Args:
            addresses: `tcp://host:port`, the mirror's last; the one that answered last is tried first.
            connect: opens a link to one of them, or raises TransportError.
            clock: says when the next attempt is due, and when a connection was idle for long.
            pace: how long the pauses are.
        """
        self._addresses = list(addresses)
        self._connect = connect
        self._clock = clock
        self._pace = pace
        self._due = 0.0
        self._opening = asyncio.Lock()
        self._fault: TransportError | None = None
        self._link: Link | None = None
        self._turns = Turns(1)
        self._turns.close(None)
        self._listening: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()
        self._last_number = 0
        self._last_batch = 0.0
        self._last_asked = clock.monotonic()
        self._is_idle = False
        self._is_doubtful = False
        self._probe_due = 0.0
        self._in_flight: dict[int, asyncio.Future[wire.Ack]] = {}

    @property
    def is_due(self) -> bool:
        """Whether the connection is open, or an attempt to open it is due."""
        return self._link is not None or self._clock.monotonic() >= self._due

    @property
    def fault(self) -> TransportError | None:
        """Why the last attempt to connect failed, or how the last connection ended."""
        return self._fault

    @property
    def waiting(self) -> int:
        """How many batches wait for their turn."""
        return self._turns.waiting

    async def open(self) -> Link:
        """Return the open connection.

        Raises:
            TransportError: It can't be opened, or failed so recently that the next attempt is not due.
        """
        self._last_asked = self._clock.monotonic()
        async with self._opening:
            if self._link is not None and self._link.is_outdated:
                await self._retire()
            if self._link is not None and self._is_doubtful and self._clock.monotonic() >= self._probe_due:
                await self._look_for_principal()
            if self._link is not None:
                return self._link
            if self._fault is not None and not self.is_due:
                raise self._fault.again()
            return await self._open()

    async def exchange(self, batch: Callable[[int], wire.Batch], level: int | None = None) -> wire.Ack:
        """Send a batch, made for the number that it gets, and wait for what became of it.

        Raises:
            TransportError: It was refused, or the connection was lost, so that nobody knows; send it again.
        """
        turn = await self.ask(level)
        try:
            await turn.given()
        except BaseException:
            turn.end()
            raise
        return await (await self.post(turn, batch))

    async def ask(self, level: int | None) -> Turn:
        """Ask for a turn to send a batch of this level; whoever gets it posts a batch, or ends it.

        Raises:
            TransportError: There is no connection.
        """
        while True:
            await self.open()
            # Nobody may have come in between but the end of the connection.
            if not self._turns.is_closed:
                return self._turns.ask(DEFAULT_LEVEL if level is None else level)

    async def post(self, turn: Turn, batch: Callable[[int], wire.Batch]) -> asyncio.Task[wire.Ack]:
        """Begin to send a batch that has its turn; return what waits for the answer.

        Turns are given one after the other, and so the batches arrive. The task raises what `exchange` does.

        Raises:
            TransportError: It was not sent.
        """
        while turn.turns.is_closed:
            if turn.turns.fault is not None:
                raise turn.turns.fault.again()
            turn = await self.ask(turn.level)
            try:
                await turn.given()
            except BaseException:
                turn.end()
                raise
        link = self._link
        if link is None:
            turn.end()
            raise TransportError(faults.SEND_FAILED, "The connection was lost.")
        self._last_number += 1
        self._last_batch = self._clock.monotonic()
        number = self._last_number
        try:
            frame = batch(number)
        except BaseException:
            turn.end()
            raise
        answer: asyncio.Future[wire.Ack] = asyncio.get_running_loop().create_future()
        self._in_flight[number] = answer
        carrying = asyncio.create_task(_carry(link, frame, turn, answer), name=f"batch {number}")
        # Not at its end: one that is cancelled before it has begun never gets there.
        carrying.add_done_callback(lambda _: self._over(number, turn))
        return carrying

    def _over(self, number: int, turn: Turn) -> None:
        answer = self._in_flight.pop(number)
        self._answered.set()
        # An exception that nobody waits for any more would be reported as forgotten.
        if not answer.cancel() and not answer.cancelled():
            answer.exception()
        turn.end()

    async def _retire(self) -> None:
        """Close the connection once nothing is on its way; the next one shows another certificate."""
        while self._in_flight:
            self._answered.clear()
            await self._answered.wait()
        await self.close()

    @property
    def is_forgettable(self) -> bool:
        """Whether there is no connection, nothing to remember of one, and nobody who needs it."""
        unused = self._clock.monotonic() - self._last_asked
        return self._link is None and self.is_due and unused >= _FORGET_SECONDS

    async def close_if_idle(self) -> None:
        """Close the connection if it has carried no batch for long; the next one opens it again at once."""
        idle = self._clock.monotonic() - self._last_batch
        if self._link is None or self._in_flight or idle < self._pace.close_idle_after:
            return
        self._is_idle = True
        await self.close()

    async def close(self) -> None:
        """Close the connection; batches in flight fail and are sent again."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait((self._listening,))

    async def _open(self) -> Link:
        fault: TransportError | None = None
        for address in tuple(self._addresses):
            try:
                link = await self._connect(address)
            except TransportError as error:
                fault = fault or error
                continue
            self._use(link, address)
            return link
        self._fault = fault or TransportError(faults.CONNECT_FAILED, "There is no address.")
        pause = self._pace.retry_connect_after
        if isinstance(self._fault, OwnSideError):
            pause = min(pause, _OWN_FAULT_SECONDS)
        self._due = self._clock.monotonic() + pause
        logger.warning(
            "connection_failed",
            address=self._addresses[0],
            number=self._fault.number,
            reason=self._fault.text,
            next_attempt_in=pause,
        )
        raise self._fault.again()

    def _use(self, link: Link, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.insert(0, address)
        self._link = link
        self._fault = None
        self._is_idle = self._is_doubtful = False
        self._last_batch = self._clock.monotonic()
        self._turns = Turns(link.far.window)
        self._listening = asyncio.create_task(self._listen(link), name=f"outbound {address}")
        logger.info("connection_opened", address=address, user=link.peer.user_name)

    async def _look_for_principal(self) -> None:
        """Go over to the other address if a worker answers there: one beside a standby would not listen."""
        self._probe_due = self._clock.monotonic() + self._pace.retry_connect_after
        address = self._addresses[-1]
        try:
            link = await self._connect(address)
        except TransportError:
            return
        logger.info("mirror_taken", address=address, instead_of=self._addresses[0])
        await self.close()
        self._use(link, address)

    async def _listen(self, link: Link) -> None:
        fault = TransportError(faults.RECEIVE_FAILED, f"The connection was closed by {link.address}.")
        try:
            await self._answer(link)
        except TransportError as error:
            fault = error
        finally:
            # After a connection that this side was done with there is nothing to wait for.
            if link.was_closed_here:
                self._due = self._clock.monotonic() + min(_OWN_FAULT_SECONDS, self._pace.reconnect_after)
            elif self._is_idle:
                fault = TransportError(faults.CLOSED_IDLE, f"The connection with {link.address} was idle.")
            elif not link.is_outdated:
                self._due = self._clock.monotonic() + self._pace.reconnect_after
            self._link = None
            self._fault = fault
            self._turns.close(None if self._is_idle or link.is_outdated else fault)
            for answer in self._in_flight.values():
                if not answer.done():
                    answer.set_exception(fault.again())
            logger.info("connection_closed", address=link.address, number=fault.number, reason=fault.text)
            await link.close()

    async def _answer(self, link: Link) -> None:
        """Hand each answer to who waits for it, until the far side says farewell."""
        silent = 0
        while True:
            before = link.sent + link.received
            try:
                async with asyncio.timeout(self._pace.ping_after):
                    frame = await link.receive()
            except TimeoutError:
                silent = silent + 1 if link.sent + link.received == before else 0
                if silent > _UNANSWERED_PINGS:
                    raise TransportError(
                        faults.RECEIVE_FAILED,
                        f"{link.address} did not answer for {silent * self._pace.ping_after:g} s.",
                    ) from None
                await self._ping(link)
                continue
            silent = 0
            match frame:
                case None:
                    return
                case wire.Ack():
                    self._is_doubtful = False
                    self._settle(frame.number, frame)
                case wire.Refusal(number=int() as number):
                    if frame.error_number in _NO_PRINCIPAL and len(self._addresses) > 1:
                        self._is_doubtful = True
                    self._settle(number, TransportError(frame.error_number, frame.text))
                case wire.Refusal():
                    raise TransportError(frame.error_number, f"Closed by {link.address}: {frame.text}")
                case wire.Ping(is_answer=True):
                    pass
                case _:
                    raise TransportError(faults.CORRUPTED, f"{link.address} sent a frame that is not for us.")

    def _settle(self, number: int, result: wire.Ack | TransportError) -> None:
        answer = self._in_flight.get(number)
        # Nobody waits any more for an answer that came too late.
        if answer is None or answer.done():
            return
        if isinstance(result, TransportError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    async def _ping(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self._pace.ping_after):
                await link.send(wire.Ping(is_answer=False))
        except TimeoutError:
            # The far side reads nothing; the count of unanswered pings decides.
            return


async def _carry(link: Link, batch: wire.Batch, turn: Turn, answer: asyncio.Future[wire.Ack]) -> wire.Ack:
    # Sending takes what the line takes; one that moves nothing is ended by its unanswered pings.
    await link.send(batch)
    turn.written()
    try:
        async with asyncio.timeout(_ACK_SECONDS):
            return await answer
    except TimeoutError:
        raise TransportError(
            faults.RECEIVE_FAILED, f"{link.address} did not acknowledge a batch in {_ACK_SECONDS:g} s."
        ) from None
