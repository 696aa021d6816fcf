"""A connection on which both sides send batches and answer the other's, from its login to its end.

An older worker takes batches only where it was called, so with one the calls go both ways. Numbers are
unique in the whole worker: what is sent on this connection never seems to follow what went on another.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import structlog

from pybroker.workers.transport.connection.send_slots import SendSlots
from pybroker.workers.transport.protocol import faults, wire
from pybroker.workers.transport.protocol.faults import LimitError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from structlog.typing import FilteringBoundLogger

    from pybroker.workers.clock import Clock
    from pybroker.workers.transport.connection.link import Link
    from pybroker.workers.transport.connection.send_slots import SendSlot
    from pybroker.workers.transport.retry_schedule import Pace

    # Handles a batch after the one before it, answers on the link, and says whether it was taken.
    Answer = Callable[[Link, wire.Batch, asyncio.Task[bool] | None], Coroutine[None, None, bool]]

# Batches that a far side may have unanswered on one connection: it bounds what a peer can make us hold.
WINDOW = 16
_UNANSWERED_PINGS = 3
# An older peer that called asks after 15 s of silence, so one that is silent for this long is gone.
_SILENCE_SECONDS = 60.0
# The far side answers, but not this batch: it is taken and sent again.
_ACK_SECONDS = 120.0

_numbers = count(1)

logger: FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FarWorker:
    """A process at the other end: what it calls itself counts only with the certificate that it has proven.

    Attributes:
        certificate: the SHA-256 of the certificate as DER.
        arbitration_id: chosen anew by each process.
    """

    certificate: bytes
    arbitration_id: bytes


def far_worker(certificate: bytes, far: wire.Hello, own_id: bytes) -> FarWorker | None:
    """Return who is at the other end, by his certificate and Hello; None: batches go one way only.

    That is so with an older worker, and where a worker has called itself.
    """
    if far.arbitration_id is None or far.arbitration_id == own_id:
        return None
    return FarWorker(hashlib.sha256(certificate).digest(), far.arbitration_id)


class Posted(NamedTuple):
    """A batch on its way: its number, and what waits for the answer."""

    number: int
    answer: asyncio.Task[wire.Ack]


class Session:
    """One connection, shared by all who send to the worker at its other end.

    Attributes:
        link: what carries the frames.
        is_accept: whether the far side opened it.
        worker: who is at the other end; None: only who opened it sends batches.
        send_slots: who may send the next batch; closed once this side sends no more.
        fault: how it has ended, or None.
        breach: how the far side has broken the protocol, or which limit it has reached; or None.
        leaving: why it is about to end, or has ended, by an agreement; the next one needs no pause.
        was_left_by_far: the far side wanted that.
        was_closed_here: it ended for a reason of this side's own.
        began_at: when both sides had shown who they are, by the worker's clock.
        ended_at: when, by the worker's clock.
    """

    def __init__(
        self, link: Link, answer: Answer, clock: Clock, pace: Pace, *, is_accept: bool, own_id: bytes = b""
    ) -> None:
        """Prepare; `run` reads.

        Args:
            link: a connection that has logged in.
            answer: handles a batch of the far side.
            clock: says when it was idle for long.
            pace: how long that is, and how long a silence.
            is_accept: whether the far side opened it.
            own_id: what this worker calls itself.
        """
        self.link = link
        self.is_accept = is_accept
        self.worker = far_worker(link.certificate, link.far, own_id)
        self.send_slots = SendSlots(link.far.window)
        self.fault: TransportError | None = None
        self.breach: TransportError | None = None
        self.leaving: TransportError | None = None
        self.was_left_by_far = False
        self.was_closed_here = False
        self.ended_at = 0.0
        self._take = answer
        self._clock = clock
        self._pace = pace
        self.began_at = self._last_batch = clock.monotonic()
        self._in_flight: dict[int, asyncio.Future[wire.Ack]] = {}
        self._answered = asyncio.Event()
        self._answering: set[asyncio.Task[bool]] = set()
        self._by_number: dict[int, asyncio.Task[bool]] = {}
        self._saying: asyncio.Task[None] | None = None
        self._passed = 0
        self._departing: asyncio.Task[None] | None = None
        self._has_said_farewell = False
        self._far_has_left = False
        self._is_to_end = asyncio.Event()
        self._closing_because: TransportError | None = None
        if is_accept and self.worker is None:
            self.send_slots.close(None)

    @property
    def is_usable(self) -> bool:
        """Whether batches may be sent on it, now and by who comes."""
        return not self.send_slots.is_closed and not self.link.is_outdated

    async def run(self) -> None:
        """Read until the connection ends, by whatever; that becomes `fault`."""
        fault = TransportError(faults.RECEIVE_FAILED, f"The connection was closed by {self.link.address}.")
        reading = asyncio.create_task(self._read(), name=f"session {self.link.address}")
        told = asyncio.create_task(self._is_to_end.wait())
        try:
            await asyncio.wait((reading, told), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
        except TransportError as error:
            fault = error
            if error.number == faults.CORRUPTED:
                self.breach = error
            elif isinstance(error, LimitError):
                self.breach = self._closing_because = error
        finally:
            self._end(fault)
            tasks = {reading, told, *self._answering}
            tasks.update(task for task in (self._saying, self._departing) if task is not None)
            for task in tasks:
                # A delivery that is cut off rolls back, or is dropped by its numbers when it is sent again.
                task.cancel()
            await asyncio.wait(tasks)
            # What it found while this was cut off is no news, and would be reported as forgotten.
            if not reading.cancelled():
                reading.exception()
            await self.link.close(self._closing_because)

    def post(self, slot: SendSlot, batch: Callable[[int], wire.Batch]) -> Posted:
        """Begin to send a batch that has its slot, made for the number that it gets.

        The task raises TransportError if the batch was refused, or nobody knows.
        """
        self._last_batch = self._clock.monotonic()
        number = next(_numbers)
        try:
            frame = batch(number)
        except BaseException:
            slot.end()
            raise
        answer: asyncio.Future[wire.Ack] = asyncio.get_running_loop().create_future()
        self._in_flight[number] = answer
        carrying = asyncio.create_task(_carry(self.link, frame, slot, answer), name=f"batch {number}")
        # Not at its end: one that is cancelled before it has begun never gets there.
        carrying.add_done_callback(lambda _: self._over(number, slot))
        return Posted(number, carrying)

    def leave(self, because: TransportError) -> None:
        """Send nothing more on it; it ends when both sides have the answers to what they have sent."""
        if self.leaving is not None or self.fault is not None:
            return
        self.leaving = because
        self.send_slots.close(None)
        self._departing = asyncio.create_task(self._depart(because))

    def leave_if_idle(self) -> None:
        """Leave it if this side has opened it, and for long it has carried no batch in either direction."""
        idle = self._clock.monotonic() - self._last_batch
        if self.is_accept or self._in_flight or self._answering or idle < self._pace.close_idle_after:
            return
        self.leave(TransportError(faults.CLOSED_IDLE, f"The connection with {self.link.address} was idle."))

    def end(self, because: TransportError) -> None:
        """End it now, and tell the far side why; what is on its way has to be sent again."""
        self.leaving = self.leaving or because
        self._closing_because = because
        self.send_slots.close(None)
        self._is_to_end.set()

    async def drained(self) -> None:
        """Wait until nothing is on its way from here."""
        while self._in_flight:
            self._answered.clear()
            await self._answered.wait()

    def _end(self, fault: TransportError) -> None:
        self.was_closed_here = self.link.was_closed_here
        self.ended_at = self._clock.monotonic()
        self.fault = self.leaving or fault
        self.send_slots.close(None if self.leaving else fault)
        for answer in self._in_flight.values():
            if not answer.done():
                answer.set_exception(self.fault.again())
        logger.info(
            "connection_closed", address=self.link.address, number=self.fault.number, reason=self.fault.text
        )

    def _over(self, number: int, slot: SendSlot) -> None:
        answer = self._in_flight.pop(number)
        self._answered.set()
        # An exception that nobody waits for any more would be reported as forgotten.
        if not answer.cancel() and not answer.cancelled():
            answer.exception()
        slot.end()

    async def _depart(self, because: TransportError) -> None:
        await self.drained()
        if self.worker is not None:
            farewell = wire.Farewell(because.number, because.text[: wire.TEXT_CHARACTERS])
            try:
                await self.link.send(farewell)
            except TransportError as fault:
                # Who reads notices by himself.
                logger.info("farewell_not_sent", address=self.link.address, reason=fault.text)
                return
        self._has_said_farewell = True
        self._end_if_left()

    def _end_if_left(self) -> None:
        """End it if this side has opened it and no batch of either side is unanswered."""
        is_alone = self.worker is None or self._far_has_left
        if self._has_said_farewell and is_alone and not self.is_accept:
            self._is_to_end.set()

    async def _read(self) -> None:
        """Hand on each frame that arrives, until the far side closes the connection.

        Raises:
            TransportError: It was lost, or the peer broke the protocol.
        """
        link = self.link
        asks = not self.is_accept or self.worker is not None
        silent = 0
        while True:
            received, self._passed = link.received, link.sent + link.received
            try:
                async with asyncio.timeout(self._pace.ping_after if asks else _SILENCE_SECONDS):
                    frame = await link.receive()
            except TimeoutError:
                # A large frame on a slow line takes its time.
                if not asks:
                    if link.received == received:
                        raise TransportError(
                            faults.RECEIVE_FAILED, f"{link.address} was silent for {_SILENCE_SECONDS:g} s."
                        ) from None
                    continue
                silent = silent + 1 if link.sent + link.received == self._passed else 0
                if silent > _UNANSWERED_PINGS:
                    raise TransportError(
                        faults.RECEIVE_FAILED,
                        f"{link.address} did not answer for {silent * self._pace.ping_after:g} s.",
                    ) from None
                self._say(wire.Ping(is_answer=False))
                continue
            silent = 0
            if frame is None:
                return
            self._handle(frame)

    def _handle(self, frame: wire.Frame) -> None:
        sends = not self.is_accept or self.worker is not None
        takes = self.is_accept or self.worker is not None
        match frame:
            case wire.Batch() if takes and not self._far_has_left:
                self._begin_to_answer(frame)
            case wire.Ack() if sends:
                self._settle(frame.number, frame)
            case wire.Refusal(number=int() as number) if sends:
                self._settle(number, TransportError(frame.error_number, frame.text))
            case wire.Refusal():
                raise TransportError(frame.error_number, f"Closed by {self.link.address}: {frame.text}")
            case wire.Farewell() if self.worker is not None and not self._far_has_left:
                self._far_has_left = True
                self.was_left_by_far = self.leaving is None
                self.leave(TransportError(frame.error_number, frame.text))
                self._end_if_left()
            case wire.Ping(is_answer=False) if takes:
                self._say(wire.Ping(is_answer=True))
            case wire.Ping(is_answer=True) if sends:
                pass
            case _:
                raise TransportError(
                    faults.CORRUPTED, f"{self.link.address} sent a frame that is not for us."
                )

    def _begin_to_answer(self, batch: wire.Batch) -> None:
        if self.link.traffic.to_answer > WINDOW:
            raise TransportError(
                faults.CORRUPTED, f"{self.link.address} sent more than {WINDOW} batches at once."
            )
        self._last_batch = self._clock.monotonic()
        before_it = None if batch.after is None else self._by_number.get(batch.after)
        task = asyncio.create_task(self._take(self.link, batch, before_it))
        self._answering.add(task)
        self._by_number[batch.number] = task
        task.add_done_callback(lambda done: self._forget(batch.number, done))

    def _forget(self, number: int, task: asyncio.Task[bool]) -> None:
        self._answering.discard(task)
        # A peer that gives a number twice has replaced it.
        if self._by_number.get(number) is task:
            del self._by_number[number]

    def _settle(self, number: int, result: wire.Ack | TransportError) -> None:
        answer = self._in_flight.get(number)
        # Nobody waits any more for an answer that came too late.
        if answer is None or answer.done():
            return
        if isinstance(result, TransportError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def _say(self, ping: wire.Ping) -> None:
        """Send it beside the reading: two sides that wait for each other to read would wait for ever."""
        if self._saying is None or self._saying.done():
            self._saying = asyncio.create_task(self._send_ping(ping))

    async def _send_ping(self, ping: wire.Ping) -> None:
        try:
            await self.link.send(ping)
            # That it is on its way is no sign of life.
            self._passed = self.link.sent + self.link.received
        except TransportError as fault:
            logger.info("ping_not_sent", address=self.link.address, number=fault.number, reason=fault.text)


async def _carry(link: Link, batch: wire.Batch, slot: SendSlot, answer: asyncio.Future[wire.Ack]) -> wire.Ack:
    # Sending takes what the line takes; one that moves nothing is ended by its unanswered pings.
    await link.send(batch)
    slot.written()
    try:
        async with asyncio.timeout(_ACK_SECONDS):
            return await answer
    except TimeoutError:
        raise TransportError(
            faults.RECEIVE_FAILED, f"{link.address} did not acknowledge a batch in {_ACK_SECONDS:g} s."
        ) from None
